//! A timer rings: the end of a sleep, of somebody's patience, of a backoff, or the time to start.

use super::state::{RunningKind, TimerPurpose};
use super::step::stale;
use super::{Decider, Effect, Rejection};
use crate::event::{ErrorInfo, StepRef};
use crate::json::Json;

impl Decider<'_> {
    /// A timer that rings too early or twice changes nothing.
    pub(super) fn fire_timer(&mut self, seq: u64) -> Result<(), Rejection> {
        let timer = self.state.timers.get(&seq).copied().filter(|timer| timer.due_at <= self.context.now);
        match timer.map(|timer| timer.purpose) {
            None => return Err(stale("there is no such timer, or it is not due")),
            Some(TimerPurpose::StartAt) => self.start_if_possible(),
            // The timer stays armed until the step begins: a pause may come first.
            Some(TimerPurpose::Retry(step)) => self.state.scratch.fresh.push(step),
            Some(TimerPurpose::End(step)) => self.end_patience(step),
        }
        Ok(())
    }

    fn end_patience(&mut self, step: StepRef) {
        let (Some(running), Some(state)) = (self.state.running.get(&step).cloned(), self.state.step(step).copied())
        else {
            return;
        };
        let limit = self.state.plan.step(step.step).timeout_ms.unwrap_or(0);
        let late = |what: String| ErrorInfo::retryable("timeout", format!("{what} took longer than {limit} ms"));
        let error = match running.kind {
            RunningKind::Sleep => {
                let output = Json::trusted("{}");
                return self.step_has_completed(step, state.logical_attempt, state.engine_attempt, output);
            }
            RunningKind::Wait { signal, .. } => late(format!("the wait for the signal `{signal}`")),
            RunningKind::Child { run } => {
                self.effect(Effect::StopChild { child: run, terminate: false });
                late(format!("the child run {run}"))
            }
            RunningKind::Leased { .. } => {
                self.cancel_task(step);
                late("the step".to_owned())
            }
            RunningKind::Task { .. } | RunningKind::Items => return,
        };
        self.step_has_failed(step, state.logical_attempt, state.engine_attempt, error);
    }
}
