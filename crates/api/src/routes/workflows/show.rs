//! `GET /workflows/{ref}`.

use axum::Json;
use axum::extract::State;
use milepost_core::json::Json as RawJson;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    version_hash: String,
    #[schema(value_type = Any)]
    document: RawJson,
}

/// Read a workflow's document
///
/// In its canonical form, steps as a map by id. `ref` is a name or `sha256:…`; percent-encode a `/` in it.
#[utoipa::path(get, path = "/workflows/{ref}", tag = "workflows",
    params(("ref" = String, Path, description = "a name, or `sha256:…`"), WorkflowQuery),
    responses((status = 200, description = "the document", body = Workflow), NotFound, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    Name(reference): Name,
    Query(_query): Query<WorkflowQuery>,
) -> Result<Json<Workflow>> {
    let (plan, document) = state.engine.document(&reference).await?;
    Ok(Json(Workflow {
        reference,
        name: plan.name.to_string(),
        version: plan.version.to_string(),
        version_hash: format!("sha256:{}", plan.hash),
        document,
    }))
}
