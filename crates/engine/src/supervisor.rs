//! Supervision: the engine's tasks are watched, and a task that dies or hangs is a failure of the whole engine.
//!
//! ```text
//!   watchdog (a thread) ── asks ──► Pulse ◄── answers ── the task's own loop, whenever it rests or gets something done
//!        │                            silent for `unready_after`: the engine is not ready, and says which part is silent
//!        └── silent for `end_after`, or a task that ended ─► Failure ─► `Engine::failed`, the hook
//! ```
//!
//! The watchdog is a thread and not a task: a runtime all of whose threads are busy could not run it. It counts the time that
//! it has seen itself, so a process that was stopped for an hour is not called silent when it goes on.
//!
//! **Invariant:** a pulse is answered by the loop that it stands for, and by nobody else.
//! **Invariant:** what failed stays failed. The engine does not mend itself: a new process continues from the log.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How often the watchdog asks, unless it has to know sooner.
const TICK: Duration = Duration::from_secs(1);
const SHORTEST_TICK: Duration = Duration::from_millis(10);
/// So many times the watchdog looks before a silent task counts as silent.
const LOOKS: u32 = 4;

/// Called once, from a thread of its own, when the engine has failed. The async runtime may be unable to run anything.
pub type FailureHook = Arc<dyn Fn(&Failure) + Send + Sync>;

/// When a task that does not answer is believed to hang.
#[derive(Clone)]
pub struct SupervisionConfig {
    /// After so long the engine is not ready: [`Engine::silent_parts`](crate::Engine::silent_parts) names the task.
    pub unready_after: Duration,
    /// After so long the engine has failed. `None`: only a task that ends is a failure.
    pub end_after: Option<Duration>,
    /// Told of a failure even when the runtime stands still.
    pub on_failure: Option<FailureHook>,
}

impl SupervisionConfig {
    pub const UNREADY_AFTER: Duration = Duration::from_secs(10);
    pub const END_AFTER: Duration = Duration::from_secs(60);
}

impl Default for SupervisionConfig {
    fn default() -> SupervisionConfig {
        SupervisionConfig {
            unready_after: SupervisionConfig::UNREADY_AFTER,
            end_after: Some(SupervisionConfig::END_AFTER),
            on_failure: None,
        }
    }
}

impl fmt::Debug for SupervisionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisionConfig")
            .field("unready_after", &self.unready_after)
            .field("end_after", &self.end_after)
            .finish_non_exhaustive()
    }
}

/// Why an engine cannot go on. Whoever holds it ends the process; the next one continues from the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {part} {reason}")]
pub struct Failure {
    /// The task: `committer`, `projector`, …
    pub part: &'static str,
    /// What happened to it, as the rest of a sentence.
    pub reason: String,
}

/// One task, as the watchdog sees it.
#[derive(Debug)]
pub(crate) struct Pulse {
    part: &'static str,
    asked: AtomicU64,
    answered: AtomicU64,
    silent_ms: AtomicU64,
    bell: Notify,
}

impl Pulse {
    pub(crate) fn new(part: &'static str) -> Pulse {
        let (asked, answered, silent_ms) = Default::default();
        Pulse { part, asked, answered, silent_ms, bell: Notify::new() }
    }

    /// The loop has got something done.
    pub(crate) fn answer(&self) {
        self.answered.store(self.asked.load(Ordering::Relaxed), Ordering::Relaxed);
        self.silent_ms.store(0, Ordering::Relaxed);
    }

    /// The watchdog wants an answer.
    pub(crate) async fn asked(&self) {
        self.bell.notified().await;
    }

    /// Waits with the loop, and answers meanwhile: a loop that rests is well.
    pub(crate) async fn rest<T>(&self, waiting: impl Future<Output = T>) -> T {
        tokio::pin!(waiting);
        loop {
            self.answer();
            tokio::select! {
                biased;
                done = &mut waiting => return done,
                () = self.asked() => {}
            }
        }
    }

