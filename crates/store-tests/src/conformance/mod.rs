//! The checks, by what they look at. Each makes its own runs and never asks what else is in the database.

#![expect(clippy::unwrap_used, reason = "these are tests: a failed call is a failed check")]

mod artifacts;
mod ask;
mod cache;
mod definitions;
mod doctor;
mod flights;
mod hostile;
mod lists;
mod log;
mod logs;
mod nodes;
mod outbox;
mod projections;
mod retention;
mod secrets;
mod slots;
mod suspects;
mod tasks;
mod timers;

use std::sync::Arc;

use milepost_core::id::RunId;
use milepost_store::Store;
use milepost_store::rows::{Batch, RunWrite, WriteResult};

use crate::rows::{ORG, batch};

pub(crate) use artifacts::recorded;
pub(crate) use cache::{began, new_key, no_change};
pub(crate) use definitions::{blob as content, moved as moved_tag, version};
pub use nodes::leases_run_out;
pub(crate) use tasks::{leased as leased_task, waiting as waiting_task};

/// Runs all checks that hold for every store. Panics at the first that fails.
pub async fn conformance(store: Arc<dyn Store>) {
    log::check(&*store).await;
    timers::check(&*store).await;
    slots::check(&*store).await;
    tasks::check(&*store).await;
    ask::check(&store).await;
    cache::check(&store).await;
    flights::check(&store).await;
    artifacts::check(&*store).await;
    nodes::check(&*store).await;
    outbox::check(&store).await;
    definitions::check(&*store).await;
    secrets::check(store.secrets()).await;
    logs::check(&*store).await;
    projections::check(&store).await;
    lists::check(&*store).await;
    retention::check(&store).await;
    doctor::check(&*store).await;
    suspects::check(&store).await;
    hostile::check(&store).await;
}

/// Commits a batch that must not fail as a whole.
async fn commit(store: &dyn Store, batch: Batch) -> Vec<WriteResult> {
    store.commit(Arc::new(batch)).await.expect("the batch is valid")
}

/// Commits one write that must be written.
async fn written(store: &dyn Store, write: RunWrite) {
    assert_eq!(commit(store, batch([write])).await, [WriteResult::Written]);
}

async fn last_seq(store: &dyn Store, run: RunId) -> Option<u64> {
    store.head(ORG, run).await.expect("heads can be read").map(|head| head.last_seq)
}
