//! Bodies of requests: read before a route sees them, within a time, and within what all of them together may take of the
//! memory. Content that is uploaded is not gathered here: its route writes it as it comes.
//!
//! **Invariant:** no byte of a body is kept before there is room for it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use milepost_engine::room::{Full, Place, Room};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::error::{Problem, Result};
use crate::state::Settings;

/// Bytes of a body at most: a document and a payload, with some room.
pub(crate) const BODY_BYTES: usize = 8 * 1024 * 1024;
/// Bodies up to this size are read at once: there are never more of them than connections.
const SMALL_BYTES: usize = 4 * 1024;
/// A body that arrives faster than this may take as long as it needs.
const BYTES_PER_MS: u64 = 64;

/// The room that bodies have.
#[derive(Debug)]
pub(crate) struct Bodies {
    room: Room,
    /// Bytes of a worker's report at most, which may bring outputs.
    from_workers: usize,
    patience: Duration,
}

impl Bodies {
    pub(crate) fn new(settings: &Settings, large_output_bytes: usize) -> Bodies {
        let from_workers = BODY_BYTES.saturating_add(large_output_bytes);
        Bodies {
            room: Room::new(settings.body_bytes.max(from_workers)),
            from_workers,
            patience: Duration::from_millis(settings.body_ms),
        }
    }

    /// The request with its whole body, and the room which that takes.
    pub(crate) async fn gather(&self, request: Request) -> Result<(Request, Place)> {
        if request.body().is_end_stream() {
            return Ok((request, Place::default()));
        }
        let most = match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
            // Nobody reads it.
            None => return Ok((request, Place::default())),
            Some("/api/v1/blobs" | "/api/v1/blobs/{digest}") => return Ok((request, Place::default())),
            Some(path) if path.starts_with("/api/v1/tasks/") || path.starts_with("/api/v1/worker/") => {
                self.from_workers
            }
            Some(_) => BODY_BYTES,
        };
        let (parts, body) = request.into_parts();
        let mut place = Place::default();
        let bytes = self.read(body, most, &mut place).await?;
        Ok((Request::from_parts(parts, Body::from(bytes)), place))
    }

    async fn read(&self, body: Body, most: usize, place: &mut Place) -> Result<Bytes> {
        let size = body.size_hint().exact().map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if size.is_some_and(|size| size > most) {
            return Err(too_large());
        }
        if let Some(size) = size.filter(|size| *size > SMALL_BYTES) {
            self.room.take(place, size).await.map_err(full)?;
        }
        let mut pieces = Timed::new(body, self.patience);
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await? {
            // Most bodies come in one piece.
            if whole.is_empty() && size == Some(piece.len()) {
                return Ok(piece);
            }
            let needed = whole.len() + piece.len();
            if needed > most {
                return Err(too_large());
            }
            if size.is_none() {
                self.room.grow(place, needed).await.map_err(full)?;
            }
            if whole.is_empty() {
                whole.reserve(size.unwrap_or(SMALL_BYTES).max(needed));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

/// The pieces of a body, which must keep coming.
struct Timed {
    pieces: axum::body::BodyDataStream,
    begun: Instant,
    patience: Duration,
    bytes: u64,
}

impl Timed {
    fn new(body: Body, patience: Duration) -> Timed {
        Timed { pieces: body.into_data_stream(), begun: Instant::now(), patience, bytes: 0 }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let until = self.begun + self.patience + Duration::from_millis(self.bytes / BYTES_PER_MS);
        let piece = timeout_at(until, self.pieces.next()).await.map_err(|_| {
            let detail = "the body did not arrive in time; send it again, over a faster connection or in smaller parts";
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail)
        })?;
        let piece = piece.transpose().map_err(|error| {
            let detail = format!("the body could not be read: {error}; send it again");
            Problem::bad_request("unreadable_body", detail)
        })?;
        self.bytes += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(piece)
    }
}

pub(crate) fn full(full: Full) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, Full::CODE, full.to_string())
}

fn too_large() -> Problem {
    let detail = "the body is too large; store data elsewhere and pass a reference to it";
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

/// Content on its way in: any amount of it, as long as pieces keep coming.
pub(crate) struct Upload {
    pieces: axum::body::BodyDataStream,
    patience: Duration,
    /// When it is given up, if a piece is being waited for.
    until: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl Upload {
    pub(crate) fn new(body: Body, settings: &Settings) -> Upload {
        let patience = Duration::from_millis(settings.body_ms);
        let until = Box::pin(sleep_until(Instant::now() + patience));
        Upload { pieces: body.into_data_stream(), patience, until, is_waiting: false }
    }
}

impl Stream for Upload {
    type Item = std::result::Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(piece) = self.pieces.poll_next_unpin(context) {
            self.is_waiting = false;
            return Poll::Ready(piece);
        }
        if !self.is_waiting {
            self.is_waiting = true;
            let until = Instant::now() + self.patience;
            self.until.as_mut().reset(until);
        }
        match self.until.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "nothing came for too long");
                Poll::Ready(Some(Err(axum::Error::new(error))))
            }
        }
    }
}
