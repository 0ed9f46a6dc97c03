//! What is shown of a run: its log, folded into a line per step of the plan.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::event::{Body, Event};
use milepost_core::plan::Plan;
use milepost_core::status::{RunStatus, SkipReason, StepStatus};
use milepost_core::time::Timestamp;

#[derive(Debug)]
pub(crate) struct Model {
    pub(super) plan: Arc<Plan>,
    pub(super) steps: Vec<Step>,
    pub(super) status: RunStatus,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) status: StepStatus,
    pub(super) attempt: u32,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) items: Option<Items>,
    pub(super) error: Option<String>,
    pub(super) skip_reason: Option<SkipReason>,
    pub(super) retry_at: Option<Timestamp>,
    pub(super) waits_for: Option<String>,
}

/// The items of a `foreach` step, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Items {
    pub(super) total: u32,
    pub(super) done: u32,
    pub(super) failed: BTreeSet<u32>,
}

const NEW: Step = Step {
    status: StepStatus::Pending,
    attempt: 0,
    started_at: None,
    ended_at: None,
    items: None,
    error: None,
    skip_reason: None,
    retry_at: None,
    waits_for: None,
};

impl Model {
    pub(crate) fn new(plan: Arc<Plan>) -> Model {
        Model { steps: vec![NEW; plan.steps.len()], plan, status: RunStatus::Queued }
    }

    pub(super) fn apply(&mut self, event: &Event) {
        if let Some(status) = event.body.run_status() {
            self.status = status;
        }
        let Some(at) = event.step else { return };
        let Some(step) = self.steps.get_mut(at.step as usize) else { return };
        match at.item {
            None => step.apply(event),
            Some(item) => step.items.get_or_insert_default().apply(item, &event.body),
        }
        if let (None, Body::StepRetryScheduled { reset, .. }) = (at.item, &event.body) {
            for index in reset {
                self.steps[*index as usize] = NEW;
            }
        }
    }

    /// Signals that steps wait for, by step.
    pub(super) fn waits(&self) -> impl Iterator<Item = (u32, &str)> {
        let waits = |step: &Step| step.status == StepStatus::Running && step.waits_for.is_some();
        let waiting = self.steps.iter().enumerate().filter(move |(_, step)| waits(step));
        waiting.filter_map(|(index, step)| Some((u32::try_from(index).ok()?, step.waits_for.as_deref()?)))
    }

    pub(super) fn count(&self, status: StepStatus) -> usize {
        self.steps.iter().filter(|step| step.status == status).count()
    }
}

impl Step {
    fn apply(&mut self, event: &Event) {
        self.attempt = event.logical_attempt;
        match &event.body {
            Body::StepStarted(started) => {
                (self.status, self.started_at, self.retry_at) = (StepStatus::Running, Some(event.at), None);
                self.waits_for = started.waits_for.clone();
                self.items = started.items.map(|total| Items { total, ..Items::default() }).or(self.items.take());
            }
            Body::StepCompleted { .. } => self.end(StepStatus::Completed, event.at),
            Body::StepFailed { error } => {
                self.end(StepStatus::Failed, event.at);
                self.error = Some(format!("{}: {}", error.code, error.message));
            }
            Body::StepSkipped { reason } => {
                self.end(StepStatus::Skipped, event.at);
                self.skip_reason = Some(*reason);
            }
            Body::StepRetryScheduled { retry_at, .. } => {
                (self.status, self.retry_at, self.ended_at) = (StepStatus::Pending, Some(*retry_at), None);
            }
            _ => {}
        }
    }

    fn end(&mut self, status: StepStatus, at: Timestamp) {
        (self.status, self.ended_at, self.waits_for) = (status, Some(at), None);
        if status == StepStatus::Completed {
            self.error = None;
        }
    }

    /// How long it took, or takes so far.
    pub(super) fn elapsed_ms(&self, now: Timestamp) -> Option<u64> {
        let until = if self.status == StepStatus::Running { now } else { self.ended_at? };
        Some(until.ms_since(self.started_at?))
    }
}

impl Items {
    fn apply(&mut self, item: u32, body: &Body) {
        match body {
            Body::StepCompleted { .. } | Body::StepSkipped { .. } => self.done += 1,
            Body::StepFailed { .. } => drop(self.failed.insert(item)),
            Body::StepRetryScheduled { .. } => drop(self.failed.remove(&item)),
            _ => {}
        }
    }
}
