//! Servers of the real program, and requests to them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder for servers.
pub(crate) struct Place {
    folder: TempDir,
}

/// A server of the real program, and what it said so far.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// The line with which it said that it is ready.
    pub(crate) ready: String,
    err: Arc<Mutex<String>>,
}

/// A command that ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// An answer over HTTP.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let known = name.to_str().is_some_and(|name| name.starts_with("MILEPOST_") || name.starts_with("OTEL_"));
            if known || name == "RUST_LOG" || name == "CLICOLOR_FORCE" {
                command.env_remove(name);
            }
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ended(self.command(args))
    }

    /// Starts a server and waits until it says that it is ready.
    pub(crate) fn start(&self, args: &[&str]) -> Server {
        Server::start(self.command(args))
    }

    /// `dev` on a free port.
    pub(crate) fn dev(&self, more: &[&str]) -> Server {
        self.start(&[&["dev", "--listen", "127.0.0.1:0"], more].concat())
    }

    /// `serve` on a free port.
    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        self.start(&[&["serve", "--listen", "127.0.0.1:0"], more].concat())
    }
}

pub(crate) fn ended(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Server {
        let mut child = command.spawn().unwrap();
        let err = Arc::new(Mutex::new(String::new()));
        keep(child.stderr.take().unwrap(), err.clone());
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let ready = ready.trim_end().to_owned();
        let url = match ready.strip_prefix("listening on ") {
            Some(url) => url.to_owned(),
            None => {
                let parsed: Result<Value, _> = serde_json::from_str(&ready);
                let said = || {
                    std::thread::sleep(Duration::from_millis(200));
                    err.lock().unwrap().clone()
                };
                parsed.unwrap_or_else(|_| panic!("not ready: {ready}{}", said()))["url"].as_str().unwrap().to_owned()
            }
        };
        // Nothing more is expected there; were it not read, a server that says much would stand still.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        Server { child, url, ready, err }
    }

    pub(crate) fn said(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits until standard error has this.
    pub(crate) fn says(&self, text: &str) {
        eventually(&format!("`{text}` on standard error"), || self.said().contains(text).then_some(()));
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        let method = method.parse().unwrap();
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
        Request(client.request(method, format!("{}{path}", self.url)))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path).send()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.request("POST", path).json(body).send()
    }

    /// Starts a run of a document and answers its id.
    pub(crate) fn start_run(&self, document: &Value) -> String {
        let started = self.post("/api/v1/runs", &json!({ "document": document }));
        assert_eq!(started.status, 201, "{}", started.body);
        started.body["run_id"].as_str().unwrap().to_owned()
    }

    /// Waits for a run's end.
    pub(crate) fn ended_run(&self, run: &str) -> Value {
        eventually(&format!("the end of run {run}"), || {
            let run = self.get(&format!("/api/v1/runs/{run}"));
            assert_eq!(run.status, 200, "{}", run.body);
            let ended = ["completed", "failed", "cancelled", "terminated"].iter().any(|end| run.body["status"] == *end);
            ended.then_some(run.body)
        })
    }

    pub(crate) fn send(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, but no longer than this.
    pub(crate) fn ends_within(&mut self, seconds: u64) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(seconds),
                "it did not end within {seconds} s: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks it to end, and sees that it ends well.
    pub(crate) fn stop(mut self) -> String {
        self.send(Signal::TERM);
        let status = self.ends_within(15);
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Request(reqwest::RequestBuilder);

impl Request {
    pub(crate) fn header(self, name: &str, value: &str) -> Request {
        Request(self.0.header(name, value))
    }

    pub(crate) fn json(self, body: &Value) -> Request {
        Request(self.0.json(body))
    }

    pub(crate) fn send(self) -> Answer {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let response = self.0.send().await.unwrap();
            let status = response.status().as_u16();
            let text = response.text().await.unwrap();
            Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
        })
    }
}

fn keep(mut from: impl std::io::Read + Send + 'static, kept: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.by_ref().read(&mut buffer) {
            kept.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    });
}

/// Waits until something is so; the tests do not depend on how long it takes.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not happen within 30 s")
}
