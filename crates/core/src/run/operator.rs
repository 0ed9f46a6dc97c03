//! What an operator may do to single steps: `RETRY_STEP` and `SKIP_STEP`.

use super::Decider;
use super::items::Items;
use super::state::{Phase, RunningKind};
use crate::event::{Body, StepRef};
use crate::plan::StepIndex;
use crate::status::{RunStatus, SkipReason};

impl Decider<'_> {
    pub(super) fn retry_refusal(&self, step: StepRef) -> Option<String> {
        let whole = StepRef::whole(step.step);
        match self.state.step(whole)?.phase {
            Phase::Failed if self.state.stopping => Some("the run is being cancelled".to_owned()),
            Phase::Failed => None,
            phase => Some(format!(
                "only a failed step can be retried, `{}` is {}",
                whole.name(&self.state.plan),
                phase.status()
            )),
        }
    }

    /// One more attempt, with a fresh budget. Of a `foreach` step, those items are tried again that failed.
    pub(super) fn retry_step(&mut self, step: Option<StepRef>) {
        let Some(step) = step.map(|step| StepRef::whole(step.step)) else { return };
        if self.state.status == RunStatus::Failed {
            self.reopen_run();
        }
        let state = self.state.steps[step.step as usize];
        let body =
            Body::StepRetryScheduled { retry_at: self.context.now, reset: self.to_reset(step.step), operator: true };
        self.emit_step(step, state.logical_attempt + 1, 1, body);
        // The failure that kept others back is gone.
        self.look_at_all();
    }

    /// It is under way again and is counted under its key, even if that makes one too many: an operator asked for it.
    fn reopen_run(&mut self) {
        if self.state.slot_key.is_some() {
            self.effect(super::Effect::HoldSlot);
        }
        self.emit_run(Body::RunReopened);
    }

    /// The steps that were skipped for this failure and for no other, and those whose turn had not come when the run ended:
    /// in order, so that each sees what was reset before.
    fn to_reset(&self, step: StepIndex) -> Vec<StepIndex> {
        let plan = self.state.plan.clone();
        let mut open: std::collections::BTreeSet<StepIndex> = [step].into();
        let skipped =
            |index: StepIndex| self.state.steps[index as usize].phase == Phase::Skipped(SkipReason::UpstreamFailed);
        let stopped =
            |index: StepIndex| self.state.steps[index as usize].phase == Phase::Skipped(SkipReason::RunStopped);
        let live = |index: StepIndex| match self.state.steps[index as usize].phase {
            Phase::Failed => false,
            Phase::Skipped(SkipReason::RunStopped) => true,
            Phase::Skipped(reason) => reason.satisfies(),
            _ => true,
        };
        let mut reset = Vec::new();
        for index in plan.order.iter().copied() {
            if stopped(index) {
                reset.push(index);
            }
            if !skipped(index) {
                continue;
            }
            let planned = plan.step(index);
            let follows = planned.depends_on.iter().any(|before| open.contains(before));
            if follows && planned.depends_on.iter().all(|before| open.contains(before) || live(*before)) {
                open.insert(index);
                reset.push(index);
            }
        }
        reset
    }

    pub(super) fn skip_refusal(&self, step: StepRef) -> Option<String> {
        let phase = self.state.step(step)?.phase;
        if phase.status().is_terminal() {
            return Some(format!("`{}` is {} already", step.name(&self.state.plan), phase.status()));
        }
        let whole_items = self.state.running.get(&step).is_some_and(|running| running.kind == RunningKind::Items);
        if whole_items {
            return Some(format!("`{}` has begun its items; skip those", step.name(&self.state.plan)));
        }
        // Their failures would be nobody's that could be mended.
        let failed = |items: &Items| step.item.is_none() && items.failed > 0;
        let has_failed_items = self.state.items.get(&step.step).is_some_and(failed);
        has_failed_items.then(|| {
            let name = step.name(&self.state.plan);
            format!("items of `{name}` failed and are about to be tried again; skip those when they are")
        })
    }

    /// The step will not run, nor will what depends on it.
    pub(super) fn skip_step(&mut self, step: Option<StepRef>) {
        let Some(step) = step else { return };
        match self.state.running.get(&step).map(|running| running.kind.clone()) {
            Some(RunningKind::Task { .. } | RunningKind::Leased { .. }) => self.cancel_task(step),
            Some(RunningKind::Child { run }) => {
                self.effect(super::Effect::StopChild { child: run, terminate: false });
            }
            _ => {}
        }
        self.skip_attempt(step, SkipReason::Operator);
        if step.item.is_none() {
            self.skip_dependents(step.step, SkipReason::Operator);
        }
    }
}
