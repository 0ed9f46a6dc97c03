//! What a step that has not ended waits for, as far as its run knows.

use super::state::{Phase, RunState, RunningKind};
use super::{ItemCounts, TaskRef};
use crate::event::StepRef;
use crate::id::RunId;
use crate::plan::StepIndex;
use crate::status::RunStatus;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Somebody has to approve the run.
    Approval,
    /// The run starts then.
    Start(Timestamp),
    /// The run needs room under its concurrency key.
    Slot {
        key: String,
        limit: u32,
    },
    /// The run is paused.
    Resume,
    /// A step of the run failed, and nothing new begins.
    Failure(StepRef),
    /// The run is being cancelled.
    Cancellation,
    /// These have to end first.
    Steps(Vec<StepIndex>),
    /// The next attempt begins then.
    Retry(Timestamp),
    /// Somebody who carries it out.
    Turn,
    /// Whoever has it: it is under way.
    Outcome(TaskRef),
    /// The end of a sleep.
    Sleep(Option<Timestamp>),
    Signal {
        name: String,
        until: Option<Timestamp>,
    },
    Child(RunId),
    /// Its items.
    Items(ItemCounts),
}

impl RunState {
    /// What keeps a step from its end; nothing for one that has ended, or whose run has.
    #[must_use]
    pub fn waits_for(&self, step: StepRef, now: Timestamp) -> Vec<WaitsFor> {
        let Some(state) = self.step(step) else { return Vec::new() };
        if self.status.is_terminal() {
            return Vec::new();
        }
        let mut waits = match state.phase {
            Phase::Completed | Phase::Failed | Phase::Skipped(_) => return Vec::new(),
            Phase::Running => return self.running_for(step),
            Phase::Pending | Phase::Ready | Phase::Backoff => self.held_back(now),
        };
        match state.phase {
            Phase::Pending => waits.extend(self.open_dependencies(step)),
            Phase::Backoff => {
                let due = self.backoff.get(&step).and_then(|seq| self.timer_due(*seq));
                waits.extend(due.map(WaitsFor::Retry));
            }
            _ if waits.is_empty() => waits.push(WaitsFor::Turn),
            _ => {}
        }
        waits
    }

    /// What keeps the whole run from beginning anything.
    fn held_back(&self, now: Timestamp) -> Vec<WaitsFor> {
        let mut waits = Vec::new();
        let waits_to_start = matches!(self.status, RunStatus::Pending | RunStatus::Approved | RunStatus::Queued);
        if waits_to_start {
            if self.status == RunStatus::Pending && self.plan.approval {
                waits.push(WaitsFor::Approval);
            }
            let at = self.armed_timers().map(|(_, at)| at).filter(|at| *at > now).max();
            waits.extend(at.map(WaitsFor::Start));
            if let (true, Some(key), Some(concurrency)) = (waits.is_empty(), &self.slot_key, &self.plan.concurrency) {
                waits.push(WaitsFor::Slot { key: key.clone(), limit: concurrency.limit });
            }
        }
        if self.status == RunStatus::Paused {
            waits.push(WaitsFor::Resume);
        }
        if self.stopping {
            waits.push(WaitsFor::Cancellation);
        } else if let Some(failure) = self.first_failure.as_ref().filter(|_| self.halted()) {
            waits.push(WaitsFor::Failure(failure.step));
        }
        waits
    }

    fn open_dependencies(&self, step: StepRef) -> Option<WaitsFor> {
        let satisfied = |before: &StepIndex| match self.steps[*before as usize].phase {
            Phase::Completed => true,
            Phase::Skipped(reason) => reason.satisfies(),
            _ => false,
        };
        let planned = self.plan.step(step.step);
        let open: Vec<StepIndex> = planned.depends_on.iter().copied().filter(|before| !satisfied(before)).collect();
        (!open.is_empty()).then_some(WaitsFor::Steps(open))
    }

    fn running_for(&self, step: StepRef) -> Vec<WaitsFor> {
        let (Some(running), Some(state)) = (self.running.get(&step), self.step(step)) else { return Vec::new() };
        let until = running.timer.and_then(|seq| self.timer_due(seq));
        vec![match &running.kind {
            RunningKind::Task { .. } | RunningKind::Leased { .. } => WaitsFor::Outcome(TaskRef {
                step,
                logical_attempt: state.logical_attempt,
                engine_attempt: state.engine_attempt,
            }),
            RunningKind::Sleep => WaitsFor::Sleep(until),
            RunningKind::Wait { signal, .. } => WaitsFor::Signal { name: signal.clone(), until },
            RunningKind::Child { run } => WaitsFor::Child(*run),
            RunningKind::Items => WaitsFor::Items(self.item_counts(step).unwrap_or_default()),
        }]
    }
}
