//! A run that somebody watches: what is kept of it, how far its log is known to go, and reading what is not kept.

use std::sync::{Mutex, MutexGuard};

use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_store::Store;
use tokio::sync::{Semaphore, watch};

use super::event::{Batch, StreamEvent};
use super::kept::Kept;
use crate::error::EngineError;

/// A page is as large as fits the events of the one before, between these.
const PAGE_BYTES: usize = 256 * 1024;
const SMALLEST_PAGE: usize = 4;
const FIRST_PAGE: usize = 32;
const LARGEST_PAGE: usize = 128;

/// How far a log is known to go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) seq: u64,
    /// Why nothing will come any more.
    pub(super) over: Option<Over>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The run is stored no longer.
    Gone,
    /// The engine stops.
    Closed,
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) org: OrgId,
    pub(super) run: RunId,
    kept: Mutex<Kept>,
    known: watch::Sender<Known>,
    /// Held while the log is read, so that those who want the same page read it once. Holds the size of the next page.
    page: tokio::sync::Mutex<usize>,
}

impl Topic {
    pub(super) fn new(org: OrgId, run: RunId) -> Topic {
        let page = tokio::sync::Mutex::new(FIRST_PAGE);
        Topic { org, run, kept: Mutex::default(), known: watch::Sender::default(), page }
    }

    pub(super) fn known(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Takes rows that were just committed, in order.
    pub(super) fn absorb(&self, rows: &[EventRow]) {
        let events: Batch = rows.iter().map(|row| StreamEvent::of(self.run, row)).collect();
        self.kept().add(&events);
        // Only now: whoever is woken finds them.
        self.raise(events.last().map_or(0, |event| event.seq));
    }

    /// The log goes up to here, at least.
    pub(super) fn raise(&self, seq: u64) {
        self.known.send_if_modified(|known| {
            let news = seq > known.seq;
            known.seq = known.seq.max(seq);
            news
        });
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        self.known.send_modify(|known| known.over = Some(Over::Closed));
    }

    /// The store has no such run; one that it never had is not gone.
    pub(super) fn lose(&self) {
        self.known.send_if_modified(|known| {
            let news = known.seq > 0 && known.over.is_none();
            if news {
                known.over = Some(Over::Gone);
            }
            news
        });
    }

    pub(super) fn kept_after(&self, seq: u64) -> Option<Batch> {
        self.kept().after(seq)
    }

    /// What follows on `seq` in a log that is known to go on.
    pub(super) async fn read_after(
        &self,
        seq: u64,
        store: &dyn Store,
        reads: &Semaphore,
    ) -> Result<Batch, EngineError> {
        let mut size = self.page.lock().await;
        // Somebody else may have read it while this one waited for its turn.
        if let Some(batch) = self.kept_after(seq) {
            return Ok(batch);
        }
        let _turn = reads.acquire().await.map_err(|_| EngineError::ShuttingDown)?;
        let mut rows = store.events(self.org, self.run, seq, *size as u32).await?;
        let whole = rows.iter().zip(seq + 1..).take_while(|(row, expected)| row.seq == *expected).count();
        if whole == 0 {
            return Err(self.missing(seq, store).await);
        }
        // What is behind a gap waits until that closes.
        rows.truncate(whole);
        let page: Batch = rows.iter().map(|row| StreamEvent::of(self.run, row)).collect();
        *size = next_size(*size, &page);
        self.kept().add_page(&page);
        Ok(page)
    }

    /// The log does not go on although it should: the run was deleted, or is damaged.
    async fn missing(&self, seq: u64, store: &dyn Store) -> EngineError {
        match store.head(self.org, self.run).await {
            Ok(None) => EngineError::NoSuchRun(self.run),
            Ok(Some(_)) => EngineError::LogGap { run: self.run, seq: seq + 1 },
            Err(error) => error.into(),
        }
    }

    #[cfg(test)]
    pub(super) async fn hold_page(&self) -> tokio::sync::MutexGuard<'_, usize> {
        self.page.lock().await
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no holder of this lock panics")
    }
}

/// Grows by steps: a few small events do not say that those to come are small.
fn next_size(size: usize, page: &Batch) -> usize {
    let bytes: usize = page.iter().map(|event| event.size()).sum();
    let fits = PAGE_BYTES / (bytes / page.len()).max(1);
    fits.min(size * 2).clamp(SMALLEST_PAGE, LARGEST_PAGE)
}
