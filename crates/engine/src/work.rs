//! Work that takes its time: documents, patches, merges, schemas. It is done on threads of its own, a few at a time, so that
//! neither the committer nor any other task of the runtime waits for it.
//!
//! A thread cannot be stopped. Work that is not done by its deadline is given up by whoever waits for it, and keeps its place
//! until it ends. Each lane has places of its own, so that one kind of work never waits for another.
//!
//! **Invariant:** a panic in here is an answer to whoever asked, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::error::EngineError;
use crate::supervisor::panic_text;

/// How long somebody waits, for a place and for the end of the work together.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Threads of one lane.
const PLACES: usize = 4;
/// Stack of a thread: documents may be nested as deep as their limits say.
const STACK: usize = 8 * 1024 * 1024;
/// What has so few bytes is done at once: a thread would cost more than the work.
const SMALL: usize = 8 * 1024;

/// Whose work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Documents and patches that callers and steps send.
    Documents,
    /// Payloads that are held against their schemas.
    Payloads,
    /// Documents that were checked when they were stored.
    Stored,
}

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    #[error("too much is being checked at this moment; try again in a moment")]
    Busy,
    #[error("checking this takes longer than {} s; make it smaller or simpler", .0.as_secs())]
    TooLong(Duration),
    #[error("checking this failed by an error of the program, which its log describes; change it, or report the error")]
    Panicked,
}

impl WorkError {
    /// A stable word for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            WorkError::Busy => "busy",
            WorkError::TooLong(_) => "check_takes_too_long",
            WorkError::Panicked => "panic",
        }
    }
}

/// The lanes of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    documents: Arc<Semaphore>,
    payloads: Arc<Semaphore>,
    stored: Arc<Semaphore>,
    deadline: Duration,
}

impl Default for Work {
    fn default() -> Work {
        Work::new(PLACES, DEADLINE)
    }
}

impl Work {
    /// With another deadline than the usual one.
    pub(crate) fn within(deadline: Duration) -> Work {
        Work::new(PLACES, deadline)
    }

    fn new(places: usize, deadline: Duration) -> Work {
        let lane = || Arc::new(Semaphore::new(places));
        Work { documents: lane(), payloads: lane(), stored: lane(), deadline }
    }

    /// Does work on something of so many bytes: at once if it is small, else beside the runtime.
    ///
    /// # Errors
    /// There is no place for it, it takes too long, or it panicked.
    pub(crate) async fn sized<T: Send + 'static>(
        &self,
        lane: Lane,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        match bytes <= SMALL {
            true => caught(work),
            // What is rarely done makes no call larger.
            false => Box::pin(self.run(lane, work)).await,
        }
    }

    /// Does work beside the runtime.
    ///
    /// # Errors
    /// There is no place for it, it takes too long, or it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let places = match lane {
            Lane::Documents => &self.documents,
            Lane::Payloads => &self.payloads,
            Lane::Stored => &self.stored,
        };
        let until = tokio::time::Instant::now() + self.deadline;
        let place = tokio::time::timeout_at(until, places.clone().acquire_owned()).await;
        let place = place.map_err(|_| WorkError::Busy)?.map_err(|_| WorkError::Busy)?;
        let (answer, done) = oneshot::channel();
        let thread = std::thread::Builder::new().name("milepost-work".to_owned()).stack_size(STACK);
        let started = thread.spawn(move || {
            // Nobody may wait for it any more.
            let _ = answer.send(caught(work));
            drop(place);
        });
        if let Err(error) = started {
            tracing::error!(%error, "a thread cannot be started");
            return Err(WorkError::Busy);
        }
        match tokio::time::timeout_at(until, done).await {
            Ok(answer) => answer.unwrap_or(Err(WorkError::Panicked)),
            Err(_) => {
                tracing::warn!(?lane, seconds = self.deadline.as_secs(), "work was given up: it takes too long");
                Err(WorkError::TooLong(self.deadline))
            }
        }
    }
}

/// Holds a payload against its plan. Where there is a schema, the time that takes is nobody's to know before.
///
/// # Errors
/// What is wrong with it, or it could not be checked.
pub(crate) async fn check_payload(
    work: &Work,
    plan: &Arc<Plan>,
    payload: &Json,
    limits: &Limits,
) -> Result<(), EngineError> {
    let (bytes, has_schema) = (payload.len(), plan.params.is_some());
    let (plan, payload, limits) = (plan.clone(), payload.clone(), limits.clone());
    let check = move || milepost_core::run::check_payload(&plan, &payload, &limits);
    match has_schema {
        true => Box::pin(work.run(Lane::Payloads, check)).await??,
        false => work.sized(Lane::Payloads, bytes, check).await??,
    }
    Ok(())
}

/// Roughly how many bytes a value has. What is not small is not counted to its end.
pub(crate) fn weight(value: &Value) -> usize {
    let (mut bytes, mut open) = (0, vec![value]);
    while let Some(next) = open.pop().filter(|_| bytes <= SMALL) {
        bytes += 8 + match next {
            Value::String(text) => text.len(),
            Value::Array(items) => {
                open.extend(items);
                0
            }
            Value::Object(entries) => {
                open.extend(entries.values());
                entries.keys().map(String::len).sum()
            }
            _ => 0,
        };
    }
    bytes
}

fn caught<T>(work: impl FnOnce() -> T) -> Result<T, WorkError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        tracing::error!(panic = panic_text(&*panic), "work panicked");
        WorkError::Panicked
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_is_done_elsewhere_unless_it_is_small() {
        let work = Work::default();
        let here = std::thread::current().id();
        assert_eq!(work.sized(Lane::Documents, 1, || std::thread::current().id()).await, Ok(here));
        let there = work.sized(Lane::Documents, SMALL + 1, || std::thread::current().id()).await.unwrap();
        assert_ne!(there, here);
    }

    #[tokio::test]
    async fn work_that_never_ends_is_given_up_and_keeps_its_place() {
        let work = Work::new(1, Duration::from_millis(20));
        let (release, held) = mpsc::channel::<()>();
        let hang = move || {
            let _ = held.recv();
        };
        assert_eq!(work.run(Lane::Payloads, hang).await, Err(WorkError::TooLong(Duration::from_millis(20))));
        assert_eq!(work.run(Lane::Payloads, || ()).await, Err(WorkError::Busy));
        assert_eq!(work.run(Lane::Documents, || 7).await, Ok(7), "another lane has places of its own");
        drop(release);
        let patient = Work { deadline: DEADLINE, ..work };
        assert_eq!(patient.run(Lane::Payloads, || 8).await, Ok(8), "the place is free when the work ends");
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let work = Work::default();
        let panics = || -> u32 { panic!("as the test wants it") };
        assert_eq!(work.run(Lane::Documents, panics).await, Err(WorkError::Panicked));
        assert_eq!(work.sized(Lane::Documents, 0, panics).await, Err(WorkError::Panicked));
        assert_eq!(work.run(Lane::Documents, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn deep_recursion_has_room() {
        fn deep(levels: usize) -> usize {
            let pad = std::hint::black_box([levels; 64]);
            if levels == 0 { pad[0] } else { deep(levels - 1) + pad[1] - pad[2] }
        }
        assert_eq!(Work::default().run(Lane::Documents, || deep(4000)).await, Ok(0));
    }
}
