//! What steps say while they run, kept with the run.
//!
//! ```text
//!   skill ── say ──► bounded queue ──► writer: gathers for a moment, puts lines into rows ──► store.append_logs
//!             (no room: the line is left out, and that is said)          └─ what is large ─► blob store
//! ```
//!
//! **Invariant:** nothing here makes a step or a commit wait: neither a slow store nor a step that says too much.

mod attempt;
mod chunk;
mod outside;
mod read;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::time::Timestamp;
use milepost_store::blobs::Blobs;
use milepost_store::rows::LogChunkRow;
use milepost_store::{Store, StoreError};
use tokio::sync::{Notify, mpsc};

use crate::clock::Clock;
use crate::refused::refused_of;
use crate::skills::{LogLine, LogSink};
use crate::supervisor::Pulse;
pub(crate) use attempt::{AttemptKey, AttemptLog};
use attempt::{Left, Line};
use chunk::Chunks;
use outside::Outside;
pub use read::{LogLineView, LogPage};

/// Lines that may wait to be stored, and what they may weigh.
const QUEUE: usize = 16_384;
const QUEUE_BYTES: usize = 8 * 1024 * 1024;
/// How long lines are gathered before they are written.
const GATHER: Duration = Duration::from_millis(250);
/// With so many bytes nothing is gathered any longer.
const FULL_BYTES: usize = 1024 * 1024;
/// How often rows are offered to a store that cannot take them now, and how often when the engine is about to end.
const TRIES: u32 = 20;
const LAST_TRIES: u32 = 4;
/// How long that waits in between.
const RETRY: Duration = Duration::from_millis(500);

/// Where lines are put in.
#[derive(Clone, Debug)]
pub(crate) struct LogHandle {
    sender: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

struct Shared {
    /// What the lines weigh that wait to be stored.
    queued: AtomicUsize,
    /// Attempts that have ended and of which something is left to be said.
    left: Mutex<Vec<Left>>,
    /// Bytes of one attempt's log that are kept.
    max_bytes: usize,
    /// The engine is about to end.
    closing: AtomicBool,
    /// Told of each line as it is said.
    sink: Option<LogSink>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("queued", &self.queued).field("left", &self.left).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Message {
    Line(Line),
    /// See what is `left`.
    Wake,
    Flush(Arc<Notify>),
}

impl LogHandle {
    pub(crate) fn new(max_bytes: usize, sink: Option<LogSink>, clock: Arc<dyn Clock>) -> (LogHandle, LogInbox) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (queued, left, closing) = Default::default();
        let shared = Arc::new(Shared { queued, left, max_bytes, closing, sink, clock });
        (LogHandle { sender, shared: shared.clone() }, LogInbox { receiver, shared })
    }

