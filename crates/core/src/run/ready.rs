//! Readiness: what happens to steps whose turn has come. Conditions, and steps that need no executor.

use super::cache::AT_ONCE;
use super::evaluate::NoValue;
use super::state::{Phase, RunState};
use super::{Decider, Effect, StepSlot};
use crate::event::{Body, ErrorInfo, StepRef};
use crate::plan::Action;
use crate::status::SkipReason;

/// Bytes and work that looking at steps takes in one decision. It ends none of them: the rest is looked at in the next one, so
/// that what is committed together is bounded, and other runs have their turn.
const WORK_AT_ONCE: u64 = 32 * 1024 * 1024;

/// What became of a look at a ready step.
type Looked = Result<(), NoValue>;

impl RunState {
    /// Bytes and work that the last decision took.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.scratch.spent
    }

    /// Whether there are ready steps whose turn to be looked at comes with the next decision.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        !self.scratch.postponed.is_empty()
    }
}

impl Decider<'_> {
    /// Looks at all steps that became ready, and at those that become ready by that.
    pub(super) fn advance(&mut self) {
        loop {
            let mut fresh = std::mem::take(&mut self.state.scratch.fresh);
            if fresh.is_empty() && self.decision.cache.is_empty() && !self.has_done_enough() {
                let unasked = &mut self.state.scratch.unasked;
                fresh.extend(unasked.drain(..unasked.len().min(AT_ONCE)));
            }
            if fresh.is_empty() || self.broken.is_some() {
                break;
            }
            for step in fresh {
                if self.has_done_enough() {
                    self.state.scratch.postponed.push(step);
                } else {
                    self.look_at(step);
                }
            }
        }
        if self.has_done_enough() {
            let scratch = &mut self.state.scratch;
            scratch.postponed.extend(scratch.unasked.drain(..));
        }
    }

    fn has_done_enough(&self) -> bool {
        self.state.scratch.spent > WORK_AT_ONCE
    }

    /// Looks again at those that lacked a fact.
    pub(super) fn unblock(&mut self) {
        let mut blocked = std::mem::take(&mut self.state.scratch.blocked);
        blocked.append(&mut self.state.scratch.postponed);
        blocked.sort_unstable();
        blocked.dedup();
        self.state.scratch.fresh.extend(blocked);
    }

    /// Looks at everything that could begin now: after a pause, a reopening, a take-over.
    pub(super) fn look_at_all(&mut self) {
        // Nobody may have heard what was asked before.
        self.state.forget_flights();
        self.state.scratch.unasked.clear();
        self.state.scratch.postponed.clear();
        self.state.scratch.fresh = self.state.startable(self.context.now);
    }

    fn look_at(&mut self, step: StepRef) {
        // A pause or a failure that came first keeps it back; it stays in `ready` until then.
        if !self.state.moves() || self.broken.is_some() || !self.is_waiting(step) {
            return;
        }
        match self.try_begin(step) {
            Ok(()) => {}
            Err(NoValue::Missing(seqs)) => {
                self.state.scratch.blocked.push(step);
                self.decision.missing.extend(seqs);
            }
            Err(NoValue::Failed(error)) => self.fail_before_start(step, error),
        }
    }

    fn is_waiting(&self, step: StepRef) -> bool {
        self.state.step(step).is_some_and(|state| matches!(state.phase, Phase::Ready | Phase::Backoff))
    }

    fn try_begin(&mut self, step: StepRef) -> Looked {
        let plan = self.state.plan.clone();
        let planned = plan.step(step.step);
        if step.item.is_none() {
            if !self.state.condition(step.step, self.context.limits)? {
                let attempt = self.next_attempt(step);
                self.emit_step(step, attempt, 0, Body::StepSkipped { reason: SkipReason::Condition });
                return Ok(());
            }
            if planned.foreach.is_some() {
                return self.begin_items(step);
            }
        }
        match planned.action {
            Action::Task => {
                if !self.has_to_run(step)? {
                    return Ok(());
                }
                let slot = match &planned.concurrency {
                    None => None,
                    Some(concurrency) => {
                        let key = self.state.slot_key_of(step, &concurrency.key, self.context.limits)?;
                        Some(StepSlot { key, limit: concurrency.limit })
                    }
                };
                self.effect(Effect::Ready { step, slot });
                Ok(())
            }
            Action::Sleep => self.begin_sleep(step),
            Action::Wait => self.begin_wait(step),
            Action::Child => self.begin_child(step),
        }
    }

    /// The logical attempt that begins next: the one a retry asked for, or the first.
    pub(super) fn next_attempt(&self, step: StepRef) -> u32 {
        match self.state.step(step) {
            Some(state) if state.spent == state.logical_attempt => state.logical_attempt + 1,
            Some(state) => state.logical_attempt.max(1),
            None => 1,
        }
    }

    fn fail_before_start(&mut self, step: StepRef, error: ErrorInfo) {
        let attempt = self.next_attempt(step);
        self.step_has_failed(step, attempt, 0, error);
    }
}
