//! `GET /runs`.

use axum::Json;
use axum::extract::State;
use milepost_core::id::RunId;
use milepost_core::json;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::RunFilter;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::fields::Mask;
use crate::openapi::Problems;
use crate::state::AppState;
use crate::wire::{MaskedSummary, Page, RunSummary};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only runs in this status; several, separated by commas, are any of them.
    #[param(example = "running,paused")]
    status: Option<String>,
    /// Only runs of this workflow.
    workflow: Option<String>,
    /// Only runs created at or after this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    created_after: Option<Timestamp>,
    /// Only runs created before this moment.
    #[param(value_type = Option<String>, format = DateTime)]
    created_before: Option<Timestamp>,
    /// Only the run with this request id.
    request_id: Option<String>,
    /// Only update runs of this run.
    base_run_id: Option<Uuid>,
    /// Only children of this run.
    parent_run_id: Option<Uuid>,
    /// Only runs that this one asked for.
    submitted_by: Option<String>,
    /// Only runs that are parked because they took their process down.
    #[serde(default)]
    #[param(default = false)]
    stuck: bool,
    /// Runs at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
    /// Only these fields, separated by commas.
    #[param(example = "run_id,status")]
    fields: Option<String>,
}

/// List runs
///
/// Newest first. A list may be up to a second behind; one run read by its id never is.
#[utoipa::path(get, path = "/runs", tag = "runs", params(ListQuery), responses(
    (status = 200, description = "a page of runs", body = Page<MaskedSummary>),
    Problems,
))]
pub(super) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<json::Json>>> {
    let mask = query.fields.as_deref().map(|fields| Mask::parse(fields, RunSummary::FIELDS)).transpose()?;
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let filter = RunFilter { limit: limit + 1, ..query.filter()? };
    let runs = state.engine.list(&filter).await?;
    let runs = runs.into_iter().map(RunSummary::from).collect();
    let page = Page::cut(runs, limit, |run| run.run_id.to_string());
    let everything = Mask::default();
    let mask = mask.as_ref().unwrap_or(&everything);
    let items = page.items.iter().map(|run| json::Json::trusted(mask.cut(run))).collect();
    Ok(Json(Page { items, next_cursor: page.next_cursor }))
}

/// How many are wanted.
pub(in crate::routes) fn limit(asked: Option<u32>, default: u32, max: u32) -> Result<u32> {
    match asked.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::bad_request("bad_limit", format!("limit is 1 to {max}; follow next_cursor for more"))),
    }
}

pub(super) fn statuses(text: &str) -> Result<Vec<RunStatus>> {
    let word = |word: &str| {
        word.parse().map_err(|error| Problem::bad_request("unknown_status", format!("{error}; name one or several")))
    };
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(word).collect()
}

impl ListQuery {
    fn filter(&self) -> Result<RunFilter> {
        let cursor = self.cursor.as_deref().map(str::parse::<RunId>).transpose().map_err(|_| {
            Problem::bad_request("bad_cursor", "this is not a cursor; pass the next_cursor of the page before")
        })?;
        Ok(RunFilter {
            statuses: statuses(self.status.as_deref().unwrap_or_default())?,
            workflow: self.workflow.clone(),
            created_from: self.created_after,
            created_until: self.created_before,
            request_id: self.request_id.clone(),
            base_run: self.base_run_id.map(RunId),
            parent_run: self.parent_run_id.map(RunId),
            submitted_by: self.submitted_by.clone(),
            stuck: self.stuck,
            before: cursor,
            limit: 0,
        })
    }
}
