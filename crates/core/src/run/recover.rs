//! Taking over a run whose node is gone: what that node had in hand is handed out again.

use super::Decider;
use super::state::RunningKind;
use crate::event::{Body, ErrorInfo, StepRef};
use crate::id::NodeId;
use crate::status::SkipReason;

impl Decider<'_> {
    /// An infrastructure retry: the engine attempt grows, the logical attempt does not.
    pub(super) fn adopt(&mut self, lost: Option<NodeId>) {
        let held =
            |kind: &RunningKind| matches!(kind, RunningKind::Task { worker } if lost.is_some() && *worker == lost);
        let orphans: Vec<StepRef> =
            self.state.running.iter().filter(|(_, running)| held(&running.kind)).map(|(step, _)| *step).collect();
        for step in orphans {
            self.take_over(step);
        }
        self.look_at_all();
    }

    pub(super) fn take_over(&mut self, step: StepRef) {
        let Some(state) = self.state.step(step).copied() else { return };
        let (logical, engine) = (state.logical_attempt, state.engine_attempt);
        if self.state.stopping {
            self.skip_attempt(step, SkipReason::Cancelled);
        } else if engine >= self.context.limits.engine_attempts {
            let message = format!("its worker was lost {engine} times; the step may be bringing the process down");
            self.step_has_failed(step, logical, engine, ErrorInfo::fatal("worker_lost", message));
        } else {
            let body = Body::StepRetryScheduled { retry_at: self.context.now, reset: Vec::new(), operator: false };
            self.emit_step(step, logical, engine + 1, body);
            self.land_if_it_must_wait(step);
        }
    }
}
