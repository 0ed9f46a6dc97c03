//! `POST /runs/{run_id}/signals`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::id::{RunId, SignalId};
use milepost_core::json::Json as RawJson;
use milepost_core::run::Signal;
use milepost_engine::Engine;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::extract::{Body, IdempotencyKey, IfMatch, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::Any;

/// A word to a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"type": "approved", "payload": {"by": "Ada"}}))]
pub(super) struct SignalBody {
    /// `PAUSE`, `RESUME`, `CANCEL`, `TERMINATE`, `APPROVE`, `REJECT`, `RETRY_STEP`, `SKIP_STEP`, or a name of your own that
    /// a `wait` step waits for.
    #[serde(rename = "type")]
    name: String,
    /// The same id again is the same signal.
    signal_id: Option<Uuid>,
    /// The step it is about.
    step_id: Option<String>,
    /// What goes with it; the output of the step that waits.
    #[schema(value_type = Option<Any>)]
    payload: Option<RawJson>,
}

/// A signal that is on disk.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SignalAccepted {
    accepted: bool,
    run_id: Uuid,
    /// Where the run stood when the signal was taken.
    status: String,
    signal_id: Uuid,
}

/// If `If-Match` is given, and the run went on since.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum Moved {
    /// The run went on since it was read with that ETag; nothing was changed.
    #[response(status = 412, content_type = "application/problem+json")]
    Moved(Problem),
}

/// Send a signal to a run
///
/// Answers when the signal is on disk; what it leads to follows. With `If-Match` it is sent only if nothing happened since.
#[utoipa::path(post, path = "/runs/{run_id}/signals", tag = "runs", request_body = SignalBody,
    params(("run_id" = Uuid, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same signal"),
        ("If-Match" = Option<String>, Header, description = "only if the run still has this ETag")),
    responses((status = 202, description = "it is accepted", body = SignalAccepted), Moved, NotFound, WriteProblems, Problems))]
pub(super) async fn signal(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    IdempotencyKey(key): IdempotencyKey,
    IfMatch(expected): IfMatch,
    caller: Caller,
    Body(body): Body<SignalBody>,
) -> Result<Accepted> {
    let signal = Signal {
        step: body.step_id,
        payload: body.payload.unwrap_or_else(|| RawJson::trusted("{}")),
        ..new_signal(&body.name, body.signal_id, key.as_deref(), run)
    };
    send(&state, run, signal, expected, &caller).await
}

pub(super) type Accepted = (StatusCode, Json<SignalAccepted>);

/// A signal with its own id, or one made of the idempotency key, or a new one.
pub(super) fn new_signal(name: &str, id: Option<Uuid>, key: Option<&str>, run: RunId) -> Signal {
    let signal = Engine::new_signal(name);
    let id = id.or_else(|| key.map(|key| derived(key, name, run)));
    Signal { id: id.map_or(signal.id, SignalId), ..signal }
}

/// The id of the signal that this key stands for.
pub(super) fn derived(key: &str, name: &str, run: RunId) -> Uuid {
    let mut hash = Sha256::new();
    for part in [key.as_bytes(), name.as_bytes(), run.0.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let half: [u8; 16] = digest[..16].try_into().expect("half of 32 bytes");
    uuid::Builder::from_custom_bytes(half).into_uuid()
}

pub(super) async fn send(
    state: &AppState,
    run: RunId,
    signal: Signal,
    expected: Option<u64>,
    caller: &Caller,
) -> Result<Accepted> {
    let signal = Signal { actor: caller.actor.clone(), ..signal };
    let signal_id = signal.id.0;
    let deed = match &*signal.name {
        "APPROVE" => Some("run.approve"),
        "REJECT" => Some("run.reject"),
        _ => None,
    };
    let accepted = state.engine.signal_if(run, signal, expected).await?;
    deed.iter().for_each(|deed| caller.did(deed, &format!("run:{run}")));
    Ok(accepted_as(signal_id, accepted))
}

pub(super) fn accepted_as(signal_id: Uuid, accepted: milepost_engine::Accepted) -> Accepted {
    let (run_id, status) = (accepted.run.0, accepted.status.to_string());
    (StatusCode::ACCEPTED, Json(SignalAccepted { accepted: true, run_id, status, signal_id }))
}
