//! A stand-in for the table of results: answers what runs ask, keeps what they say, and checks that it may.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::harness::Run;
use crate::cache::{Cached, Flight, Surroundings, key_of};
use crate::event::{Body, Event, StepRef};
use crate::hash::Digest;
use crate::id::RunId;
use crate::json::Json;
use crate::plan::{CacheScope, Plan};
use crate::run::{CacheChange, CacheQuestions, Command};
use crate::status::RunStatus;

/// Shared by the runs of a test.
pub(super) type SharedResults = Rc<RefCell<Results>>;

#[derive(Default)]
pub(super) struct Results {
    /// By key, and by run for those that serve one run only.
    pub(super) kept: BTreeMap<Place, Cached>,
    pub(super) preimages: BTreeMap<Digest, Json>,
    /// What is being made, by whom.
    pub(super) flights: BTreeMap<Place, Flight>,
    /// Runs that wait, by whom for.
    pub(super) awaiting: BTreeMap<(RunId, StepRef), BTreeSet<RunId>>,
    /// Runs that waited for a flight which is over.
    pub(super) woken: BTreeSet<RunId>,
    pub(super) surroundings: Surroundings,
    pub(super) hits: usize,
    pub(super) lookups: usize,
    pub(super) most_at_once: usize,
}

pub(super) type Place = (Digest, Option<RunId>);

fn place(run: RunId, key: Digest, scope: CacheScope) -> Place {
    (key, (scope == CacheScope::RunOnly).then_some(run))
}

impl Run {
    /// Answers what a decision asked.
    pub(super) fn answer(&mut self, questions: CacheQuestions) {
        let mut results = self.results.borrow_mut();
        if questions.surroundings {
            self.state.learn_surroundings(Arc::new(results.surroundings.clone()));
        }
        results.most_at_once = results.most_at_once.max(questions.lookups.len());
        for lookup in questions.lookups {
            results.lookups += 1;
            let found = lookup.keys.iter().find_map(|key| results.kept.get(&place(self.state.run, *key, lookup.scope)));
            let found = found.cloned();
            self.state.learn_cached(lookup.step, found);
            let places = lookup.keys.iter().map(|key| place(self.state.run, *key, lookup.scope));
            let flights: Vec<Flight> = places.filter_map(|place| results.flights.get(&place).copied()).collect();
            let own = flights.iter().find(|flight| (flight.run, flight.step) == (self.state.run, lookup.step));
            if let Some(flight) = own.or(flights.first()) {
                self.state.learn_flight(lookup.step, *flight);
            }
        }
    }

    pub(super) fn change_results(&mut self, change: CacheChange) {
        let run = self.state.run;
        let mut results = self.results.borrow_mut();
        match change {
            CacheChange::Preimage { key, preimage, .. } => {
                assert_eq!(key, key_of(&preimage), "a pre-image has another key");
                assert!(!preimage.as_str().contains(&run.to_string()), "a key that no other run has: {preimage:?}");
                results.preimages.insert(key, preimage);
            }
            CacheChange::Keep(kept) => {
                assert!(results.preimages.contains_key(&kept.key), "nobody knows what the key is made of");
                let row = &self.rows[usize::try_from(kept.seq).unwrap() - 1];
                assert_eq!(
                    (&*row.event_type, &row.step_id.as_deref().unwrap().split('[').next().unwrap()),
                    ("StepCompleted", &&*self.plan.step(kept.step).id)
                );
                assert_eq!(crate::codec::carried_value(row).unwrap(), Some(kept.output.clone()));
                let cached = Cached { key: kept.key, output: kept.output, run, seq: kept.seq, beyond: kept.beyond };
                results.kept.insert(place(run, kept.key, kept.scope), cached);
            }
            CacheChange::Used { key, scope } => {
                assert!(results.kept.contains_key(&place(run, key, scope)), "a result that is not there was taken");
                results.hits += 1;
            }
            CacheChange::RunEnded => results.kept.retain(|(_, of), _| *of != Some(run)),
            CacheChange::Lead { key, scope, step, anyway } => {
                let place = place(run, key, scope);
                assert!(anyway || !results.kept.contains_key(&place), "what is there is made again");
                let flight = Flight { key, run, step };
                let other = results.flights.insert(place, flight).filter(|other| *other != flight);
                assert_eq!(other, None, "two make the same");
            }
            CacheChange::Land { step } => results.land(|flight| (flight.run, flight.step) == (run, step)),
            CacheChange::LandAll { but } => {
                results.land(|flight| flight.run == run && !but.contains(&flight.step));
            }
        }
    }

    /// A flight is over: those that wait for it ask again. They are told after all that was decided with it.
    pub(super) fn wake(&mut self) {
        while self.results.borrow_mut().woken.remove(&self.state.run) {
            self.command(Command::Adopt { lost: None }).unwrap();
        }
    }

    /// What makes a result leads a flight, and nothing that cannot begin does. Whoever waits waits for somebody.
    pub(super) fn check_flights(&self) {
        let results = self.results.borrow();
        let led: BTreeSet<StepRef> =
            results.flights.values().filter(|flight| flight.run == self.state.run).map(|flight| flight.step).collect();
        let rebuilt = |step: &StepRef| self.state.is_rebuilt(step.step);
        let begun = self.state.running.iter().filter(|(step, running)| running.begun.is_some() && !rebuilt(step));
        for (step, _) in begun.clone() {
            assert!(led.contains(step), "{} was begun without a flight\n{}", step.name(&self.plan), self.log());
        }
        let begun: BTreeSet<StepRef> = begun.map(|(step, _)| *step).collect();
        for step in &led {
            let startable = self.state.moves() && self.state.is_startable(*step, self.now);
            assert!(startable || begun.contains(step), "{} leads for ever\n{}", step.name(&self.plan), self.log());
        }
        for (step, flight) in self.state.awaited_flights() {
            let waits =
                results.awaiting.get(&(flight.run, flight.step)).is_some_and(|runs| runs.contains(&self.state.run));
            let wakes = results.woken.contains(&self.state.run);
            assert!(wakes || (waits && results.flights.values().any(|under_way| *under_way == flight)), "{step:?}");
            assert!(!led.contains(&step), "{step:?} waits and leads");
        }
    }

    /// What is kept for this run alone goes with it.
    pub(super) fn check_results(&self) {
        let own = |(_, of): &(Digest, Option<RunId>)| *of == Some(self.state.run);
        let ended = self.status().is_terminal() && self.status() != RunStatus::Failed;
        assert!(!ended || !self.results.borrow().kept.keys().any(own), "results of a run that has ended");
    }
}

impl Results {
    fn land(&mut self, over: impl Fn(&Flight) -> bool) {
        let landed: Vec<Flight> = self.flights.values().filter(|flight| over(flight)).copied().collect();
        self.flights.retain(|_, flight| !over(flight));
        for flight in landed {
            self.woken.extend(self.awaiting.remove(&(flight.run, flight.step)).into_iter().flatten());
        }
    }
}

/// Only steps that may have a result of another have one.
pub(super) fn check_event(event: &Event, plan: &Plan) {
    let cacheable = event.step.is_some_and(|step| plan.step(step.step).cache.enabled);
    match &event.body {
        Body::StepReused(_) => assert!(cacheable, "a step was not run that has to"),
        Body::StepStarted(started) if started.items.is_none() => {
            let task = event.step.is_some_and(|step| plan.step(step.step).action == crate::plan::Action::Task);
            assert_eq!(
                started.cache_key.is_some(),
                cacheable && task,
                "a key for what is not kept, or none for what is"
            );
        }
        _ => {}
    }
}
