//! What is shown of a run: its log, folded into a line per step.

use std::collections::BTreeSet;

use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;

use super::happening::{Happening, PatchData, What};
use super::outline::Outline;

#[derive(Debug)]
pub(crate) struct Model {
    pub(super) outline: Outline,
    /// In the order of the outline.
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
    pub(super) skip_reason: Option<String>,
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
    pub(crate) fn new(outline: Outline) -> Model {
        Model { steps: vec![NEW; outline.ids.len()], outline, status: RunStatus::Queued }
    }

    pub(super) fn apply(&mut self, happening: &Happening) {
        if let Some(status) = happening.run_status() {
            self.status = status;
        }
        if let What::RunPatched(patch) = &happening.what {
            self.patch(patch);
        }
        if let What::StepsSkipped { reason, steps } = &happening.what {
            for index in steps.iter().filter_map(|id| self.outline.find(id)) {
                self.steps[index].skip(reason, happening.at);
            }
        }
        let Some(name) = &happening.step else { return };
        let Some(step) = self.outline.find(&name.id).map(|index| &mut self.steps[index]) else { return };
        match name.item {
            None => step.apply(happening),
            Some(item) => step.items.get_or_insert_default().apply(item, &happening.what),
        }
        if let (None, What::StepRetryScheduled { reset, .. }) = (name.item, &happening.what) {
            for index in reset.iter().filter_map(|id| self.outline.find(id)) {
                self.steps[index] = NEW;
            }
        }
    }

    /// New steps stand below the others; those that are gone stay, as skipped.
    fn patch(&mut self, patch: &PatchData) {
        for id in &patch.added {
            if self.outline.find(id).is_none() {
                self.outline.add(id);
                self.steps.push(NEW);
            }
        }
        for index in patch.added.iter().chain(&patch.rerun).chain(&patch.reset).filter_map(|id| self.outline.find(id)) {
            self.steps[index] = NEW;
        }
        for index in patch.removed.iter().filter_map(|id| self.outline.find(id)) {
            let skip_reason = Some("removed".to_owned());
            self.steps[index] = Step { status: StepStatus::Skipped, skip_reason, ..NEW };
        }
    }

    pub(super) fn step(&self, id: &str) -> Option<&Step> {
        self.outline.find(id).map(|index| &self.steps[index])
    }

    /// Signals that steps wait for.
    pub(super) fn waits(&self) -> impl Iterator<Item = &str> {
        let waiting = self.steps.iter().filter(|step| step.status == StepStatus::Running);
        waiting.filter_map(|step| step.waits_for.as_deref())
    }

    /// Whether a step is under way that may have something to say.
    pub(super) fn is_busy(&self) -> bool {
        self.steps.iter().any(|step| step.status == StepStatus::Running && step.waits_for.is_none())
    }

    pub(super) fn count(&self, status: StepStatus) -> usize {
        self.steps.iter().filter(|step| step.status == status).count()
    }
}

impl Step {
    fn apply(&mut self, happening: &Happening) {
        self.attempt = happening.attempt;
        match &happening.what {
            What::StepStarted { items, waits_for } => {
                (self.status, self.started_at, self.retry_at) = (StepStatus::Running, Some(happening.at), None);
                self.waits_for = waits_for.clone();
                self.items = items.map(|total| Items { total, ..Items::default() }).or(self.items.take());
            }
            What::StepCompleted => self.end(StepStatus::Completed, happening.at),
            What::StepFailed(error) => {
                self.end(StepStatus::Failed, happening.at);
                self.error = Some(format!("{}: {}", error.code, error.message));
            }
            What::StepSkipped(reason) => self.skip(reason, happening.at),
            What::StepRetryScheduled { retry_at, .. } => {
                (self.status, self.retry_at, self.ended_at) = (StepStatus::Pending, Some(*retry_at), None);
            }
            _ => {}
        }
    }

    fn skip(&mut self, reason: &str, at: Timestamp) {
        self.end(StepStatus::Skipped, at);
        self.skip_reason = Some(reason.to_owned());
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
    fn apply(&mut self, item: u32, what: &What) {
        match what {
            What::StepCompleted | What::StepSkipped(_) => self.done += 1,
            What::StepFailed(_) => drop(self.failed.insert(item)),
            What::StepRetryScheduled { .. } => drop(self.failed.remove(&item)),
            _ => {}
        }
    }
}
