//! Workers that are killed or put to sleep, and servers that are killed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;

use super::common::{Random, postgres_schema};
use super::{Chaos, Process, Server, WORKERS, duration, start_runs, worker};

async fn chaos(folder: &Path, db: &str) -> Chaos {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().unwrap();
    let mut server = Some(Server::start(folder, db, "127.0.0.1:0"));
    let url = server.as_ref().unwrap().url.clone();
    let listen = url.strip_prefix("http://").unwrap().to_owned();
    let mut workers: Vec<Process> = (0..WORKERS).map(|_| worker(folder, &url)).collect();
    let (mut random, mut acknowledged, mut request) = (Random(7), BTreeSet::new(), 0);
    let begun = Instant::now();
    while begun.elapsed() < duration() {
        start_runs(&client, &url, &mut acknowledged, &mut request).await;
        let which = random.below(WORKERS);
        match random.below(6) {
            0 | 1 => workers[which] = worker(folder, &url),
            2 => {
                // Longer than its lease: another takes over, and what this one says then is too late.
                workers[which].signal("STOP");
                tokio::time::sleep(Duration::from_millis(1500)).await;
                workers[which].signal("CONT");
            }
            3 => {
                drop(server.take());
                server = Some(Server::start(folder, db, &listen));
            }
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
    assert!(acknowledged.len() > 20, "{} runs: this was no load", acknowledged.len());
    Chaos { acknowledged, alive: (workers, server) }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_keep_the_promise_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let db = path.display().to_string();
    chaos(folder.path(), &db).await.check(Arc::new(SqliteStore::open(&path).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_keep_the_promise_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let db = postgres_schema("workers");
    let chaos = chaos(folder.path(), &db).await;
    chaos.check(Arc::new(PostgresStore::connect(&db).await.unwrap())).await;
}
