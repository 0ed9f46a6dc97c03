//! Retention: runs that ended long ago are forgotten, with all that belongs to them: first in the database, where others see
//! them, then in the blob store.
//!
//! **Invariant:** commits come first: after each batch this waits four times as long as the batch took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use milepost_store::blobs::{BlobError, Blobs, prefix_of};
use milepost_store::rows::Forgotten;
use milepost_store::{Result, Store};

use crate::clock::Clock;

/// Runs in one batch.
const BATCH: u32 = 200;
/// When the first pass begins, so that starting up is not held up, and how long after one the next begins.
const FIRST: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(60 * 60);
/// The same when somebody else was in the way.
const BLOCKED: Duration = Duration::from_secs(10 * 60);
/// Runs whose blobs are removed between two looks, and how many at once.
const BLOB_RUNS: u32 = 100;
const BLOBS_AT_ONCE: usize = 8;
/// At least so long between two batches.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Retention {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) blobs: Option<Blobs>,
    /// How long a run that has ended is kept.
    pub(crate) keep_ms: u64,
}

impl Retention {
    /// One batch.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<Forgotten> {
        self.store.forget_runs(self.before(now), BATCH).await
    }

    fn before(&self, now: Timestamp) -> Timestamp {
        let keep_us = i64::try_from(self.keep_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        Timestamp(now.0.saturating_sub(keep_us))
    }

    /// Batches until nothing is left. Answers how long to wait for the next pass.
    async fn pass(&self) -> Result<Duration> {
        let mut forgotten = Forgotten { more: true, ..Forgotten::default() };
        while forgotten.more {
            let begun = Instant::now();
            let batch = self.run_once(self.clock.now()).await?;
            forgotten.runs += batch.runs;
            forgotten.partitions += batch.partitions;
            forgotten.more = batch.more;
            if batch.is_blocked() {
                break;
            }
            if batch.more {
                tokio::time::sleep(pause_after(begun.elapsed())).await;
            }
        }
        self.store.outbox().forget_dead(self.before(self.clock.now())).await?;
        self.forget_preimages().await?;
        if forgotten.runs > 0 || forgotten.partitions > 0 {
            let Forgotten { runs, partitions, .. } = forgotten;
            tracing::info!(runs, partitions, "runs that ended long ago are forgotten");
        }
        let blobs_left = self.remove_blobs().await?;
        Ok(if forgotten.more || blobs_left { BLOCKED } else { INTERVAL })
    }

    /// What keys were made of under which nothing is kept: of attempts that failed, of results that were evicted.
    async fn forget_preimages(&self) -> Result<()> {
        loop {
            let begun = Instant::now();
            let gone = self.store.cache().forget_preimages(self.before(self.clock.now()), BATCH).await?;
            if gone < u64::from(BATCH) {
                return Ok(());
            }
            tokio::time::sleep(pause_after(begun.elapsed())).await;
        }
    }

    /// Removes what runs that are gone have in the blob store, then the note that there is something. Whoever dies in the
    /// middle leaves the note. Answers whether there is something left that could not be removed.
    async fn remove_blobs(&self) -> Result<bool> {
        let Some(blobs) = &self.blobs else { return Ok(false) };
        let mut removed = 0;
        loop {
            let runs = self.store.run_blobs().gone(BLOB_RUNS).await?;
            if runs.is_empty() {
                break;
            }
            let remove = |run: (OrgId, RunId)| async move {
                let gone = blobs.delete_prefix(&prefix_of(run.0, run.1)).await;
                gone.map(|()| run)
            };
            let outcomes: Vec<std::result::Result<_, BlobError>> =
                futures::stream::iter(runs).map(remove).buffer_unordered(BLOBS_AT_ONCE).collect().await;
            let (gone, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(std::result::Result::is_ok);
            let gone: Vec<(OrgId, RunId)> = gone.into_iter().flatten().collect();
            self.store.run_blobs().clear(&gone).await?;
            removed += gone.len();
            if let Some(error) = failed.into_iter().find_map(std::result::Result::err) {
                tracing::warn!(%error, "blobs of runs that are gone cannot be removed now");
                return Ok(true);
            }
        }
        if removed > 0 {
            tracing::info!(runs = removed, "blobs of runs that are gone are removed");
        }
        Ok(false)
    }

    pub(crate) async fn run(self) {
        let mut wait = FIRST;
        loop {
            tokio::time::sleep(wait).await;
            wait = self.pass().await.unwrap_or_else(|error| {
                tracing::warn!(%error, "runs that ended long ago cannot be forgotten now");
                BLOCKED
            });
        }
    }
}

/// Four fifths of the time belong to others.
pub(crate) fn pause_after(took: Duration) -> Duration {
    (took * 4).max(PAUSE)
}

#[cfg(test)]
mod tests {
    use milepost_core::status::RunStatus;
    use milepost_store::memory::MemoryStore;

    use super::*;
    use crate::clock::ManualClock;
    use crate::engine::{Config, Engine, NewRun};
    use crate::error::EngineError;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    struct Kept {
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
        engine: Engine,
        retention: Retention,
    }

    /// Runs are kept for ten days.
    async fn kept() -> Kept {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000_000)));
        let config = Config { clock: clock.clone(), ..Config::default() };
        let engine = Engine::open_with(store.clone(), config).await.unwrap();
        let retention = Retention { store: store.clone(), clock: clock.clone(), blobs: None, keep_ms: 10 * DAY_MS };
        Kept { store, clock, engine, retention }
    }

    async fn ended(kept: &Kept, document: &str) -> RunId {
        let run = kept.engine.start_document(document, NewRun::default()).await.unwrap().run;
        kept.engine.wait(run).await.unwrap();
        kept.engine.flush_projections().await;
        run
    }

    #[tokio::test]
    async fn runs_are_forgotten_when_they_ended_long_enough_ago() {
        let kept = kept().await;
        let old = ended(&kept, "{name: a, steps: {a: {skill: noop}}}").await;
        kept.clock.advance_ms(5 * DAY_MS);
        let young = ended(&kept, "{name: a, steps: {a: {skill: noop}}}").await;
        let waits = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";
        let open = kept.engine.start_document(waits, NewRun::default()).await.unwrap().run;
        kept.clock.advance_ms(5 * DAY_MS);
        assert_eq!(kept.retention.run_once(kept.clock.now()).await.unwrap().runs, 0, "ten days are not over yet");
        kept.clock.advance_ms(1);
        assert_eq!(kept.retention.run_once(kept.clock.now()).await.unwrap().runs, 1);
        assert!(matches!(kept.engine.run(old).await, Err(EngineError::NoSuchRun(run)) if run == old));
        assert_eq!(kept.engine.run(young).await.unwrap().summary.status, RunStatus::Completed);
        kept.clock.advance_ms(100 * DAY_MS);
        assert_eq!(kept.retention.pass().await.unwrap(), INTERVAL);
        assert_eq!(kept.store.count_runs().await.unwrap(), 1, "an open run stays however old it is");
        assert_eq!(kept.engine.summary(open).await.unwrap().status, RunStatus::Running);
    }

    #[tokio::test]
    async fn a_run_that_is_forgotten_is_no_run_to_anybody() {
        let kept = kept().await;
        let run = ended(&kept, "{name: f, steps: {a: {skill: fail, input: {}}}}").await;
        // The engine has its state at hand.
        let refused = kept.engine.signal(run, Engine::new_signal("go")).await.unwrap_err();
        assert_eq!(refused.code(), "run_ended");
        kept.clock.advance_ms(11 * DAY_MS);
        kept.retention.pass().await.unwrap();
        let engine = &kept.engine;
        let retry = milepost_core::run::Signal { step: Some("a".to_owned()), ..Engine::new_signal("RETRY_STEP") };
        let answers = [
            engine.signal(run, Engine::new_signal("go")).await.err(),
            engine.signal(run, retry).await.err(),
            engine.run(run).await.err(),
            engine.run_at(run, 1).await.err(),
            engine.summary(run).await.err(),
            engine.step(run, "a").await.err(),
            engine.logs(run, None, None, 10).await.err(),
            engine.update(run, None, Vec::new(), NewRun::default()).await.err(),
            engine.wait(run).await.err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(EngineError::NoSuchRun(gone)) if gone == run), "{answer:?}");
        }
    }

    /// Even one whose answer the engine could give from what it had at hand.
    #[tokio::test]
    async fn a_signal_that_was_taken_is_taken_by_nobody_once_its_run_is_forgotten() {
        let kept = kept().await;
        let waits = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";
        let run = kept.engine.start_document(waits, NewRun::default()).await.unwrap().run;
        let go = Engine::new_signal("go");
        kept.engine.signal(run, go.clone()).await.unwrap();
        kept.engine.wait(run).await.unwrap();
        kept.engine.flush_projections().await;
        assert!(kept.engine.signal(run, go.clone()).await.unwrap().existing);
        kept.clock.advance_ms(11 * DAY_MS);
        kept.retention.pass().await.unwrap();
        assert!(matches!(kept.engine.signal(run, go).await, Err(EngineError::NoSuchRun(gone)) if gone == run));
    }

    #[tokio::test]
    async fn what_a_run_has_in_the_blob_store_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = kept().await;
        let run = ended(&kept, "{name: a, steps: {a: {skill: noop}}}").await;
        let open = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";
        let open = kept.engine.start_document(open, NewRun::default()).await.unwrap().run;
        let blobs = Blobs::in_folder(folder.path());
        let key = |run| format!("{}/logs/1", prefix_of(OrgId::DEFAULT, run));
        kept.store.run_blobs().note(&[(OrgId::DEFAULT, run), (OrgId::DEFAULT, open)]).await.unwrap();
        for run in [run, open] {
            blobs.put(&key(run), "lines".into()).await.unwrap();
        }
        // A process that had not heard of the blob store, or died in between, leaves the note.
        kept.clock.advance_ms(11 * DAY_MS);
        assert_eq!(kept.retention.pass().await.unwrap(), INTERVAL);
        assert_eq!((kept.store.count_runs().await.unwrap(), blobs.exists(&key(run)).await), (1, Ok(true)));
        let file = tempfile::NamedTempFile::new().unwrap();
        kept.retention.blobs = Some(Blobs::in_folder(file.path()));
        assert_eq!(kept.retention.pass().await.unwrap(), BLOCKED, "it cannot be removed there");
        kept.retention.blobs = Some(blobs.clone());
        assert_eq!(kept.retention.pass().await.unwrap(), INTERVAL);
        assert_eq!(blobs.exists(&key(run)).await, Ok(false));
        assert_eq!(blobs.exists(&key(open)).await, Ok(true), "an open run keeps its blobs");
        assert!(kept.store.run_blobs().gone(10).await.unwrap().is_empty());
    }

    #[test]
    fn others_have_four_times_as_long() {
        assert_eq!(pause_after(Duration::from_millis(50)), Duration::from_millis(200));
        assert_eq!(pause_after(Duration::ZERO), PAUSE);
    }
}
