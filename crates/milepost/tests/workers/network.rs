//! Workers behind a network that cuts their requests, swallows the answers, and is dead for longer than a lease.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;

use super::common::{Random, postgres_schema};
use super::proxy::{Line, Proxy};
use super::{Chaos, Process, Server, WORKERS, duration, start_runs, worker};

async fn bad_network(folder: &Path, db: &str) -> Chaos {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().unwrap();
    let server = Server::start(folder, db, "127.0.0.1:0");
    let address = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    // One line for each worker: while one is cut off, others take over.
    let mut lines = Vec::new();
    for seed in 0..WORKERS as u64 {
        lines.push(Proxy::before(address, seed).await);
    }
    let workers: Vec<Process> = lines.iter().map(|line| worker(folder, &line.url)).collect();
    let (mut random, mut acknowledged, mut request, mut dead) = (Random(11), BTreeSet::new(), 0, 0);
    lines.iter().for_each(|line| line.set(Line::Bad));
    let begun = Instant::now();
    while begun.elapsed() < duration() {
        start_runs(&client, &server.url, &mut acknowledged, &mut request).await;
        let which = random.below(WORKERS);
        match random.below(6) {
            // What was said arrives late, when the step is another's.
            0 => cut_off(&lines[which..=which], Line::Silent).await,
            1 => cut_off(&lines[which..=which], Line::Dead).await,
            2 => cut_off(&lines, Line::Dead).await,
            _ => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        }
        dead += 1;
    }
    let (requests, answers) = lines.iter().map(Proxy::lost).fold((0, 0), |sum, lost| (sum.0 + lost.0, sum.1 + lost.1));
    assert!(acknowledged.len() > 20, "{} runs: this was no load", acknowledged.len());
    assert!(requests > 10 && answers > 10 && dead > 0, "{requests}, {answers}, {dead}: this network was a good one");
    lines.iter().for_each(|line| line.set(Line::Good));
    Chaos { acknowledged, alive: (workers, Some(server)) }
}

/// For longer than a lease.
async fn cut_off(lines: &[Proxy], how: Line) {
    lines.iter().for_each(|line| line.set(how));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    lines.iter().for_each(|line| line.set(Line::Bad));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_loses_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let db = path.display().to_string();
    bad_network(folder.path(), &db).await.check(Arc::new(SqliteStore::open(&path).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_network_loses_nothing_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let db = postgres_schema("network");
    let chaos = bad_network(folder.path(), &db).await;
    chaos.check(Arc::new(PostgresStore::connect(&db).await.unwrap())).await;
}
