//! `GET /runs/{run_id}/at/{seq}`: a run as it was.

use axum::extract::State;
use axum::response::Response;
use milepost_engine::room::Held;

use super::show::answer;
use crate::error::Result;
use crate::extract::RunAnd;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Run;

/// Read a run as it was
///
/// The run as it stood after its event `seq`.
#[utoipa::path(get, path = "/runs/{run_id}/at/{seq}", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("seq" = u64, Path, description = "the number of an event of its log", minimum = 1)),
    responses((status = 200, description = "the run as it was then", body = Run), NotFound, Problems))]
pub(super) async fn at(State(state): State<AppState>, RunAnd(run, seq): RunAnd<u64>) -> Result<Response> {
    let Held { it, place: _place } = state.engine.run_at_held(run, seq).await?;
    let run = Run::from(it);
    Ok(answer(&run, &run.summary.version(), None))
}
