//! A step returns a patch of its own run, within the limits that the document sets (`self_patch`).
//!
//! The plan that the patch makes is stored before anything is decided, so the first decision only asks for it
//! ([`super::Decision::patch`]); the second completes the step and puts the plan into force at once. Between them the step is
//! under way as before: whoever loses it there has it run again.
//!
//! **Invariant:** a step whose patch is not in force has not completed.

use std::sync::Arc;

use serde::Deserialize;

use super::patch::PatchRun;
use super::{Command, Decider, Rejection, TaskRef};
use crate::event::{ErrorInfo, StepRef};
use crate::id::SignalId;
use crate::json::Json;
use crate::plan::{Action, Plan};

#[derive(Deserialize)]
struct Returned {
    #[serde(default)]
    patch: Option<Json>,
}

impl Decider<'_> {
    /// The patch in an output, if this document's steps may return some.
    pub(super) fn returned_patch(&self, step: StepRef, output: &Json) -> Option<Json> {
        self.state.plan.self_patch?;
        if self.state.stopping || self.state.plan.step(step.step).action != Action::Task {
            return None;
        }
        let returned: Returned = serde_json::from_str(output.as_str()).ok()?;
        returned.patch.filter(|patch| !matches!(patch.as_str().trim(), "null" | "[]"))
    }

    pub(super) fn complete_patching(
        &mut self,
        outcome: Command,
        plan: Result<Arc<Plan>, String>,
    ) -> Result<(), Rejection> {
        self.prepared = Some(plan);
        match outcome {
            Command::Complete { task, output } => self.complete(task, output),
            Command::Report { task, nonce, outcome } => self.report(task, nonce, outcome),
            Command::Leaving { outcome, beyond } => self.complete_leaving(*outcome, *beyond),
            _ => Ok(()),
        }
    }

    pub(super) fn complete_with_patch(&mut self, task: TaskRef, output: Json, ops: Json) {
        let plan = match self.prepared.take() {
            None => {
                self.decision.patch = Some(ops);
                return;
            }
            Some(Ok(plan)) if plan.after != Some(self.state.plan.hash) => {
                // The run was patched meanwhile.
                self.decision.patch = Some(ops);
                return;
            }
            Some(Ok(plan)) => plan,
            Some(Err(reason)) => return self.refuse_patch(task, &reason),
        };
        let TaskRef { step, logical_attempt, engine_attempt } = task;
        if let Err(reason) = self.check_own_limits(&plan) {
            return self.refuse_patch(task, &reason);
        }
        let id = SignalId::of_self_patch(self.state.run, &step.name(&self.state.plan), logical_attempt);
        let patch = PatchRun {
            id,
            plan,
            ops: Some(ops),
            rerun: false,
            message: None,
            actor: None,
            undoes: None,
            expected_seq: None,
        };
        // That the step itself ends makes no difference: to a patch of its own it is as good as ended before.
        let effects = match self.state.patch_effects(&patch) {
            Ok(effects) => effects,
            Err(rejection) => return self.refuse_patch(task, &rejection.message),
        };
        self.emit_completed(step, logical_attempt, engine_attempt, output);
        self.follow_plan(patch, Some(step), &effects);
        self.item_has_ended(step);
    }

    fn check_own_limits(&self, plan: &Plan) -> Result<(), String> {
        let Some(limits) = self.state.plan.self_patch else { return Ok(()) };
        if plan.self_patch != Some(limits) {
            return Err("steps may not change `self_patch`".to_owned());
        }
        if self.state.self_patches >= limits.max_patches {
            return Err(format!("the document lets its steps patch a run {} times", limits.max_patches));
        }
        if plan.steps_total() > limits.max_steps {
            let total = plan.steps_total();
            return Err(format!("the plan would have {total} steps; the document allows {}", limits.max_steps));
        }
        Ok(())
    }

    /// The same patch would be refused again, so it is not tried again.
    fn refuse_patch(&mut self, task: TaskRef, reason: &str) {
        let error = ErrorInfo::fatal("patch_refused", format!("the patch that the step returned is refused: {reason}"));
        self.step_has_failed(task.step, task.logical_attempt, task.engine_attempt, error);
    }
}
