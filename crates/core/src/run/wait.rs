//! `sleep` and `wait`: steps that hold neither a thread nor a lease while they last.

use serde_json::Value;

use super::Decider;
use super::evaluate::NoValue;
use super::state::RunningKind;
use crate::event::{Body, ErrorInfo, Started, StepRef};
use crate::json::Json;

impl Decider<'_> {
    pub(super) fn begin_sleep(&mut self, step: StepRef) -> Result<(), NoValue> {
        let input = self.state.input(step, self.context.limits)?;
        let Some(ms) = input.value.get("ms").and_then(Value::as_u64) else {
            return Err(bad_input("`sleep` needs `ms`, a number of milliseconds"));
        };
        // A time limit guards against what may hang; a sleep cannot.
        let due_at = self.context.now.plus_ms(ms);
        self.start_waiting(step, Started { due_at: Some(due_at), input_hash: Some(input.hash), ..Started::default() });
        Ok(())
    }

    pub(super) fn begin_wait(&mut self, step: StepRef) -> Result<(), NoValue> {
        let input = self.state.input(step, self.context.limits)?;
        let Some(signal) = input.value.get("signal").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            return Err(bad_input("`wait` needs `signal`, the name of the signal to wait for"));
        };
        let due_at = self.state.plan.step(step.step).timeout_ms.map(|ms| self.context.now.plus_ms(ms));
        let waits_for = Some(signal.to_owned());
        let buffered = self.state.inbox.get(signal).and_then(|line| line.front()).copied();
        // Whether its content is at hand must be known before the first event is emitted.
        let payload = match buffered {
            None => None,
            Some(seq) => Some(self.state.fact(seq).map(|fact| fact.json.clone()).ok_or(NoValue::Missing(vec![seq]))?),
        };
        self.start_waiting(step, Started { waits_for, due_at, input_hash: Some(input.hash), ..Started::default() });
        if let Some(payload) = payload {
            self.answer_wait(step, payload);
        }
        Ok(())
    }

    pub(super) fn start_waiting(&mut self, step: StepRef, started: Started) {
        let (logical, engine) = self.attempts_of_start(step);
        self.emit_step(step, logical, engine, Body::StepStarted(started));
    }

    /// The step that has waited longest for this signal; the one named, if one is.
    pub(super) fn waiting_step(&self, name: &str, step: Option<StepRef>) -> Option<StepRef> {
        let waits =
            |running: &super::state::Running| matches!(&running.kind, RunningKind::Wait { signal } if signal == name);
        let mut waiting =
            self.state.running.iter().filter(|(at, running)| waits(running) && step.is_none_or(|step| step == **at));
        waiting.next().map(|(at, _)| *at)
    }

    /// The signal that a `wait` step waited for is there: its payload is the output.
    pub(super) fn answer_wait(&mut self, step: StepRef, payload: Json) {
        let Some(state) = self.state.step(step).copied() else { return };
        self.step_has_completed(step, state.logical_attempt, state.engine_attempt, payload);
    }
}

fn bad_input(message: &str) -> NoValue {
    NoValue::Failed(ErrorInfo::fatal("bad_input", message))
}
