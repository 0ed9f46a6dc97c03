//! A worker gets its step's secrets with the task, and nothing it says shows them.

use std::sync::Arc;

use milepost_core::id::OrgId;
use milepost_core::plan::{Plan, PlanStep};
use milepost_core::run::{Command, Outcome};

use super::leases::Redacting;
use super::{Handed, LeaseToken, WorkerTask};
use crate::committer::{Request, queue_of};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::executor::redacted_outcome;
use crate::secrets::{Redactor, Resolved};
use crate::skills::SkillError;

/// Names and values.
type Pairs = Vec<(String, String)>;

impl Engine {
    /// A step as its worker is given it. One whose secrets or variables it may not have, or nobody has, fails instead.
    pub(super) async fn for_worker(&self, handed: Handed) -> Option<WorkerTask> {
        let token = handed.token();
        match self.given(&handed).await {
            Ok((env, secrets)) => Some(handed.into_task(env, secrets)),
            Err(error) => {
                let outcome = Outcome::Failed(error.into());
                let command = Command::Report { task: token.task, nonce: token.nonce, outcome };
                self.inbox.report(Request::command(token.org, token.run, command)).await;
                None
            }
        }
    }

    /// Variables and secrets of a step.
    async fn given(&self, handed: &Handed) -> Result<(Pairs, Pairs), SkillError> {
        let step = handed.plan.step(handed.task.index);
        let env = self.secrets().env_of(step)?;
        if handed.has_no_secrets() {
            return Ok((env, Vec::new()));
        }
        let resolved = self.secrets_of(handed.org, &handed.plan, step).await?;
        self.leases.set_redactor(&handed.token(), &resolved.redactor().map(Arc::new));
        let given = resolved.iter().map(|secret| (secret.name.to_string(), secret.value.expose().to_owned()));
        Ok((env, given.collect()))
    }

    async fn secrets_of(&self, org: OrgId, plan: &Plan, step: &PlanStep) -> Result<Resolved, SkillError> {
        self.secrets().resolve(org, &plan.name, &queue_of(step), &step.secrets).await
    }

    /// What takes the secrets of an attempt out of what is said of it: those that this node gave it, whatever became of them
    /// since. Where another node gave them, those that it may have given.
    ///
    /// # Errors
    /// They cannot be read: nothing that the attempt says may be kept.
    pub(super) async fn redactor(&self, token: &LeaseToken) -> Result<Redacting, EngineError> {
        if let Some(known) = self.leases.redactor(token) {
            return Ok(known);
        }
        let Some(head) = self.store.head(token.org, token.run).await? else { return Ok(None) };
        let plan = self.plans.by_hash(token.org, head.plan_hash).await?;
        let Some(step) = plan.steps.get(token.task.step.step as usize) else { return Ok(None) };
        let redactor = self.secrets().handed_out(token.org, &step.secrets).await?.redactor().map(Arc::new);
        self.leases.set_redactor(token, &redactor);
        Ok(redactor)
    }
}

pub(crate) fn redacted(outcome: Outcome, redactor: &Redactor) -> Outcome {
    let ended = match outcome {
        Outcome::Completed(output) => Ok(output),
        Outcome::Failed(error) => {
            Err(SkillError { code: error.code, message: error.message, retryable: error.retryable })
        }
    };
    match redacted_outcome(ended, Some(redactor)) {
        Ok(output) => Outcome::Completed(output),
        Err(error) => Outcome::Failed(error.into()),
    }
}
