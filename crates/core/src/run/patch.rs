//! `Patch`: the definition of a run is changed while it runs.
//!
//! What has not begun may change in every way. What is under way stays as it is. What has ended keeps its result unless the
//! caller says `rerun`; failed steps have none to keep, and run again when they are changed. How often, how long and in
//! which line a step is tried may change at any time.
//!
//! **Invariant:** whether a patch fits is decided on the state that its event follows, whole: it is in force for all steps
//! or for none.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::flight::keeps_results;
use super::state::{Phase, RunState};
use super::weigh::{Weighing, names_of};
use super::{Decider, Rejection, RejectionKind};
use crate::event::{Body, Patched, SetBack, StepRef};
use crate::id::SignalId;
use crate::json::Json;
use crate::plan::{Plan, StepIndex};
use crate::status::SkipReason;

/// A change of a run's definition that somebody wants.
#[derive(Clone, Debug)]
pub struct PatchRun {
    /// The same patch sent twice is one patch.
    pub id: SignalId,
    /// What the run is to follow. It says which plan it was made of.
    pub plan: Arc<Plan>,
    pub ops: Option<Json>,
    /// What has ended may be changed, and runs again.
    pub rerun: bool,
    pub message: Option<String>,
    pub actor: Option<String>,
    /// The patch that this one takes back.
    pub undoes: Option<SignalId>,
    /// It counts only if the run still stands at this event.
    pub expected_seq: Option<u64>,
}

/// What a patch means for the steps of a run, in the numbers of the plan that it makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchEffects {
    /// Stay as they are.
    pub kept: Vec<StepIndex>,
    pub added: Vec<StepIndex>,
    pub changed: Vec<StepIndex>,
    /// Go before they had ended.
    pub removed: Vec<StepIndex>,
    /// Go after they had: what they did is in the log, and nobody sees their output any more.
    pub orphaned: Vec<StepIndex>,
    /// Had ended, and run again.
    pub rerun: Vec<StepIndex>,
    /// Had been skipped for a failure that holds them back no more.
    pub reset: Vec<StepIndex>,
    /// Cannot run, as what they depend on did not end well.
    pub(super) doomed: Vec<(StepIndex, SkipReason)>,
}

impl Decider<'_> {
    pub(super) fn patch(&mut self, patch: PatchRun) -> Result<(), Rejection> {
        if self.state.seen_signals.contains(&patch.id) {
            return Ok(());
        }
        let last_seq = self.state.last_seq;
        if let Some(expected) = patch.expected_seq.filter(|expected| *expected != last_seq) {
            let message = format!("the run is at event {last_seq}, not at {expected}: it went on; read it again");
            return Err(Rejection::new(RejectionKind::Conflict, Rejection::MOVED, message));
        }
        let effects = self.state.patch_effects(&patch)?;
        self.follow_plan(patch, None, &effects);
        Ok(())
    }

    /// The new plan is in force; what it makes ready is looked at in the same decision.
    pub(super) fn follow_plan(&mut self, patch: PatchRun, step: Option<StepRef>, effects: &PatchEffects) {
        let moved = self.state.moves();
        self.state.learn_plan(patch.plan.clone());
        let signal = self.signal.replace(patch.id);
        let actor = std::mem::replace(&mut self.actor, patch.actor.as_deref().map(Arc::from));
        let kept = keeps_results(&self.state.plan);
        let awaiting: Vec<StepRef> = self.state.awaited_flights().map(|(step, _)| step).collect();
        self.emit_run(Body::RunPatched(Box::new(self.state.to_patched(patch, step, effects))));
        (self.signal, self.actor) = (signal, actor);
        let cause = self.state.last_seq;
        if kept {
            // Whatever has not begun has another key from here on.
            self.land_waiting();
            self.state.scratch.fresh.extend(awaiting);
        }
        for (doomed, reason) in &effects.doomed {
            let attempt = self.state.steps[*doomed as usize].logical_attempt;
            self.emit(Some(StepRef::whole(*doomed)), attempt, 0, Some(cause), Body::StepSkipped { reason: *reason });
        }
        if !moved && self.state.moves() {
            self.look_at_all();
        }
    }
}

