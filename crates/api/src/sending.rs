//! Answers that wait for whoever reads them: all of them together take a bounded part of the memory.

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

/// Bytes of answers that were made and not yet sent.
pub(crate) const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Gives an answer room until it is sent. What is streamed is made piece by piece and needs none.
pub(crate) async fn hold(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
    let mut place = Place::default();
    match state.answers.grow(&mut place, size.min(ANSWER_BYTES)).await {
        Ok(()) => response.map(|body| Body::new(Holding::new(body, place))),
        Err(no_room) => full(no_room).into_response(),
    }
}

/// The body of an answer, with something that is held until it is sent.
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
