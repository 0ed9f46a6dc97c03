//! `POST /tasks/{task_id}/complete`.

use axum::extract::State;
use milepost_core::json::Json as RawJson;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Reported;
use crate::error::Result;
use crate::extract::{Body, TaskPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::task::{Line, completed, result};
use crate::wire::{Any, NewArtifact};

/// The attempt ended well.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteBody {
    lease_token: String,
    #[schema(value_type = Option<Any>)]
    output: Option<RawJson>,
    /// Files that it leaves. If the content of one is not there, the answer is 409 `artifact_missing`: upload it, and report
    /// again.
    #[serde(default)]
    #[schema(value_type = Vec<NewArtifact>)]
    artifacts: Vec<RawJson>,
    /// The last lines of its log.
    #[serde(default)]
    lines: Vec<Line>,
}

/// Complete a task
///
/// Answers when the outcome is on disk. The same again is answered as the first time.
#[utoipa::path(post, path = "/tasks/{task_id}/complete", tag = "workers", request_body = CompleteBody,
    params(("task_id" = Uuid, Path, description = "the task")),
    responses((status = 200, description = "it is recorded", body = Reported), NotFound, WriteProblems, Problems))]
pub(super) async fn complete(
    State(state): State<AppState>,
    TaskPath(task): TaskPath,
    Body(body): Body<CompleteBody>,
) -> Result<axum::Json<Reported>> {
    let outcome = completed(body.output);
    state.engine.report(result(task.0, body.lease_token, outcome, body.artifacts, body.lines)?).await?;
    Ok(axum::Json(Reported { accepted: true }))
}
