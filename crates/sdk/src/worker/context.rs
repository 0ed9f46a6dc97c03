//! What a skill knows of the attempt it carries out, and how it speaks with the worker around it.
//!
//! **Invariant:** nothing here waits for the server. What a skill says is kept until a call takes it along.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::redact::Redactor;
use super::said::Said;
use crate::client::Client;
use crate::wire::{LogStream, NewArtifact, RunId, Task};

/// Why an attempt is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stop {
    Cancelled = 1,
    TimedOut = 2,
    /// Somebody else has it; nothing is reported.
    Disowned = 3,
}

/// What a skill knows of the attempt it carries out. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    task: Task,
    redactor: Redactor,
    /// A `Stop`, or 0.
    stop: AtomicU8,
    paused: AtomicBool,
    /// Rings when `stop` or `paused` changes.
    changed: Notify,
    tuned: Mutex<HashMap<String, Value>>,
    said: Mutex<Said>,
    /// Files that go with the outcome.
    left: Mutex<Vec<NewArtifact>>,
    /// Where they are uploaded to.
    client: Option<Client>,
    /// Tells the worker that there is something to send.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Context {
    pub(crate) fn new(task: Task, client: Option<Client>, wake: impl Fn() + Send + Sync + 'static) -> Context {
        let redactor = Redactor::new(&task.secrets);
        let inner = Inner {
            task,
            redactor,
            stop: AtomicU8::new(0),
            paused: AtomicBool::new(false),
            changed: Notify::new(),
            tuned: Mutex::default(),
            said: Mutex::default(),
            left: Mutex::default(),
            client,
            wake: Box::new(wake),
        };
        Context { inner: Arc::new(inner) }
    }

    /// The task as it came.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.inner.task
    }

    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.task().run_id
    }

    /// Items of a `foreach` are `shots[3]`.
    #[must_use]
    pub fn step_id(&self) -> &str {
        &self.task().step_id
    }

    /// A try that counts against `retry.max_attempts`; the first is 1.
    #[must_use]
    pub fn logical_attempt(&self) -> u32 {
        self.task().logical_attempt
    }

    /// How often this logical attempt was handed out. Grows when a worker dies with it.
    #[must_use]
    pub fn engine_attempt(&self) -> u32 {
        self.task().engine_attempt
    }

    /// A key for what the skill does outside: the same for each time that this logical attempt is handed out.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}/{}", self.run_id(), self.step_id(), self.logical_attempt())
    }

    /// Environment variables that the step declares, as the server has them.
    #[must_use]
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.task().env
    }

    /// Secrets that the step declares. Their values are kept out of errors and log lines.
    #[must_use]
    pub fn secrets(&self) -> &BTreeMap<String, String> {
        &self.task().secrets
    }

    /// What to pass on to whomever the skill calls, so that their traces are parts of this run's: the value of the W3C header
    /// `traceparent`.
    #[must_use]
    pub fn traceparent(&self) -> Option<&str> {
        self.task().context.traceparent.as_deref()
    }

    /// Says how far the attempt is, in any words. Only the newest is kept.
    pub fn progress(&self, value: impl Serialize) {
        let Ok(text) = serde_json::to_string(&value) else { return };
        let text = self.inner.redactor.redact(text).into_owned();
        if let Ok(progress) = RawValue::from_string(text) {
            self.say(|said| said.progress(progress));
        }
    }

    /// Adds a line to the step's log. Never waits: a line for which there is no room is left out, and that is said.
    pub fn log(&self, stream: LogStream, text: impl AsRef<str>) {
        let text = self.inner.redactor.redact(text.as_ref());
        let lines = text.strip_suffix('\n').unwrap_or(&text).split('\n');
        self.say(|said| {
            let mut fresh = false;
            for line in lines {
                fresh |= said.line(stream, line.trim_end_matches('\r'));
            }
            fresh
        });
    }

    /// Whether the attempt is to end: its run was cancelled, its time is up, or another worker has it.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stopped().is_some()
    }

    /// Comes back when the attempt is to end. A skill that goes on is dropped after a while.
    pub async fn cancelled(&self) {
        self.until(Context::is_cancelled).await;
    }

    /// Whether the run is paused. A skill may go on, or wait for `resumed`.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.inner.paused.load(Ordering::Acquire)
    }

    /// Comes back when the run is not paused, at once if it is not; also when the attempt is to end.
    pub async fn resumed(&self) {
        self.until(|context| !context.paused() || context.is_cancelled()).await;
    }

    /// The value that somebody set for a tunable of the run while the attempt is under way.
    #[must_use]
    pub fn tuned<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let tuned = self.inner.tuned.lock().expect("no holder of this lock panics");
        tuned.get(path).and_then(|value| T::deserialize(value).ok())
    }

    async fn until(&self, holds: impl Fn(&Context) -> bool) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            // From here on no change is missed.
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    fn say(&self, say: impl FnOnce(&mut Said) -> bool) {
        let fresh = say(&mut self.said());
        if fresh {
            (self.inner.wake)();
        }
    }

    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        self.inner.said.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn left(&self) -> MutexGuard<'_, Vec<NewArtifact>> {
        self.inner.left.lock().expect("no holder of this lock panics")
    }

    pub(super) fn server(&self) -> Option<&Client> {
        self.inner.client.as_ref()
    }

    pub(crate) fn redact(&self, text: &str) -> String {
        self.inner.redactor.redact(text).into_owned()
    }

    pub(crate) fn stopped(&self) -> Option<Stop> {
        match self.inner.stop.load(Ordering::Acquire) {
            1 => Some(Stop::Cancelled),
            2 => Some(Stop::TimedOut),
            3 => Some(Stop::Disowned),
            _ => None,
        }
    }

    /// The first reason stands, but for one: what is no longer ours is not reported.
    pub(crate) fn stop(&self, stop: Stop) {
        if stop == Stop::Disowned || self.stopped().is_none() {
            self.inner.stop.store(stop as u8, Ordering::Release);
        }
        self.inner.changed.notify_waiters();
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.inner.paused.store(paused, Ordering::Release);
        self.inner.changed.notify_waiters();
    }

    pub(crate) fn tune(&self, path: &str, value: Value) {
        let mut tuned = self.inner.tuned.lock().expect("no holder of this lock panics");
        tuned.insert(path.to_owned(), value);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.task().fmt(f)
    }
}
