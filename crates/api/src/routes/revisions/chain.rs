//! `GET /revisions/{revision_id}/chain`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::RevisionPath;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Revision;

/// What a document is made of.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Chain {
    /// The document that it begins with.
    base: Option<Revision>,
    /// The patches in the order they are applied.
    members: Vec<Revision>,
}

/// Look at what a revision is made of
#[utoipa::path(get, path = "/revisions/{revision_id}/chain", tag = "revisions",
    params(("revision_id" = Uuid, Path, description = "the revision")),
    responses((status = 200, description = "its base and its patches", body = Chain), NotFound, Problems))]
pub(super) async fn chain(State(state): State<AppState>, RevisionPath(revision): RevisionPath) -> Result<Json<Chain>> {
    let rows = state.engine.definitions().chain(state.engine.org(), revision).await?;
    let mut rows = rows.into_iter().map(Revision::from);
    Ok(Json(Chain { base: rows.next(), members: rows.collect() }))
}
