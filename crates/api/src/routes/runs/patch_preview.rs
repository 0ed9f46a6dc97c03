//! `POST /runs/{run_id}/patch/preview`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::Operations;
use crate::error::Result;
use crate::extract::{Body, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Any, PatchOutlook};

/// A change of a run's definition, to be looked at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ops": [{"op": "replace", "path": "/steps/brief/input", "value": {"tone": "calm"}}]}))]
pub(super) struct PreviewBody {
    /// RFC 6902 operations on the run's document, steps as a map by id.
    #[schema(value_type = Vec<Any>)]
    ops: Operations,
    /// What has ended may be changed, and would run again.
    #[serde(default)]
    rerun: bool,
}

/// See what a patch of a run would do
///
/// Nothing is stored. A patch that the run does not take as it stands is answered with `fits: false` and the reason; operations
/// that do not fit the document, and documents with problems, are answered as `POST /runs/{run_id}/patch` answers them.
#[utoipa::path(post, path = "/runs/{run_id}/patch/preview", tag = "runs", request_body = PreviewBody,
    params(("run_id" = Uuid, Path, description = "the run")),
    responses((status = 200, description = "what it would do", body = PatchOutlook), NotFound, WriteProblems, Problems))]
pub(super) async fn preview_patch(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Body(body): Body<PreviewBody>,
) -> Result<Json<PatchOutlook>> {
    let ops = body.ops.read(state.engine.limits())?;
    Ok(Json(state.engine.preview_patch(run, &ops, body.rerun).await?.into()))
}
