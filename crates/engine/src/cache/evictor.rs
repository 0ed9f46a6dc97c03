//! Results that nobody takes any more go; so do those that were not taken for longest, where there is too much of them.
//!
//! When a result was last taken is not in any index: each hit would have to change it. So a reader walks over all of them,
//! page by page, and only what goes is written.
//!
//! **Invariant:** commits come first: after each page this waits four times as long as the page took.
//! **Invariant:** a result that is taken or made while this looks stays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::time::Timestamp;
use milepost_store::rows::ResultAge;
use milepost_store::{Result, Store};

use crate::clock::Clock;
use crate::retention::pause_after;

/// Results in one page.
const PAGE: u32 = 500;
/// When the first pass begins, so that starting up is not held up, and how long after one the next begins.
const FIRST: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_secs(15 * 60);
/// How finely ages are told apart when there is too much: ten seconds.
const SLICE_US: i64 = 10_000_000;

#[derive(Debug)]
pub(crate) struct Evictor {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a result is kept that nobody takes.
    pub(crate) ttl_ms: Option<u64>,
    /// Bytes that are kept at most.
    pub(crate) bytes: Option<u64>,
}

/// Which results go: those that were last of use before, and some of the slice of time in which that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    slice: i64,
    /// So many bytes of that slice are too much.
    bytes: u64,
}

impl Evictor {
    /// One pass over all results. Answers how many went.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<u64> {
        let before = self.ttl_ms.map(|ttl_ms| {
            let ttl_us = i64::try_from(ttl_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
            Timestamp(now.0.saturating_sub(ttl_us))
        });
        let mut by_slice: BTreeMap<i64, u64> = BTreeMap::new();
        let mut gone = self
            .walk(|age| {
                if before.is_some_and(|before| age.used_at < before) {
                    return true;
                }
                *by_slice.entry(slice_of(age)).or_default() += age.bytes;
                false
            })
            .await?;
        if let Some(mut cut) = self.bytes.and_then(|most| cut(&by_slice, most)) {
            gone += self
                .walk(|age| {
                    let goes = slice_of(age) < cut.slice || (slice_of(age) == cut.slice && cut.bytes > 0);
                    if goes && slice_of(age) == cut.slice {
                        cut.bytes = cut.bytes.saturating_sub(age.bytes);
                    }
                    goes
                })
                .await?;
        }
        Ok(gone)
    }

    /// Looks at every result, and removes those that are to go.
    async fn walk(&self, mut goes: impl FnMut(&ResultAge) -> bool) -> Result<u64> {
        let (mut after, mut gone) = (None, 0);
        loop {
            let begun = Instant::now();
            let page = self.store.cache().ages(after, PAGE).await?;
            let unused: Vec<ResultAge> = page.iter().copied().filter(|age| goes(age)).collect();
            if !unused.is_empty() {
                gone += self.store.cache().evict_unused(&unused).await?;
            }
            if page.len() < PAGE as usize {
                return Ok(gone);
            }
            after = page.last().map(ResultAge::place);
            tokio::time::sleep(pause_after(begun.elapsed())).await;
        }
    }

    pub(crate) async fn run(self) {
        let mut wait = FIRST;
        loop {
            tokio::time::sleep(wait).await;
            wait = INTERVAL;
            match self.run_once(self.clock.now()).await {
                Ok(0) => {}
                Ok(results) => tracing::info!(results, "results of steps that nobody took for long are gone"),
                Err(error) => tracing::warn!(%error, "results of steps cannot be looked over now"),
            }
        }
    }
}

fn slice_of(age: &ResultAge) -> i64 {
    age.used_at.0.div_euclid(SLICE_US)
}

/// Up to where results have to go so that no more than so many bytes are left. `None`: nowhere.
fn cut(by_slice: &BTreeMap<i64, u64>, most: u64) -> Option<Cut> {
    let mut excess = by_slice.values().sum::<u64>().checked_sub(most).filter(|excess| *excess > 0)?;
    for (slice, bytes) in by_slice {
        if *bytes >= excess {
            return Some(Cut { slice: *slice, bytes: excess });
        }
        excess -= bytes;
    }
    None
}

