//! Queues: what waits in them, and what they may do at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use milepost_core::id::OrgId;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::text::check_name;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::QueueRow;
pub use milepost_store::rows::Rate;

use crate::engine::Engine;
use crate::error::EngineError;

const MAX_LIMIT: u32 = 1_000_000;
/// Longest time of a rate: a day.
const MAX_PER_MS: u64 = 24 * 60 * 60 * 1000;

/// A queue that has tasks, or limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState {
    pub queue: Arc<str>,
    pub waiting: u64,
    pub running: u64,
    /// Since when the oldest of those that wait does.
    pub oldest: Option<Timestamp>,
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
}

/// Queues in the order of their names. Needs no engine.
///
/// # Errors
/// The store cannot be read.
pub async fn list_queues(store: &Arc<dyn Store>, org: OrgId) -> Result<Vec<QueueState>, EngineError> {
    let mut queues: BTreeMap<Arc<str>, QueueState> = BTreeMap::new();
    let empty =
        |queue: Arc<str>| QueueState { queue, waiting: 0, running: 0, oldest: None, concurrency: None, rate: None };
    for count in store.queue_counts().await?.into_iter().filter(|count| count.org == org) {
        let queue: Arc<str> = count.queue.into();
        let state = queues.entry(queue.clone()).or_insert_with(|| empty(queue));
        (state.waiting, state.running, state.oldest) = (count.waiting, count.leased, count.oldest);
    }
    for row in store.queues().await?.into_iter().filter(|row| row.org == org) {
        let state = queues.entry(row.queue.clone()).or_insert_with(|| empty(row.queue));
        (state.concurrency, state.rate) = (row.concurrency, row.rate);
    }
    Ok(queues.into_values().collect())
}

impl Engine {
    /// Queues in the order of their names.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queues(&self) -> Result<Vec<QueueState>, EngineError> {
        list_queues(&self.store, self.org).await
    }

    /// Sets what a queue may do at most. Other nodes know within seconds; what is under way goes on.
    ///
    /// # Errors
    /// A limit is none, or the store cannot be written.
    pub async fn limit_queue(
        &self,
        queue: Arc<str>,
        concurrency: Option<u32>,
        rate: Option<Rate>,
    ) -> Result<(), EngineError> {
        check_name("the queue's name", &queue, self.limits().name_chars, "bad_name")?;
        let bad =
            |message: &str| Rejection { kind: RejectionKind::Invalid, code: "bad_limit", message: message.to_owned() };
        if concurrency == Some(0) || rate.is_some_and(|rate| rate.limit == 0) {
            return Err(bad("a limit is 1 or more; to hold a queue up, stop its workers").into());
        }
        if concurrency.into_iter().chain(rate.map(|rate| rate.limit)).any(|limit| limit > MAX_LIMIT) {
            return Err(bad("a limit is a million at most; without one, a queue has none").into());
        }
        if rate.is_some_and(|rate| rate.per_ms == 0 || rate.per_ms > MAX_PER_MS) {
            return Err(bad("the time of a rate is between a millisecond and a day").into());
        }
        self.store.set_queue(&QueueRow { org: self.org, queue, concurrency, rate }).await?;
        self.limited_queues.set(&self.store.queues().await?);
        Ok(())
    }
}
