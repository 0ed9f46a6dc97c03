//! Retention: runs that ended long ago are forgotten, with all that belongs to them.
//!
//! **Invariant:** commits come first: after each batch this waits four times as long as the batch took.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::time::Timestamp;
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
/// At least so long between two batches.
const PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Retention {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a run that has ended is kept.
    pub(crate) keep_ms: u64,
}

impl Retention {
    /// One batch.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<Forgotten> {
        let keep_us = i64::try_from(self.keep_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        self.store.forget_runs(Timestamp(now.0.saturating_sub(keep_us)), BATCH).await
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
        if forgotten.runs > 0 || forgotten.partitions > 0 {
            let Forgotten { runs, partitions, .. } = forgotten;
            tracing::info!(runs, partitions, "runs that ended long ago are forgotten");
        }
        Ok(if forgotten.more { BLOCKED } else { INTERVAL })
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
fn pause_after(took: Duration) -> Duration {
    (took * 4).max(PAUSE)
}

#[cfg(test)]
mod tests {
    use milepost_core::id::RunId;
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
        let retention = Retention { store: store.clone(), clock: clock.clone(), keep_ms: 10 * DAY_MS };
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

    #[test]
    fn others_have_four_times_as_long() {
        assert_eq!(pause_after(Duration::from_millis(50)), Duration::from_millis(200));
        assert_eq!(pause_after(Duration::ZERO), PAUSE);
    }
}
