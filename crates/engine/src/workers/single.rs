//! The same, one task at a time: for workers that are a shell script.

use milepost_core::id::{RunId, TaskId};
use milepost_core::json::Json;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

use super::{Directive, Exchange, Exchanged, Heartbeat, RejectedItem, WorkerLine, WorkerResult};
use crate::engine::Engine;
use crate::error::EngineError;

/// A task that is open.
#[derive(Clone, Debug)]
pub struct TaskState {
    pub task: TaskId,
    pub run: RunId,
    pub step_id: Arc<str>,
    pub skill: Arc<str>,
    pub queue: Arc<str>,
    pub ready_at: Timestamp,
    /// None: it waits.
    pub worker: Option<Arc<str>>,
    pub logical_attempt: Option<u32>,
    pub engine_attempt: Option<u32>,
    pub lease_expires_at: Option<Timestamp>,
    pub progress: Option<Json>,
}

/// What a heartbeat is answered.
#[derive(Clone, Debug)]
pub struct Beat {
    pub lease_expires_at: Timestamp,
    pub directives: Vec<Directive>,
}

impl Engine {
    /// A task that waits or that a worker has.
    ///
    /// # Errors
    /// There is none (any more), or the store cannot be read.
    pub async fn task(&self, task: TaskId) -> Result<TaskState, EngineError> {
        let row = self.store.tasks(self.org, &[task]).await?.pop().ok_or(EngineError::NoSuchTask(task))?;
        let mut state = TaskState {
            task,
            run: row.run,
            step_id: row.step_id,
            skill: row.skill,
            queue: row.queue,
            ready_at: row.ready_at,
            worker: None,
            logical_attempt: None,
            engine_attempt: None,
            lease_expires_at: None,
            progress: None,
        };
        if let Some(lease) = row.lease {
            let (expires_at, progress) = self.leases.look(task).unwrap_or((lease.expires_at, lease.progress));
            state.worker = Some(lease.worker);
            state.logical_attempt = Some(lease.logical_attempt);
            state.engine_attempt = Some(lease.engine_attempt);
            state.lease_expires_at = Some(expires_at);
            state.progress = progress;
        }
        Ok(state)
    }

    /// Lets one lease go on.
    ///
    /// # Errors
    /// There is no such lease any more.
    pub async fn beat(
        &self,
        task: TaskId,
        token: String,
        progress: Option<Json>,
        lines: Vec<WorkerLine>,
    ) -> Result<Beat, EngineError> {
        let heartbeat = Heartbeat { task, token: token.clone(), progress, lines };
        let answer = self.say_once(Vec::new(), vec![heartbeat]).await?;
        let lease_expires_at = self.leases.look(task).map_or_else(|| self.clock.now(), |(until, _)| until);
        Ok(Beat { lease_expires_at, directives: answer.directives })
    }

    /// Takes one result. It is on disk when this returns.
    ///
    /// # Errors
    /// There is no such lease any more, or the store cannot be written.
    pub async fn report(&self, result: WorkerResult) -> Result<(), EngineError> {
        self.say_once(vec![result], Vec::new()).await.map(drop)
    }

    async fn say_once(&self, results: Vec<WorkerResult>, heartbeats: Vec<Heartbeat>) -> Result<Exchanged, EngineError> {
        let exchange = Exchange {
            worker: "".into(),
            secret: None,
            queues: Vec::new(),
            every_org: false,
            skills: None,
            capacity: 0,
            wait: Duration::ZERO,
            results,
            heartbeats,
        };
        let mut answer = self.exchange(exchange, std::future::pending()).await?;
        match answer.rejected.pop() {
            None => Ok(answer),
            Some(RejectedItem { code, message, .. }) => {
                let kind = match code {
                    "progress_too_large" | "bad_progress" | "bad_lease_token" | "bad_artifact"
                    | "too_many_artifacts" => RejectionKind::Invalid,
                    "artifact_missing" | "artifact_exists" | "no_blob_store" => RejectionKind::Conflict,
                    _ => RejectionKind::Stale,
                };
                Err(Rejection { kind, code, message }.into())
            }
        }
    }
}
