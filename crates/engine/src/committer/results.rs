//! Results of steps that are kept: what decisions ask about them is answered inside the batch's transaction, and the answers
//! lead to decisions in the same batch. So a row of results costs one commit, unless
//! it is very large. What is made of it by somebody is in `flights.rs`.
//!
//! A run whose state was forgotten meanwhile asks again when it is read.

use std::sync::Arc;

use milepost_core::cache::Surroundings;
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::{CacheScope, Plan, StepIndex};
use milepost_core::run::{CacheQuestions, Command};
use milepost_store::rows::{Answer, EpochRow, Question, ResultKey};

use super::decide::FollowUps;
use super::pending::{Asking, Decided};
use super::{Committer, Request};
use crate::artifacts::Kept;
use crate::surroundings;

/// For so many plans it is remembered which of their steps depend on more than their runs.
const SURROUNDED_PLANS: usize = 10_000;

/// A run that has taken so much of results in one batch goes on in another.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

impl Committer {
    pub(super) fn ask_results(&mut self, org: OrgId, run: RunId, questions: CacheQuestions) {
        if questions.is_empty() {
            return;
        }
        if self.pending.get(run).is_some_and(|pending| pending.reused_bytes > BATCH_BYTES) {
            // The rest goes with the next commit.
            self.again.push(Request::revive(org, run));
        } else {
            self.set_asking(run, true);
            self.pending.asking.push(Asking::Results { org, run, questions });
        }
    }

    /// A run that asks stays at hand until it is told.
    pub(super) fn set_asking(&mut self, run: RunId, asking: bool) {
        if let Some(entry) = self.states.get(run) {
            entry.asking = asking;
        }
    }

    pub(super) fn result_questions(&self, org: OrgId, run: RunId, asked: &CacheQuestions) -> Vec<Question> {
        let Some(entry) = self.states.peek(run) else { return Vec::new() };
        let workflow = entry.state.plan.name.clone();
        let epochs = asked.surroundings.then_some(Question::Epochs { org, workflow });
        let places = asked.lookups.iter().flat_map(|lookup| {
            let of = (lookup.scope == CacheScope::RunOnly).then_some(run);
            lookup.keys.iter().map(move |key| ResultKey { key: *key, run: of })
        });
        let keys: Vec<ResultKey> = places.collect();
        let results = (!keys.is_empty()).then(|| {
            let flights = Question::Flights { org, keys: keys.clone() };
            [Question::Results { org, keys, held: Vec::new() }, flights]
        });
        epochs.into_iter().chain(results.into_iter().flatten()).collect()
    }

    /// Tells a run what it asked, and has it go on.
    pub(super) async fn decide_results(
        &mut self,
        org: OrgId,
        run: RunId,
        asked: CacheQuestions,
        answers: Vec<Answer>,
        follow_ups: &mut FollowUps,
    ) {
        for answer in answers {
            match answer {
                Answer::Epochs(epochs) => {
                    let Some(plan) = self.states.peek(run).map(|entry| entry.state.plan.clone()) else { break };
                    let surroundings = Arc::new(self.surroundings(org, &plan, epochs).await);
                    if let Some(entry) = self.states.get(run) {
                        entry.state.learn_surroundings(surroundings);
                    }
                }
                Answer::Results(found) => {
                    let found = self.complete(org, found);
                    let mut found = self.parts.artifacts.with_files(org, found).await.into_iter();
                    let Some(entry) = self.states.get(run) else { break };
                    for lookup in &asked.lookups {
                        let under_keys: Vec<_> = found.by_ref().take(lookup.keys.len()).flatten().collect();
                        let damaged = under_keys.contains(&Kept::Damaged);
                        match under_keys.into_iter().find_map(Kept::whole) {
                            None if damaged => entry.state.learn_damaged(lookup.step),
                            whole => entry.state.learn_cached(lookup.step, whole),
                        }
                    }
                }
                Answer::Flights(flights) => self.learn_flights(org, run, &asked, flights),
                _ => {}
            }
        }
        if !self.states.has(run) {
            return self.again.push(Request::revive(org, run));
        }
        self.set_asking(run, false);
        let answer = self.decide_command(org, run, &Command::Continue, None, follow_ups);
        // If what follows cannot be written, somebody has to ask again.
        if let Some(pending) = self.pending.get(run).filter(|pending| pending.decided.is_empty()) {
            pending.decided.push(Decided { kind: Request::revive(org, run).kind, reply: None, answer });
        }
    }

    /// What the results of a plan's steps depend on beyond the run.
    async fn surroundings(&mut self, org: OrgId, plan: &Plan, epochs: Vec<EpochRow>) -> Surroundings {
        let steps = self.surrounded(plan);
        surroundings::surroundings(&self.parts.secrets, org, plan, &steps, epochs).await
    }

    fn surrounded(&mut self, plan: &Plan) -> Arc<[StepIndex]> {
        if self.surrounded.len() > SURROUNDED_PLANS {
            self.surrounded.clear();
        }
        self.surrounded.entry(plan.hash).or_insert_with(|| surroundings::surrounded(plan).into()).clone()
    }
}
