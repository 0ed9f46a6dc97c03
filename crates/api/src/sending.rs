//! Responses that wait to be sent. Together they use a bounded amount of memory.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use milepost_engine::room::Place;

use crate::bodies::full;
use crate::state::AppState;

/// Bytes of responses that are waiting to be sent.
pub(crate) const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Reserves memory for a large response until it is sent. Small and streamed responses need no reservation.
pub(crate) async fn hold(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
    let mut place = Place::default();
    match state.answers.grow(&mut place, size.min(ANSWER_BYTES)).await {
        Ok(()) if place.is_empty() => response,
        Ok(()) => response.map(|body| Body::new(Holding::new(body, place))),
        Err(no_room) => full(no_room).into_response(),
    }
}

/// A response body that keeps a value alive until the body is sent.
#[derive(Debug)]
pub(crate) struct Holding<T> {
    body: Body,
    _held: T,
}

impl<T> Holding<T> {
    pub(crate) fn new(body: Body, held: T) -> Holding<T> {
        Holding { body, _held: held }
    }
}

impl<T: Unpin> HttpBody for Holding<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
