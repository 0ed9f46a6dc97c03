//! Steps that wait for workers, and steps that workers have.

use std::sync::Arc;

use milepost_core::event::StepRef;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

/// A step that waits for a worker or that one has. The row goes when the step has ended: history is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    pub task: TaskId,
    pub org: OrgId,
    pub run: RunId,
    pub step: StepRef,
    /// `shots[3]`.
    pub step_id: Arc<str>,
    pub queue: Arc<str>,
    pub skill: Arc<str>,
    pub workflow: Arc<str>,
    pub priority: i32,
    pub ready_at: Timestamp,
    /// The node that offers it to its workers, or watches the lease. A hint while it waits: whoever moves the run's head has it.
    pub node: NodeId,
    /// Since when that node has it.
    pub since: Timestamp,
    /// The value of the step's concurrency key, and how many tasks may be under way with it.
    pub slot: Option<TaskSlot>,
    /// None: it waits.
    pub lease: Option<LeaseRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSlot {
    pub key: Arc<str>,
    pub limit: u32,
}

/// What is known of the worker that has a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub worker: Arc<str>,
    pub nonce: u64,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// How long the worker may say nothing.
    pub lease_ms: u64,
    /// As of the last time it was written; the node that watches knows better.
    pub expires_at: Timestamp,
    /// What the worker said last of how far it is.
    pub progress: Option<Json>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskWrite {
    /// Waits from now on, or has a worker from now on.
    Put(Box<TaskRow>),
    /// Has ended.
    Delete(TaskId),
    /// Waits no more; if a worker has it, it stays.
    Withdraw(TaskId),
}

impl TaskWrite {
    #[must_use]
    pub fn task(&self) -> TaskId {
        match self {
            TaskWrite::Put(row) => row.task,
            TaskWrite::Delete(task) | TaskWrite::Withdraw(task) => *task,
        }
    }
}

/// A lease that is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseExtension {
    pub task: TaskId,
    pub nonce: u64,
    pub expires_at: Timestamp,
    /// None leaves what was said before.
    pub progress: Option<Json>,
}

/// What a queue may do at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRow {
    pub org: OrgId,
    pub queue: Arc<str>,
    /// So many tasks may be under way at once.
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
}

/// So many tasks may begin within so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub limit: u32,
    pub per_ms: u64,
}

/// How far a queue and a concurrency key are used up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskLimits {
    /// Tasks of the queue that workers have.
    pub in_queue: u32,
    /// Tasks with the key that workers have.
    pub with_key: u32,
    pub queue: Option<QueueRow>,
    /// Up to where the queue's rate is used up.
    pub taken_until: Option<Timestamp>,
}

/// Tasks of a queue began: its rate is used up to here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateWrite {
    pub org: OrgId,
    pub queue: Arc<str>,
    pub taken_until: Timestamp,
}

/// How many tasks wait in a queue, and how many are under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCount {
    pub org: OrgId,
    pub queue: String,
    pub waiting: u64,
    pub leased: u64,
    /// Since when the oldest of those that wait does.
    pub oldest: Option<Timestamp>,
}
