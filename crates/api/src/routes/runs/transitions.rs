//! `GET /runs/{run_id}/transitions`: how a run's status changed.

use axum::Json;
use axum::extract::State;
use milepost_engine::EngineError;

use crate::error::Result;
use crate::extract::RunPath;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{Page, Transition};

/// Read how a run's status changed
#[utoipa::path(get, path = "/runs/{run_id}/transitions", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run")),
    responses((status = 200, description = "all changes, in order", body = Page<Transition>), NotFound, Problems))]
pub(super) async fn transitions(
    State(state): State<AppState>,
    RunPath(run): RunPath,
) -> Result<Json<Page<Transition>>> {
    let rows = milepost_engine::transitions(state.engine.store(), state.engine.org(), run).await?;
    if rows.is_empty() {
        return Err(EngineError::NoSuchRun(run).into());
    }
    Ok(Json(Page { items: rows.into_iter().map(Transition::from).collect(), next_cursor: None }))
}
