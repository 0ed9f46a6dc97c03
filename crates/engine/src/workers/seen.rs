//! Workers that asked this node for something to do lately: so that somebody who waits can be told that there is none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::time::Timestamp;

use super::Exchange;

/// Who said nothing for so long is not there.
const LATELY_MS: u64 = 60_000;
/// A worker is noted once in so long.
const NOTED_EVERY_MS: u64 = 5_000;
/// No more than so many are remembered: workers choose their names.
const MANY: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct SeenWorkers(Mutex<HashMap<Arc<str>, Seen>>);

#[derive(Debug)]
struct Seen {
    at: Timestamp,
    queues: Vec<Arc<str>>,
    /// None: any.
    skills: Option<Vec<Arc<str>>>,
}

impl SeenWorkers {
    pub(crate) fn note(&self, exchange: &Exchange, now: Timestamp) {
        let mut seen = self.0.lock().expect("no holder of this lock panics");
        if seen.get(&exchange.worker).is_some_and(|seen| now.ms_since(seen.at) < NOTED_EVERY_MS) {
            return;
        }
        if seen.len() >= MANY && !seen.contains_key(&exchange.worker) {
            seen.retain(|_, seen| now.ms_since(seen.at) < LATELY_MS);
            if seen.len() >= MANY {
                return;
            }
        }
        let (queues, skills) = (exchange.queues.clone(), exchange.skills.clone());
        seen.insert(exchange.worker.clone(), Seen { at: now, queues, skills });
    }

    /// Whether anybody was here lately who takes tasks of this queue and skill.
    pub(crate) fn has(&self, queue: &str, skill: &str, now: Timestamp) -> bool {
        let seen = self.0.lock().expect("no holder of this lock panics");
        seen.values().any(|seen| {
            now.ms_since(seen.at) < LATELY_MS
                && seen.queues.iter().any(|known| **known == *queue)
                && seen.skills.as_ref().is_none_or(|skills| skills.iter().any(|known| **known == *skill))
        })
    }
}
