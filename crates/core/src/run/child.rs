//! `workflow`: a step that is a run of its own.

use serde_json::{Value, json};

use super::evaluate::NoValue;
use super::step::{json_fits, stale};
use super::{ChildOutcome, ChildStart, Decider, Effect, Rejection};
use crate::event::{Body, ErrorInfo, ParentStep, Started, StepRef};
use crate::id::RunId;
use crate::json::Json;
use crate::status::SkipReason;
use crate::trace::{SpanId, TraceContext};

impl Decider<'_> {
    pub(super) fn begin_child(&mut self, step: StepRef) -> Result<(), NoValue> {
        let input = self.state.input(step, self.context.limits)?;
        let Some(reference) = input.value.get("ref").and_then(Value::as_str).filter(|reference| !reference.is_empty())
        else {
            let message = "`workflow` needs `ref`, the name of the workflow to run";
            return Err(NoValue::Failed(ErrorInfo::fatal("bad_input", message)));
        };
        let payload = input.value.get("payload").cloned().unwrap_or_else(|| json!({}));
        let child = self.context.draw_run_id();
        let due_at = self.state.plan.step(step.step).timeout_ms.map(|ms| self.context.now.plus_ms(ms));
        let (logical, engine) = self.attempts_of_start(step);
        let started = Started { child: Some(child), due_at, input_hash: Some(input.hash), ..Started::default() };
        self.emit_step(step, logical, engine, Body::StepStarted(started));
        let name = step.name(&self.state.plan);
        let span = SpanId::of_attempt(self.state.run, &name, logical, engine);
        self.effect(Effect::StartChild(Box::new(ChildStart {
            run: child,
            reference: reference.to_owned(),
            payload: Json::of(&payload),
            priority: self.state.priority,
            parent: ParentStep {
                run: self.state.run,
                step: name,
                logical_attempt: logical,
                depth: self.state.parent.as_ref().map_or(1, |parent| parent.depth + 1),
            },
            trace: TraceContext::of_span(self.state.run, self.state.trace, span),
        })));
        Ok(())
    }

    pub(super) fn child_ended(&mut self, child: RunId, outcome: ChildOutcome) -> Result<(), Rejection> {
        let step = self.state.children.get(&child).copied();
        let Some((step, state)) = step.and_then(|step| Some((step, *self.state.step(step)?))) else {
            return Err(stale("no step waits for this child run"));
        };
        let (logical, engine) = (state.logical_attempt, state.engine_attempt);
        match outcome {
            ChildOutcome::Completed { output } if output.len() <= self.most_output() => {
                match json_fits(&output, self.context.limits.json_depth) {
                    Ok(()) => self.step_has_completed(step, logical, engine, output),
                    Err(error) => {
                        let message = format!("the output of the child run {child} {error}");
                        self.step_has_failed(step, logical, engine, ErrorInfo::fatal("bad_output", message));
                    }
                }
            }
            ChildOutcome::Completed { output } => {
                let message = format!(
                    "the output of the child run {child} has {} bytes, the limit is {}; let its last steps return references",
                    output.len(),
                    self.most_output()
                );
                self.step_has_failed(step, logical, engine, ErrorInfo::fatal("output_too_large", message));
            }
            ChildOutcome::Failed { error } => self.step_has_failed(step, logical, engine, error),
            ChildOutcome::Stopped if self.state.stopping => {
                self.emit_step(step, logical, engine, Body::StepSkipped { reason: SkipReason::Cancelled });
                self.item_has_ended(step);
            }
            ChildOutcome::Stopped => {
                let error = ErrorInfo::fatal("child_stopped", format!("the child run {child} was stopped"));
                self.step_has_failed(step, logical, engine, error);
            }
        }
        Ok(())
    }
}
