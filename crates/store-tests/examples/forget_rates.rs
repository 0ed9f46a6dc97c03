//! How long commits wait while old runs are forgotten:
//! `cargo run --release -p milepost-store-tests --example forget_rates [RUNS] [URL]`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::rows::{NewHead, ProjectionWrite, RunWrite, SnapshotRow, StatusWrite};
use milepost_store::sqlite::SqliteStore;
use milepost_store_tests::rows::{
    advance, batch, new_head, new_run, project, run_at, snapshot, start, start_with, step,
};

const FIRST_MS: u64 = 1_577_836_800_000;
const STEPS: u64 = 10;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let runs: u64 = arguments.next().map_or(20_000, |text| text.parse().expect("a number of runs"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store: Arc<dyn Store> = match arguments.next() {
        Some(url) => Arc::new(PostgresStore::connect(&url).await.expect("a server")),
        None => Arc::new(SqliteStore::open(&folder.path().join("runs.db")).expect("a database")),
    };
    let began = Instant::now();
    for chunk in (0..runs).collect::<Vec<_>>().chunks(100) {
        fill(&*store, chunk).await;
    }
    eprintln!("{runs} runs of {STEPS} steps in {:.1} s", began.elapsed().as_secs_f64());
    report("alone", &mut commits(&*store, || false).await);
    let forgetting = tokio::spawn({
        let store = store.clone();
        async move {
            let (began, mut gone) = (Instant::now(), 0);
            loop {
                let forgotten =
                    store.forget_runs(Timestamp(1_700_000_000_000_000), 500).await.expect("a store that forgets");
                gone += forgotten.runs;
                if !forgotten.more {
                    break;
                }
            }
            eprintln!("forgot {gone} runs, {:.0} a second", gone as f64 / began.elapsed().as_secs_f64());
        }
    });
    report("beside", &mut commits(&*store, || !forgetting.is_finished()).await);
    forgetting.await.expect("no panic");
}

/// Ended runs, whose events lie between those of others.
async fn fill(store: &dyn Store, numbers: &[u64]) {
    let ended = Some(Timestamp(1_600_000_000_000_000));
    let status = StatusWrite { status: RunStatus::Completed, started_at: ended, completed_at: ended };
    let ids: Vec<_> = numbers.iter().map(|n| run_at(FIRST_MS + n)).collect();
    let heads = ids.iter().map(|run| start_with(*run, 2, NewHead { status: status.clone(), ..new_head() }));
    store.commit(Arc::new(batch(heads))).await.expect("heads");
    for n in 0..STEPS {
        let more: Vec<RunWrite> = ids.iter().map(|run| advance(*run, 2 + 2 * n, 2)).collect();
        store.commit(Arc::new(batch(more))).await.expect("events");
    }
    let projection = |run: &_| {
        let row = SnapshotRow { status: RunStatus::Completed, completed_at: ended, ..snapshot(*run, 2 + 2 * STEPS) };
        let steps = (0..STEPS).map(|n| step(&format!("step{n}"), StepStatus::Completed)).collect();
        ProjectionWrite { steps, ..project(0, row) }
    };
    store.project(ids.iter().map(projection).collect()).await.expect("projections");
}

/// One step after the other, at least 500 of them.
async fn commits(store: &dyn Store, go_on: impl Fn() -> bool) -> Vec<Duration> {
    let (run, mut seq, mut times) = (new_run(), 1, Vec::new());
    store.commit(Arc::new(batch([start(run, 1)]))).await.expect("a start");
    while go_on() || times.len() < 500 {
        let began = Instant::now();
        store.commit(Arc::new(batch([advance(run, seq, 2)]))).await.expect("a step");
        times.push(began.elapsed());
        seq += 2;
    }
    times
}

fn report(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)].as_secs_f64() * 1000.0;
    let (p50, p99, most) = (at(500), at(990), at(1000));
    eprintln!("{name}: {} commits, p50 {p50:.2} ms, p99 {p99:.2} ms, most {most:.2} ms", times.len());
}
