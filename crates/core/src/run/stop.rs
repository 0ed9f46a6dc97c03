//! Cancel, terminate, reject: stopping only ever gets more severe.

use std::sync::Arc;

use super::state::{Phase, RunningKind};
use super::{Decider, Effect, Signal, TaskRef};
use crate::event::{Body, Event, StepRef};
use crate::json::Json;
use crate::plan::StepIndex;
use crate::status::SkipReason;
use crate::text;
use crate::time::Timestamp;

/// Characters of a reason that are kept.
const MAX_REASON: usize = 1000;
/// So many steps at most that never began have an event each.
const EACH: usize = 64;

impl Decider<'_> {
    /// Asks every step under way to stop; the run is cancelled when the last of them has.
    pub(super) fn cancel(&mut self) {
        let running: Vec<(StepRef, RunningKind)> =
            self.state.running.iter().map(|(step, running)| (*step, running.kind.clone())).collect();
        for (step, kind) in running {
            match kind {
                RunningKind::Task { .. } | RunningKind::Leased { .. } => self.cancel_task(step),
                RunningKind::Child { run } => self.effect(Effect::StopChild { child: run, terminate: false }),
                RunningKind::Sleep | RunningKind::Wait { .. } => self.skip_attempt(step, SkipReason::Cancelled),
                RunningKind::Items => {}
            }
        }
    }

    pub(super) fn cancel_task(&mut self, step: StepRef) {
        if let Some(state) = self.state.step(step) {
            let task = TaskRef { step, logical_attempt: state.logical_attempt, engine_attempt: state.engine_attempt };
            self.effect(Effect::CancelTask { task });
        }
    }

    /// Skips a step that is under way, or the attempt of one that has not begun.
    pub(super) fn skip_attempt(&mut self, step: StepRef, reason: SkipReason) {
        let Some(state) = self.state.step(step).copied() else { return };
        let (logical, engine) = match state.phase {
            Phase::Running => (state.logical_attempt, state.engine_attempt),
            _ => (self.next_attempt(step), 0),
        };
        self.emit_step(step, logical, engine, Body::StepSkipped { reason });
        self.item_has_ended(step);
    }

    /// A run that is being cancelled ends with its last step, whether it was paused, waiting or running.
    pub(super) fn end_cancelled_if_idle(&mut self) {
        if self.state.stopping && self.state.active == 0 && !self.state.status.is_terminal() {
            let reason = self.state.stop_reason.clone().unwrap_or_else(|| "cancelled".to_owned());
            self.end_stopped(Body::RunCancelled { reason });
        }
    }

    /// At once, whatever is under way.
    pub(super) fn terminate(&mut self, payload: &Json) {
        let running: Vec<(StepRef, RunningKind)> =
            self.state.running.iter().map(|(step, running)| (*step, running.kind.clone())).collect();
        for (step, kind) in running {
            match kind {
                RunningKind::Task { .. } | RunningKind::Leased { .. } => self.cancel_task(step),
                RunningKind::Child { run } => self.effect(Effect::StopChild { child: run, terminate: true }),
                _ => {}
            }
        }
        self.end_stopped(Body::RunTerminated { reason: reason_or(payload, "terminated") });
    }

    /// Approval was refused.
    pub(super) fn refuse(&mut self, payload: &Json) {
        self.end_stopped(Body::RunCancelled { reason: reason_or(payload, "rejected") });
    }

    /// No step is left under way in a run that has ended.
    fn end_stopped(&mut self, body: Body) {
        // Items before their steps.
        let running: Vec<StepRef> = self.state.running.keys().rev().copied().collect();
        for step in running {
            if let Some(state) = self.state.step(step).copied() {
                let skipped = Body::StepSkipped { reason: SkipReason::Cancelled };
                self.emit_step(step, state.logical_attempt, state.engine_attempt, skipped);
            }
        }
        self.skip_the_rest(self.state.last_seq);
        self.emit_run(body);
        self.run_has_ended(super::ChildOutcome::Stopped);
    }

    /// The run is about to end, so no turn comes any more: of steps, or of items that a `foreach` step still has. Of many
    /// steps the log says it in one event.
    pub(super) fn skip_the_rest(&mut self, cause: u64) {
        let open = self.state.steps.iter().enumerate().filter(|(_, state)| !state.phase.status().is_terminal());
        let steps: Vec<StepIndex> = open.map(|(index, _)| index as StepIndex).collect();
        if steps.len() > EACH {
            return self.emit(None, 0, 0, Some(cause), Body::StepsSkipped { steps });
        }
        for step in steps {
            let state = self.state.steps[step as usize];
            let body = Body::StepSkipped { reason: SkipReason::RunStopped };
            self.emit(Some(StepRef::whole(step)), state.logical_attempt, state.engine_attempt, Some(cause), body);
        }
    }
}

/// What is written of a run that is terminated without its state being known: nobody may load it. Steps that were under way
/// ended with it.
#[must_use]
pub fn end_unseen(last_seq: u64, signal: &Signal, now: Timestamp) -> Vec<Event> {
    let event = |seq, body: Body| Event {
        seq,
        at: now,
        step: None,
        logical_attempt: 0,
        engine_attempt: 0,
        signal: Some(signal.id),
        parent: None,
        actor: signal.actor.as_deref().map(Arc::from).filter(|_| body.is_asked_for()),
        body,
    };
    let accepted = Body::SignalAccepted { name: signal.name.clone(), step: None, payload: signal.payload.clone() };
    let terminated = Body::RunTerminated { reason: reason_or(&signal.payload, "terminated") };
    vec![event(last_seq + 1, accepted), event(last_seq + 2, terminated)]
}

fn reason_or(payload: &Json, otherwise: &str) -> String {
    reason_of(payload).unwrap_or_else(|| otherwise.to_owned())
}

/// What somebody who stops a run gives as the reason.
pub(super) fn reason_of(payload: &Json) -> Option<String> {
    let given = serde_json::from_str::<serde_json::Value>(payload.as_str()).ok()?;
    let reason: String = given.get("reason")?.as_str()?.chars().take(MAX_REASON).collect();
    Some(text::without_controls(&reason).into_owned())
}
