//! The promise: kill the process at any instruction, as often as you like. Nothing acknowledged is lost, every run ends
//! by itself, no outcome is recorded twice.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_core::status::RunStatus;
use milepost_engine::{Clock, SystemClock, diagnose};
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;

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
    let server = std::env::var("MILEPOST_TEST_POSTGRES")
        .expect("MILEPOST_TEST_POSTGRES is the address of a Postgres for tests; `make test` starts one");
    let schema = format!("kill_{}", uuid::Uuid::now_v7().simple());
    let joint = if server.contains('?') { '&' } else { '?' };
    let url = format!("{server}{joint}options=-c%20search_path%3D{schema}");
    make_schema(&server, &schema);
    let acknowledged = kill_again_and_again(&url);
    verify(Arc::new(PostgresStore::connect(&url).await.unwrap()), &acknowledged).await;
}

fn make_schema(server: &str, schema: &str) {
    let made = Command::new("psql").args([server, "-qc", &format!("CREATE SCHEMA {schema}")]).status().unwrap();
    assert!(made.success());
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

async fn verify(store: Arc<dyn Store>, acknowledged: &BTreeSet<RunId>) {
    let diagnosis = diagnose(&store, SystemClock.now()).await.unwrap();
    assert!(diagnosis.findings.is_empty(), "{:#?}", diagnosis.findings);
    assert_eq!(diagnosis.open_runs, 0, "every run ends by itself");
    let mut taken_over = 0;
    for run in acknowledged {
        let head = store.head(OrgId::DEFAULT, *run).await.unwrap();
        let head = head.unwrap_or_else(|| panic!("run {run} was acknowledged and is gone"));
        assert_eq!(head.status, RunStatus::Completed, "{run}");
        taken_over += look_at_log(&*store, *run, head.last_seq).await;
    }
    assert!(taken_over > 0, "no kill hit a step under way: this was no load");
}

/// The log is gapless from 1 and each logical attempt has at most one outcome. Answers how often a step was handed out again.
async fn look_at_log(store: &dyn Store, run: RunId, last_seq: u64) -> usize {
    let log = store.events(OrgId::DEFAULT, run, 0, 100_000).await.unwrap();
    let seqs: Vec<u64> = log.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=last_seq).collect::<Vec<u64>>(), "{run}");
    let mut outcomes: HashMap<(&str, u32), u32> = HashMap::new();
    for event in log.iter().filter(|event| matches!(&*event.event_type, "StepCompleted" | "StepFailed" | "StepSkipped"))
    {
        let step = event.step_id.as_deref().unwrap();
        let count = outcomes.entry((step, event.logical_attempt.unwrap())).or_default();
        *count += 1;
        assert_eq!(*count, 1, "{run}: {step} has two outcomes of one attempt");
    }
    log.iter().filter(|event| &*event.event_type == "StepStarted" && event.engine_attempt > Some(1)).count()
}

/// splitmix64: the same moments every time, as far as the machine allows.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % bound
    }
}
