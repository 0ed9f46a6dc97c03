//! `POST /gc`.

use axum::Json;
use axum::extract::State;
use milepost_engine::definitions::Collected;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::OptionalBody;
use crate::openapi::{Problems, WriteProblems};
use crate::state::AppState;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"dry_run": true}))]
pub(super) struct CollectBody {
    /// Only count.
    #[serde(default)]
    dry_run: bool,
}

/// What nothing led to any more.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CollectAnswer {
    dry_run: bool,
    revisions: u64,
    blobs: u64,
    bytes: u64,
    /// Chains of patches that were made short.
    compacted: u64,
}

/// Remove definitions that nothing leads to
///
/// What no tag points at or ever pointed at, no run needs, and is older than the time of grace. The server does this by
/// itself now and then.
#[utoipa::path(post, path = "/gc", tag = "revisions", request_body = Option<CollectBody>,
    responses((status = 200, description = "what was found, and removed unless it was a dry run", body = CollectAnswer),
        WriteProblems, Problems))]
pub(super) async fn collect(
    State(state): State<AppState>,
    OptionalBody(body): OptionalBody<CollectBody>,
) -> Result<Json<CollectAnswer>> {
    let Collected { found, compacted } =
        state.engine.definitions().collect(state.engine.org(), None, body.dry_run).await?;
    Ok(Json(CollectAnswer {
        dry_run: body.dry_run,
        revisions: found.revisions,
        blobs: found.blobs,
        bytes: found.bytes,
        compacted,
    }))
}
