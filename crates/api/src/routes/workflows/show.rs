//! `GET /workflows/{ref}`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Unprocessable;
use crate::error::Result;
use crate::extract::{Name, Query};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Workflow;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkflowQuery {
    /// The document with all patches applied; it always is.
    #[serde(rename = "materialize")]
    _materialize: Option<bool>,
}

/// Read a workflow's document
///
/// In its canonical form, steps as a map by id. `ref` is a tag, the id of a revision, `sha256:…` (or its first digits), `tag@2026-01-31T10:00:00Z`
/// (where the tag was then) or `tag~2` (two moves ago); percent-encode a `/` in it.
#[utoipa::path(get, path = "/workflows/{ref}", tag = "workflows",
    params(("ref" = String, Path, description = "what to read", example = "hello~1"), WorkflowQuery),
    responses((status = 200, description = "the document", body = Workflow), NotFound, Unprocessable, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    Name(reference): Name,
    Query(_query): Query<WorkflowQuery>,
) -> Result<Json<Workflow>> {
    let (plan, target, document) = state.engine.document(&reference).await?;
    Ok(Json(Workflow::of(reference, &plan, &target, document)))
}
