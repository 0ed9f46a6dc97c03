//! A step in the hands of a worker: given, answered for, lost.
//!
//! **Invariant:** only the attempt that is under way changes anything, and only if its answer carries the lease's nonce. An
//! answer that comes again is taken as the first time; whatever else comes late is refused.

use super::state::{Phase, RunningKind};
use super::step::stale;
use super::{Decider, Effect, Outcome, Rejection, TaskRef};
use crate::event::{Lease, Started, StepRef};

impl Decider<'_> {
    /// The time limit of a step that a worker has is a timer: it counts whoever watches the lease.
    pub(super) fn lease(&mut self, step: StepRef, lease: Lease) -> Result<(), Rejection> {
        let limit = self.state.plan.steps.get(step.step as usize).and_then(|planned| planned.timeout_ms);
        let due_at = limit.map(|ms| self.context.now.plus_ms(ms));
        let started = Started { due_at, ..Started::default() };
        if let Some(task) = self.begin_task(step, started, Some(&lease))? {
            self.effect(Effect::HandOver { task: Box::new(task), lease });
        }
        Ok(())
    }

    pub(super) fn report(&mut self, task: TaskRef, nonce: u64, outcome: Outcome) -> Result<(), Rejection> {
        if self.has_ended_so(task, &outcome) {
            return Ok(());
        }
        let held = self.state.running.get(&task.step).map(|running| &running.kind);
        if !matches!(held, Some(RunningKind::Leased { proof }) if proof.is_of(self.state.run, task, nonce)) {
            return Err(stale("another attempt has taken over, or the run has ended; drop this one"));
        }
        match outcome {
            Outcome::Completed(output) => self.complete(task, output),
            Outcome::Failed(error) => self.fail(task, error),
        }
    }

    /// The very attempt has ended, and as it says: its first answer was lost on the way back.
    fn has_ended_so(&self, task: TaskRef, outcome: &Outcome) -> bool {
        self.state.step(task.step).is_some_and(|step| {
            let same = (step.logical_attempt, step.engine_attempt) == (task.logical_attempt, task.engine_attempt);
            match step.phase {
                Phase::Completed => same && matches!(outcome, Outcome::Completed(_)),
                Phase::Failed => same && matches!(outcome, Outcome::Failed(_)),
                _ => false,
            }
        })
    }

    /// An infrastructure retry: the engine attempt grows, the logical attempt does not.
    pub(super) fn lose_lease(&mut self, task: TaskRef) -> Result<(), Rejection> {
        let leased = self.state.running.get(&task.step).map(|running| &running.kind);
        if !self.state.has_task(task) || !matches!(leased, Some(RunningKind::Leased { .. })) {
            return Err(stale("the attempt is over"));
        }
        self.take_over(task.step);
        Ok(())
    }
}
