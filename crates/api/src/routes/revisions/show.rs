//! `GET /revisions/{revision_id}`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::Result;
use crate::extract::{Query, RevisionPath};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::RevisionAnswer;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RevisionQuery {
    /// Whether the answer has the document, too, with all patches applied.
    #[param(default = false)]
    materialize: Option<bool>,
}

/// Look at a revision
///
/// What it is and where it came from; with `materialize=true` also the document that it means, as `GET /workflows/{ref}`
/// answers it.
#[utoipa::path(get, path = "/revisions/{revision_id}", tag = "revisions",
    params(("revision_id" = Uuid, Path, description = "the revision"), RevisionQuery),
    responses((status = 200, description = "the revision", body = RevisionAnswer), NotFound, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    RevisionPath(revision): RevisionPath,
    Query(query): Query<RevisionQuery>,
) -> Result<Json<RevisionAnswer>> {
    let row = state.engine.definitions().revision(state.engine.org(), revision).await?;
    let document = match query.materialize {
        Some(true) => Some(state.engine.document(&revision.to_string()).await?.2),
        _ => None,
    };
    Ok(Json(RevisionAnswer { revision: row.into(), document }))
}
