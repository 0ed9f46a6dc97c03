//! `POST /runs/{run_id}/patch`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::id::{RunId, SignalId};
use milepost_engine::PatchOptions;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body::Operations;
use super::signal::{Moved, derived};
use crate::error::Result;
use crate::extract::{Actor, Body, IdempotencyKey, IfMatch, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Any, Patched};

/// A change of a run's definition.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "ops": [
        {"op": "add", "path": "/steps/subtitles", "value": {"skill": "subtitle", "input": "${{ steps.cut.output }}"}},
        {"op": "add", "path": "/steps/publish/depends_on/-", "value": "subtitles"}
    ],
    "message": "the client wants subtitles"
}))]
pub(super) struct PatchBody {
    /// RFC 6902 operations on the run's document, steps as a map by id.
    #[schema(value_type = Vec<Any>)]
    ops: Operations,
    /// What has ended may be changed, and runs again with all that saw its result.
    #[serde(default)]
    rerun: bool,
    /// Why; kept with the patch.
    message: Option<String>,
    /// The same id again is the same patch.
    patch_id: Option<Uuid>,
}

/// Change the definition of a run while it runs
///
/// What has not begun may change in every way; what is under way stays as it is; what has ended keeps its result unless `rerun`
/// says otherwise. Answers when the patch is on disk. With `If-Match` it is taken only if nothing happened since.
#[utoipa::path(post, path = "/runs/{run_id}/patch", tag = "runs", request_body = PatchBody,
    params(("run_id" = Uuid, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same patch"),
        ("If-Match" = Option<String>, Header, description = "only if the run still has this ETag"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 202, description = "the patch is in force", body = Patched),
        (status = 200, description = "the same patch was in force already", body = Patched),
        Moved, NotFound, WriteProblems, Problems))]
pub(super) async fn patch(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    IdempotencyKey(key): IdempotencyKey,
    IfMatch(expected): IfMatch,
    Actor(by): Actor,
    Body(body): Body<PatchBody>,
) -> Result<(StatusCode, Json<Patched>)> {
    let ops = body.ops.read(state.engine.limits())?;
    let options = PatchOptions {
        rerun: body.rerun,
        if_seq: expected,
        message: body.message,
        by,
        patch_id: patch_id(body.patch_id, key.as_deref(), "patch", run),
    };
    answer(state.engine.patch_run(run, &ops, options).await?)
}

/// Its own id, or one made of the idempotency key.
pub(super) fn patch_id(id: Option<Uuid>, key: Option<&str>, what: &str, run: RunId) -> Option<SignalId> {
    id.or_else(|| key.map(|key| derived(key, what, run))).map(SignalId)
}

pub(super) fn answer(patched: milepost_engine::PatchedRun) -> Result<(StatusCode, Json<Patched>)> {
    let status = if patched.existing { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(patched.into())))
}