impl RunState {
    /// What a patch would mean for this run.
    ///
    /// # Errors
    /// It does not fit the run as it stands.
    pub fn patch_effects(&self, patch: &PatchRun) -> Result<PatchEffects, Rejection> {
        match self.preview_patch(patch) {
            (effects, None) => Ok(effects),
            (_, Some(rejection)) => Err(rejection),
        }
    }

    /// The same, also of a patch that would be refused; then it is said why.
    #[must_use]
    pub fn preview_patch(&self, patch: &PatchRun) -> (PatchEffects, Option<Rejection>) {
        let (effects, refused) = Weighing::new(self, &patch.plan, patch.rerun).weigh();
        match self.check_patch(patch) {
            Err(rejection) => (effects, Some(rejection)),
            Ok(()) => (effects, refused),
        }
    }

    fn check_patch(&self, patch: &PatchRun) -> Result<(), Rejection> {
        let conflict = |code, message| Err(Rejection::new(RejectionKind::Conflict, code, message));
        if self.status.is_terminal() {
            return conflict("run_ended", format!("the run is {} and cannot be patched any more", self.status));
        }
        if self.stopping {
            return conflict("run_ended", "the run is being cancelled and cannot be patched any more".to_owned());
        }
        if patch.plan.after != Some(self.plan.hash) {
            let message = "the run has another plan by now; apply the patch to that one".to_owned();
            return conflict(Rejection::PLAN_MOVED, message);
        }
        match patch.undoes {
            Some(undone) => self.check_undo(undone),
            None => Ok(()),
        }
    }

    /// The newest patch that is in force, and the plan before it.
    #[must_use]
    pub fn newest_patch(&self) -> Option<(SignalId, crate::hash::Digest)> {
        self.patches.back().map(|patch| (patch.id, patch.before))
    }

    /// A patch can be taken back while it is the newest and nothing of what it brought has begun.
    fn check_undo(&self, undone: SignalId) -> Result<(), Rejection> {
        let newest = self.patches.back().filter(|patch| patch.id == undone);
        let Some(newest) = newest else {
            let known = self.patches.iter().any(|patch| patch.id == undone);
            return Err(match known {
                true => touched(format!("a later patch follows patch {undone}; undo that one first")),
                false => {
                    let message = format!("the run has no patch {undone} that could be undone");
                    Rejection::new(RejectionKind::NotFound, "unknown_patch", message)
                }
            });
        };
        let begun = |(step, logical, engine): &&(StepIndex, u32, u32)| {
            let state = &self.steps[*step as usize];
            let waits = matches!(
                state.phase,
                Phase::Pending | Phase::Ready | Phase::Backoff | Phase::Skipped(SkipReason::UpstreamFailed)
            );
            !waits || (state.logical_attempt, state.engine_attempt) != (*logical, *engine)
        };
        let begun: Vec<StepIndex> = newest.touched.iter().filter(begun).map(|(step, _, _)| *step).collect();
        match begun.is_empty() {
            true => Ok(()),
            false => {
                let names = names_of(&self.plan, &begun);
                Err(touched(format!("steps that the patch added or changed have begun: {names}; patch them instead")))
            }
        }
    }

    fn to_patched(&self, patch: PatchRun, step: Option<StepRef>, effects: &PatchEffects) -> Patched {
        let back = |step: StepIndex| {
            let items = self.items.get(&step).map_or(0, |items| items.steps.count());
            SetBack { step, items: u32::try_from(items).unwrap_or(u32::MAX) }
        };
        let removed: BTreeSet<StepIndex> = effects.removed.iter().chain(&effects.orphaned).copied().collect();
        Patched {
            before: self.plan.hash,
            plan: patch.plan.hash,
            ops: patch.ops,
            message: patch.message,
            step,
            undoes: patch.undoes,
            added: effects.added.clone(),
            changed: effects.changed.clone(),
            removed: removed.into_iter().map(back).collect(),
            orphaned: effects.orphaned.clone(),
            rerun: effects.rerun.iter().copied().map(back).collect(),
            reset: effects.reset.clone(),
            steps_total: patch.plan.steps_total(),
        }
    }
}

fn touched(message: String) -> Rejection {
    Rejection::new(RejectionKind::Conflict, "patch_touched", message)
}
