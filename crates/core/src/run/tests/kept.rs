//! A stand-in for the table of results: answers what runs ask, keeps what they say, and checks that it may.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::harness::Run;
use crate::cache::{Cached, Surroundings, key_of};
use crate::event::{Body, Event};
use crate::hash::Digest;
use crate::id::RunId;
use crate::json::Json;
use crate::plan::{CacheScope, Plan};
use crate::run::{CacheChange, CacheQuestions};
use crate::status::RunStatus;

/// Shared by the runs of a test.
pub(super) type SharedResults = Rc<RefCell<Results>>;

#[derive(Default)]
pub(super) struct Results {
    /// By key, and by run for those that serve one run only.
    pub(super) kept: BTreeMap<(Digest, Option<RunId>), Cached>,
    pub(super) preimages: BTreeMap<Digest, Json>,
    pub(super) surroundings: Surroundings,
    pub(super) hits: usize,
    pub(super) lookups: usize,
    pub(super) most_at_once: usize,
}

fn place(run: RunId, key: Digest, scope: CacheScope) -> (Digest, Option<RunId>) {
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
                let cached = Cached { key: kept.key, output: kept.output, run, seq: kept.seq };
                results.kept.insert(place(run, kept.key, kept.scope), cached);
            }
            CacheChange::Used { key, scope } => {
                assert!(results.kept.contains_key(&place(run, key, scope)), "a result that is not there was taken");
                results.hits += 1;
            }
            CacheChange::RunEnded => results.kept.retain(|(_, of), _| *of != Some(run)),
        }
    }

    /// What is kept for this run alone goes with it.
    pub(super) fn check_results(&self) {
        let own = |(_, of): &(Digest, Option<RunId>)| *of == Some(self.state.run);
        let ended = self.status().is_terminal() && self.status() != RunStatus::Failed;
        assert!(!ended || !self.results.borrow().kept.keys().any(own), "results of a run that has ended");
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
