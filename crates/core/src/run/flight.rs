//! Single flight: of all steps that would make the same result at once, whichever runs they are of, one makes it and the
//! others wait for what becomes of it.
//!
//! ```text
//!   no result ──► does somebody make it? ──yes──► waits: ready, in no line; asks again when that flight is over
//!                           │ no
//!                           ▼
//!                    leads (`Lead`): in line, under way, in several hands one after the other
//!                           │
//!                           ▼
//!                    over (`Land`): completed, failed, skipped, or kept from beginning
//! ```
//!
//! A flight is no part of a run's state: it comes with the commit of the decision to run, and the log does not tell of it.
//! So what may have led a flight ends it, and a step that was read anew is told whether it leads one. One whose worker is
//! lost leads on: it is the same attempt. One that failed leads no more, even if it is tried again later: whoever waits goes
//! first.
//!
//! **Invariant:** no attempt begins without its flight, but for steps that are rebuilt: those neither wait nor lead.
//! **Invariant:** a step that cannot begin now leads nothing, and a step that waits leads nothing. So no two wait for each
//! other.

use super::state::{Phase, RunState};
use super::{CacheChange, Decider, Effect};
use crate::cache::Flight;
use crate::event::{Body, StepRef};
use crate::hash::Digest;
use crate::plan::{Action, Plan};
use crate::run::cache::Looking;
use crate::status::{RunStatus, SkipReason};

impl Decider<'_> {
    /// Whether a step for which no result is of use makes one; if not, it waits for somebody who does.
    pub(super) fn lead_or_wait(&mut self, step: StepRef, key: Digest, flight: Option<Flight>, anyway: bool) -> bool {
        let scope = self.state.plan.step(step.step).cache.scope;
        let me = |flight: &Flight| (flight.run, flight.step) == (self.state.run, step);
        let other = flight.filter(|flight| !me(flight)).or_else(|| self.state.own_flight(step, key));
        if let Some(flight) = other {
            self.state.scratch.awaited.insert(step, flight);
            self.effect(Effect::Await { step, scope, flight });
            return false;
        }
        self.state.scratch.led.insert(key, step);
        // Said again by one that leads already: what it is decided on may not be written yet.
        self.effect(Effect::Cache(CacheChange::Lead { key, scope, step, anyway }));
        true
    }

    /// A result came from elsewhere to a step that made one: its worker was lost, or it was in line for long.
    pub(super) fn land_if_own(&mut self, step: StepRef, flight: Option<Flight>) {
        if flight.is_some_and(|flight| (flight.run, flight.step) == (self.state.run, step)) {
            self.effect(Effect::Cache(CacheChange::Land { step }));
        }
    }

    /// Whether an event that is about to be recorded ends a flight, if there is one.
    pub(super) fn lands(&self, step: Option<StepRef>, body: &Body) -> bool {
        let ends = match body {
            Body::StepCompleted { .. } | Body::StepFailed { .. } => true,
            Body::StepSkipped { reason } => *reason != SkipReason::Condition,
            _ => false,
        };
        ends && step.is_some_and(|step| self.state.may_lead(step))
    }

    /// Nothing begins any more, or something else does: what has not begun leads no flight. It asks again when its turn comes.
    pub(super) fn land_waiting(&mut self) {
        self.state.forget_flights();
        let begun = self.state.running.iter().filter(|(_, running)| running.begun.is_some());
        let but = begun.map(|(step, _)| *step).collect();
        self.effect(Effect::Cache(CacheChange::LandAll { but }));
    }

    /// The hands that had the step are gone, and its run is paused or stopped: nobody can say when it goes on.
    pub(super) fn land_if_it_must_wait(&mut self, step: StepRef) {
        if !self.state.moves() && self.state.may_lead(step) {
            self.effect(Effect::Cache(CacheChange::Land { step }));
        }
    }

    /// Called when all is decided: the run may have been paused or stopped, or have failed.
    pub(super) fn land_if_held_up(&mut self) {
        let held_up = self.moved && !self.state.moves() && self.state.status != RunStatus::Completed;
        if held_up && keeps_results(&self.state.plan) {
            self.land_waiting();
        }
    }
}

pub(super) fn keeps_results(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| step.cache.enabled)
}

impl RunState {
    /// Tells the state who makes the result for a step that asked. If the step asks no more, it changes nothing.
    pub fn learn_flight(&mut self, step: StepRef, under_way: Flight) {
        if let Some(Looking::Answered { flight, .. }) = self.scratch.cache.get_mut(&step) {
            *flight = Some(under_way);
        }
    }

    /// Ready steps that wait for what others make. Known where they asked; a state that was read anew knows of none.
    pub fn awaited_flights(&self) -> impl Iterator<Item = (StepRef, Flight)> {
        self.scratch.awaited.iter().map(|(step, flight)| (*step, *flight))
    }

    #[must_use]
    pub fn awaits_flights(&self) -> bool {
        !self.scratch.awaited.is_empty()
    }

    /// Some of what is ready may be waiting for what others make.
    #[must_use]
    pub fn may_await_flights(&self) -> bool {
        self.moves() && self.ready.iter().any(|step| self.plan.step(step.step).cache.enabled)
    }

    pub(super) fn forget_flights(&mut self) {
        self.scratch.cache.clear();
        self.scratch.led.clear();
        self.scratch.awaited.clear();
    }

    /// The flight of another step of this run, begun since the answers were given.
    fn own_flight(&self, step: StepRef, key: Digest) -> Option<Flight> {
        let leader = *self.scratch.led.get(&key)?;
        let in_line = || matches!(self.scratch.cache.get(&leader), Some(Looking::Missed(keyed)) if keyed.key == key);
        let begun = || self.running.get(&leader)?.begun.map(|begun| begun.key);
        let leads = leader != step && (in_line() || begun() == Some(key));
        leads.then_some(Flight { key, run: self.run, step: leader })
    }

    /// The step is under way or could be, with a key.
    fn may_lead(&self, step: StepRef) -> bool {
        let Some(phase) = self.step(step).map(|state| state.phase) else { return false };
        let led = match phase {
            Phase::Running => self.running.get(&step).is_some_and(|running| running.begun.is_some()),
            Phase::Ready | Phase::Backoff => {
                let planned = self.plan.step(step.step);
                let one = step.item.is_some() || planned.foreach.is_none();
                planned.cache.enabled && planned.action == Action::Task && one
            }
            _ => false,
        };
        led && !self.is_rebuilt(step.step)
    }
}
