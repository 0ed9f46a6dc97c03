//! Where Milepost keeps its log.
//!
//! One narrow seam shaped like the log: commit a batch, load runs, find due timers, read a projection. The rules of runs
//! live in the core; what is here maps rows.

mod artifacts;
pub mod blobs;
mod cache;
mod definitions;
mod flights;
mod groups;
pub mod memory;
mod meter;
pub mod migrations;
mod outbox;
pub mod own;
pub mod postgres;
pub mod rows;
mod run_blobs;
mod secrets;
pub mod sqlite;
mod suspects;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

use rows::{
    Answer, Batch, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition, ProjectionWrite,
    Question, QueueCount, QueueRow, RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow,
    TransitionRow, WriteResult,
};

pub use artifacts::ArtifactStore;
pub use cache::{Asker, CacheStore};
pub use definitions::DefinitionStore;
pub use flights::FlightStore;
pub use outbox::OutboxStore;
pub use run_blobs::RunBlobs;
pub use secrets::SecretStore;
pub use suspects::SuspectStore;

/// Cut by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again: the database is busy, restarting or out of reach.
    #[error("the database cannot be reached or is busy: {0}")]
    Unavailable(String),
    /// This write can never succeed as it is; others may.
    #[error("the database refused the write: {0}")]
    Refused(String),
    /// Stop and tell someone: what is stored makes no sense.
    #[error("the database holds something that cannot be: {0}")]
    Corrupt(String),
    /// No room left on the disk. Nothing was written.
    #[error("the disk of the database is full: {0}; free some space, nothing was lost")]
    DiskFull(String),
    /// The database cannot be opened as it is; the text says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A database that holds runs.
