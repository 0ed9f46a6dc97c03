//! Large pieces of logs go to the blob store, and their row says where they are.
//!
//! ```text
//!   note the run ─► put the content ─► append the row
//! ```
//!
//! **Invariant:** a row that names a blob is written after the blob. Where the blob store cannot take something, it stays in
//! its row: lines are not lost for it, and nobody waits for it for long.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use milepost_core::id::{OrgId, RunId};
use milepost_store::Store;
use milepost_store::blobs::{Blobs, prefix_of};
use milepost_store::rows::LogChunkRow;
use uuid::Uuid;

/// What has no more bytes stays in its row: for a line or two a request to a blob store costs more than a row.
pub(super) const INLINE_BYTES: usize = 4096;
/// Pieces that are put at once.
const AT_ONCE: usize = 16;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a blob store that failed is left alone.
const AWAY: Duration = Duration::from_secs(30);
/// Runs that are known to be noted, and for how long that is believed: a run that is forgotten loses its note.
const NOTED: usize = 10_000;
const NOTED_FOR: Duration = Duration::from_secs(60);

/// The way to the blob store.
#[derive(Debug)]
pub(super) struct Outside {
    store: Arc<dyn Store>,
    blobs: Blobs,
    noted: HashSet<(OrgId, RunId)>,
    noted_since: Instant,
    away_until: Option<Instant>,
}

impl Outside {
    pub(super) fn new(store: Arc<dyn Store>, blobs: Blobs) -> Outside {
        Outside { store, blobs, noted: HashSet::new(), noted_since: Instant::now(), away_until: None }
    }

    /// Takes the content of large rows; those it cannot take are left as they are.
    pub(super) async fn take(&mut self, rows: &mut [LogChunkRow]) {
        let large: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].content.len() > INLINE_BYTES).collect();
        if large.is_empty() || self.away_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        if let Err(error) = self.note(large.iter().map(|row| (rows[*row].org, rows[*row].run)).collect()).await {
            tracing::debug!(%error, "log lines stay in the database");
            return;
        }
        let blobs = &self.blobs;
        let put = |index: usize| {
            let row = &rows[index];
            let key = format!("{}/logs/{}", prefix_of(row.org, row.run), Uuid::now_v7());
            let content = row.content.clone().into();
            async move {
                let put = tokio::time::timeout(PATIENCE, blobs.put(&key, content)).await;
                (index, key, put)
            }
        };
        let puts: Vec<_> = futures::stream::iter(large).map(put).buffer_unordered(AT_ONCE).collect().await;
        let mut failed = None;
        for (index, key, put) in puts {
            match put {
                Ok(Ok(())) => (rows[index].content, rows[index].blob) = (Vec::new(), Some(key)),
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(_) => failed = Some(format!("it took longer than {} s", PATIENCE.as_secs())),
            }
        }
        self.tell(failed);
    }

    async fn note(&mut self, runs: HashSet<(OrgId, RunId)>) -> milepost_store::Result<()> {
        if self.noted_since.elapsed() > NOTED_FOR || self.noted.len() > NOTED {
            self.noted.clear();
            self.noted_since = Instant::now();
        }
        let new: Vec<(OrgId, RunId)> = runs.into_iter().filter(|run| !self.noted.contains(run)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.store.run_blobs().note(&new).await?;
        self.noted.extend(new);
        Ok(())
    }

    /// Once per trouble.
    fn tell(&mut self, failed: Option<String>) {
        match (failed, self.away_until.is_some()) {
            (Some(error), was_away) => {
                if !was_away {
                    tracing::warn!(error, blobs = %self.blobs, "log lines stay in the database until the blob store takes them");
                }
                self.away_until = Some(Instant::now() + AWAY);
            }
            (None, true) => {
                tracing::info!(blobs = %self.blobs, "the blob store takes log lines again");
                self.away_until = None;
            }
            (None, false) => {}
        }
    }
}
