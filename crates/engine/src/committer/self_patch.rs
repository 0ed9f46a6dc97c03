//! Patches that steps return: the plan that one makes is stored, then the step's outcome is decided again with it.
//!
//! Until then the step is under way as before. If this process dies meanwhile, whoever takes the run over has it run again.

use std::sync::Arc;
use std::time::Duration;

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

/// When the store could not be asked, it is asked again.
const RETRY: Duration = Duration::from_millis(250);

/// What a patched plan is made with.
struct Maker {
    plans: Arc<Plans>,
    executor: Executor,
    workers: bool,
    limits: Limits,
}

impl Committer {
    /// Beside the committer: a large document takes its time.
    pub(super) fn prepare_patch(&self, org: OrgId, run: RunId, command: Command, reply: Option<Reply>, ops: Json) {
        let Some(before) = self.states.peek(run).map(|entry| entry.state.plan.clone()) else { return };
        let maker = Maker {
            plans: self.parts.plans.clone(),
            executor: self.parts.executor.clone(),
            workers: self.parts.workers,
            limits: self.parts.limits.clone(),
        };
        let inbox = self.parts.inbox.clone();
        // One that was made for a plan which the run no longer has is made anew.
        let outcome = match command {
            Command::Patching { outcome, .. } => outcome,
            other => Box::new(other),
        };
        tokio::spawn(async move {
            let plan = loop {
                match maker.make(org, run, &before, &ops).await {
                    Ok(plan) => break Ok(plan),
                    Err(error) if error.is_passing() => tokio::time::sleep(RETRY).await,
                    Err(error) => break Err(told(error)),
                }
            };
            let request = Request::command(org, run, Command::Patching { outcome, plan });
            inbox.report(Request { reply, ..request }).await;
        });
    }
}

impl Maker {
    async fn make(&self, org: OrgId, run: RunId, before: &Plan, ops: &Json) -> Result<Arc<Plan>, EngineError> {
        let text = self.plans.text(org, before.hash).await?;
        let loaded = document::patch_run(before, &text, &ops.to_value(), &self.limits)?;
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
