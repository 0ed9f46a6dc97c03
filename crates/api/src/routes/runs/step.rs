//! `GET /runs/{run_id}/steps/{step_id}`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::RunAnd;
use crate::openapi::{LogGap, NotFound, Problems};
use crate::state::AppState;
use crate::wire::StepDetail;

/// Read one step
///
/// Its attempts, its input and its output. `shots[3]` is one item of a `foreach` step.
#[utoipa::path(get, path = "/runs/{run_id}/steps/{step_id}", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("step_id" = String, Path, description = "the step, percent-encoded where needed")),
    responses((status = 200, description = "the step", body = StepDetail), NotFound, LogGap, Problems))]
pub(super) async fn step(State(state): State<AppState>, RunAnd(run, step): RunAnd<String>) -> Result<Json<StepDetail>> {
    Ok(Json(state.engine.step(run, &step).await?.into()))
}
