//! `GET /runs/{run_id}/steps`.

use axum::Json;
use axum::extract::State;
use milepost_core::status::StepStatus;
use milepost_engine::room::Held;
use serde::Deserialize;
use utoipa::IntoParams;

use super::list::limit;
use crate::error::{Problem, Result};
use crate::extract::{Query, RunPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{Page, Step};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StepsQuery {
    /// Only steps in this status; several, separated by commas, are any of them.
    #[param(example = "failed,running")]
    status: Option<String>,
    /// Steps at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List the steps of a run
///
/// In the order in which they depend on each other, items of a `foreach` step after it: as in the run itself, page by page.
#[utoipa::path(get, path = "/runs/{run_id}/steps", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"), StepsQuery),
    responses((status = 200, description = "a page of steps", body = Page<Step>), NotFound, Problems))]
pub(super) async fn steps(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<StepsQuery>,
) -> Result<Json<Page<Step>>> {
    let limit = limit(query.limit, 100, 1000)?;
    let statuses = statuses(query.status.as_deref().unwrap_or_default())?;
    let Held { it, place: _place } = state.engine.run_held(run).await?;
    let mut steps = it.steps;
    if let Some(after) = &query.cursor {
        let place = steps.iter().position(|step| step.step_id == *after).ok_or_else(|| {
            Problem::bad_request("bad_cursor", "this is not a cursor; pass the next_cursor of the page before")
        })?;
        steps.drain(..=place);
    }
    steps.retain(|step| statuses.is_empty() || statuses.contains(&step.status));
    steps.truncate(limit as usize + 1);
    let steps: Vec<Step> = steps.into_iter().map(Step::from).collect();
    Ok(Json(Page::cut(steps, limit, |step| step.step_id.clone())))
}

fn statuses(text: &str) -> Result<Vec<StepStatus>> {
    let word = |word: &str| {
        word.parse().map_err(|error| Problem::bad_request("unknown_status", format!("{error}; name one or several")))
    };
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(word).collect()
}
