//! `GET /ws`: many runs over one WebSocket.

use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_core::id::RunId;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::openapi::Problems;
use crate::state::AppState;
use crate::streams::{MAX_FRAME_BYTES, Place, READ_BUFFER_BYTES, Socket, WRITE_BUFFER_BYTES};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(socket))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SocketQuery {
    /// A run to follow from the start; others can be added later.
    run_id: Option<Uuid>,
    /// Only events of that run after this number.
    #[param(minimum = 0, default = 0)]
    after_seq: Option<u64>,
}

/// Follow many runs
///
/// A WebSocket with JSON texts. The client says `{"type":"subscribe","run_id":…,"after_seq":0}` or
/// `{"type":"subscribe","runs":[{"run_id":…,"after_seq":…},…]}` (1,000 runs at most), `{"type":"unsubscribe","run_id":…}` and
/// `{"type":"ping"}`. It is told `{"type":"subscribed","run_id","after_seq"}`, then `{"type":"event","run_id","event":{…}}` for
/// every event after that number, in order, and `{"type":"end","run_id","status","last_event_seq"}` when the run has ended;
/// `{"type":"unsubscribed","run_id"}`, `{"type":"pong"}`, and `{"type":"error","code","message","run_id"?}` for what does not
/// fit, after which the socket stays open.
///
/// It is closed with code 1013 and `slow_reader: …` when nothing is taken for too long, and with 1001 when the server shuts
/// down: connect again and subscribe after the last event seen.
#[utoipa::path(get, path = "/ws", tag = "streams", params(SocketQuery),
    responses(
        (status = 101, description = "a WebSocket from here on"),
        (status = 426, description = "this is no WebSocket handshake", body = Problem, content_type = "application/problem+json"),
        Problems,
    )
)]
async fn socket(
    State(state): State<AppState>,
    Query(query): Query<SocketQuery>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let first = first(&query)?;
    let Ok(upgrade) = upgrade else { return Ok(no_handshake()) };
    if state.is_draining() {
        return Err(milepost_engine::EngineError::ShuttingDown.into());
    }
    let place = state.stream_place(&headers)?;
    let sized = upgrade
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES);
    // From the answer on: a server that shuts down waits for those, too, that are only just being opened.
    let open = state.opened();
    Ok(sized.on_upgrade(move |socket| Socket::new(socket, state, open, place).run(first)))
}

fn first(query: &SocketQuery) -> Result<Option<Place>> {
    match (query.run_id, query.after_seq) {
        (Some(run), after_seq) => Ok(Some(Place { run_id: RunId(run), after_seq: after_seq.unwrap_or(0) })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(Problem::bad_request("bad_query", "after_seq is a place in a run's log; say which by run_id"))
        }
    }
}

fn no_handshake() -> Response {
    let detail = "this is no WebSocket handshake; connect with a WebSocket client, or follow one run by \
                  GET /api/v1/runs/{run_id}/stream";
    let mut response = Problem::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", detail).into_response();
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    response
}
