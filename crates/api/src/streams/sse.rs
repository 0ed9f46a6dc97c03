//! One run as server-sent events.
//!
//! ```text
//!   engine ──► pump ──► a few chunks ──► HTTP ──► reader
//!                └────► one more place, kept free for the last words
//! ```
//!
//! **Invariant:** however slow its reader, a stream holds a few chunks, and can still say why it ends.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use milepost_core::status::RunStatus;
use milepost_engine::{Batch, EngineError, EventStream};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::{End, RETRY, Stale, Stop, StreamPlace};
use crate::metrics::OpenStream;
use crate::state::AppState;

/// Chunks that wait to be taken, and how large one grows before the next begins.
const CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 16 * 1024;
/// Readers come back after a second. It also makes the answer begin at once.
const OPENING: Bytes = Bytes::from_static(b"retry: 1000\n\n");
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The body of the answer, fed by a task that ends with it.
pub(crate) fn body(stream: EventStream, state: AppState, place: StreamPlace) -> Body {
    let (chunks, mut taken) = mpsc::channel(CHUNKS + 1);
    let last = chunks.clone().try_reserve_owned().expect("a new channel has room");
    let pump =
        Pump { sent: stream.cursor(), stale: None, stream, state, chunks, _open: (OpenStream::new("sse"), place) };
    tokio::spawn(pump.run(last));
    let taken = futures::stream::poll_fn(move |context| taken.poll_recv(context));
    Body::from_stream(taken.map(Ok::<_, Infallible>))
}

struct Pump {
    stream: EventStream,
    state: AppState,
    chunks: mpsc::Sender<Bytes>,
    /// The last event that is on its way.
    sent: u64,
    /// The event that is missing, and when something was last said since.
    stale: Option<(u64, Instant)>,
    _open: (OpenStream, StreamPlace),
}

impl Pump {
    async fn run(mut self, last: mpsc::OwnedPermit<Bytes>) {
        let ended = self.pump().await;
        if let Some(words) = self.last_words(&ended) {
            last.send(words);
        }
    }

    /// Until the run has ended, or the stream has to.
    async fn pump(&mut self) -> Result<RunStatus, Stop> {
        self.send(OPENING).await?;
        let quiet = Duration::from_millis(self.state.settings.keep_alive_ms);
        loop {
            if let Some(status) = self.stream.ended() {
                return Ok(status);
            }
            let batch = tokio::select! {
                batch = self.stream.next() => batch,
                () = sleep(quiet) => {
                    self.send(KEEP_ALIVE).await?;
                    continue;
                }
                stop = stop(&self.state, &self.chunks) => return Err(stop),
            };
            match batch {
                Ok(batch) => {
                    self.stale = None;
                    self.send_batch(&batch).await?;
                }
                Err(EngineError::LogGap { seq, .. }) => self.wait_for_gap(seq).await?,
                Err(error) if error.is_passing() => self.wait_a_moment().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn send_batch(&mut self, batch: &Batch) -> Result<(), Stop> {
        let mut chunk = BytesMut::new();
        for event in batch {
            chunk.put_slice(format!("id: {}\ndata: ", event.seq).as_bytes());
            chunk.put_slice(&event.json);
            chunk.put_slice(b"\n\n");
            if chunk.len() >= CHUNK_BYTES || event.seq == self.stream.cursor() {
                self.send(chunk.split().freeze()).await?;
                self.sent = event.seq;
            }
        }
        Ok(())
    }

    async fn send(&self, chunk: Bytes) -> Result<(), Stop> {
        let patience = Duration::from_millis(self.state.settings.slow_reader_ms);
        tokio::select! {
            // A reader that is free is served even while the server shuts down.
            biased;
            place = timeout(patience, self.chunks.reserve()) => match place {
                Ok(Ok(place)) => {
                    place.send(chunk);
                    Ok(())
                }
                Ok(Err(_)) => Err(Stop::Gone),
                Err(_) => Err(Stop::Slow),
            },
            stop = stop(&self.state, &self.chunks) => Err(stop),
        }
    }

    /// A gap in the log is told once; the stream goes on when it has closed.
    async fn wait_for_gap(&mut self, seq: u64) -> Result<(), Stop> {
        let quiet = Duration::from_millis(self.state.settings.keep_alive_ms);
        match self.stale {
            Some((told, since)) if told == seq && since.elapsed() < quiet => {}
            Some((told, _)) if told == seq => {
                self.send(KEEP_ALIVE).await?;
                self.stale = Some((seq, Instant::now()));
            }
            _ => {
                let stale = Stale::of(self.stream.run(), seq);
                self.send(named("stale", &serde_json::to_string(&stale).expect("numbers and texts are JSON"))).await?;
                self.stale = Some((seq, Instant::now()));
            }
        }
        self.wait_a_moment().await
    }

    async fn wait_a_moment(&self) -> Result<(), Stop> {
        tokio::select! {
            () = sleep(RETRY) => Ok(()),
            stop = stop(&self.state, &self.chunks) => Err(stop),
        }
    }

    fn last_words(&self, ended: &Result<RunStatus, Stop>) -> Option<Bytes> {
        let stop = match ended {
            Ok(status) => {
                let end = End { run_id: self.stream.run(), status: *status, last_event_seq: self.sent };
                return Some(named("end", &serde_json::to_string(&end).expect("an end has nothing that JSON lacks")));
            }
            Err(stop) => stop,
        };
        let name = match stop {
            Stop::Gone | Stop::Unreadable => return None,
            Stop::Slow => "dropped",
            Stop::Shutdown => "shutdown",
            // Not `error`: that is what an EventSource calls its own.
            Stop::Failed(_) => "failed",
        };
        let data = json!({ "code": stop.code(), "message": stop.message(), "after_seq": self.sent });
        Some(named(name, &data.to_string()))
    }
}

/// Waits until there is a reason to stop.
async fn stop(state: &AppState, chunks: &mpsc::Sender<Bytes>) -> Stop {
    tokio::select! {
        () = chunks.closed() => Stop::Gone,
        () = state.drained() => Stop::Shutdown,
    }
}

/// An event with a name, which readers of plain messages do not see.
fn named(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
