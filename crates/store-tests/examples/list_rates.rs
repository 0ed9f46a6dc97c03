//! What a page of each list costs among many runs: `cargo run -p milepost-store-tests --example list_rates [RUNS] [URL]`.
//!
//! Runs are alike but for a few, which is the hard case: a list that walks through history to find the few shows here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::rows::{NewHead, RunFilter, SnapshotRow};
use milepost_store::sqlite::SqliteStore;
use milepost_store_tests::rows::{ORG, batch, new_head, new_run, project, run_at, snapshot, start_with};

const FIRST_MS: u64 = 1_790_000_000_000;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let runs: u64 = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number of runs"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store: Arc<dyn Store> = match arguments.next() {
        Some(url) => Arc::new(PostgresStore::connect(&url).await.expect("a server")),
        None => Arc::new(SqliteStore::open(&folder.path().join("runs.db")).expect("a database")),
    };
    let parent = new_run();
    fill(&*store, runs, parent).await;
    let last = FIRST_MS + runs / 4;
    for (name, filter) in filters(parent, last) {
        let mut times: Vec<Duration> = Vec::new();
        let mut found = 0;
        for _ in 0..40 {
            let began = Instant::now();
            found = store.list_runs(ORG, &filter).await.expect("a list").len();
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let began = Instant::now();
        let counted = store.count_matching(ORG, &filter, 1001).await.expect("a count");
        println!(
            "{name:32} {found:3} of {counted:4}  p50 {:6.2} ms  most {:6.2} ms  count {:6.2} ms",
            ms(times[20]),
            ms(times[39]),
            ms(began.elapsed())
        );
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Four runs in each millisecond; one in a hundred thousand is unlike the others.
async fn fill(store: &dyn Store, runs: u64, parent: RunId) {
    let began = Instant::now();
    for chunk in (0..runs).collect::<Vec<_>>().chunks(1000) {
        let rows: Vec<SnapshotRow> = chunk.iter().map(|n| row(*n, parent)).collect();
        let requested = rows.iter().filter(|row| row.request_id.is_some());
        let heads =
            requested.map(|row| start_with(row.run, 1, NewHead { request_id: row.request_id.clone(), ..new_head() }));
        store.commit(Arc::new(batch(heads))).await.expect("heads");
        store.project(rows.into_iter().map(|row| project(0, row)).collect()).await.expect("projections");
    }
    println!("{runs} runs in {:.1} s", began.elapsed().as_secs_f64());
}

fn row(n: u64, parent: RunId) -> SnapshotRow {
    let ms = FIRST_MS + n / 4;
    let rare = n % 100_000 == 77;
    SnapshotRow {
        workflow: if rare { "rare" } else { "render" }.to_owned(),
        status: if rare { RunStatus::Failed } else { RunStatus::Completed },
        request_id: rare.then(|| format!("request-{n}")),
        parent_run: (n % 2 == 0).then_some(parent),
        base_run: (n % 2 == 0).then_some(parent),
        created_at: Timestamp(i64::try_from(ms).expect("a small number") * 1000 + 500),
        completed_at: Some(Timestamp(1)),
        ..snapshot(run_at(ms), 9)
    }
}

fn filters(parent: RunId, last: u64) -> Vec<(&'static str, RunFilter)> {
    let any = RunFilter { limit: 50, ..RunFilter::default() };
    let at = |ms: u64| Some(Timestamp(i64::try_from(ms).expect("a small number") * 1000));
    let middle = (FIRST_MS + last) / 2;
    let (failed, completed) = (vec![RunStatus::Failed], vec![RunStatus::Completed]);
    let rare = Some("rare".to_owned());
    vec![
        ("all", any.clone()),
        ("all, in the middle", RunFilter { before: Some(run_at(middle)), ..any.clone() }),
        ("status: nearly all", RunFilter { statuses: completed.clone(), ..any.clone() }),
        ("status: few", RunFilter { statuses: failed.clone(), ..any.clone() }),
        ("status: none", RunFilter { statuses: vec![RunStatus::Running], ..any.clone() }),
        ("every status", RunFilter { statuses: RunStatus::ALL.to_vec(), ..any.clone() }),
        ("workflow: nearly all", RunFilter { workflow: Some("render".to_owned()), ..any.clone() }),
        ("workflow: few", RunFilter { workflow: rare.clone(), ..any.clone() }),
        ("workflow: none", RunFilter { workflow: Some("x".to_owned()), ..any.clone() }),
        ("workflow and status: none", RunFilter { workflow: rare.clone(), statuses: completed.clone(), ..any.clone() }),
        ("parent: half", RunFilter { parent_run: Some(parent), ..any.clone() }),
        ("parent, failed: none", RunFilter { parent_run: Some(parent), statuses: failed.clone(), ..any.clone() }),
        ("base: half", RunFilter { base_run: Some(parent), ..any.clone() }),
        ("base, failed: none", RunFilter { base_run: Some(parent), statuses: failed.clone(), ..any.clone() }),
        ("request", RunFilter { request_id: Some("request-77".to_owned()), ..any.clone() }),
        ("request: none", RunFilter { request_id: Some("x".to_owned()), ..any.clone() }),
        ("a span of time", RunFilter { created_from: at(middle), created_until: at(middle + 10), ..any.clone() }),
        ("an empty span", RunFilter { created_from: at(last + 1), ..any.clone() }),
        ("a span and a workflow: few", RunFilter { created_from: at(middle), workflow: rare, ..any.clone() }),
        ("a span and a status: nearly all", RunFilter { created_until: at(middle), statuses: completed, ..any }),
    ]
}
