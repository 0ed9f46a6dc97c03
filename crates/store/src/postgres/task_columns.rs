//! The tasks of a batch, column by column.

use milepost_core::id::TaskId;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{int4, int8};
use crate::rows::{RunWrite, TaskRow, TaskWrite};

pub(super) type Parameter<'a> = &'a (dyn ToSql + Sync);

#[derive(Default)]
pub(super) struct Tasks<'a> {
    put: Put<'a>,
    deleted: Deleted,
}

#[derive(Default)]
struct Put<'a> {
    task: Vec<Uuid>,
    org: Vec<i32>,
    run: Vec<Uuid>,
    step: Vec<i64>,
    item: Vec<Option<i64>>,
    step_id: Vec<&'a str>,
    queue: Vec<&'a str>,
    skill: Vec<&'a str>,
    workflow: Vec<&'a str>,
    priority: Vec<i32>,
    ready_at: Vec<i64>,
    node: Vec<i64>,
    since: Vec<i64>,
    slot_key: Vec<Option<&'a str>>,
    slot_limit: Vec<Option<i64>>,
    worker: Vec<Option<&'a str>>,
    nonce: Vec<Option<i64>>,
    logical_attempt: Vec<Option<i32>>,
    engine_attempt: Vec<Option<i32>>,
    lease_ms: Vec<Option<i64>>,
    expires_at: Vec<Option<i64>>,
    progress: Vec<Option<&'a str>>,
}

#[derive(Default)]
struct Deleted {
    task: Vec<Uuid>,
    run: Vec<Uuid>,
    /// Only if nobody has it.
    waiting: Vec<bool>,
}

impl<'a> Tasks<'a> {
    pub(super) fn add(&mut self, write: &'a RunWrite) {
        for task in &write.tasks {
            match task {
                TaskWrite::Put(row) => self.put.add(row),
                TaskWrite::Delete(task) => self.deleted.add(*task, write, false),
                TaskWrite::Withdraw(task) => self.deleted.add(*task, write, true),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.put.task.is_empty() && self.deleted.task.is_empty()
    }

    pub(super) fn parameters(&self) -> Vec<Parameter<'_>> {
        let (p, d) = (&self.put, &self.deleted);
        vec![
            &p.task,
            &p.org,
            &p.run,
            &p.step,
            &p.item,
            &p.step_id,
            &p.queue,
            &p.skill,
            &p.workflow,
            &p.priority,
            &p.ready_at,
            &p.node,
            &p.since,
            &p.slot_key,
            &p.slot_limit,
            &p.worker,
            &p.nonce,
            &p.logical_attempt,
            &p.engine_attempt,
            &p.lease_ms,
            &p.expires_at,
            &p.progress,
            &d.task,
            &d.run,
            &d.waiting,
        ]
    }
}

impl Deleted {
    fn add(&mut self, task: TaskId, write: &RunWrite, waiting: bool) {
        self.task.push(task.0);
        self.run.push(write.run.0);
        self.waiting.push(waiting);
    }
}

impl<'a> Put<'a> {
    fn add(&mut self, row: &'a TaskRow) {
        let lease = row.lease.as_ref();
        self.task.push(row.task.0);
        self.org.push(row.org.0);
        self.run.push(row.run.0);
        self.step.push(row.step.step.into());
        self.item.push(row.step.item.map(i64::from));
        self.step_id.push(&row.step_id);
        self.queue.push(&row.queue);
        self.skill.push(&row.skill);
        self.workflow.push(&row.workflow);
        self.priority.push(row.priority);
        self.ready_at.push(row.ready_at.0);
        self.node.push(row.node.0);
        self.since.push(row.since.0);
        self.slot_key.push(row.slot.as_ref().map(|slot| &*slot.key));
        self.slot_limit.push(row.slot.as_ref().map(|slot| slot.limit.into()));
        self.worker.push(lease.map(|lease| &*lease.worker));
        self.nonce.push(lease.map(|lease| int8(lease.nonce)));
        self.logical_attempt.push(lease.map(|lease| int4(lease.logical_attempt)));
        self.engine_attempt.push(lease.map(|lease| int4(lease.engine_attempt)));
        self.lease_ms.push(lease.map(|lease| int8(lease.lease_ms)));
        self.expires_at.push(lease.map(|lease| lease.expires_at.0));
        self.progress.push(lease.and_then(|lease| lease.progress.as_ref()).map(|progress| progress.as_str()));
    }
}