    fn max_bytes(&self) -> usize {
        self.shared.max_bytes
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn tell(&self, line: impl FnOnce() -> LogLine) {
        if let Some(sink) = &self.shared.sink {
            sink(line());
        }
    }

    /// Whether there was room for it.
    fn offer(&self, line: Line) -> bool {
        let bytes = line.weight();
        if self.shared.queued.fetch_add(bytes, Ordering::Relaxed) > QUEUE_BYTES
            || self.sender.try_send(Message::Line(line)).is_err()
        {
            self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn leave(&self, left: Left) {
        self.shared.left.lock().expect("no holder of this lock panics").push(left);
        // When there is no room for this, the writer is awake.
        let _ = self.sender.try_send(Message::Wake);
    }

    /// Stores what was said so far; a store that cannot take it is not waited for any longer than that takes a moment.
    pub(crate) async fn close(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        self.flush().await;
    }

    /// Waits until all that was said before is stored, or was given up.
    pub(crate) async fn flush(&self) {
        let done = Arc::new(Notify::new());
        if self.sender.send(Message::Flush(done.clone())).await.is_ok() {
            done.notified().await;
        }
    }
}

#[derive(Debug)]
pub(crate) struct LogInbox {
    receiver: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
}

/// Stores what steps say.
#[derive(Debug)]
pub(crate) struct LogWriter {
    store: Arc<dyn Store>,
    inbox: LogInbox,
    outside: Option<Outside>,
}

impl LogWriter {
    pub(crate) fn new(store: Arc<dyn Store>, inbox: LogInbox, blobs: Option<Blobs>) -> LogWriter {
        let outside = blobs.map(|blobs| Outside::new(store.clone(), blobs));
        LogWriter { store, inbox, outside }
    }

    pub(crate) async fn run(mut self, pulse: Arc<Pulse>) {
        let mut messages = Vec::new();
        let mut flushed = Vec::new();
        loop {
            if pulse.rest(self.inbox.receiver.recv_many(&mut messages, QUEUE)).await == 0 {
                return;
            }
            let until = tokio::time::Instant::now() + GATHER;
            while !is_urgent(&messages) && self.inbox.shared.queued.load(Ordering::Relaxed) < FULL_BYTES {
                let more = self.inbox.receiver.recv_many(&mut messages, QUEUE);
                if !matches!(tokio::time::timeout_at(until, more).await, Ok(count) if count > 0) {
                    break;
                }
            }
            self.run_once(&mut messages, &mut flushed).await;
            flushed.drain(..).for_each(|done: Arc<Notify>| done.notify_one());
        }
    }

    /// Writes what was received, and what else is there.
    async fn run_once(&mut self, messages: &mut Vec<Message>, flushed: &mut Vec<Arc<Notify>>) {
        // Before the rest of the queue: then all lines of an attempt that has ended are at hand.
        let left = std::mem::take(&mut *self.inbox.shared.left.lock().expect("no holder of this lock panics"));
        // There cannot be more: what lines weigh is bounded until they are put into rows.
        while let Ok(message) = self.inbox.receiver.try_recv() {
            messages.push(message);
        }
        let mut chunks = Chunks::default();
        let (max_bytes, now) = (self.inbox.shared.max_bytes, self.inbox.shared.clock.now());
        for message in messages.drain(..) {
            match message {
                Message::Line(line) => {
                    self.inbox.shared.queued.fetch_sub(line.weight(), Ordering::Relaxed);
                    chunks.add(line, max_bytes);
                }
                Message::Wake => {}
                Message::Flush(done) => flushed.push(done),
            }
        }
        left.iter().for_each(|left| chunks.add_left(left, now, max_bytes));
        self.write(chunks.into_rows()).await;
    }

    /// A store that cannot take them now is asked again for some time; what it will not have is given up.
    async fn write(&mut self, mut rows: Vec<LogChunkRow>) {
        if rows.is_empty() {
            return;
        }
        if let Some(outside) = &mut self.outside {
            outside.take(&mut rows).await;
        }
        for tried in 1.. {
            let patience = if self.inbox.shared.closing.load(Ordering::Relaxed) { LAST_TRIES } else { TRIES };
            match self.append(&rows).await {
                Ok(()) => return,
                Err(StoreError::Unavailable(_) | StoreError::DiskFull(_)) if tried < patience => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => {
                    tracing::error!(%error, rows = rows.len(), "log lines could not be stored and are lost");
                    return;
                }
            }
        }
    }
}

impl LogWriter {
    /// A row that the store will not have takes no other along.
    async fn append(&self, rows: &[LogChunkRow]) -> Result<(), StoreError> {
        let reason = match self.store.append_logs(rows.to_vec()).await {
            Err(StoreError::Refused(reason)) => reason,
            appended => return appended,
        };
        let refused = refused_of(rows.len(), |part| self.store.append_logs(rows[part].to_vec())).await?;
        for row in refused.into_iter().map(|place| &rows[place]) {
            tracing::error!(reason, run = %row.run, step = %row.step_id, "the database refused log lines; they are lost");
        }
        Ok(())
    }
}

fn is_urgent(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::Flush(_)))
}

#[cfg(test)]
mod tests;
