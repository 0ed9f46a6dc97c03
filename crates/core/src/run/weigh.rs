//! What a patch means for each step of a run, worked out on two plans and a state.
//!
//! **Invariant:** looking changes nothing: a preview and the patch itself see the same.

use std::collections::BTreeSet;

use super::patch::PatchEffects;
use super::state::{Phase, RunState};
use super::{Rejection, RejectionKind};
use crate::plan::{Plan, StepIndex};
use crate::status::SkipReason;

/// Goes over the steps of both plans, then over what follows from that along the edges of the new one.
pub(super) struct Weighing<'a> {
    state: &'a RunState,
    next: &'a Plan,
    rerun: bool,
    effects: PatchEffects,
    again: BTreeSet<StepIndex>,
    /// Cannot be touched: they are under way, or have ended and nobody said `rerun`.
    begun: BTreeSet<StepIndex>,
    /// Under way with the results of steps that would run again.
    downstream: BTreeSet<StepIndex>,
}

/// Where a step stands, as a patch sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stand {
    Waits,
    UnderWay,
    /// Has a result that others may have seen, or that an operator wanted so.
    Ended,
    Failed,
    /// Skipped for a failure before it.
    HeldBack,
}

impl<'a> Weighing<'a> {
    pub(super) fn new(state: &'a RunState, next: &'a Plan, rerun: bool) -> Weighing<'a> {
        let effects = PatchEffects::default();
        let (again, begun, downstream) = Default::default();
        Weighing { state, next, rerun, effects, again, begun, downstream }
    }

    pub(super) fn weigh(mut self) -> (PatchEffects, Option<Rejection>) {
        for index in 0..self.next.steps.len() as StepIndex {
            self.compare(index);
        }
        for index in self.next.order.clone() {
            self.run_after(index);
        }
        let refused = self.refusal();
        self.find_held_back();
        self.effects.rerun = self.again.iter().copied().collect();
        let touched = |index: &StepIndex| {
            self.again.contains(index)
                || self.effects.changed.binary_search(index).is_ok()
                || self.effects.added.binary_search(index).is_ok()
        };
        self.effects.kept = self.next.order.iter().copied().filter(|index| !touched(index)).collect();
        self.effects.kept.sort_unstable();
        (self.effects, refused)
    }

    fn stand(&self, index: StepIndex) -> Stand {
        let Some(state) = self.state.steps.get(index as usize) else { return Stand::Waits };
        match state.phase {
            Phase::Running => Stand::UnderWay,
            Phase::Failed => Stand::Failed,
            Phase::Skipped(SkipReason::UpstreamFailed) => Stand::HeldBack,
            Phase::Skipped(SkipReason::Removed) => Stand::Waits,
            Phase::Completed | Phase::Skipped(_) => Stand::Ended,
            // A `foreach` step that is tried again has the results of the items that ended well.
            Phase::Pending | Phase::Ready | Phase::Backoff if self.state.items.contains_key(&index) => Stand::Ended,
            Phase::Pending | Phase::Ready | Phase::Backoff => Stand::Waits,
        }
    }

    fn compare(&mut self, index: StepIndex) {
        let was = self.state.plan.steps.get(index as usize).filter(|step| !step.removed);
        let is = Some(self.next.step(index)).filter(|step| !step.removed);
        match (was, is) {
            (None, None) => {}
            (None, Some(_)) => self.effects.added.push(index),
            (Some(_), None) => self.remove(index),
            (Some(was), Some(is)) => {
                if !was.is_the_same(is) {
                    self.effects.changed.push(index);
                }
                if !was.does_the_same(is) {
                    self.change(index);
                }
            }
        }
    }

    fn remove(&mut self, index: StepIndex) {
        match self.stand(index) {
            Stand::UnderWay => drop(self.begun.insert(index)),
            Stand::Ended if !self.rerun => drop(self.begun.insert(index)),
            Stand::Ended | Stand::Failed => self.effects.orphaned.push(index),
            Stand::Waits | Stand::HeldBack => self.effects.removed.push(index),
        }
    }

    fn change(&mut self, index: StepIndex) {
        match self.stand(index) {
            Stand::UnderWay => drop(self.begun.insert(index)),
            Stand::Ended if !self.rerun => drop(self.begun.insert(index)),
            Stand::Ended | Stand::Failed => drop(self.again.insert(index)),
            Stand::Waits | Stand::HeldBack => {}
        }
    }

    /// What has seen the result of a step that runs again runs again.
    fn run_after(&mut self, index: StepIndex) {
        if self.again.contains(&index) || !self.next.step(index).depends_on.iter().any(|step| self.again.contains(step))
        {
            return;
        }
        let operator = self.state.steps.get(index as usize).map(|state| state.phase);
        match self.stand(index) {
            Stand::Ended if operator == Some(Phase::Skipped(SkipReason::Operator)) => {}
            Stand::Ended | Stand::Failed => drop(self.again.insert(index)),
            Stand::UnderWay => drop(self.downstream.insert(index)),
            Stand::Waits | Stand::HeldBack => {}
        }
    }

    fn refusal(&self) -> Option<Rejection> {
        let names = |steps: &BTreeSet<StepIndex>| {
            let steps: Vec<StepIndex> = steps.iter().copied().collect();
            names_of(self.next, &steps)
        };
        let mut told = Vec::new();
        if !self.begun.is_empty() {
            let hint = match self.begun.iter().all(|step| self.stand(*step) == Stand::Ended) {
                true => "; say `rerun` to have them run again",
                false => "",
            };
            told.push(format!("steps that have begun are not changed: {}{hint}", names(&self.begun)));
        }
        if !self.downstream.is_empty() {
            let names = names(&self.downstream);
            told.push(format!(
                "steps are under way with results of steps that would run again: {names}; wait for them"
            ));
        }
        (!told.is_empty()).then(|| Rejection::new(RejectionKind::Conflict, "step_started", told.join("; ")))
    }

    /// Along the new edges: what is held back by something that did not end well, and what no longer is.
    fn find_held_back(&mut self) {
        let mut dead: Vec<Option<SkipReason>> = vec![None; self.next.steps.len()];
        for index in self.next.order.clone() {
            let held = self.next.step(index).depends_on.iter().find_map(|before| dead[*before as usize]);
            let phase = self.state.steps.get(index as usize).map(|state| state.phase);
            let added = self.effects.added.binary_search(&index).is_ok();
            dead[index as usize] = match phase {
                Some(Phase::Failed) if !self.again.contains(&index) => Some(SkipReason::UpstreamFailed),
                Some(Phase::Skipped(reason @ (SkipReason::Operator | SkipReason::Cancelled)))
                    if !self.again.contains(&index) =>
                {
                    Some(reason)
                }
                Some(Phase::Skipped(SkipReason::UpstreamFailed)) => {
                    if held.is_none() {
                        self.effects.reset.push(index);
                    }
                    held.map(|_| SkipReason::UpstreamFailed)
                }
                Some(Phase::Running) => None,
                Some(Phase::Completed | Phase::Skipped(SkipReason::CacheHit | SkipReason::Condition))
                    if !added && !self.again.contains(&index) =>
                {
                    None
                }
                _ => {
                    self.effects.doomed.extend(held.map(|reason| (index, reason)));
                    held
                }
            };
        }
        self.effects.reset.sort_unstable();
    }
}

pub(super) fn names_of(plan: &Plan, steps: &[StepIndex]) -> String {
    let names: Vec<String> = steps.iter().map(|step| format!("`{}`", plan.step(*step).id)).collect();
    names.join(", ")
}
