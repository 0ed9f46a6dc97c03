//! What is not needed goes: artifacts that have expired, then content that nobody names, then what is under its keys.
//!
//! **Invariant:** content goes only after nobody used it for the whole time of grace, and is looked at again by the statement
//! that removes it: somebody who is about to name it has used it.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::time::Timestamp;

use super::Artifacts;
use super::upload::folder_of;
use crate::error::EngineError;

/// Rows in one go.
const PAGE: u32 = 500;
/// When the first pass begins, so that starting up is not held up, and how long after one the next begins.
const FIRST: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// No time of grace is shorter: who has uploaded something needs a while to say so.
const SHORTEST: Duration = Duration::from_secs(60 * 60);

/// What a pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Artifacts that had expired.
    pub expired: u64,
    /// Content that nobody named.
    pub contents: u64,
    pub bytes: u64,
    /// Keys of the blob store under which there is nothing any more.
    pub keys: u64,
}

impl Artifacts {
    /// Removes what is not needed at this moment.
    ///
    /// # Errors
    /// The store or the blob store cannot be reached; what was removed stays removed.
    pub async fn collect(&self, now: Timestamp) -> Result<Removed, EngineError> {
        let mut removed = Removed::default();
        loop {
            let expired = self.store.artifacts().forget_expired(now, PAGE).await?;
            removed.expired += expired;
            if expired < u64::from(PAGE) {
                break;
            }
        }
        let grace = i64::try_from(self.config.grace.max(SHORTEST).as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp(now.0.saturating_sub(grace));
        let mut after = None;
        loop {
            let page = self.store.artifacts().loose_contents(before, after, PAGE).await?;
            let keys: Vec<_> = page.iter().map(|(org, row)| (*org, row.sha256)).collect();
            let (contents, bytes) = self.store.artifacts().remove_contents(before, &keys).await?;
            (removed.contents, removed.bytes) = (removed.contents + contents, removed.bytes + bytes);
            after = keys.last().copied();
            if keys.len() < PAGE as usize {
                break;
            }
        }
        removed.keys = self.collect_keys(before).await?;
        Ok(removed)
    }

    async fn collect_keys(&self, before: Timestamp) -> Result<u64, EngineError> {
        let Some(blobs) = &self.blobs else { return Ok(0) };
        let mut removed = 0;
        loop {
            let keys = self.store.artifacts().loose_keys(before, PAGE).await?;
            for key in &keys {
                blobs.delete_prefix(folder_of(key)).await?;
                self.store.artifacts().clear_key(key).await?;
                removed += 1;
            }
            if keys.len() < PAGE as usize {
                return Ok(removed);
            }
        }
    }
}

/// The service that collects now and then.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) artifacts: Arc<Artifacts>,
}

impl Keeper {
    pub(crate) async fn run(self) {
        let mut wait = FIRST;
        loop {
            tokio::time::sleep(wait).await;
            wait = INTERVAL;
            match self.artifacts.collect(self.artifacts.clock.now()).await {
                Ok(removed) if removed == Removed::default() => {}
                Ok(Removed { expired, contents, bytes, keys }) => {
                    tracing::info!(expired, contents, bytes, keys, "files that nobody needs are removed");
                }
                Err(error) => tracing::warn!(%error, "files that nobody needs cannot be removed now"),
            }
        }
    }
}
