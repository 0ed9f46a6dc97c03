//! Results that somebody makes: who asks for one is told, who waits for one is remembered, and woken when its flight is over.
//!
//! What this batch begins is not in the database yet: those who ask later in it are told by this. What it ends is still
//! there: who asks for that waits, and is woken by the batch itself.

use std::collections::HashMap;

use milepost_core::cache::Flight;
use milepost_core::event::StepRef;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::CacheScope;
use milepost_core::run::{CacheChange, CacheQuestions};
use milepost_store::rows::{CacheWrite, FlightWrite, Led, ResultKey};

use super::Committer;
use super::pending::RunPending;
use crate::flights::wake;

/// The flights that the gathering batch begins.
pub(super) type Begun = HashMap<(OrgId, ResultKey), Flight>;

pub(super) fn place(run: RunId, key: Digest, scope: CacheScope) -> ResultKey {
    ResultKey { key, run: (scope == CacheScope::RunOnly).then_some(run) }
}

impl Committer {
    /// Tells a run who makes what it asked for. Its own flight, if it has one, comes before those that it may wait for.
    pub(super) fn learn_flights(
        &mut self,
        org: OrgId,
        run: RunId,
        asked: &CacheQuestions,
        flights: Vec<Option<Flight>>,
    ) {
        let Some(entry) = self.states.get(run) else { return };
        let mut flights = flights.into_iter();
        for lookup in &asked.lookups {
            let begun = |key| self.begun.get(&(org, place(run, key, lookup.scope))).copied();
            let told: Vec<Flight> = lookup
                .keys
                .iter()
                .zip(flights.by_ref().take(lookup.keys.len()))
                .filter_map(|(key, flight)| begun(*key).or(flight))
                .collect();
            let own = told.iter().find(|flight| (flight.run, flight.step) == (run, lookup.step));
            if let Some(flight) = own.or(told.first()) {
                entry.state.learn_flight(lookup.step, *flight);
            }
        }
    }

    /// A run that waits is remembered, and one that waits no more is not.
    pub(super) fn remember_waiting(&mut self, org: OrgId, run: RunId, awaited: Vec<(StepRef, CacheScope, Flight)>) {
        let Some(entry) = self.states.get(run) else { return };
        let waits = entry.state.awaits_flights();
        if std::mem::replace(&mut entry.waits, waits) && !waits {
            self.parts.flights.forget(run);
        }
        for (step, scope, flight) in awaited {
            let key = place(run, flight.key, scope);
            self.parts.flights.wait((org, run, entry.state.last_seq), step, key, flight);
        }
    }

    /// What a run has written may be over: those who waited for it ask again.
    pub(super) fn wake_landed(&self, run: RunId, cache: Option<&CacheWrite>) {
        if let Some(cache) = cache {
            self.wake(self.parts.flights.landed(run, &cache.flights));
        }
    }

    /// What a run was to begin is not written: nobody is to wait for it. It is decided again, and then somebody leads.
    pub(super) fn wake_unwritten(&mut self, dropped: &RunPending) {
        if dropped.cache.as_ref().is_some_and(|cache| !cache.flights.led.is_empty()) {
            self.begun.retain(|_, flight| flight.run != dropped.run);
            self.wake(self.parts.flights.lost(dropped.run));
        }
    }

    fn wake(&self, runs: Vec<(OrgId, RunId)>) {
        if !runs.is_empty() {
            let inbox = self.parts.inbox.clone();
            tokio::spawn(async move { wake(&inbox, runs).await });
        }
    }
}

/// What a run's write does to flights, as one decision follows another. Answers what it does not begin after all.
pub(super) fn change(flights: &mut FlightWrite, run: RunId, change: &CacheChange) -> Vec<ResultKey> {
    let over = |flights: &mut FlightWrite, ends: &dyn Fn(StepRef) -> bool| {
        let (ended, led) = flights.led.drain(..).partition::<Vec<Led>, _>(|led| ends(led.step));
        flights.led = led;
        ended.into_iter().map(|led| led.key).collect()
    };
    match change {
        CacheChange::Lead { key, scope, step, anyway } => {
            let key = place(run, *key, *scope);
            flights.led.retain(|led| (led.key, led.step) != (key, *step));
            flights.led.push(Led { key, step: *step, anyway: *anyway });
            Vec::new()
        }
        CacheChange::Land { step } => {
            flights.landed.push(*step);
            over(flights, &|led| led == *step)
        }
        CacheChange::LandAll { but } => {
            let stays = |step: &StepRef| flights.landed_but.as_ref().is_none_or(|before| before.contains(step));
            flights.landed_but = Some(but.iter().copied().filter(stays).collect());
            over(flights, &|led| !but.contains(&led))
        }
        _ => Vec::new(),
    }
}
