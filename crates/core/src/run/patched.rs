//! `RunPatched` changes the state: another plan is in force, and all that follows from a plan follows from that one.
//!
//! Numbers of steps stay, so what is known of them stays where it is.

use super::apply::{Illegal, illegal};
use super::checkpoint::{count, count_open};
use super::state::{PatchRecord, Phase, RunState, StepState};
use crate::event::{Event, Patched, SetBack, StepRef};
use crate::plan::StepIndex;
use crate::status::{RunStatus, SkipReason};

/// So many patches can be taken back, one after the other.
const REMEMBERED_PATCHES: usize = 100;

impl RunState {
    pub(super) fn run_patched(&mut self, event: &Event, patched: &Patched) -> Result<(), Illegal> {
        if patched.before != self.plan.hash {
            return Err(illegal(
                event,
                format!("it is a patch of the plan {}, this is {}", patched.before, self.plan.hash),
            ));
        }
        let Some(next) = self.scratch.plans.remove(&patched.plan) else {
            return Err(illegal(event, format!("the plan {} is not at hand", patched.plan)));
        };
        if next.steps.len() < self.steps.len() {
            return Err(illegal(event, "its plan has lost numbers of steps"));
        }
        let before = std::mem::replace(&mut self.plan, next);
        // Keys are made of definitions.
        self.forget_flights();
        self.steps.resize(self.plan.steps.len(), StepState::removed());
        let mended = patched.rerun.iter().any(|back| self.steps[back.step as usize].phase == Phase::Failed);
        for SetBack { step, .. } in &patched.removed {
            self.set_back(event, *step, Phase::Skipped(SkipReason::Removed))?;
        }
        for SetBack { step, .. } in &patched.rerun {
            self.set_back(event, *step, Phase::Pending)?;
        }
        for step in &patched.added {
            self.set_back(event, *step, Phase::Pending)?;
        }
        for step in &patched.reset {
            self.steps[*step as usize].phase = Phase::Pending;
        }
        self.count_again(mended);
        self.line_up(event, &patched.changed);
        self.remember_id(event);
        self.remember_patch(event, patched, &before);
        Ok(())
    }

    /// The step stands as if it had not begun. Its attempts count on, so that no two are alike.
    fn set_back(&mut self, event: &Event, step: StepIndex, phase: Phase) -> Result<(), Illegal> {
        let whole = StepRef::whole(step);
        if self.running.contains_key(&whole) {
            return Err(illegal(event, "a step that is under way is not changed"));
        }
        self.stop_waiting(whole);
        self.scratch.items.remove(&step);
        self.scratch.digests.remove(&step);
        self.upstream.forget(step);
        let state = &mut self.steps[step as usize];
        *state = set_back(state, phase);
        if phase == Phase::Pending && self.plan.step(step).foreach.is_some() {
            if let Some(items) = self.items.get_mut(&step) {
                items.steps.iter_mut().for_each(|item| *item = set_back(item, Phase::Pending));
                items.unfinished = u32::try_from(items.steps.len()).unwrap_or(u32::MAX);
                items.failed = 0;
            }
        } else {
            self.items.remove(&step);
        }
        if self.first_failure.as_ref().is_some_and(|failure| failure.step.step == step) {
            self.first_failure = None;
        }
        Ok(())
    }

    fn count_again(&mut self, mended: bool) {
        count_open(&mut self.steps, &self.plan);
        self.unfinished = count(&self.steps, |step| !step.phase.status().is_terminal());
        let of_items: u32 = self.items.values().map(|items| items.failed).sum();
        self.failures = count(&self.steps, |step| step.phase == Phase::Failed) + of_items;
        // Whoever has a failed step tried again knows of the others.
        self.acknowledged = if mended { self.failures } else { self.acknowledged.min(self.failures) };
    }

    /// What waits for more than before leaves the line, what waits for nothing gets in, and what was changed gets in anew:
    /// perhaps it is another line.
    fn line_up(&mut self, event: &Event, changed: &[StepIndex]) {
        let started = matches!(self.status, RunStatus::Running | RunStatus::Paused);
        for index in 0..self.steps.len() {
            let (step, state) = (StepRef::whole(index as StepIndex), self.steps[index]);
            match state.phase {
                Phase::Ready | Phase::Backoff if state.open > 0 => {
                    self.stop_waiting(step);
                    self.steps[index].phase = Phase::Pending;
                }
                Phase::Pending if state.open == 0 && started => self.make_ready(step),
                _ => {}
            }
        }
        for step in changed {
            self.line_up_retry(event, StepRef::whole(*step));
            let of_step = StepRef::whole(*step)..=StepRef::item(*step, u32::MAX);
            let waiting: Vec<StepRef> = self.ready.range(of_step).copied().collect();
            for step in waiting {
                self.leave_line(step);
                self.make_ready(step);
            }
        }
    }

    /// A retry that is due may be in a line that is no longer the step's.
    fn line_up_retry(&mut self, event: &Event, step: StepRef) {
        if self.backoff.get(&step).and_then(|seq| self.timer_due(*seq)).is_some_and(|due| due <= event.at) {
            self.scratch.gone.push((step, false));
            self.scratch.fresh.push(step);
        }
    }

    fn remember_patch(&mut self, event: &Event, patched: &Patched, before: &crate::plan::Plan) {
        self.self_patches += u32::from(patched.step.is_some());
        if patched.undoes.is_some() {
            self.patches.pop_back();
            return;
        }
        let Some(id) = event.signal else { return };
        let other = |step: &&StepIndex| !before.step(**step).does_the_same(self.plan.step(**step));
        let changed = patched.changed.iter().filter(other);
        let rerun = patched.rerun.iter().map(|back| &back.step);
        let mut touched: Vec<StepIndex> = patched.added.iter().chain(changed).chain(rerun).copied().collect();
        touched.sort_unstable();
        touched.dedup();
        let with_attempts = |step: &StepIndex| {
            let state = &self.steps[*step as usize];
            (*step, state.logical_attempt, state.engine_attempt)
        };
        let touched = touched.iter().map(with_attempts).collect();
        if self.patches.len() == REMEMBERED_PATCHES {
            self.patches.pop_front();
        }
        self.patches.push_back(PatchRecord { id, before: patched.before, touched });
    }
}

fn set_back(state: &StepState, phase: Phase) -> StepState {
    StepState { phase, spent: state.logical_attempt, logical_attempt: state.logical_attempt, ..StepState::new(0) }
}
