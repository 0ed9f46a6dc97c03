//! Workers: skills as async functions, carried out for a server that hands out tasks.

mod context;
mod files;
mod hand;
mod pump;
mod redact;
mod said;
mod shift;
mod skill;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::{DEFAULT_SERVER, variable};
use crate::error::Error;
use pump::Settings;
use shift::Shift;
use skill::Skills;

pub use context::Context;
pub use skill::SkillError;

const QUEUE: &str = "default";
const HANDS: usize = 16;
const GRACE: Duration = Duration::from_secs(30);
const CANCEL_GRACE: Duration = Duration::from_secs(10);

/// A worker that is ready to work.
#[derive(Debug)]
pub struct Worker {
    builder: WorkerBuilder,
    worker_id: String,
}

/// What a worker does, and for whom.
#[derive(Clone, Debug)]
pub struct WorkerBuilder {
    url: String,
    token: Option<String>,
    name: Option<String>,
    queues: Vec<String>,
    skills: Skills,
    grace: Duration,
    cancel_grace: Duration,
    pump: Settings,
}

impl Worker {
    /// A worker for the server at this address.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            url: url.into(),
            token: None,
            name: None,
            queues: Vec::new(),
            skills: Skills::default(),
            grace: GRACE,
            cancel_grace: CANCEL_GRACE,
            pump: Settings { hands: HANDS, park: Duration::from_secs(20), moment: Duration::from_millis(1) },
        }
    }

    /// A worker for the server that `MILEPOST_URL` names, or for the one that `milepost dev` starts; with `MILEPOST_TOKEN`, if it
    /// is set.
    #[must_use]
    pub fn from_env() -> WorkerBuilder {
        let builder = Worker::builder(variable("MILEPOST_URL").unwrap_or_else(|| DEFAULT_SERVER.to_owned()));
        WorkerBuilder { token: variable("MILEPOST_TOKEN"), ..builder }
    }

    /// As the server knows it: host, process, and a nonce, so that a restarted one is another.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.worker_id
    }

    /// Works until SIGINT or SIGTERM comes, then stops in good order: takes no more, and lets what runs end within its grace.
    /// A second signal ends it at once. A server that is away is waited for.
    ///
    /// # Errors
    /// The server refuses this worker.
    pub async fn run(self) -> Result<(), Error> {
        let signals = Signals::new().map_err(|error| Error::Setup(error.to_string()))?;
        let signals = tokio::sync::Mutex::new(signals);
        let next = async || signals.lock().await.next().await;
        let grace = self.builder.grace;
        let hurry = async {
            tokio::select! {
                () = next() => {}
                () = tokio::time::sleep(grace) => {}
            }
        };
        Shift::new(self.builder, &self.worker_id)?.work(next(), hurry).await
    }

    /// Works until the future comes back, then stops in good order.
    ///
    /// # Errors
    /// The server refuses this worker.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let grace = self.builder.grace;
        // Begins to count when it is looked at.
        let hurry = async { tokio::time::sleep(grace).await };
        Shift::new(self.builder, &self.worker_id)?.work(stop, hurry).await
    }
}

impl WorkerBuilder {
    /// What the server knows you by.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder { token: Some(token.into()), ..self }
    }

    /// A queue to take tasks from; may be repeated. `default` if none is named.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> WorkerBuilder {
        self.queues.push(queue.into());
        self
    }

    /// Tasks at once: 16 unless told otherwise.
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> WorkerBuilder {
        self.pump.hands = tasks.max(1);
        self
    }

    /// A skill: an async function from a [`Context`] and a typed input to a typed output. Input and output are anything that
    /// serde reads and writes; `Box<serde_json::value::RawValue>` passes JSON through as it is written.
    #[must_use]
    pub fn skill<I, O, F, R>(mut self, name: impl Into<String>, function: F) -> WorkerBuilder
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(Context, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, SkillError>> + Send + 'static,
    {
        self.skills.add(name.into(), function);
        self
    }

    /// What the worker's id begins with; the name of the host unless told otherwise.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder { name: Some(name.into()), ..self }
    }

    /// How long tasks under way may take when the worker stops: 30 s. What has not ended then is left to other workers, which
    /// get it when the lease has run out.
    #[must_use]
    pub fn grace(self, grace: Duration) -> WorkerBuilder {
        WorkerBuilder { grace, ..self }
    }

    /// How long a skill may take to end when it is told to: 10 s. Then it is dropped.
    #[must_use]
    pub fn cancel_grace(self, cancel_grace: Duration) -> WorkerBuilder {
        WorkerBuilder { cancel_grace, ..self }
    }

    /// # Errors
    /// There is no skill.
    pub fn build(mut self) -> Result<Worker, Error> {
        if self.skills.names().is_empty() {
            return Err(Error::NoSkills);
        }
        if self.queues.is_empty() {
            self.queues.push(QUEUE.to_owned());
        }
        let worker_id = worker_id(self.name.as_deref());
        Ok(Worker { builder: self, worker_id })
    }

    /// Builds the worker and runs it: see [`Worker::run`].
    ///
    /// # Errors
    /// There is no skill, or the server refuses this worker.
    pub async fn run(self) -> Result<(), Error> {
        self.build()?.run().await
    }
}

/// `host-4711-9f2c6c1d`
fn worker_id(name: Option<&str>) -> String {
    let host = rustix::system::uname();
    let name = name.map_or_else(|| host.nodename().to_string_lossy(), Into::into);
    let name: String = name.chars().take(200).collect();
    let nonce = uuid::Uuid::new_v4().as_fields().0;
    format!("{name}-{}-{nonce:08x}", std::process::id())
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on signals are heard, and no longer end the process by themselves.
    fn new() -> std::io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_worker_has_another_id() {
        let (one, other) = (worker_id(Some("a")), worker_id(Some("a")));
        assert!(one.starts_with(&format!("a-{}-", std::process::id())), "{one}");
        assert_ne!(one, other);
        assert!(worker_id(Some(&"x".repeat(1000))).len() <= 255);
    }

    #[test]
    fn a_worker_without_skills_is_refused() {
        assert!(matches!(Worker::builder("http://a:7400").build(), Err(Error::NoSkills)));
    }
}
