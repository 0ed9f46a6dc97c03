//! `GET /workflows/{ref}`.

use axum::Json;
use axum::extract::State;
use milepost_core::json::Json as RawJson;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::Unprocessable;
use crate::error::Result;
use crate::extract::{Name, Query};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Any;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkflowQuery {
    /// The document with all patches applied; it always is.
    #[serde(rename = "materialize")]
    _materialize: Option<bool>,
}

/// A document.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Workflow {
    /// As it was asked for.
    #[serde(rename = "ref")]
    reference: String,
    name: String,
    version: String,
    revision_id: Uuid,
    version_hash: String,
    #[schema(value_type = Any)]
    document: RawJson,
}

/// Read a workflow's document
///
/// In its canonical form, steps as a map by id. `ref` is a tag, the id of a revision, `sha256:…` (or its first digits), `tag@2026-01-31T10:00:00Z`
/// (where the tag was then) or `tag~2` (two moves ago); percent-encode a `/` in it.
#[utoipa::path(get, path = "/workflows/{ref}", tag = "workflows",
    params(("ref" = String, Path, description = "what to read"), WorkflowQuery),
    responses((status = 200, description = "the document", body = Workflow), NotFound, Unprocessable, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    Name(reference): Name,
    Query(_query): Query<WorkflowQuery>,
) -> Result<Json<Workflow>> {
    let (plan, target, document) = state.engine.document(&reference).await?;
    Ok(Json(Workflow {
        reference,
        name: plan.name.to_string(),
        version: plan.version.to_string(),
        revision_id: target.revision_id,
        version_hash: format!("sha256:{}", plan.hash),
        document,
    }))
}
