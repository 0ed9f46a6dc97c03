//! `GET /runs/{run_id}/stream`: a run as server-sent events.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{Problem, Result};
use crate::extract::{Query, RunPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::streams::sse_body;
use crate::wire::Event;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies of the nginx kind gather answers unless they are told not to.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// Only events after this number; 0 is all of them.
    #[param(minimum = 0, default = 0)]
    after_seq: Option<u64>,
}

/// Follow a run
///
/// Server-sent events: first what the log has after `after_seq`, then what comes, whichever node writes it, without gap or
/// duplicate. The `id` of an event is its `run_seq`, its `data` the event as JSON. A browser's `EventSource` that lost the
/// connection comes back by itself with `Last-Event-ID` and goes on where it was.
///
/// If the log has a gap, an event named `stale` says so once (`run_id`, `from_seq`, `message`), and the stream goes on when the gap
/// has closed.
///
/// Other events with a name are no events of the run either: `end` (`run_id`, `status`, `last_event_seq`) after the one that ended it;
/// `dropped` when nothing was taken for too long, `shutdown` when the server shuts down, `failed` when the log cannot be read
/// (each with `code`, `message` and `after_seq`, from where to go on). The answer ends with any of these.
#[utoipa::path(get, path = "/runs/{run_id}/stream", tag = "streams",
    params(("run_id" = Uuid, Path, description = "the run"), StreamQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "the `id` that was seen last; goes before `after_seq`")),
    responses(
        (status = 200, description = "events, one after the other", body = Event, content_type = "text/event-stream"),
        (status = 204, description = "the run has ended and there is nothing after that number; do not come back"),
        (status = 409, description = "the log does not go that far", body = Problem, content_type = "application/problem+json"),
        NotFound, Problems,
    )
)]
pub(super) async fn stream(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let after_seq = last_event_id(&headers)?.or(query.after_seq).unwrap_or(0);
    if state.is_draining() {
        return Err(milepost_engine::EngineError::ShuttingDown.into());
    }
    let place = state.stream_place(&headers)?;
    let stream = state.engine.stream(run, after_seq).await?;
    if stream.ended().is_some() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    Ok((headers, sse_body(stream, state, place)).into_response())
}

/// An empty one is as good as none: that is how a reader says that it saw nothing yet.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.to_str().ok().and_then(|text| text.trim().parse().ok()).map(Some).ok_or_else(|| {
        let detail = "Last-Event-ID is not the number of an event; send the `id` that was seen last, or leave it out";
        Problem::bad_request("bad_last_event_id", detail)
    })
}