    /// The watchdog has looked for so long.
    fn look(&self, passed: Duration) -> Duration {
        let asked = self.asked.load(Ordering::Relaxed);
        if self.answered.load(Ordering::Relaxed) < asked {
            let passed = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            return Duration::from_millis(self.silent_ms.fetch_add(passed, Ordering::Relaxed).saturating_add(passed));
        }
        self.asked.store(asked + 1, Ordering::Relaxed);
        self.bell.notify_one();
        Duration::ZERO
    }

    fn silent(&self) -> Duration {
        Duration::from_millis(self.silent_ms.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Shared {
    config: SupervisionConfig,
    pulses: Mutex<Vec<Arc<Pulse>>>,
    failure: watch::Sender<Option<Failure>>,
    /// Tasks may end now.
    stopping: AtomicBool,
}

impl Shared {
    /// The first failure counts. Whoever is told ends the process.
    fn fail(&self, part: &'static str, reason: String) {
        if self.stopping.load(Ordering::SeqCst) {
            return;
        }
        let failure = Failure { part, reason };
        let first = self.failure.send_if_modified(|failed| match failed {
            Some(_) => false,
            None => failed.replace(failure.clone()).is_none(),
        });
        if !first {
            return;
        }
        tracing::error!(part, reason = failure.reason, "the engine has failed");
        if let Some(hook) = self.config.on_failure.clone() {
            // It may end the process, or block; no thread of the runtime is made to wait for it.
            let told = std::thread::Builder::new().name("milepost-failure".to_owned()).spawn(move || hook(&failure));
            if let Err(error) = told {
                tracing::error!(%error, "nobody could be told of the failure");
            }
        }
    }
}

/// Starts tasks and learns of their end.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
}

/// The watchdog looks for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watchdog {
    _stop: std::sync::mpsc::Sender<()>,
}

impl Supervisor {
    pub(crate) fn new(config: SupervisionConfig) -> Supervisor {
        let (pulses, failure, stopping) = (Mutex::default(), watch::Sender::new(None), AtomicBool::new(false));
        Supervisor { shared: Arc::new(Shared { config, pulses, failure, stopping }) }
    }

    /// Starts a task that lasts as long as the engine. Its loop answers the pulse.
    pub(crate) fn spawn<F>(&self, part: &'static str, work: impl FnOnce(Arc<Pulse>) -> F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pulse = Arc::new(Pulse::new(part));
        self.shared.pulses.lock().expect("no holder of this lock panics").push(pulse.clone());
        self.spawn_unasked(part, work(pulse))
    }

    /// The same for one that may be busy for as long as it takes: it only must not end.
    pub(crate) fn spawn_unasked(
        &self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            match AssertUnwindSafe(work).catch_unwind().await {
                Ok(()) => shared.fail(part, "ended by itself".to_owned()),
                Err(panic) => shared.fail(part, format!("panicked: {}", panic_text(&*panic))),
            }
        })
    }

    /// Begins to ask.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn watch(&self) -> std::io::Result<Watchdog> {
        let (stop, stopped) = std::sync::mpsc::channel();
        let shared = self.shared.clone();
        std::thread::Builder::new().name("milepost-watchdog".to_owned()).spawn(move || watchdog(&shared, &stopped))?;
        Ok(Watchdog { _stop: stop })
    }

    /// From here on tasks may end.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
    }

    /// The parts that have been silent for too long.
    pub(crate) fn silent_parts(&self) -> Vec<&'static str> {
        let pulses = self.shared.pulses.lock().expect("no holder of this lock panics");
        let silent = pulses.iter().filter(|pulse| pulse.silent() >= self.shared.config.unready_after);
        silent.map(|pulse| pulse.part).collect()
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.shared.failure.borrow().clone()
    }

    /// Returns when the engine has failed.
    pub(crate) async fn failed(&self) -> Failure {
        let mut failure = self.shared.failure.subscribe();
        // The sender lives as long as this does.
        match failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone()) {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

fn watchdog(shared: &Shared, stopped: &std::sync::mpsc::Receiver<()>) {
    let SupervisionConfig { unready_after, end_after, .. } = shared.config;
    let tick = (unready_after / LOOKS).clamp(SHORTEST_TICK, TICK);
    let mut last = Instant::now();
    while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
        // More than that was spent asleep or stopped, and so did the tasks.
        let passed = last.elapsed().min(tick * 2);
        last = Instant::now();
        let pulses = shared.pulses.lock().expect("no holder of this lock panics").clone();
        for pulse in pulses {
            let silent = pulse.look(passed);
            if silent >= unready_after && silent - passed < unready_after {
                let silent_s = silent.as_secs();
                tracing::error!(part = pulse.part, silent_s, "a part of the engine does not answer; it is not ready");
            }
            if end_after.is_some_and(|end_after| silent >= end_after) {
                shared.fail(pulse.part, format!("has not answered for {} s", silent.as_secs()));
            }
        }
    }
}

