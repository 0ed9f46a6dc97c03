//! A server under attack, and what must stay true of it: it answers in time and clearly, its memory stays small, and normal
//! runs go on.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::servers::{Place, Server, eventually};
use super::wire::{Answer, DEADLINE, Request, exchange};

/// Resident memory that a server may ever have had.
const MEMORY_MIB: u64 = 1024;
/// A normal run takes no longer than this.
const RUN: Duration = Duration::from_secs(1);
/// No refusal is longer than this, whatever was sent.
const REFUSAL_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct Victim {
    pub(crate) server: Server,
    more: Vec<String>,
    environment: Vec<(String, String)>,
    /// Comes after the server: its files are there as long as it lives.
    pub(crate) place: Place,
}

/// Answers 503 with these codes say that there is too much to do just now.
const BUSY: [&str; 3] = ["busy", "overloaded", "too_many_streams"];

impl Victim {
    /// `milepost serve` on an embedded store.
    pub(crate) fn serve(more: &[&str]) -> Victim {
        Victim::with(more, &[])
    }

    pub(crate) fn with(more: &[&str], environment: &[(&str, &str)]) -> Victim {
        Victim::start("serve", more, environment)
    }

    pub(crate) fn dev() -> Victim {
        Victim::start("dev", &[], &[])
    }

    fn start(verb: &str, more: &[&str], environment: &[(&str, &str)]) -> Victim {
        let place = Place::new();
        let more: Vec<String> = [verb, "--listen", "127.0.0.1:0"].iter().chain(more).map(ToString::to_string).collect();
        let mut environment: Vec<(String, String)> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // Secrets can be kept, and many signals are taken.
        environment.push(("MILEPOST_SECRETS_KEY".to_owned(), place.run(&["secrets", "keygen"]).out.trim().to_owned()));
        let server = launch(&place, &more, &environment);
        let victim = Victim { server, more, environment, place };
        victim.is_well("before anything");
        victim
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port()
    }

    /// Sends one request and sees that the answer is clear.
    pub(crate) fn attack(&self, what: &str, request: &Request) -> Answer {
        let answer = self.attack_bytes(what, &request.bytes(), || request.shown());
        if request.method != "HEAD" {
            is_clear(what, &answer, &request.shown());
        }
        answer
    }

