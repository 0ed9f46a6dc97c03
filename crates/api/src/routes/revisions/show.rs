//! `GET /revisions/{revision_id}`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::RevisionPath;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Revision;

/// Look at a revision
///
/// What it is and where it came from; `GET /workflows/{ref}` has its document.
#[utoipa::path(get, path = "/revisions/{revision_id}", tag = "revisions",
    params(("revision_id" = Uuid, Path, description = "the revision")),
    responses((status = 200, description = "the revision", body = Revision), NotFound, Problems))]
pub(super) async fn show(
    State(state): State<AppState>,
    RevisionPath(revision): RevisionPath,
) -> Result<Json<Revision>> {
    Ok(Json(state.engine.definitions().revision(state.engine.org(), revision).await?.into()))
}
