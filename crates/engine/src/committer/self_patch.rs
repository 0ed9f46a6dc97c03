//! Patches that steps return: the plan that one makes is stored, then the step's outcome is decided again with it.
//!
//! Until then the step is under way as before. If this process dies meanwhile, whoever takes the run over has it run again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use milepost_core::document;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::run::Command;

use super::{Committer, Reply, Request};
use crate::engine::check_new_skills;
use crate::error::EngineError;
use crate::executor::Executor;
use crate::plans::Plans;
use crate::work::{Lane, Work, WorkError};

/// When the store could not be asked, it is asked again.
const RETRY: Duration = Duration::from_millis(250);

/// What plans are made with beside the committer.
pub(super) struct Preparer {
    pub(super) plans: Arc<Plans>,
    pub(super) work: Work,
    pub(super) executor: Executor,
    pub(super) workers: bool,
    pub(super) limits: Limits,
}

impl Committer {
    pub(super) fn preparer(&self) -> Preparer {
        Preparer {
            plans: self.parts.plans.clone(),
            work: self.parts.work.clone(),
            executor: self.parts.executor.clone(),
            workers: self.parts.workers,
            limits: self.parts.limits.clone(),
        }
    }

    /// Beside the committer: a large document takes its time. Whatever happens there, the step's outcome comes back.
    pub(super) fn prepare_patch(&mut self, org: OrgId, run: RunId, command: Command, reply: Option<Reply>, ops: Json) {
        let Some(before) = self.states.peek(run).map(|entry| entry.state.plan.clone()) else {
            let request = Request::command(org, run, command);
            return self.again.push(Request { reply, ..request });
        };
        let (preparer, inbox, care) = (self.preparer(), self.parts.inbox.clone(), self.parts.care.clone());
        // One that was made for a plan which the run no longer has is made anew.
        let outcome = match command {
            Command::Patching { outcome, .. } => outcome,
            other => Box::new(other),
        };
        tokio::spawn(async move {
            let preparing = care.prepare(org, run, &outcome.deed()).await;
            let plan = loop {
                let made = AssertUnwindSafe(preparer.patched(org, run, &before, &ops)).catch_unwind().await;
                match made.unwrap_or(Err(EngineError::Work(WorkError::Panicked))) {
                    Ok(plan) => break Ok(plan),
                    Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
                    Err(error) => break Err(told(error)),
                }
            };
            drop(preparing);
            let request = Request::command(org, run, Command::Patching { outcome, plan });
            inbox.report(Request { reply, ..request }).await;
        });
    }
}

impl Preparer {
    async fn patched(&self, org: OrgId, run: RunId, before: &Arc<Plan>, ops: &Json) -> Result<Arc<Plan>, EngineError> {
        let text = self.plans.text(org, before.hash).await?;
        let bytes = text.len() + ops.len();
        let patch = {
            let (before, ops, limits) = (before.clone(), ops.clone(), self.limits.clone());
            move || {
                let ops = serde_json::from_str(ops.as_str())
                    .map_err(|error| document::PatchError::Failed(format!("it cannot be read: {error}")))?;
                document::patch_run(&before, &text, &ops, &limits)
            }
        };
        let loaded = self.work.sized(Lane::Documents, bytes, patch).await??;
        check_new_skills(before, &loaded.plan, &self.executor, self.workers)?;
        let plan = self.plans.add(org, loaded).await?;
        self.plans.keep_for(org, run, &[before.hash, plan.hash]).await?;
        Ok(plan)
    }
}

/// All that is wrong, as the step's error says it.
fn told(error: EngineError) -> String {
    match error {
        EngineError::Invalid(problems) => document::PatchError::Invalid(problems).reason(),
        other => other.to_string(),
    }
}
