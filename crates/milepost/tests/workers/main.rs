//! Workers as processes: killed, put to sleep past their leases and woken, cut off from a server that is killed as well, on
//! a network that loses what it carries. Nothing is lost, no attempt has two outcomes, every run ends. And the examples of
//! the documentation work.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod campaign;
mod chaos;
#[path = "../common/mod.rs"]
mod common;
mod documented;
mod flight;
mod network;
mod proxy;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_store::Store;
use serde_json::{Value, json};

use common::{all_end, verify};

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
