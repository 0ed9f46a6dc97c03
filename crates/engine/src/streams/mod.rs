//! Live streams of runs' events, from any place in the log, for any number of readers.
//!
//! ```text
//!   committer ──► herald ──► topic of a run: newest events, encoded ◄── readers, each with a cursor
//!   other nodes ─► poll ───►   and how far the log goes                    │
//!                                                                 log ◄────┘ what is not kept any more
//! ```
//!
//! Readers pull: a slow one holds up nobody and costs nothing but its cursor. The committer hands a watched run's rows over
//! once, however many watch; encoding and waking are the herald's.
//!
//! **Invariant:** a reader is given every event after its cursor once, in order.
//! **Invariant:** a reader notes how far the log goes before it looks for events, so news in between wakes it.
//! **Invariant:** a run that nobody watches costs nothing.

mod event;
mod herald;
mod hub;
mod kept;
mod poll;
#[cfg(test)]
mod tests;
mod topic;

use std::sync::Arc;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_store::Store;
use milepost_store::rows::HeadRow;
use tokio::sync::watch;

pub use event::{Batch, StreamEvent};
pub(crate) use herald::Herald;
pub(crate) use hub::Hub;
pub(crate) use poll::Poll;

use crate::error::EngineError;
use hub::Subscription;
use topic::{Known, Over};

/// The hub, with the two services that feed it.
pub(crate) fn open(store: Arc<dyn Store>) -> (Arc<Hub>, Herald, Poll) {
    let (hub, inbox) = Hub::new(store);
    (hub.clone(), Herald { inbox }, Poll { hub })
}

/// The events of a run after a cursor, as they come.
#[derive(Debug)]
pub struct EventStream {
    subscription: Subscription,
    known: watch::Receiver<Known>,
    cursor: u64,
    /// The event up to which it is known whether the run has ended, and with which status.
    ended: (u64, Option<RunStatus>),
}

impl EventStream {
    fn new(subscription: Subscription, cursor: u64, head: &HeadRow) -> EventStream {
        let known = subscription.topic.known();
        let ended = (head.last_seq, Some(head.status).filter(|status| status.is_terminal()));
        EventStream { subscription, known, cursor, ended }
    }

    #[must_use]
    pub fn run(&self) -> RunId {
        self.subscription.topic.run
    }

    /// The last event that was given.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The status of a run that has ended, once everything up to its end was given. The stream goes on if such a run is
    /// reopened.
    #[must_use]
    pub fn ended(&self) -> Option<RunStatus> {
        let (seq, status) = self.ended;
        status.filter(|_| self.cursor >= seq && self.cursor >= self.known.borrow().seq)
    }

    /// The events after the cursor; waits until there are some. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The engine stops, the run was deleted, or the log cannot be read; in the last case it may be asked again.
    pub async fn next(&mut self) -> Result<Batch, EngineError> {
        loop {
            // First note how far the log goes, then look: what comes in between is news again.
            let known = *self.known.borrow_and_update();
            let topic = &self.subscription.topic;
            if let Some(batch) = topic.kept_after(self.cursor) {
                return Ok(self.give(batch));
            }
            match known.over {
                Some(Over::Gone) => return Err(EngineError::NoSuchRun(topic.run)),
                Some(Over::Closed) => return Err(EngineError::ShuttingDown),
                None => {}
            }
            if known.seq > self.cursor {
                let hub = &self.subscription.hub;
                let batch = topic.read_after(self.cursor, hub.store(), hub.reads()).await?;
                return Ok(self.give(batch));
            }
            self.known.changed().await.map_err(|_| EngineError::ShuttingDown)?;
        }
    }

    fn give(&mut self, batch: Batch) -> Batch {
        for event in &batch {
            debug_assert_eq!(event.seq, self.cursor + 1, "events of {} come one after the other", self.run());
            self.cursor = event.seq;
            if event.seq > self.ended.0 && (event.reopens_run() || event.ends_run().is_some()) {
                self.ended = (event.seq, event.ends_run());
            }
        }
        batch
    }
}
