//! `DELETE /cache`.

use axum::Json;
use axum::extract::State;
use milepost_engine::cache::evict_results;
use milepost_store::rows::ResultFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use super::filter;
use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::openapi::Problems;
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::cache::Evicted;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EvictQuery {
    /// Of this workflow.
    workflow: Option<String>,
    /// Of this step of the workflow.
    step: Option<String>,
    /// All there are, of all workflows. Without a workflow it has to be said.
    all: Option<bool>,
}

/// Evict results
///
/// Whoever asks for one of them from now on runs the step. What is being made now is kept as ever: to have that ignored as
/// well, disown it.
#[utoipa::path(delete, path = "/cache", tag = "cache", params(EvictQuery),
    responses((status = 200, description = "they are gone", body = Evicted), Problems))]
pub(super) async fn evict(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<EvictQuery>,
) -> Result<Json<Evicted>> {
    let filter = filter(query.workflow.as_deref(), query.step.as_deref())?;
    match (&filter, query.all.unwrap_or_default()) {
        (ResultFilter::All, false) => {
            let detail = "this would evict all results; name a workflow, or say all=true";
            return Err(Problem::bad_request("needs_filter", detail));
        }
        (ResultFilter::All, true) | (_, false) => {}
        (_, true) => return Err(Problem::bad_request("bad_query", "`all` means all workflows; leave out the rest")),
    }
    let evicted = evict_results(state.engine.store(), state.engine.org(), &filter).await?;
    let whose = query.workflow.as_deref().unwrap_or("*");
    caller.did("cache.evict", &format!("workflow:{whose} results:{evicted}"));
    Ok(Json(Evicted { evicted }))
}
