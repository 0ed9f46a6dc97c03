//! What tests that kill processes share: a database of their own, and a look at what is left.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::{OrgId, RunId};
use milepost_core::status::RunStatus;
use milepost_engine::{Clock, SystemClock, diagnose};
use milepost_store::Store;

/// The address of a new schema in the Postgres for tests.
pub(crate) fn postgres_schema(name: &str) -> String {
    let server = std::env::var("MILEPOST_TEST_POSTGRES")
        .expect("MILEPOST_TEST_POSTGRES is the address of a Postgres for tests; `make test` starts one");
    let schema = format!("{name}_{}", uuid::Uuid::now_v7().simple());
    let made = Command::new("psql").args([&*server, "-qc", &format!("CREATE SCHEMA {schema}")]).status().unwrap();
    assert!(made.success());
    let joint = if server.contains('?') { '&' } else { '?' };
    format!("{server}{joint}options=-c%20search_path%3D{schema}")
}

/// Waits until those that live have brought every run to its end, and projected it.
#[allow(dead_code, reason = "where one process is killed alone, nobody is left to wait for")]
pub(crate) async fn all_end(store: &dyn Store) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !store.open_runs(None, 1).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "a run does not end: {:?}", store.open_runs(None, 3).await.unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // What the nodes have committed is projected within a second; what dead ones left, by those that took it over.
    while !store.unprojected(1).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "a run is not projected: {:?}", store.unprojected(3).await.unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Nothing acknowledged is lost, every run has ended, no attempt has two outcomes, and some work was handed out again.
pub(crate) async fn verify(store: Arc<dyn Store>, acknowledged: &BTreeSet<RunId>) {
    let diagnosis = diagnose(&store, None, SystemClock.now()).await.unwrap();
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
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % bound
    }
}
