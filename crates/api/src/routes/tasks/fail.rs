//! `POST /tasks/{task_id}/fail`.

use axum::extract::State;
use milepost_engine::workers::Outcome;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Reported;
use crate::error::Result;
use crate::extract::{Body, TaskPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::task::{Failure, Line, result};

/// The attempt failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FailBody {
    lease_token: String,
    error: Failure,
    /// The last lines of its log.
    #[serde(default)]
    lines: Vec<Line>,
}

/// Fail a task
///
/// Whether it is tried again is up to the step's `retry`. Answers when the outcome is on disk.
#[utoipa::path(post, path = "/tasks/{task_id}/fail", tag = "workers", request_body = FailBody,
    params(("task_id" = Uuid, Path, description = "the task")),
    responses((status = 200, description = "it is recorded", body = Reported), NotFound, WriteProblems, Problems))]
pub(super) async fn fail(
    State(state): State<AppState>,
    TaskPath(task): TaskPath,
    Body(body): Body<FailBody>,
) -> Result<axum::Json<Reported>> {
    let outcome = Outcome::Failed(body.error.into());
    state.engine.report(result(task.0, body.lease_token, outcome, Vec::new(), body.lines)?).await?;
    Ok(axum::Json(Reported { accepted: true }))
}
