//! A step is handed out, and its executor answers.

use super::evaluate::NoValue;
use super::state::Phase;
use super::{Decider, Effect, Rejection, RejectionKind, Task, TaskRef};
use crate::canonical::{self, Glance};
use crate::event::{Body, ErrorInfo, Lease, LeaseHolder, LeaseProof, Started, StepRef};
use crate::id::NodeId;
use crate::json::Json;
use crate::plan::{Action, StepIndex};
use crate::status::SkipReason;
use crate::text;

impl Decider<'_> {
    /// An executor takes a ready step.
    pub(super) fn dispatch(&mut self, step: StepRef, worker: NodeId) -> Result<(), Rejection> {
        let started = Started { worker: Some(worker), ..Started::default() };
        if let Some(task) = self.begin_task(step, started, None)? {
            self.effect(Effect::Execute(Box::new(task)));
        }
        Ok(())
    }

    /// A ready step begins in somebody's hands, unless its input cannot be had (now).
    pub(super) fn begin_task(
        &mut self,
        step: StepRef,
        started: Started,
        lease: Option<&Lease>,
    ) -> Result<Option<Task>, Rejection> {
        if !self.state.moves() || !self.state.is_startable(step, self.context.now) {
            return Err(stale("the step is not ready (any more)"));
        }
        let planned = self.state.plan.step(step.step);
        if planned.action != Action::Task || (planned.foreach.is_some() && step.item.is_none()) {
            return Err(stale("the step needs no executor"));
        }
        let input = match self.state.input(step, self.context.limits) {
            Ok(input) => input,
            Err(NoValue::Missing(seqs)) => {
                // Looked at again, and offered again, once the facts are there.
                self.state.scratch.blocked.push(step);
                self.decision.missing.extend(seqs);
                return Ok(None);
            }
            Err(NoValue::Failed(error)) => {
                let attempt = self.next_attempt(step);
                self.step_has_failed(step, attempt, 0, error);
                return Ok(None);
            }
        };
        let Ok(cache_key) = self.key_of_start(step, &input) else { return Ok(None) };
        let (logical_attempt, engine_attempt) = self.attempts_of_start(step);
        let task = TaskRef { step, logical_attempt, engine_attempt };
        let holder = |lease: &Lease| LeaseHolder {
            worker: lease.worker.clone(),
            proof: LeaseProof::new(self.state.run, task, lease.nonce),
        };
        let started = Started { lease: lease.map(holder), input_hash: Some(input.hash), cache_key, ..started };
        self.emit_step(step, logical_attempt, engine_attempt, Body::StepStarted(started));
        Ok(Some(Task {
            task,
            index: step.step,
            step_id: step.name(&self.state.plan),
            input: input.json,
            placeholders: input.placeholders,
            trace: self.state.trace,
        }))
    }

    /// Logical and engine attempt of a start that is about to be recorded.
    pub(super) fn attempts_of_start(&self, step: StepRef) -> (u32, u32) {
        let logical = self.next_attempt(step);
        let engine = match self.state.step(step) {
            Some(state) if state.logical_attempt == logical => state.engine_attempt + 1,
            _ => 1,
        };
        (logical, engine)
    }

    pub(super) fn complete(&mut self, task: TaskRef, output: Json) -> Result<(), Rejection> {
        self.check_task(task)?;
        let most = self.most_output();
        if output.len() > most {
            let error = ErrorInfo::fatal(
                "output_too_large",
                format!(
                    "the output has {} bytes, the limit is {}; store it elsewhere and return a reference to it",
                    output.len(),
                    most
                ),
            );
            self.step_has_failed(task.step, task.logical_attempt, task.engine_attempt, error);
            return Ok(());
        }
        if let Err(error) = json_fits(&output, self.context.limits.json_depth) {
            let error = ErrorInfo::fatal("bad_output", format!("the output {error}"));
            self.step_has_failed(task.step, task.logical_attempt, task.engine_attempt, error);
            return Ok(());
        }
        match self.returned_patch(task.step, &output) {
            Some(ops) => self.complete_with_patch(task, output, ops),
            None => self.step_has_completed(task.step, task.logical_attempt, task.engine_attempt, output),
        }
        Ok(())
    }

    pub(super) fn fail(&mut self, task: TaskRef, error: ErrorInfo) -> Result<(), Rejection> {
        self.check_task(task)?;
        if self.state.stopping && error.code == "cancelled" {
            let body = Body::StepSkipped { reason: SkipReason::Cancelled };
            self.emit_step(task.step, task.logical_attempt, task.engine_attempt, body);
            self.item_has_ended(task.step);
        } else {
            self.step_has_failed(task.step, task.logical_attempt, task.engine_attempt, error);
        }
        Ok(())
    }

    /// Only the attempt that is under way may say how it ended.
    fn check_task(&self, task: TaskRef) -> Result<(), Rejection> {
        match self.state.has_task(task) {
            true => Ok(()),
            false => Err(stale("another attempt has taken over, or the run has ended")),
        }
    }

    pub(super) fn step_has_completed(&mut self, step: StepRef, logical: u32, engine: u32, output: Json) {
        self.gather_recorded(step);
        self.keep(step, &output);
        self.emit_completed(step, logical, engine, output);
        self.item_has_ended(step);
    }

    /// With what the attempt leaves beyond its output.
    pub(super) fn emit_completed(&mut self, step: StepRef, logical: u32, engine: u32, output: Json) {
        self.gather_recorded(step);
        let beyond = self.beyond.take().filter(|beyond| !beyond.is_empty()).map(Box::new);
        let elsewhere = beyond.as_ref().is_some_and(|beyond| beyond.output_blob.is_some());
        let in_log = (!elsewhere).then(|| output.clone());
        self.emit_step(step, logical, engine, Body::StepCompleted { output: in_log, beyond });
        if elsewhere {
            self.state.learn(self.state.last_seq, output);
        }
    }

    /// Records a failure, and what follows: a retry, or the end of all that depends on the step.
    pub(super) fn step_has_failed(&mut self, step: StepRef, logical: u32, engine: u32, error: ErrorInfo) {
        let error = self.shortened(error);
        let retry = self.retry_delay(step, logical, &error);
        self.emit_step(step, logical, engine, Body::StepFailed { error });
        match retry {
            Some(delay_ms) => self.schedule_retry(step, logical + 1, delay_ms),
            None if step.item.is_some() => self.item_has_ended(step),
            None => self.skip_dependents(step.step, SkipReason::UpstreamFailed),
        }
    }

    /// An error is kept in the log, not a log in the error. Whatever made it, nobody has to ask whether it can be kept.
    fn shortened(&self, error: ErrorInfo) -> ErrorInfo {
        let limits = self.context.limits;
        let mut code = text::without_controls(&error.code).into_owned();
        if let Some((end, _)) = code.char_indices().nth(limits.name_chars) {
            code.truncate(end);
        }
        ErrorInfo { code, message: text::clean(error.message, limits.error_bytes), retryable: error.retryable }
    }

    /// Skips all that can no longer run because `step` did not end well.
    pub(super) fn skip_dependents(&mut self, step: StepIndex, reason: SkipReason) {
        let cause = self.state.last_seq;
        let plan = self.state.plan.clone();
        let mut line: Vec<StepIndex> = plan.step(step).dependents.clone();
        while let Some(next) = line.pop() {
            let open = self.state.steps[next as usize];
            if open.phase != Phase::Pending || self.broken.is_some() {
                continue;
            }
            let body = Body::StepSkipped { reason };
            self.emit(Some(StepRef::whole(next)), open.logical_attempt, 0, Some(cause), body);
            line.extend_from_slice(&plan.step(next).dependents);
        }
    }
}

/// A value that expressions could not read is refused at the door, where its maker can still be told.
pub(super) fn json_fits(json: &Json, limit: usize) -> Result<(), String> {
    let Glance { deepest, odd, .. } = canonical::glance(json.as_str());
    if deepest > limit {
        return Err(format!("is nested {deepest} deep, the limit is {limit}; make it flatter"));
    }
    if odd {
        canonical::parse_strict(json.as_str(), limit).map_err(|error| format!("is no JSON as we take it: {error}"))?;
    }
    Ok(())
}

pub(super) fn stale(message: &str) -> Rejection {
    Rejection::new(RejectionKind::Stale, "stale_attempt", message)
}
