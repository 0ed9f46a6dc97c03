//! Events as they happen: what the streams of [`sse`] and [`socket`] have in common.
//!
//! A reader of either kind has a cursor of its own in the engine and pulls. One that takes nothing is let go with a reason,
//! and holds up nobody meanwhile.

mod message;
mod places;
mod socket;
mod sse;
mod subscriptions;

use std::time::Duration;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::EngineError;
use serde::Serialize;

pub(crate) use message::Place;
pub(crate) use places::{Place as StreamPlace, Places};
pub(crate) use socket::{MAX_FRAME_BYTES, READ_BUFFER_BYTES, Socket, WRITE_BUFFER_BYTES};
pub(crate) use sse::body as sse_body;

/// How long to wait before a log that cannot be read right now is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The end of a run.
#[derive(Debug, Serialize)]
struct End {
    run_id: RunId,
    status: RunStatus,
    last_event_seq: u64,
}

/// The log of a run has a gap; the stream goes on when it has closed.
#[derive(Debug, Serialize)]
struct Stale {
    run_id: RunId,
    from_seq: u64,
    message: String,
}

impl Stale {
    fn of(run_id: RunId, from_seq: u64) -> Stale {
        let message = format!("the log lacks event {from_seq}; the stream goes on when it is there again");
        Stale { run_id, from_seq, message }
    }
}

/// Why a stream ends before its run.
#[derive(Debug)]
enum Stop {
    /// The reader takes nothing.
    Slow,
    /// The server shuts down.
    Shutdown,
    /// There is nobody any more to tell.
    Gone,
    /// What the reader sends is not what it should be, and what follows cannot be told apart.
    Unreadable,
    Failed(EngineError),
}

impl From<EngineError> for Stop {
    fn from(error: EngineError) -> Stop {
        match error {
            EngineError::ShuttingDown => Stop::Shutdown,
            other => Stop::Failed(other),
        }
    }
}

impl Stop {
    fn code(&self) -> &'static str {
        match self {
            Stop::Slow => "slow_reader",
            Stop::Shutdown => "shutting_down",
            Stop::Gone => "gone",
            Stop::Unreadable => "unreadable",
            Stop::Failed(error) => error.code(),
        }
    }

    /// What to do, in less than the 123 bytes that a close frame has room for.
    fn message(&self) -> String {
        match self {
            Stop::Slow => "nothing was taken for too long; connect again after the last event you saw".to_owned(),
            Stop::Shutdown => "this server shuts down; connect again after the last event you saw".to_owned(),
            Stop::Gone => String::new(),
            Stop::Unreadable => "messages are JSON texts of at most 256 KiB".to_owned(),
            Stop::Failed(error) => error.to_string(),
        }
    }
}