#[cfg(test)]
mod tests {
    use milepost_store::memory::MemoryStore;
    use milepost_store::rows::ResultFilter;

    use super::*;
    use crate::clock::ManualClock;
    use crate::engine::{Config, Engine, NewRun};

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    struct Kept {
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
        engine: Engine,
    }

    impl Kept {
        async fn new() -> Kept {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000_000)));
            let config = Config { clock: clock.clone(), ..Config::default() };
            let engine = Engine::open_with(store.clone(), config).await.unwrap();
            Kept { store, clock, engine }
        }

        /// Runs a step whose result has this input, some ten bytes of output, and is kept.
        async fn run(&self, text: &str) {
            let document =
                format!("{{name: w, steps: {{s: {{skill: echo, input: {text}, cache: {{enabled: true}}}}}}}}");
            let run = self.engine.start_document(&document, NewRun::default()).await.unwrap().run;
            self.engine.wait(run).await.unwrap();
        }

        async fn pass(&self, ttl_days: Option<u64>, bytes: Option<u64>) -> u64 {
            let ttl_ms = ttl_days.map(|days| days * DAY_MS);
            let (store, clock) = (self.store.clone(), self.clock.clone());
            let evictor = Evictor { store, clock, ttl_ms, bytes };
            evictor.run_once(self.clock.now()).await.unwrap()
        }

        async fn left(&self) -> u64 {
            let stats = self.store.cache().result_stats(self.engine.org(), &ResultFilter::All).await.unwrap();
            stats.iter().map(|stats| stats.results).sum()
        }
    }

    #[tokio::test]
    async fn what_nobody_took_for_long_goes() {
        let kept = Kept::new().await;
        kept.run("old").await;
        kept.run("taken").await;
        kept.clock.advance_ms(20 * DAY_MS);
        kept.run("taken").await;
        kept.run("young").await;
        kept.clock.advance_ms(10 * DAY_MS);
        assert_eq!(kept.pass(Some(30), None).await, 0, "thirty days are not over yet");
        kept.clock.advance_ms(1);
        assert_eq!((kept.pass(Some(30), None).await, kept.left().await), (1, 2));
        kept.clock.advance_ms(100 * DAY_MS);
        assert_eq!((kept.pass(None, None).await, kept.left().await), (0, 2), "for ever");
    }

    #[tokio::test]
    async fn where_there_is_too_much_what_was_not_taken_for_longest_goes_first() {
        let kept = Kept::new().await;
        for text in ["aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"] {
            kept.run(text).await;
            kept.clock.advance_ms(60_000);
        }
        kept.run("aaaaaaaa").await;
        assert_eq!(kept.pass(None, Some(40)).await, 0, "four times ten bytes fit");
        assert_eq!((kept.pass(None, Some(25)).await, kept.left().await), (2, 2));
        kept.run("aaaaaaaa").await;
        kept.run("dddddddd").await;
        let stats = kept.store.cache().result_stats(kept.engine.org(), &ResultFilter::All).await.unwrap();
        assert_eq!((stats[0].hits, stats[0].misses), (3, 4), "the two that were taken last are there");
        assert_eq!((kept.pass(None, Some(0)).await, kept.left().await), (2, 0));
    }

    #[test]
    fn the_cut_is_where_the_rest_fits() {
        let slices = BTreeMap::from([(1, 10), (2, 20), (5, 30)]);
        let at = |slice, bytes| Some(Cut { slice, bytes });
        let cuts = [60, 59, 50, 49, 30, 0].map(|most| cut(&slices, most));
        assert_eq!(cuts, [None, at(1, 1), at(1, 10), at(2, 1), at(2, 20), at(5, 30)]);
        assert_eq!(cut(&BTreeMap::new(), 0), None);
    }
}