    /// Sends bytes and sees that the answer is not a failure of the server.
    pub(crate) fn attack_bytes(&self, what: &str, bytes: &[u8], shown: impl Fn() -> String) -> Answer {
        let answer = exchange(self.port(), bytes, DEADLINE);
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}: {}\n{}", shown(), self.server.said()));
        let documented = answer.status == 503 && BUSY.contains(&&*answer.code());
        assert!(
            answer.status < 500 || documented,
            "{what}: {} {}: {}\n{}",
            answer.status,
            answer.text(),
            shown(),
            self.server.said()
        );
        assert!(answer.took < DEADLINE, "{what}: {:?}: {}", answer.took, shown());
        answer
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.attack(path, &Request::new("GET", path))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.attack(path, &Request::new("POST", path).json(body.to_string()))
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.attack(path, &Request::new("PUT", path).json(body.to_string()))
    }

    /// Starts a run that is expected to be taken.
    pub(crate) fn run(&self, document: &Value, payload: &Value) -> String {
        let started = self.post("/api/v1/runs", &json!({"document": document, "payload": payload}));
        assert_eq!(started.status, 201, "{}", started.text());
        started.json()["run_id"].as_str().unwrap().to_owned()
    }

    /// How a run ended.
    pub(crate) fn ended(&self, run: &str) -> Value {
        eventually(&format!("the end of run {run}"), || {
            let run = self.get(&format!("/api/v1/runs/{run}")).json();
            ["completed", "failed", "cancelled", "terminated"].iter().any(|end| run["status"] == *end).then_some(run)
        })
    }

    /// A run that waits for a signal, and for a worker.
    pub(crate) fn waiting_run(&self) -> String {
        let document = json!({"name": "hostile.waiting", "steps": {
            "gate": {"skill": "wait", "input": {"signal": "go"}},
            "work": {"skill": "hostile.work", "queue": "hostile"},
        }});
        self.run(&document, &json!({}))
    }

    /// Claims a task: its id and its lease.
    pub(crate) fn claim(&self, queue: &str, worker: &str) -> Option<Value> {
        let claimed =
            self.post("/api/v1/tasks/claim", &json!({"worker_id": worker, "queues": [queue], "wait_ms": 500}));
        (claimed.status == 200).then(|| claimed.json())
    }

    /// A normal run takes less than a second, the server has little memory, and nothing in it has panicked.
    pub(crate) fn is_well(&self, after: &str) {
        // Other tests share this machine: what is slow once is measured again.
        let times: Vec<Duration> =
            (0..3).map_while(|_| Some(self.normal_run(after)).filter(|took| *took >= RUN)).collect();
        assert!(times.len() < 3, "{after}: normal runs took {times:?}\n{}", self.server.said());
        let ready = exchange(self.port(), &Request::new("GET", "/readyz").bytes(), DEADLINE);
        assert!(ready.as_ref().is_ok_and(|ready| ready.status == 200), "{after}: it is not ready: {ready:?}");
        let peak = self.peak_mib();
        assert!(peak < MEMORY_MIB, "{after}: {peak} MiB");
        let said = self.server.said();
        assert!(!said.contains("panicked"), "{after}: {said}");
    }

    fn normal_run(&self, after: &str) -> Duration {
        let begun = Instant::now();
        let steps = json!({
            "a": {"skill": "echo", "input": {"n": "${{ payload.n + 1 }}"}},
            "b": {"skill": "echo", "input": {"n": "${{ steps.a.output.n + 1 }}"}},
        });
        let body = json!({"document": {"name": "normal", "steps": steps}, "payload": {"n": 1}}).to_string();
        let call = |request: Request| {
            let answer = exchange(self.port(), &request.bytes(), Duration::from_secs(30));
            answer.unwrap_or_else(|error| panic!("{after}: a normal run: {error}\n{}", self.server.said()))
        };
        let started = call(Request::new("POST", "/api/v1/runs").json(body));
        assert_eq!(started.status, 201, "{after}: {}\n{}", started.text(), self.server.said());
        let run = started.json()["run_id"].as_str().unwrap().to_owned();
        while begun.elapsed() < Duration::from_secs(30) {
            let run = call(Request::new("GET", format!("/api/v1/runs/{run}"))).json();
            if run["status"] == "completed" {
                assert_eq!(run["output"]["b"]["n"], 3, "{after}: {run}");
                return begun.elapsed();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{after}: a normal run has not ended after 30 s\n{}", self.server.said())
    }

    /// The most memory it ever had.
    pub(crate) fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.child.id()));
        let status = status.unwrap_or_else(|error| panic!("the server is gone: {error}\n{}", self.server.said()));
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let line = line.unwrap_or_else(|| panic!("the server is gone\n{}", self.server.said()));
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// Kills it, and starts another on what it left: nothing that was stored stops that one.
    pub(crate) fn starts_again(&mut self) {
        self.server.child.kill().unwrap();
        self.server.child.wait().unwrap();
        self.server = launch(&self.place, &self.more, &self.environment);
        self.is_well("after another start");
    }

    /// Starts another on what it left, which is well, ends well and leaves nothing that should not be.
    pub(crate) fn ends_well(mut self) {
        self.starts_again();
        self.server.stop();
    }
}

fn launch(place: &Place, args: &[String], environment: &[(String, String)]) -> Server {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = place.command(&args);
    Server::start({
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command
    })
}

/// A refusal is a problem with a code; only what is no HTTP at all is refused before there is anybody to say why.
fn is_clear(what: &str, answer: &Answer, shown: &str) {
    if answer.status < 400 {
        return;
    }
    assert!(answer.body.len() < REFUSAL_BYTES, "{what}: a refusal of {} bytes: {shown}", answer.body.len());
    if answer.body.is_empty() && matches!(answer.status, 400 | 414 | 431) && answer.header("content-type").is_none() {
        return;
    }
    let problem = answer.json();
    let is_problem = answer.header("content-type") == Some("application/problem+json");
    let code = problem["code"].as_str().unwrap_or_default();
    assert!(
        is_problem && !code.is_empty() && problem["title"].is_string() && problem["status"] == answer.status,
        "{what}: {} {}: {shown}",
        answer.head,
        answer.text()
    );
}

/// Files of a folder, with those of folders in it.
pub(crate) fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
