//! `GET /runs/{run_id}/events`: the log.

use axum::Json;
use axum::extract::State;
use milepost_engine::EngineError;
use milepost_engine::view::EventView;
use serde::Deserialize;
use utoipa::IntoParams;

use super::list::limit;
use crate::error::{Problem, Result};
use crate::extract::{Query, RunPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{Event, Page};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only events after this number.
    #[param(minimum = 0)]
    after_seq: Option<i64>,
    /// Events at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Read a run's log
///
/// In order, without gaps. `next_cursor` is the number to pass as `after_seq` for the next page.
#[utoipa::path(get, path = "/runs/{run_id}/events", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"), EventsQuery),
    responses((status = 200, description = "a page of events", body = Page<Event>), NotFound, Problems))]
pub(super) async fn events(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<EventsQuery>,
) -> Result<Json<Page<Event>>> {
    let (store, org) = (state.engine.store(), state.engine.org());
    let (limit, after) = (limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?, seq(query.after_seq)?);
    let rows = store.events(org, run, after, limit + 1).await?;
    if rows.is_empty() && store.head(org, run).await?.is_none() {
        return Err(EngineError::NoSuchRun(run).into());
    }
    let events = rows.iter().map(|row| Event::from(EventView::of(run, row))).collect();
    Ok(Json(Page::cut(events, limit, |event| event.run_seq.to_string())))
}

fn seq(asked: Option<i64>) -> Result<u64> {
    u64::try_from(asked.unwrap_or(0))
        .map_err(|_| Problem::bad_request("bad_query", "after_seq is the number of an event, or 0 for all of them"))
}
