//! `foreach`: one sub-step per item of a list. The step itself ends when its items have.

use super::Decider;
use super::evaluate::NoValue;
use super::state::{Phase, RunningKind};
use crate::event::{Body, ErrorInfo, Started, StepRef};
use crate::status::SkipReason;

impl Decider<'_> {
    pub(super) fn begin_items(&mut self, step: StepRef) -> Result<(), NoValue> {
        let list = self.state.items_of(step.step, self.context.limits)?;
        let count = u32::try_from(list.count()).unwrap_or(u32::MAX);
        self.state.scratch.items.insert(step.step, list);
        let (logical, engine) = self.attempts_of_start(step);
        let started = Started { items: Some(count), ..Started::default() };
        self.emit_step(step, logical, engine, Body::StepStarted(started));
        self.end_items_if_over(step);
        Ok(())
    }

    /// An item has ended for good; perhaps its step has, too.
    pub(super) fn item_has_ended(&mut self, item: StepRef) {
        if item.item.is_some() {
            self.end_items_if_over(StepRef::whole(item.step));
        }
    }

    pub(super) fn end_items_if_over(&mut self, step: StepRef) {
        if self.state.running.get(&step).is_none_or(|running| running.kind != RunningKind::Items) {
            return;
        }
        let Some(items) = self.state.items.get(&step.step) else { return };
        let over = items.unfinished == 0 || (items.failed > 0 && items.running == 0 && self.state.halted());
        if !over {
            return;
        }
        let (failed, total) = (items.failed, items.steps.count());
        let attempts = self.state.steps[step.step as usize];
        if failed > 0 {
            let error = self.items_error(step, failed, total);
            self.emit_step(step, attempts.logical_attempt, attempts.engine_attempt, Body::StepFailed { error });
            self.skip_dependents(step.step, SkipReason::UpstreamFailed);
        } else {
            let body = Body::StepCompleted { output: None, beyond: None };
            self.emit_step(step, attempts.logical_attempt, attempts.engine_attempt, body);
        }
    }

    fn items_error(&self, step: StepRef, failed: u32, total: usize) -> ErrorInfo {
        let first = self.state.items.get(&step.step).and_then(|items| {
            items
                .steps
                .iter()
                .position(|item| item.phase == Phase::Failed)
                .map(|item| StepRef::item(step.step, item as u32))
        });
        let name = first.map(|first| first.name(&self.state.plan)).unwrap_or_default();
        ErrorInfo::fatal("items_failed", format!("{failed} of {total} items failed, the first is `{name}`"))
    }
}
