//! A step that was given to a worker, as the node that gave it knows it.

use std::sync::Arc;

use milepost_core::event::Lease;
use milepost_core::id::{NodeId, OrgId, OutboxId, RunId, TaskId};
use milepost_core::plan::{Plan, PlanStep};
use milepost_core::run::Task;
use milepost_core::time::Timestamp;
use milepost_core::trace::{SpanId, TraceContext};
use milepost_store::rows::{LeaseRow, TaskRow};

use super::{LeaseToken, WorkerTask};

/// How long a worker may say nothing, if its step does not say.
const LEASE_MS: u64 = 30_000;
/// The same for a receiver that the step is pushed to: it need not say a word until it answers.
const PUSH_LEASE_MS: u64 = 5 * 60_000;

fn lease_ms(step: &PlanStep) -> u64 {
    step.heartbeat_timeout_ms.unwrap_or(match step.push {
        None => LEASE_MS,
        Some(_) => step.timeout_ms.unwrap_or(PUSH_LEASE_MS),
    })
}

#[derive(Clone, Debug)]
pub(crate) struct Handed {
    pub(crate) org: OrgId,
    pub(crate) run: RunId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) priority: i32,
    pub(crate) expires_at: Timestamp,
    /// The row of the outbox that sees to it that its receiver is told.
    pub(crate) outbox: Option<OutboxId>,
}

impl Handed {
    pub(crate) fn new(
        org: OrgId,
        run: RunId,
        plan: &Arc<Plan>,
        task: Task,
        lease: Lease,
        priority: i32,
        now: Timestamp,
    ) -> Handed {
        let step = plan.step(task.index);
        let expires_at = now.plus_ms(lease_ms(step));
        let pushed = step.push.is_some() && *lease.worker == *crate::push::WORKER;
        let outbox = pushed.then(|| OutboxId(uuid::Uuid::now_v7()));
        Handed { org, run, plan: plan.clone(), task, lease, priority, expires_at, outbox }
    }

    pub(crate) fn task_id(&self) -> TaskId {
        TaskId::of(self.run, self.task.task.step)
    }

    pub(crate) fn lease_ms(&self) -> u64 {
        lease_ms(self.plan.step(self.task.index))
    }

    pub(crate) fn row(&self, node: NodeId, now: Timestamp) -> TaskRow {
        let planned = self.plan.step(self.task.index);
        let attempt = self.task.task;
        TaskRow {
            task: self.task_id(),
            org: self.org,
            run: self.run,
            step: attempt.step,
            step_id: self.task.step_id.as_str().into(),
            queue: crate::committer::queue_of(planned),
            skill: planned.skill.clone(),
            workflow: self.plan.name.clone(),
            priority: self.priority,
            ready_at: now,
            node,
            since: now,
            slot: None,
            lease: Some(LeaseRow {
                worker: self.lease.worker.clone(),
                nonce: self.lease.nonce,
                logical_attempt: attempt.logical_attempt,
                engine_attempt: attempt.engine_attempt,
                lease_ms: self.lease_ms(),
                expires_at: self.expires_at,
                progress: None,
            }),
        }
    }

    pub(crate) fn has_no_secrets(&self) -> bool {
        self.plan.step(self.task.index).secrets.is_empty()
    }

    pub(crate) fn token(&self) -> LeaseToken {
        LeaseToken { org: self.org, run: self.run, task: self.task.task, nonce: self.lease.nonce }
    }

    pub(crate) fn into_task(self, env: Vec<(String, String)>, secrets: Vec<(String, String)>) -> WorkerTask {
        let planned = self.plan.step(self.task.index);
        let attempt = self.task.task;
        let span = SpanId::of_attempt(self.run, &self.task.step_id, attempt.logical_attempt, attempt.engine_attempt);
        WorkerTask {
            task: self.task_id(),
            org: self.org,
            run: self.run,
            skill: planned.skill.clone(),
            logical_attempt: attempt.logical_attempt,
            engine_attempt: attempt.engine_attempt,
            token: self.token(),
            lease_expires_at: self.expires_at,
            heartbeat_ms: (self.lease_ms() / 3).max(1),
            timeout_ms: planned.timeout_ms,
            env,
            secrets,
            workflow: self.plan.name.clone(),
            workflow_version: self.plan.version.clone(),
            queue: crate::committer::queue_of(planned),
            priority: self.priority,
            traceparent: TraceContext::of_span(self.run, self.task.trace, span).to_string(),
            step_id: self.task.step_id,
            input: self.task.input,
        }
    }
}