///
/// **Invariant:** when `commit` (or `Transaction::commit`) returns, what was `Written` survives the loss of power.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// `sqlite`, `postgres` or `memory`.
    fn name(&self) -> &'static str;

    /// Writes a batch in one transaction. Answers one result per write, in order. A write whose compare-and-swap fails
    /// takes only its own group with it. An error means that nothing at all was written.
    async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>>;

    /// Opens a transaction and answers questions in it; the answers stay true until it is committed or dropped.
    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)>;

    /// What is needed to have these runs' states again. Runs that do not exist are left out. Of those that are parked there is
    /// the head alone.
    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>>;
    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>>;
    /// How far the logs of these runs go, in one statement. Runs that do not exist are left out.
    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>>;
    /// The log after `after_seq`, in order.
    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>>;
    /// Single events of one run, in any order; those that do not exist are left out.
    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>>;
    /// Events of one run by their idempotency keys, in any order; those that do not exist are left out.
    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>>;

    /// The events of one step of a run (`shots`, or `shots[3]`), in order. Reads the run's log.
    async fn step_events(
        &self,
        org: OrgId,
        run: RunId,
        step_id: &str,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>>;

    /// Armed timers that are due before or at `until`, earliest first, after the one given: a page at a time.
    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>>;
    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>>;

    /// Waiting rows that may go on: for each key, as many as there is room, by priority, then age. Read only.
    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>>;
    /// The same for one key.
    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>>;
    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>>;

    /// Tasks of one org, by id, in any order; those that do not exist are left out.
    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>>;
    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>>;
    /// Gives this node tasks that wait in these queues and that another node has had since before `before`: of each node,
    /// org and workflow at most `limit`, by priority, then age. Whether one may begin is decided by its run's head.
    async fn pull_tasks(
        &self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TaskRow>>;
    /// Gives this node what a dead one offered or watched: at most `limit` tasks, to be called until nothing comes.
    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>>;
    /// Lets leases go on, and this node watch them. Answers those that are there.
    async fn extend_leases(
        &self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Result<Vec<TaskRow>>;
    /// How many tasks there are in each queue. Costs what is open.
    async fn queue_counts(&self) -> Result<Vec<QueueCount>>;

    /// Queues that have limits, of all orgs.
    async fn queues(&self) -> Result<Vec<QueueRow>>;
    /// Sets the limits of a queue; without any, it is as if it had never had one.
    async fn set_queue(&self, queue: &QueueRow) -> Result<()>;

    /// What commits asked for beyond this database.
    fn outbox(&self) -> &dyn OutboxStore;

    /// Says that this node lives, for `lease_ms` more.
    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()>;
    /// A node that ends in good order; its runs are free for others at once.
    async fn leave(&self, node: NodeId) -> Result<()>;
    /// Nodes that own runs or have tasks but live no more: their lease ran out, they left, or are known to have died.
    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>>;
    /// Runs that a node owns, in order of id, after `after`.
    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>>;

    /// What has to be done now and then, such as making room for the months to come. Several nodes may do it at once.
    async fn maintain(&self, now: Timestamp) -> Result<()>;

    /// Removes runs that ended before this moment, with all that belongs to them: at most `limit` of them, in portions that
    /// no commit waits for long. Runs that have an owner, that were opened again, or that another run builds upon stay.
    /// When it is blocked, somebody else is in the way: try again later, not at once.
    ///
    /// On Postgres, events, steps and logs of a run may stay until its month is dropped; nobody sees them.
    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten>;

    /// Documents in versions.
    fn definitions(&self) -> &dyn DefinitionStore;
    /// Results of steps.
    fn cache(&self) -> &dyn CacheStore;
    /// Results that are being made.
    fn flights(&self) -> &dyn FlightStore;
    /// Files that runs left.
    fn artifacts(&self) -> &dyn ArtifactStore;
    /// The secrets in this database.
    fn secrets(&self) -> &dyn SecretStore;
    /// Which runs may have something in the blob store.
    fn run_blobs(&self) -> &dyn RunBlobs;
    /// Runs that may bring a process down.
    fn suspects(&self) -> &dyn SuspectStore;

    /// Keeps lines that steps wrote; the same chunk again is no change.
    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()>;
    /// Lines of a run, or of one of its steps, in order, after the chunk given.
    async fn logs(
        &self,
        org: OrgId,
        run: RunId,
        step: Option<&str>,
        after: Option<&LogPosition>,
        limit: u32,
    ) -> Result<Vec<LogChunkRow>>;

    /// How many lines of one attempt are kept.
    async fn log_lines(
        &self,
        org: OrgId,
        run: RunId,
        step: &str,
        logical_attempt: u32,
        engine_attempt: u32,
    ) -> Result<u32>;

    /// Writes projections in one transaction; one answer per write, in order.
    async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>>;
    /// Forgets all projections of a run, so that they are made anew.
    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()>;
    /// The changes of a run's status, in order.
    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>>;
    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>>;
    /// A run's snapshot and all its steps, in order of their ids, as they were at one moment.
    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>>;
    /// What is needed to show a run, all of one moment, read in one go.
    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>>;
    /// Single steps of one run, by id; those that do not exist are left out.
    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>>;
    /// Newest first. Costs what it answers, however many runs there are.
    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>>;
    /// How many runs `list_runs` would answer if it had no limit; counting stops at `up_to`.
    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64>;
    /// How many runs stand in each status that is no end, as far as there are any. Costs what is open.
    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>>;

    /// Runs that have not ended, of all orgs, in order of id, after `after`. For `doctor`.
    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>>;
    /// Runs whose projection is behind their log, by how many events. For `doctor`.
    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>>;
    /// Looks for runs whose log is not 1, 2, 3, … up to `last_seq`. Reads everything. For `doctor`.
    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>>;
    /// The first number that a run's log lacks: the one after its last event if nothing is missing before it.
    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64>;
    /// Notes that a run's log has a gap there, or none any more.
    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()>;
    /// Which of these runs are noted to have a gap, and where.
    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>>;
    /// How many runs are stored, of all orgs. An estimate will do.
    async fn count_runs(&self) -> Result<u64>;
}

/// An open transaction in which questions were answered. Dropping it rolls it back.
#[async_trait]
pub trait Transaction: Send {
    async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Answer>>;
    async fn commit(self: Box<Self>, batch: Arc<Batch>) -> Result<Vec<WriteResult>>;
}
