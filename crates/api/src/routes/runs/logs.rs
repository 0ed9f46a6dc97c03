//! `GET /runs/{run_id}/logs` and `GET /runs/{run_id}/steps/{step_id}/logs`: what steps wrote.

use axum::Json;
use axum::extract::State;
use milepost_core::id::RunId;
use serde::Deserialize;
use utoipa::IntoParams;

use super::list::limit;
use crate::error::Result;
use crate::extract::{Query, RunAnd, RunPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{LogLine, Page};

const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 10_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// Lines at most, 1 to 10,000.
    #[param(minimum = 1, maximum = 10_000, default = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Read what the steps of a run wrote
///
/// By step and attempt. Lines are there within half a second of being written.
#[utoipa::path(get, path = "/runs/{run_id}/logs", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"), LogsQuery),
    responses((status = 200, description = "a page of lines", body = Page<LogLine>), NotFound, Problems))]
pub(super) async fn of_run(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<LogsQuery>,
) -> Result<Json<Page<LogLine>>> {
    read(&state, run, None, query).await
}

/// Read what a step wrote
///
/// All its attempts, in order.
#[utoipa::path(get, path = "/runs/{run_id}/steps/{step_id}/logs", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("step_id" = String, Path, description = "the step, percent-encoded where needed"), LogsQuery),
    responses((status = 200, description = "a page of lines", body = Page<LogLine>), NotFound, Problems))]
pub(super) async fn of_step(
    State(state): State<AppState>,
    RunAnd(run, step): RunAnd<String>,
    Query(query): Query<LogsQuery>,
) -> Result<Json<Page<LogLine>>> {
    read(&state, run, Some(&step), query).await
}

async fn read(state: &AppState, run: RunId, step: Option<&str>, query: LogsQuery) -> Result<Json<Page<LogLine>>> {
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let page = state.engine.logs(run, step, query.cursor, limit).await?;
    let items = page.items.into_iter().map(LogLine::from).collect();
    Ok(Json(Page { items, next_cursor: page.next_cursor }))
}
