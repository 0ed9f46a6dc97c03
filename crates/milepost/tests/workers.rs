//! Workers as processes: killed, put to sleep past their leases and woken, cut off from a server that is killed as well.
//! Nothing is lost, no attempt has two outcomes, every run ends. And the examples of the documentation work.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};

use common::{Random, all_end, postgres_schema, verify};

const MILEPOST: &str = env!("CARGO_BIN_EXE_milepost");
const WORKERS: usize = 3;

/// How long it is made hard for them; shorter for a quick look.
fn duration() -> Duration {
    let seconds = std::env::var("MILEPOST_TEST_WORKERS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(20))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal("CONT");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    _process: Process,
    url: String,
}

impl Server {
    /// On this port, or on a free one.
    fn start(folder: &Path, db: &str, listen: &str) -> Server {
        let _ = std::fs::remove_file(folder.join("server.json"));
        let mut command = Command::new(MILEPOST);
        command.args(["serve", "--listen", listen, "--db", db, "--data"]).arg(folder).env("RUST_LOG", "error");
        let process = Process::start(&mut command);
        let begun = Instant::now();
        loop {
            let text = std::fs::read_to_string(folder.join("server.json")).unwrap_or_default();
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            if value["pid"] == process.0.id() {
                return Server { _process: process, url: value["url"].as_str().unwrap().to_owned() };
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "the server is not ready after 30 s");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A worker whose skill, in bash, takes a moment.
fn worker(folder: &Path, url: &str) -> Process {
    let program = folder.join("skill.sh");
    if !program.exists() {
        let text = "#!/bin/bash\necho '{\"skills\": [\"slow.step\"]}'\nwhile read -r line; do\n  [[ $line == '{\"task\":'* ]] || continue\n  \
                    read -t 0.02 <> <(:)\n  echo '{\"completed\": {\"n\": 1}}'\ndone\n";
        std::fs::write(&program, text).unwrap();
    }
    let skills = format!("bash {}", program.display());
    let mut command = Command::new(MILEPOST);
    Process::start(command.args(["worker", "--concurrency", "4", "--server", url, "--skills-from", &skills]))
}

async fn start_runs(client: &reqwest::Client, url: &str, acknowledged: &mut BTreeSet<RunId>, request: &mut u64) {
    let steps = json!({
        "a": {"skill": "slow.step", "heartbeat_timeout_ms": 1000},
        "b": {"skill": "slow.step", "depends_on": ["a"], "heartbeat_timeout_ms": 1000},
        "c": {"skill": "echo", "input": {"n": "${{ steps.b.output.n }}"}},
    });
    for _ in 0..5 {
        *request += 1;
        let body = json!({"request_id": format!("r{request}"), "document": {"name": "chaos", "steps": steps}});
        let Ok(answer) = client.post(format!("{url}/api/v1/runs")).json(&body).send().await else { continue };
        if let Ok(answer) = answer.json::<Value>().await {
            acknowledged.extend(answer["run_id"].as_str().map(|run| run.parse::<RunId>().unwrap()));
        }
    }
}

/// The runs that the server said it has, and who carries them out.
struct Chaos {
    acknowledged: BTreeSet<RunId>,
    alive: (Vec<Process>, Option<Server>),
}

impl Chaos {
    /// Waits until every run has ended, ends the processes, and looks at what is left.
    async fn check(self, store: Arc<dyn Store>) {
        all_end(&*store).await;
        let Chaos { acknowledged, alive } = self;
        drop(alive);
        verify(store, &acknowledged).await;
    }
}

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

/// Runs a document to its end on a server whose workers are there, and answers its output.
fn run(server: &Server, document: &str, folder: &Path) -> Value {
    let file = folder.join("document.yaml");
    std::fs::write(&file, document).unwrap();
    let mut command = Command::new(MILEPOST);
    command.args(["run", "-o", "json", "--watch", "--server", &server.url]).arg(&file);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let ended: Value =
        serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(ended["status"], json!("completed"), "{ended:#}");
    ended["output"].clone()
}

#[test]
fn skills_in_bash_and_in_node_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &folder.path().join("runs.db").display().to_string(), "127.0.0.1:0");
    let start = |skills: String| {
        let mut command = Command::new(MILEPOST);
        Process::start(command.args(["worker", "--server", &server.url, "--skills-from", &skills]))
    };
    let examples = repository().join("examples/workers");
    let _bash = start(format!("bash {}", examples.join("words.sh").display()));
    let output =
        run(&server, "name: w\nsteps: {a: {skill: words.count, input: {text: one two three}}}\n", folder.path());
    assert_eq!(output, json!({"a": {"words": 3}}));
    let _node = start(format!("node {}", examples.join("shots.mjs").display()));
    let shots = std::fs::read_to_string(repository().join("crates/sdk/examples/shots.yaml")).unwrap();
    let output = run(&server, &shots, folder.path());
    assert_eq!(output["sheet"]["files"].as_array().unwrap().len(), 2, "{output}");
}

#[test]
fn the_quick_start_in_rust_is_the_example_and_works() {
    let docs = std::fs::read_to_string(repository().join("docs/workers.md")).unwrap();
    let example = std::fs::read_to_string(repository().join("crates/sdk/examples/worker.rs")).unwrap();
    let code = example.split_once("\n\n").unwrap().1;
    assert!(docs.contains(code.trim_end()), "docs/workers.md shows crates/sdk/examples/worker.rs as it is");
    assert!(code.lines().count() < 30, "a quick start is short");
    let built = Path::new(MILEPOST).parent().unwrap().join("examples/worker");
    assert!(
        built.exists(),
        "the example is built with the tests of the workspace: cargo build -p milepost-sdk --examples"
    );
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &folder.path().join("runs.db").display().to_string(), "127.0.0.1:0");
    let _worker = Process::start(Command::new(built).env("MILEPOST_URL", &server.url));
    let shots = std::fs::read_to_string(repository().join("crates/sdk/examples/shots.yaml")).unwrap();
    assert_eq!(run(&server, &shots, folder.path()), json!({"sheet": {"files": ["wide.png", "close.png"]}}));
}
