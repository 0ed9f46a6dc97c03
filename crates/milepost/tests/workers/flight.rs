//! A hundred runs that want the same, and a worker that is killed while it makes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use milepost_core::id::{OrgId, RunId};
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};

use super::common::{all_end, postgres_schema, verify};
use super::{MILEPOST, Process, Server};

const RUNS: usize = 100;

/// What is made, how often it was begun, and the word to go on.
struct Work {
    begun: PathBuf,
    go: PathBuf,
    program: PathBuf,
}

impl Work {
    fn new(folder: &Path) -> Work {
        let work = Work { begun: folder.join("begun"), go: folder.join("go"), program: folder.join("make.sh") };
        let text = format!(
            "#!/bin/bash\necho '{{\"skills\": [\"make\"]}}'\nwhile read -r line; do\n  [[ $line == '{{\"task\":'* ]] || continue\n  \
             echo x >> {}\n  while [[ ! -e {} ]]; do read -t 0.02 <> <(:); done\n  echo '{{\"completed\": {{\"n\": 1}}}}'\ndone\n",
            work.begun.display(),
            work.go.display()
        );
        std::fs::write(&work.program, text).unwrap();
        work
    }

    fn worker(&self, url: &str) -> Process {
        let skills = format!("bash {}", self.program.display());
        let mut command = Command::new(MILEPOST);
        Process::start(command.args(["worker", "--concurrency", "4", "--server", url, "--skills-from", &skills]))
    }

    fn times(&self) -> usize {
        std::fs::read_to_string(&self.begun).unwrap_or_default().lines().count()
    }

    async fn begun(&self, times: usize) {
        let begun = Instant::now();
        while self.times() < times {
            assert!(begun.elapsed() < Duration::from_secs(60), "begun {} times, not {times}", self.times());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn start(client: &reqwest::Client, url: &str) -> RunId {
    let step = json!({"skill": "make", "cache": {"enabled": true}, "heartbeat_timeout_ms": 1000});
    let body = json!({"document": {"name": "same", "steps": {"a": step}}});
    let answer = client.post(format!("{url}/api/v1/runs")).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    answer["run_id"].as_str().unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
}

async fn a_killed_worker(folder: &Path, db: &str, store: impl AsyncFn() -> Arc<dyn Store>) {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap();
    let (server, work) = (Server::start(folder, db, "127.0.0.1:0"), Work::new(folder));
    let doomed = work.worker(&server.url);
    let runs: BTreeSet<RunId> = join_all((0..RUNS).map(|_| start(&client, &server.url))).await.into_iter().collect();
    work.begun(1).await;
    doomed.signal("KILL");
    let heir = work.worker(&server.url);
    work.begun(2).await;
    std::fs::write(&work.go, "").unwrap();
    let store = store().await;
    all_end(&*store).await;
    drop((heir, doomed, server));
    assert_eq!((runs.len(), work.times()), (RUNS, 2));
    let (mut made, mut taken) = (0, 0);
    for run in &runs {
        for event in store.events(OrgId::DEFAULT, *run, 0, 100).await.unwrap() {
            made += usize::from(event.event_type == "StepCompleted");
            taken += usize::from(event.event_type == "StepSkipped");
        }
    }
    assert_eq!((made, taken), (1, RUNS - 1));
    verify(store, &runs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_makes_it_and_when_its_worker_is_killed_one_more_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let open = async || Arc::new(SqliteStore::open(&path).unwrap()) as Arc<dyn Store>;
    a_killed_worker(folder.path(), &path.display().to_string(), open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_makes_it_and_when_its_worker_is_killed_one_more_on_postgres() {
    let folder = tempfile::tempdir().unwrap();
    let db = postgres_schema("flight");
    let open = async || Arc::new(PostgresStore::connect(&db).await.unwrap()) as Arc<dyn Store>;
    a_killed_worker(folder.path(), &db, open).await;
}
