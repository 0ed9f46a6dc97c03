//! `POST /runs/{run_id}/patch/undo`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::id::SignalId;
use milepost_engine::PatchOptions;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::patch::{answer, patch_id};
use super::signal::Moved;
use crate::error::Result;
use crate::extract::{Actor, IdempotencyKey, IfMatch, OptionalBody, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Patched;

/// A patch that is to be taken back; all of it may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message": "no subtitles after all"}))]
pub(super) struct UndoBody {
    /// The patch; without it, the newest one. Only the newest can be undone.
    undoes: Option<Uuid>,
    /// Why; kept with it.
    message: Option<String>,
    /// Its own id: the same id again is the same undoing.
    patch_id: Option<Uuid>,
}

/// Undo the newest patch of a run
///
/// The run follows the document that it had before, as long as no step that the patch added or changed has begun (409
/// `patch_touched`). Undone one after the other, patches go back to the document that the run was started with.
#[utoipa::path(post, path = "/runs/{run_id}/patch/undo", tag = "runs", request_body(content = Option<UndoBody>),
    params(("run_id" = Uuid, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same undoing"),
        ("If-Match" = Option<String>, Header, description = "only if the run still has this ETag"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 202, description = "the patch is undone", body = Patched),
        (status = 200, description = "it was undone already, by the same request", body = Patched),
        Moved, NotFound, WriteProblems, Problems))]
pub(super) async fn undo_patch(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    IdempotencyKey(key): IdempotencyKey,
    IfMatch(expected): IfMatch,
    Actor(by): Actor,
    OptionalBody(body): OptionalBody<UndoBody>,
) -> Result<(StatusCode, Json<Patched>)> {
    let options = PatchOptions {
        rerun: false,
        if_seq: expected,
        message: body.message,
        by,
        patch_id: patch_id(body.patch_id, key.as_deref(), "undo", run),
    };
    answer(state.engine.undo_patch(run, body.undoes.map(SignalId), options).await?)
}
