//! The end of a run, and the rotation of its history.

use super::evaluate::OUTPUT_LOST;
use super::state::{Phase, RunState};
use super::{ChildOutcome, Decider, Effect};
use crate::event::{Body, ErrorInfo, StepRef};
use crate::json::Json;
use crate::plan::StepIndex;
use crate::status::RunStatus;

/// A list of a `foreach` step that takes more than this is worked out again for the next batch.
const LIST_BYTES: usize = 8 * 1024 * 1024;
/// A state that holds more than this many bytes of outputs and payloads forgets them.
const FACT_BYTES: usize = 1024 * 1024;

impl Decider<'_> {
    /// Ends the run if nothing is left to do.
    pub(super) fn settle(&mut self) {
        if self.broken.is_some() {
            return;
        }
        self.end_cancelled_if_idle();
        // A paused run ends when it is resumed.
        if self.state.status != RunStatus::Running {
            return;
        }
        if self.state.unfinished == 0 && self.state.failures == 0 {
            self.end_completed();
        } else if self.state.unfinished == 0 || (self.state.halted() && self.state.active == 0) {
            self.end_failed_items();
            self.end_failed();
        }
    }

    /// A `foreach` step some of whose items failed has failed with the run, so that it can be retried.
    fn end_failed_items(&mut self) {
        let open: Vec<StepRef> = self.state.running.keys().copied().collect();
        for step in open {
            self.end_items_if_over(step);
        }
    }

    fn end_completed(&mut self) {
        // The parent is told the output in the same commit, so it has to be at hand.
        let outcome = match self.state.parent {
            None => ChildOutcome::Completed { output: Json::null() },
            Some(_) => match self.state.output() {
                Ok(output) => match self.lost_output() {
                    None => ChildOutcome::Completed { output },
                    Some(error) => ChildOutcome::Failed { error },
                },
                Err(missing) => {
                    self.decision.missing.extend(missing);
                    return;
                }
            },
        };
        self.emit_run(Body::RunCompleted);
        self.run_has_ended(outcome);
    }

    /// A last step whose output is gone: the run has done its work, but cannot tell it any more.
    fn lost_output(&self) -> Option<ErrorInfo> {
        let plan = &self.state.plan;
        let lost = plan.last_steps.iter().find(|step| self.state.is_lost(**step))?;
        let message = format!("the output of its step `{}` is gone from the blob store", plan.step(*lost).id);
        Some(ErrorInfo::fatal(OUTPUT_LOST, message))
    }

    fn end_failed(&mut self) {
        let failure = self.state.first_failure.clone();
        let error = match &failure {
            Some(failure) => {
                let quoted = &failure.error.message;
                let name = failure.step.name(&self.state.plan);
                // Whether a new run might do better is what the step said of itself.
                let retryable = failure.error.retryable;
                ErrorInfo {
                    code: failure.error.code.clone(),
                    message: format!("step `{name}` failed: {quoted}"),
                    retryable,
                }
            }
            // The first failure was mended, another was not.
            None => {
                let failed = self.state.steps.iter().position(|step| step.phase == Phase::Failed).unwrap_or(0);
                let name = StepRef::whole(failed as StepIndex).name(&self.state.plan);
                ErrorInfo::fatal("step_failed", format!("step `{name}` failed"))
            }
        };
        // The failure tells one end of a reopened run from another.
        let cause = failure.map_or(self.state.last_seq, |failure| failure.seq);
        self.skip_the_rest(cause);
        self.emit(None, 0, 0, Some(cause), Body::RunFailed { error: error.clone() });
        self.run_has_ended(ChildOutcome::Failed { error });
    }

    pub(super) fn run_has_ended(&mut self, outcome: ChildOutcome) {
        if self.state.slot_key.is_some() {
            self.effect(Effect::ReleaseSlot);
        }
        self.forget_kept();
        if let Some(parent) = self.state.parent.clone() {
            self.effect(Effect::NotifyParent { parent: parent.run, outcome });
        }
    }

    /// After so many steps or bytes, the state is kept, so that loading the run reads only what comes later.
    pub(super) fn rotate_history(&mut self) {
        let limits = self.context.limits;
        let long = self.state.steps_since_continue >= limits.continue_steps
            || self.state.bytes_since_continue >= limits.continue_bytes;
        if !long || self.state.status.is_terminal() || self.broken.is_some() {
            return;
        }
        self.signal = None;
        self.emit_run(Body::RunContinued { count: self.state.continues + 1 });
        let state = self.state.to_checkpoint();
        self.effect(Effect::Checkpoint { seq: self.state.last_seq, state });
    }
}

impl RunState {
    /// The outputs of the last steps, by step id; or the events that have to be read for it.
    ///
    /// # Errors
    /// Sequence numbers of events whose content is not at hand.
    pub fn output(&mut self) -> Result<Json, Vec<u64>> {
        let plan = self.plan.clone();
        let mut missing = Vec::new();
        let mut text = String::from("{");
        for step in &plan.last_steps {
            let Some(output) = self.output_json(*step, &mut missing) else { continue };
            if text.len() > 1 {
                text.push(',');
            }
            let id = serde_json::Value::String(plan.step(*step).id.to_string());
            text.push_str(&format!("{id}:{}", output.as_str()));
        }
        text.push('}');
        if missing.is_empty() { Ok(Json::trusted(text)) } else { Err(missing) }
    }

    /// Forgets what can be read again from the log, if it is much. Only for a state whose events are all stored.
    pub fn trim(&mut self) {
        if self.scratch.facts.weight() + self.scratch.artifact_bytes > FACT_BYTES {
            self.scratch.facts.clear();
            self.scratch.artifacts.clear();
            self.scratch.artifact_bytes = 0;
            self.scratch.items.clear();
        }
        self.scratch.items.retain(|_, list| list.weight() <= LIST_BYTES);
    }

    /// At the end of a decision.
    pub(super) fn forget_large_values(&mut self) {
        self.scratch.facts.forget_large_values();
    }
}
