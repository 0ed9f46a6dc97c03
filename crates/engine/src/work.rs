//! Work that takes its time: documents, patches, merges, schemas. It is done on threads of its own, a few at a time, so that
//! neither the committer nor any other task of the runtime waits for it.
//!
//! Work that is not done by its deadline is given up by whoever waits for it. A thread cannot be stopped, so the work is told
//! that nobody waits, and ends itself where it next looks ([`Patience`]); until then it keeps its place. Each lane has places
//! of its own, so that one kind of work never waits for another, and room for so many bytes at once: what is read takes many
//! times its bytes.
//!
//! **Invariant:** a panic in here is an answer to whoever asked, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::patience::Patience;
use milepost_core::plan::Plan;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::error::EngineError;
use crate::supervisor::panic_text;

/// How long somebody waits, for a place and for the end of the work together.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Threads of one lane.
const PLACES: usize = 4;
/// Bytes that are worked on in one lane at once. What has more has it all to itself.
const ROOM: usize = 8 * 1024 * 1024;
/// Room is given in pieces.
const PIECE: usize = 1024;
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
    documents: Arc<Track>,
    payloads: Arc<Track>,
    stored: Arc<Track>,
    deadline: Duration,
}

/// What one lane has to give.
#[derive(Debug)]
struct Track {
    places: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

/// What one piece of work has of it. The room is waited for first, so that what is large holds no place meanwhile.
struct Share {
    _room: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Track {
    async fn share(&self, bytes: usize) -> Result<Share, WorkError> {
        let pieces = u32::try_from(bytes.min(ROOM).div_ceil(PIECE)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(pieces).await.map_err(|_| WorkError::Busy)?;
        let place = self.places.clone().acquire_owned().await.map_err(|_| WorkError::Busy)?;
        Ok(Share { _room: room, _place: place })
    }
}

/// Somebody who waits for work; with them goes the patience, also if they were only cancelled.
struct Waiting(Patience);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.end();
    }
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
        let lane = || {
            let (places, room) = (Arc::new(Semaphore::new(places)), Arc::new(Semaphore::new(ROOM / PIECE)));
            Arc::new(Track { places, room })
        };
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
            false => Box::pin(self.run(lane, bytes, work)).await,
        }
    }

    /// Does work on something of so many bytes beside the runtime.
    ///
    /// # Errors
    /// There is no place for it, it takes too long, or it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let track = match lane {
            Lane::Documents => &self.documents,
            Lane::Payloads => &self.payloads,
            Lane::Stored => &self.stored,
        };
        let (until, deadline) = (Instant::now() + self.deadline, self.deadline);
        let share = tokio::time::timeout_at(until, track.share(bytes)).await.map_err(|_| WorkError::Busy)??;
        let (answer, done) = oneshot::channel();
        let patience = Patience::default();
        let _waiting = Waiting(patience.clone());
        let thread = std::thread::Builder::new().name("milepost-work".to_owned()).stack_size(STACK);
        let started = thread.spawn(move || {
            let made = caught(|| patience.during(work));
            // Nobody may wait for it any more.
            let _ = answer.send(made.and_then(|made| made.map_err(|_| WorkError::TooLong(deadline))));
            drop(share);
        });
        if let Err(error) = started {
            tracing::error!(%error, "a thread cannot be started");
            return Err(WorkError::Busy);
        }
        match tokio::time::timeout_at(until, done).await {
            Ok(answer) => answer.unwrap_or(Err(WorkError::Panicked)),
            Err(_) => {
                tracing::warn!(?lane, seconds = deadline.as_secs(), "work was given up: it takes too long");
                Err(WorkError::TooLong(deadline))
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
        true => Box::pin(work.run(Lane::Payloads, bytes, check)).await??,
        false => work.sized(Lane::Payloads, bytes, check).await??,
    }
    Ok(())
}

/// Roughly how many bytes a value has.
pub(crate) fn weight(value: &Value) -> usize {
    let (mut bytes, mut open) = (0, vec![value]);
    while let Some(next) = open.pop() {
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
        assert_eq!(work.run(Lane::Payloads, 1, hang).await, Err(WorkError::TooLong(Duration::from_millis(20))));
        assert_eq!(work.run(Lane::Payloads, 1, || ()).await, Err(WorkError::Busy));
        assert_eq!(work.run(Lane::Documents, 1, || 7).await, Ok(7), "another lane has places of its own");
        drop(release);
        let patient = Work { deadline: DEADLINE, ..work };
        assert_eq!(patient.run(Lane::Payloads, 1, || 8).await, Ok(8), "the place is free when the work ends");
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_ends() {
        let work = Work::new(1, Duration::from_millis(50));
        let limits = Limits { document_bytes: usize::MAX, document_values: usize::MAX, ..Limits::default() };
        let slow = || {
            let (source, limits) = (r#"{"name": "t", "steps": {"a": {"skill": "noop"}}}"#, limits.clone());
            move || loop {
                let _ = milepost_core::document::load(source, &limits);
            }
        };
        let endless = work.run(Lane::Documents, 1, slow()).await;
        assert!(matches!(endless, Err::<(), _>(WorkError::TooLong(_))), "{endless:?}");
        let patient = Work { deadline: DEADLINE, ..work.clone() };
        assert_eq!(patient.run(Lane::Documents, 1, || 1).await, Ok(1), "it gave its place back");
        // Whoever asked has gone.
        let gone = tokio::time::timeout(Duration::from_millis(20), patient.run::<()>(Lane::Documents, 1, slow()));
        assert!(gone.await.is_err());
        assert_eq!(patient.run(Lane::Documents, 1, || 2).await, Ok(2));
    }

    #[tokio::test]
    async fn what_is_large_shares_the_room() {
        let work = Work::new(PLACES, Duration::from_millis(50));
        let (release, held) = mpsc::channel::<()>();
        let hold = move || {
            let _ = held.recv();
        };
        let (all, large) = (work.clone(), work.clone());
        let holder = tokio::spawn(async move { all.run(Lane::Documents, 100 * ROOM, hold).await });
        while work.documents.room.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(large.run(Lane::Documents, ROOM, || ()).await, Err(WorkError::Busy));
        assert_eq!(work.sized(Lane::Documents, 1, || 1).await, Ok(1));
        assert_eq!(work.documents.places.available_permits(), PLACES - 1, "who waits for room has no place");
        drop(release);
        let _ = holder.await;
        let patient = Work { deadline: DEADLINE, ..work };
        assert_eq!(patient.run(Lane::Documents, ROOM, || 2).await, Ok(2));
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let work = Work::default();
        let panics = || -> u32 { panic!("as the test wants it") };
        assert_eq!(work.run(Lane::Documents, 1, panics).await, Err(WorkError::Panicked));
        assert_eq!(work.sized(Lane::Documents, 0, panics).await, Err(WorkError::Panicked));
        assert_eq!(work.run(Lane::Documents, 1, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn deep_recursion_has_room() {
        fn deep(levels: usize) -> usize {
            let pad = std::hint::black_box([levels; 64]);
            if levels == 0 { pad[0] } else { deep(levels - 1) + pad[1] - pad[2] }
        }
        assert_eq!(Work::default().run(Lane::Documents, 1, || deep(4000)).await, Ok(0));
    }
}