/// What a panic says.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor(unready_ms: u64, end_ms: u64) -> (Supervisor, std::sync::mpsc::Receiver<Failure>) {
        let (told, heard) = std::sync::mpsc::channel();
        let config = SupervisionConfig {
            unready_after: Duration::from_millis(unready_ms),
            end_after: Some(Duration::from_millis(end_ms)),
            on_failure: Some(Arc::new(move |failure| drop(told.send(failure.clone())))),
        };
        (Supervisor::new(config), heard)
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_a_failure() {
        for panics in [true, false] {
            let (supervisor, heard) = supervisor(1000, 2000);
            let task = supervisor.spawn("reaper", |_| async move { assert!(!panics, "nothing left to reap") });
            let failure = supervisor.failed().await;
            let said = if panics { "the reaper panicked: nothing left to reap" } else { "the reaper ended by itself" };
            assert_eq!(failure.to_string(), said);
            assert_eq!(heard.recv().unwrap(), failure);
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn tasks_may_end_when_the_engine_stops() {
        let (supervisor, _heard) = supervisor(1000, 2000);
        let task = supervisor.spawn("reaper", |pulse| async move { pulse.rest(tokio::task::yield_now()).await });
        supervisor.stop();
        task.await.unwrap();
        assert_eq!(supervisor.failure(), None);
    }

    /// The runtime has one thread, and the task blocks it: the watchdog tells all the same.
    #[tokio::test]
    async fn a_task_that_hangs_is_silent_first_and_then_a_failure() {
        let (supervisor, heard) = supervisor(40, 200);
        let resting = supervisor.spawn("timers", |pulse| async move { pulse.rest(std::future::pending()).await });
        let (silent, seen) = std::sync::mpsc::channel();
        let observer = supervisor.clone();
        let hanging = supervisor.spawn("committer", |_| async move {
            while observer.silent_parts() != ["timers", "committer"] {
                std::thread::yield_now();
            }
            silent.send(observer.failure()).unwrap();
            let failure = heard.recv().unwrap();
            assert!(failure.to_string().contains("has not answered for"), "{failure}");
            std::future::pending().await
        });
        let watchdog = supervisor.watch().unwrap();
        supervisor.failed().await;
        assert_eq!(seen.recv().unwrap(), None, "not ready comes before the end");
        drop(watchdog);
        hanging.abort();
        resting.abort();
    }

    #[tokio::test]
    async fn a_loop_that_rests_or_gets_on_is_well() {
        let (supervisor, heard) = supervisor(60, 120);
        let resting = supervisor.spawn("timers", |pulse| async move { pulse.rest(std::future::pending()).await });
        let busy = supervisor.spawn("projector", |pulse| async move {
            loop {
                pulse.answer();
                tokio::task::yield_now().await;
            }
        });
        let watchdog = supervisor.watch().unwrap();
        let heard = tokio::task::spawn_blocking(move || heard.recv_timeout(Duration::from_millis(500)));
        assert!(heard.await.unwrap().is_err());
        assert!(supervisor.silent_parts().is_empty());
        drop(watchdog);
        busy.abort();
        resting.abort();
    }
}
