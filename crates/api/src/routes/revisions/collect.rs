//! `POST /gc`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::OptionalBody;
use crate::openapi::{Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::Collected;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"dry_run": true}))]
pub(super) struct CollectBody {
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// Remove definitions that nothing leads to
///
/// What no tag points at or ever pointed at, no run needs, and is older than the time of grace. The server does this by
/// itself now and then.
#[utoipa::path(post, path = "/gc", tag = "revisions", request_body = Option<CollectBody>,
    responses((status = 200, description = "what was found, and removed unless it was a dry run", body = Collected),
        WriteProblems, Problems))]
pub(super) async fn collect(
    State(state): State<AppState>,
    caller: Caller,
    OptionalBody(body): OptionalBody<CollectBody>,
) -> Result<Json<Collected>> {
    let collected = state.engine.definitions().collect(state.engine.org(), None, body.dry_run).await?;
    if !body.dry_run {
        caller.did("definitions.gc", "org");
    }
    Ok(Json(Collected::of(collected, body.dry_run)))
}
