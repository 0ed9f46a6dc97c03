//! `GET /cache/stats`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::filter;
use crate::error::Result;
use crate::extract::Query;
use crate::openapi::Problems;
use crate::state::AppState;
use crate::wire::cache::CacheStats;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StatsQuery {
    /// Only of this workflow.
    workflow: Option<String>,
    /// Only of this step of the workflow.
    step: Option<String>,
}

/// What results spared
///
/// In all, and step by step: results that are kept, their bytes, how often they were taken, how often a step had to run, and
/// how long what was taken took to make.
#[utoipa::path(get, path = "/cache/stats", tag = "cache", params(StatsQuery),
    responses((status = 200, description = "what they come to", body = CacheStats), Problems))]
pub(super) async fn stats(State(state): State<AppState>, Query(query): Query<StatsQuery>) -> Result<Json<CacheStats>> {
    let filter = filter(query.workflow.as_deref(), query.step.as_deref())?;
    let stats = state.engine.store().cache().result_stats(state.engine.org(), &filter).await?;
    Ok(Json(stats.into()))
}
