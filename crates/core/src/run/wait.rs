//! `sleep` and `wait`: steps that hold neither a thread nor a lease while they last.

use serde_json::Value;

use super::Decider;
use super::evaluate::NoValue;
use super::state::{Buffered, Running, RunningKind};
use crate::event::{Body, ErrorInfo, Started, StepRef};
use crate::json::Json;

impl Decider<'_> {
    pub(super) fn begin_sleep(&mut self, step: StepRef) -> Result<(), NoValue> {
        let input = self.state.input(step, self.context.limits)?;
        let Some(ms) = input.value.get("ms").and_then(whole_number) else {
            return Err(bad_input("`sleep` needs `ms`, a whole number of milliseconds"));
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
        let line = self.state.inbox.get(signal);
        let buffered =
            line.and_then(|line| line.iter().find(|buffered| buffered.is_for(step))).map(|buffered| buffered.seq);
        // Whether its content is at hand must be known before the first event is emitted.
        let payload = match buffered {
            None => None,
            Some(seq) => {
                let json = self.state.scratch.facts.json(seq).cloned();
                Some((seq, json.ok_or(NoValue::Missing(vec![seq]))?))
            }
        };
        self.start_waiting(step, Started { waits_for, due_at, input_hash: Some(input.hash), ..Started::default() });
        if let Some((seq, payload)) = payload {
            self.answer_wait(step, seq, payload);
        }
        Ok(())
    }

    pub(super) fn start_waiting(&mut self, step: StepRef, started: Started) {
        let (logical, engine) = self.attempts_of_start(step);
        self.emit_step(step, logical, engine, Body::StepStarted(started));
    }

    /// The step that has waited longest for this signal; the one named, if one is.
    pub(super) fn waiting_step(&self, name: &str, signal: Buffered) -> Option<StepRef> {
        let waits = |at: StepRef, running: &Running| match &running.kind {
            RunningKind::Wait { signal: awaited, since } if awaited == name && signal.is_for(at) => Some((*since, at)),
            _ => None,
        };
        self.state.running.iter().filter_map(|(at, running)| waits(*at, running)).min().map(|(_, at)| at)
    }

    /// The signal that a `wait` step waited for is there: its payload is the output, its event the cause.
    pub(super) fn answer_wait(&mut self, step: StepRef, seq: u64, payload: Json) {
        let Some(state) = self.state.step(step).copied() else { return };
        let body = Body::StepCompleted { output: Some(payload), beyond: None };
        self.emit(Some(step), state.logical_attempt, state.engine_attempt, Some(seq), body);
        self.item_has_ended(step);
    }
}

/// `1e3` is a whole number, too.
fn whole_number(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_f64().filter(|ms| ms.fract() == 0.0 && (0.0..1e15).contains(ms)).map(|ms| ms as u64))
}

fn bad_input(message: &str) -> NoValue {
    NoValue::Failed(ErrorInfo::fatal("bad_input", message))
}
