//! Servers and workers in processes of their own, for loads that come from outside.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

pub(super) struct Server {
    child: Child,
    /// `127.0.0.1:41234`.
    pub(super) host: String,
    pub(super) ready_s: f64,
}

impl Server {
    /// Starts `milepost serve` on a free port and waits until it is ready.
    pub(super) fn start(data: &Path, db: &str) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--db", db, "--data"]).arg(data).stdout(Stdio::null());
        let began = Instant::now();
        let mut child = command.spawn().context("the server does not start")?;
        let file = data.join("server.json");
        loop {
            if let Some(host) = host(&file, child.id()) {
                return Ok(Server { child, host, ready_s: began.elapsed().as_secs_f64() });
            }
            anyhow::ensure!(child.try_wait()?.is_none(), "the server ended before it was ready");
            anyhow::ensure!(began.elapsed() < Duration::from_secs(30), "the server is not ready after 30 s");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn host(file: &Path, pid: u32) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()?;
    let url = value["url"].as_str().filter(|_| value["pid"] == pid)?;
    Some(url.strip_prefix("http://")?.trim_end_matches('/').to_owned())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the Python SDK carries steps out with.
const PYTHON: &str = include_str!("worker.py");

/// A worker that has `bench.step`.
pub(super) struct Worker {
    child: Child,
}

impl Worker {
    /// Starts this program's own worker, with so many tasks at once.
    pub(super) fn start(host: &str, concurrency: usize) -> anyhow::Result<Worker> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench-worker", "--server", &format!("http://{host}")]);
        command.args(["--concurrency", &concurrency.to_string()]);
        Worker::of(command)
    }

    /// The same with the Python SDK, which has to be installed.
    pub(super) fn python(host: &str, concurrency: usize) -> anyhow::Result<Worker> {
        let known = Command::new("python3").args(["-c", "import milepost"]).stderr(Stdio::null()).status();
        anyhow::ensure!(
            known.context("python3 does not start")?.success(),
            "python3 does not know the SDK; install it with `pip install ./sdk/python`, or name it with \
             PYTHONPATH=sdk/python/src"
        );
        let mut command = Command::new("python3");
        command.args(["-c", PYTHON, &format!("http://{host}"), &concurrency.to_string()]);
        Worker::of(command)
    }

    fn of(mut command: Command) -> anyhow::Result<Worker> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("the worker does not start")?;
        Ok(Worker { child })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
