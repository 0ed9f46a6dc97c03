//! `POST /tasks/{task_id}/heartbeat`.

use axum::extract::State;
use milepost_core::json::Json as RawJson;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::{Body, TaskPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Any;
use crate::wire::task::{Directive, Line, read_lines};

/// The worker lives.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatBody {
    lease_token: String,
    /// How far it is, in whatever form the skill likes.
    #[schema(value_type = Option<Any>)]
    progress: Option<RawJson>,
    /// New lines of its log.
    #[serde(default)]
    lines: Vec<Line>,
}

/// The lease goes on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Beat {
    #[schema(format = DateTime)]
    lease_expires_at: String,
    directives: Vec<Directive>,
}

/// Keep a task
#[utoipa::path(post, path = "/tasks/{task_id}/heartbeat", tag = "workers", request_body = HeartbeatBody,
    params(("task_id" = Uuid, Path, description = "the task")),
    responses((status = 200, description = "the lease goes on", body = Beat), NotFound, WriteProblems, Problems))]
pub(super) async fn heartbeat(
    State(state): State<AppState>,
    TaskPath(task): TaskPath,
    Body(body): Body<HeartbeatBody>,
) -> Result<axum::Json<Beat>> {
    let beat = state.engine.beat(task, body.lease_token, body.progress, read_lines(body.lines)?).await?;
    Ok(axum::Json(Beat {
        lease_expires_at: beat.lease_expires_at.to_string(),
        directives: beat.directives.into_iter().map(Directive::from).collect(),
    }))
}
