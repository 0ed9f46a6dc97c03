//! `POST /cache/disown`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::filter;
use crate::error::Result;
use crate::extract::Body;
use crate::openapi::{Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::cache::Disowned;
use crate::wire::task::name;

/// Whose results are not to be taken any more.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"workflow": "campaign.build", "step": "render"}))]
pub(super) struct DisownBody {
    #[schema(min_length = 1, max_length = 255)]
    workflow: String,
    /// Only of this step.
    #[schema(min_length = 1, max_length = 255)]
    step: Option<String>,
}

/// Disown results
///
/// From now on nobody takes what is kept of a workflow, or of one of its steps, nor what attempts under way are making of
/// it: the epoch is part of every key. What is kept stays in lists until it goes; evict it to have it gone at once.
#[utoipa::path(post, path = "/cache/disown", tag = "cache", request_body = DisownBody,
    responses((status = 200, description = "the new epoch", body = Disowned), WriteProblems, Problems))]
pub(super) async fn disown(
    State(state): State<AppState>,
    caller: Caller,
    Body(body): Body<DisownBody>,
) -> Result<Json<Disowned>> {
    let DisownBody { workflow, step } = body;
    name("workflow", &workflow)?;
    step.as_deref().map(|step| name("step", step)).transpose()?;
    let filter = filter(Some(&workflow), step.as_deref())?;
    let (cache, org) = (state.engine.store().cache(), state.engine.org());
    let epoch = cache.disown(org, &workflow, step.as_deref()).await?;
    caller.did("cache.disown", &format!("workflow:{workflow}"));
    let results = cache.result_stats(org, &filter).await?.iter().map(|stats| stats.results).sum();
    Ok(Json(Disowned { workflow, step_id: step, epoch, results }))
}
