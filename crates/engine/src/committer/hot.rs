//! Outputs of results from Redis: they are fetched before the database is asked, and it says by their hashes whether they
//! are those that it has. So a large output need not be read there, and nothing that Redis says is believed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use milepost_core::cache::Cached;
use milepost_core::id::OrgId;
use milepost_store::rows::{FoundResult, Question, ResultKey};

use super::Committer;
use super::pending::RunPending;
use crate::cache::{Held, result_name};

/// So many outputs are asked for at once.
const AT_ONCE: usize = 512;

/// Bytes from Redis that are worth a millisecond: the database would have had to send them.
const WORTH_A_MS: u64 = 50_000;

/// What a batch may still wait for Redis, over all its questions: its transaction may be open meanwhile. A long row of small
/// outputs uses it up; large ones are worth the wait.
pub(super) struct Patience(Duration);

impl Patience {
    fn spend(&mut self, waited: Duration, bytes: usize) {
        let worth = Duration::from_millis(bytes as u64 / WORTH_A_MS);
        self.0 = self.0.saturating_sub(waited.saturating_sub(worth));
    }
}

/// Outputs that came from Redis for the questions that are being asked.
#[derive(Debug, Default)]
pub(super) struct AtHand(HashMap<(OrgId, ResultKey), Held>);

impl Committer {
    pub(super) fn patience(&self) -> Patience {
        Patience(self.parts.hot.patience())
    }

    /// Fetches what Redis has of what is asked for, and tells the questions what is at hand.
    pub(super) async fn fetch_hot(&mut self, questions: &mut [Vec<Question>], patience: &mut Patience) {
        self.at_hand.0.clear();
        if patience.0.is_zero() {
            return;
        }
        let asked = questions.iter().flatten().filter_map(|question| match question {
            Question::Results { org, keys, .. } => Some((*org, keys)),
            _ => None,
        });
        let places = asked.flat_map(|(org, keys)| keys.iter().map(move |key| (org, *key)));
        let places: Vec<(OrgId, ResultKey)> = places.take(AT_ONCE).collect();
        if places.is_empty() {
            return;
        }
        let names: Vec<String> = places.iter().map(|(org, key)| result_name(*org, key)).collect();
        let begun = Instant::now();
        let values = self.parts.hot.get(&names, patience.0).await;
        patience.spend(begun.elapsed(), values.iter().flatten().map(|held| held.output.len()).sum());
        let found = places.into_iter().zip(values).filter_map(|(place, held)| Some((place, held?)));
        self.at_hand.0.extend(found);
        if self.at_hand.0.is_empty() {
            return;
        }
        for question in questions.iter_mut().flatten() {
            if let Question::Results { org, keys, held } = question {
                let hash = |key: &ResultKey| self.at_hand.0.get(&(*org, *key)).map(|held| held.hash);
                *held = keys.iter().map(hash).collect();
            }
        }
    }

    /// The questions are answered.
    pub(super) fn forget_hot(&mut self) {
        self.at_hand = AtHand::default();
    }

    /// What the database found, with outputs that it did not send because they are at hand; those that it sent are put
    /// where the next one finds them.
    pub(super) fn complete(&self, org: OrgId, found: Vec<Option<FoundResult>>) -> Vec<Option<Cached>> {
        let metrics = &self.parts.telemetry.metrics;
        let complete = |found: FoundResult| {
            let FoundResult { key, producer: (run, seq), output_hash, output, beyond, .. } = found;
            let output = match output {
                Some(output) => {
                    metrics.results_from_database.increment(1);
                    self.parts.hot.put(|| result_name(org, &key), output_hash, &output);
                    output
                }
                None => {
                    let held = self.at_hand.0.get(&(org, key)).filter(|held| held.hash == output_hash)?;
                    metrics.results_from_redis.increment(1);
                    held.output.clone()
                }
            };
            Some(Cached { key: key.key, output, run, seq, beyond })
        };
        found.into_iter().map(|found| found.and_then(complete)).collect()
    }

    /// What a commit kept is put where the next one finds it.
    pub(super) fn put_hot(&self, run: &RunPending) {
        if self.parts.hot.is_none() {
            return;
        }
        for kept in run.cache.iter().flat_map(|cache| &cache.kept) {
            self.parts.hot.put(|| result_name(run.org, &kept.key), kept.output_hash, &kept.output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_outputs_are_worth_the_wait() {
        let ms = Duration::from_millis;
        let mut patience = Patience(ms(20));
        patience.spend(ms(5), 100);
        assert_eq!(patience.0, ms(15), "small ones use it up");
        patience.spend(ms(200), 10_000_000);
        assert_eq!(patience.0, ms(15));
        patience.spend(ms(0), 10_000_000);
        assert_eq!(patience.0, ms(15), "and it does not grow");
        patience.spend(ms(100), 0);
        assert!(patience.0.is_zero());
    }
}
