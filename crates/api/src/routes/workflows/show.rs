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
use crate::wire::{Workflow, WorkflowOrRevision, WorkflowRevision};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WorkflowQuery {
    /// The document with all patches applied. `false` answers the revision instead, with what is stored of it: the document
    /// of a version, the operations of a patch. Nothing is applied to anything.
    #[param(default = true)]
    materialize: Option<bool>,
}

/// Read a workflow's document
///
/// In its canonical form, steps as a map by id. `ref` is a tag, the id of a revision, `sha256:…` (or its first digits), `tag@2026-01-31T10:00:00Z`
/// (where the tag was then) or `tag~2` (two moves ago); percent-encode a `/` in it.
#[utoipa::path(get, path = "/workflows/{ref}", tag = "workflows",
    params(("ref" = String, Path, description = "what to read", example = "hello~1"), WorkflowQuery),
    responses((status = 200, description = "the document, or the revision", body = WorkflowOrRevision), NotFound, Unprocessable, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    Name(reference): Name,
    Query(query): Query<WorkflowQuery>,
) -> Result<Json<WorkflowOrRevision>> {
    answer(&state, reference, &query).await
}

/// Read the document of a workflow named `validate`
///
/// As `GET /workflows/{ref}` does: the path is a workflow's name, too.
#[utoipa::path(get, path = "/workflows/validate", tag = "workflows", params(WorkflowQuery),
    responses((status = 200, description = "the document, or the revision", body = WorkflowOrRevision), NotFound, Unprocessable, Problems))]
pub(super) async fn show_validate(
    State(state): State<AppState>,
    Query(query): Query<WorkflowQuery>,
) -> Result<Json<WorkflowOrRevision>> {
    answer(&state, "validate".to_owned(), &query).await
}

async fn answer(state: &AppState, reference: String, query: &WorkflowQuery) -> Result<Json<WorkflowOrRevision>> {
    if query.materialize == Some(false) {
        let (revision, stored) = state.engine.definitions().stored(state.engine.org(), &reference).await?;
        return Ok(Json(WorkflowOrRevision::Revision(WorkflowRevision::of(reference, revision, stored))));
    }
    let (plan, target, document) = state.engine.document(&reference).await?;
    Ok(Json(WorkflowOrRevision::Workflow(Workflow::of(reference, &plan, &target, document))))
}
