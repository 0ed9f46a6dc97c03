//! The promise: kill the process at any instruction, as often as you like. Nothing acknowledged is lost, every run ends
//! by itself, no outcome is recorded twice.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::RunId;
use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;

use common::{Random, postgres_schema, verify};

/// Half of them under a plain load, half under a mixed one, on each store.
const KILLS: u32 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_its_promise_through_two_hundred_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kill.db");
    let acknowledged = kill_again_and_again(path.to_str().unwrap());
    verify(Arc::new(SqliteStore::open(Path::new(&path)).unwrap()), &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_keeps_its_promise_through_two_hundred_kills() {
    let url = postgres_schema("kill");
    let acknowledged = kill_again_and_again(&url);
    verify(Arc::new(PostgresStore::connect(&url).await.unwrap()), &acknowledged).await;
}

/// Starts a process under load, kills it at a random moment, and again. Answers the runs that were acknowledged.
fn kill_again_and_again(database: &str) -> BTreeSet<RunId> {
    let mut random = Random(0x5EED);
    let mut acknowledged = BTreeSet::new();
    for kill in 0..KILLS {
        let scenario = if kill % 2 == 0 { "chain" } else { "mixed" };
        let mut child = load(database, scenario);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // From the very first moments to deep in the load.
        let acks_before_kill = random.below(40);
        let reader = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for line in lines.map_while(Result::ok) {
                let run: Option<RunId> = line.strip_prefix("ack ").and_then(|run| run.parse().ok());
                seen.extend(run);
                if seen.len() == acks_before_kill {
                    break;
                }
            }
            seen
        });
        if acks_before_kill == 0 {
            std::thread::sleep(Duration::from_micros(u64::try_from(random.below(150_000)).unwrap()));
        } else {
            acknowledged.extend(reader.join().unwrap());
            std::thread::sleep(Duration::from_micros(u64::try_from(random.below(3_000)).unwrap()));
            child.kill().unwrap();
            child.wait().unwrap();
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(reader.join().unwrap());
    }
    let recovered = Command::new(env!("CARGO_BIN_EXE_milepost"))
        .args(["bench", "start", "--runs", "1", "--no-limit", "--drain", "--node-lease-ms", "300", "--store", database])
        .output()
        .unwrap();
    assert!(recovered.status.success(), "{}", String::from_utf8_lossy(&recovered.stderr));
    assert!(acknowledged.len() > 1000, "only {} runs were acknowledged: this was no load", acknowledged.len());
    acknowledged
}

fn load(database: &str, scenario: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_milepost"))
        .args(["bench", scenario, "--runs", "100000", "--concurrency", "16", "--no-limit", "--print-acks"])
        .args(["--node-lease-ms", "300", "--store", database])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}
