//! `POST /runs`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use milepost_core::request::RunRequest;
use milepost_core::trace::TraceContext;
use milepost_engine::EngineError;

use super::body::{Keep, Request, StartBody, Subject};
use crate::error::{Problem, Result};
use crate::extract::{Actor, Body, IdempotencyKey};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Started;

/// Start a run
///
/// Answers when the run is on disk. With a `request_id` (or an `Idempotency-Key`, which stands for one where there is none) the
/// same request again answers 200 with the run that is there, also if the tag has moved since; another request for the same
/// workflow under the same id is refused (422 `request_id_reused`).
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = StartBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("traceparent" = Option<String>, Header, description = "the caller's trace (W3C); the run becomes part of it")),
    responses(
        (status = 201, description = "the run was started", body = Started),
        (status = 200, description = "a run with that request id was there already", body = Started),
        NotFound, WriteProblems, Problems,
    ))]
pub(super) async fn start(
    State(state): State<AppState>,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    Actor(by): Actor,
    Body(body): Body<StartBody>,
) -> Result<(StatusCode, Json<Started>)> {
    let engine = &*state.engine;
    let by_key = body.request_id.is_none() && key.is_some();
    let Request { subject, new } = body.read(engine, Keep::Yes, key, trace(&headers), by).await?;
    let accepted = match subject {
        Subject::Initial(plan) => engine.start_plan(&plan, new).await,
        Subject::Update { base, plan, changes } => engine.update(base, plan, changes, new).await,
        Subject::Before(accepted) => Ok(accepted),
    };
    let accepted = accepted.map_err(|error| match error {
        // The caller knows it as a key.
        EngineError::Rejected(rejection) if by_key && rejection.code == RunRequest::REUSED => {
            Problem::unprocessable("idempotency_key_reused", rejection.message.replace("request id", "Idempotency-Key"))
        }
        error => error.into(),
    })?;
    let status = if accepted.existing { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(accepted.into())))
}

/// The caller's trace. A header that is not one is left alone, as its specification asks.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}
