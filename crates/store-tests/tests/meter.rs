//! Stores count their round trips, by kind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use milepost_store::Store;
use milepost_store::rows::Question;
use milepost_store::sqlite::SqliteStore;
use milepost_store_tests::rows::{ORG, batch, new_run, start};

/// Keeps counters by name and labels.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        self.0.lock().unwrap().entry(name).or_default().clone().into()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

impl Kept {
    /// Reads and writes so far.
    fn counts(&self, store: &str) -> (u64, u64) {
        let kept = self.0.lock().unwrap();
        let of = |kind: &str| {
            let name = format!("milepost_store_statements_total store={store} kind={kind}");
            kept.get(&name).unwrap_or_else(|| panic!("{name} is not counted")).load(Ordering::Relaxed)
        };
        (of("read"), of("write"))
    }
}

async fn each_use_counts_once(store: &dyn Store, kept: &Kept) {
    let run = new_run();
    let before = kept.counts(store.name());
    let since = || {
        let now = kept.counts(store.name());
        (now.0 - before.0, now.1 - before.1)
    };
    store.commit(Arc::new(batch([start(run, 1)]))).await.unwrap();
    assert_eq!(since(), (0, 1));
    store.head(ORG, run).await.unwrap();
    store.events(ORG, run, 0, 10).await.unwrap();
    assert_eq!(since(), (2, 1));
    let (transaction, _) = store.ask(vec![Question::Event { org: ORG, run, seq: 1 }]).await.unwrap();
    transaction.commit(Arc::default()).await.unwrap();
    assert_eq!(since(), (2, 2), "a transaction counts once");
    store.project(Vec::new()).await.unwrap();
    assert_eq!(since(), (2, 3));
}

#[tokio::test]
async fn sqlite_counts_jobs() {
    let (kept, folder) = (Kept::default(), tempfile::tempdir().unwrap());
    let path = folder.path().join("runs.db");
    let store = metrics::with_local_recorder(&kept, || SqliteStore::open(&path)).unwrap();
    each_use_counts_once(&store, &kept).await;
}

#[tokio::test]
async fn postgres_counts_uses_of_connections() {
    let kept = Kept::default();
    // Of this thread, which is the only one of the test's runtime.
    let recording = metrics::set_default_local_recorder(&kept);
    let store = common::postgres().await;
    drop(recording);
    each_use_counts_once(&store, &kept).await;
}
