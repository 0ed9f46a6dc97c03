//! How many steps a second SQLite takes: two events and a head update each, in batches of several sizes, through the store
//! and through the bare statements; and what the unique index on idempotency keys costs.
//!
//! `cargo run --release -p milepost-store-tests --example sqlite_rates [rows per measurement]`

use std::path::Path;
use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_store::Store;
use milepost_store::rows::{Batch, Recorded};
use milepost_store::sqlite::{self, SqliteStore};
use milepost_store_tests::rows::{advance, batch, new_run, start};

const EVENTS_PER_STEP: u64 = 2;
/// Typical output of a small step.
const DATA: &str =
    r#"{"output":{"path":"renders/0001.png","width":1920,"height":1080},"duration_ms":12,"worker":"inline"}"#;

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(200_000, |text| text.parse().expect("a number of rows"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a temporary folder");
    eprintln!("{:>6} {:>14} {:>14} {:>16}", "batch", "rows/s", "bare rows/s", "no unique index");
    for size in [1, 32, 64, 256] {
        let rows = if size == 1 { rows / 10 } else { rows };
        let batches = steps(size, rows / EVENTS_PER_STEP);
        let file = |name: &str| folder.path().join(format!("{name}-{size}.db"));
        let stored = runtime.block_on(through_store(&file("store"), &batches, true));
        let recorded: Vec<Recorded> = batches.iter().map(|batch| Recorded::Commit(batch.clone().into())).collect();
        let bare = sqlite::replay(&file("bare"), &recorded).expect("a new database");
        let without = runtime.block_on(through_store(&file("without"), &batches, false));
        let rate = |time: Duration| rows as f64 / time.as_secs_f64();
        eprintln!("{size:>6} {:>14.0} {:>14.0} {:>16.0}", rate(stored), rate(bare), rate(without));
    }
}

/// Chains of ten steps, `size` runs at a time.
fn steps(size: u64, steps: u64) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut left = steps;
    while left > 0 {
        let runs: Vec<RunId> = (0..size).map(|_| new_run()).collect();
        batches.push(batch(runs.iter().map(|run| start(*run, 0))));
        for step in 0..10 {
            let mut writes = batch(runs.iter().map(|run| advance(*run, step * EVENTS_PER_STEP, EVENTS_PER_STEP)));
            let events = writes.writes.iter_mut().flat_map(|write| &mut write.events);
            events.for_each(|event| event.data = Json::trusted(DATA));
            batches.push(writes);
            left = left.saturating_sub(size);
            if left == 0 {
                break;
            }
        }
    }
    batches
}

async fn through_store(path: &Path, batches: &[Batch], index: bool) -> Duration {
    let store = SqliteStore::open(path).expect("a new database");
    if !index {
        let conn = rusqlite::Connection::open(path).expect("the same database");
        conn.execute_batch("DROP INDEX run_events_by_key").expect("the index is there");
    }
    let batches = batches.to_vec();
    let start = Instant::now();
    for batch in batches {
        store.commit(batch.into()).await.expect("a valid batch");
    }
    start.elapsed()
}
