//! `GET /runs/{run_id}/events`: the log.

use axum::Json;
use axum::extract::State;
use milepost_core::record::EventRow;
use milepost_engine::EngineError;
use milepost_engine::view::EventView;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::list::limit;
use crate::error::{Problem, Result};
use crate::extract::{Query, RunPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{Event, Page, Stale};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;
/// Events that are read at once.
const AT_ONCE: u32 = 64;
/// A page with so many bytes takes no more.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only events after this number.
    #[param(minimum = 0)]
    after_seq: Option<i64>,
    /// Events at most, 1 to 1,000; a page that has 8 MiB ends earlier.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// A page of a log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventPage {
    items: Vec<Event>,
    /// Pass it as `after_seq` for the next page; null on the last one.
    next_cursor: Option<String>,
    /// The log goes on, but lacks this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<Stale>,
}

/// Read a run's log
///
/// In order, without gaps. `next_cursor` is the number to pass as `after_seq` for the next page. Should an event be missing, the
/// page ends before it and says so (`stale`); what comes behind it is there for whoever asks for events after it.
#[utoipa::path(get, path = "/runs/{run_id}/events", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"), EventsQuery),
    responses((status = 200, description = "a page of events", body = EventPage), NotFound, Problems))]
pub(super) async fn events(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<EventsQuery>,
) -> Result<Json<EventPage>> {
    let (store, org) = (state.engine.store(), state.engine.org());
    let (limit, after) = (limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?, seq(query.after_seq)?);
    let mut rows = Vec::new();
    let (mut bytes, mut is_end) = (0, false);
    while rows.len() <= limit as usize && bytes <= PAGE_BYTES && !is_end {
        let wanted = AT_ONCE.min(limit + 1 - rows.len() as u32);
        let more = store.events(org, run, rows.last().map_or(after, |row: &EventRow| row.seq), wanted).await?;
        is_end = more.len() < wanted as usize;
        bytes += more.iter().map(|row| row.data.len()).sum::<usize>();
        rows.extend(more);
    }
    // A page with large events has fewer of them.
    let limit = if is_end { limit } else { limit.min((rows.len() as u32 - 1).max(1)) };
    let mut stale = None;
    if is_end && rows.len() <= limit as usize {
        let head = store.head(org, run).await?.ok_or(EngineError::NoSuchRun(run))?;
        let last = rows.last().map_or(after, |row| row.seq);
        if last < head.last_seq {
            // Written a moment ago; or not there.
            rows.extend(store.events(org, run, last, limit + 1 - rows.len() as u32).await?);
            let last = rows.last().map_or(after, |row| row.seq);
            stale = Some(last + 1).filter(|_| rows.len() <= limit as usize && last < head.last_seq);
        }
    }
    let whole = rows.iter().zip(after + 1..).take_while(|(row, expected)| row.seq == *expected).count();
    if whole < rows.len() {
        stale = Some(after + whole as u64 + 1);
        rows.truncate(whole);
    }
    let events = rows.iter().map(|row| Event::from(EventView::of(run, row))).collect();
    let Page { items, next_cursor } = Page::cut(events, limit, |event: &Event| event.run_seq.to_string());
    let stale = stale.filter(|_| next_cursor.is_none()).map(|from_seq| Stale { from_seq });
    Ok(Json(EventPage { items, next_cursor, stale }))
}

fn seq(asked: Option<i64>) -> Result<u64> {
    u64::try_from(asked.unwrap_or(0))
        .map_err(|_| Problem::bad_request("bad_query", "after_seq is the number of an event, or 0 for all of them"))
}
