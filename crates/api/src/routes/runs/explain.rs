//! `GET /runs/{run_id}/steps/{step_id}/explain`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::RunAnd;
use crate::openapi::{LogGap, NotFound, Problems};
use crate::state::AppState;
use crate::wire::Explanation;

/// See why a step ran, or what it waits for
///
/// Of a step that ran: what its key is made of, the nearest earlier key, and in what the two differ. Of one that was reused: whose
/// result it has. Of one that has not ended: what it waits for. `shots[3]` is one item of a `foreach` step.
#[utoipa::path(get, path = "/runs/{run_id}/steps/{step_id}/explain", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("step_id" = String, Path, description = "the step, percent-encoded where needed")),
    responses((status = 200, description = "why", body = Explanation), NotFound, LogGap, Problems))]
pub(super) async fn explain(
    State(state): State<AppState>,
    RunAnd(run, step): RunAnd<String>,
) -> Result<Json<Explanation>> {
    Ok(Json(state.engine.explain(run, &step).await?.into()))
}
