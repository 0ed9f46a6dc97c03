//! `GET /tasks/{task_id}`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::TaskPath;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::task::OpenTask;

/// Look at a task
///
/// As long as its step waits or a worker has it; then its run's log tells what became of it.
#[utoipa::path(get, path = "/tasks/{task_id}", tag = "workers",
    params(("task_id" = Uuid, Path, description = "the task")),
    responses((status = 200, description = "the task", body = OpenTask), NotFound, Problems))]
pub(super) async fn show(State(state): State<AppState>, TaskPath(task): TaskPath) -> Result<Json<OpenTask>> {
    Ok(Json(state.engine.task(task).await?.into()))
}
