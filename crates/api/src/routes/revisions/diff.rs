//! `GET /diff`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::Result;
use crate::extract::Query;
use crate::openapi::{NotFound, Problems};
use crate::routes::workflows::Unprocessable;
use crate::state::AppState;
use crate::wire::Difference;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// A tag, the id of a revision, `sha256:…`, `tag@2026-01-31T10:00:00Z` or `tag~2`.
    from: String,
    /// Likewise.
    to: String,
}

/// Compare two documents
///
/// As RFC 6902 operations, and step by step.
#[utoipa::path(get, path = "/diff", tag = "revisions", params(DiffQuery),
    responses((status = 200, description = "what is different", body = Difference), NotFound, Unprocessable, Problems))]
pub(super) async fn diff(State(state): State<AppState>, Query(query): Query<DiffQuery>) -> Result<Json<Difference>> {
    let definitions = state.engine.definitions();
    let (from, to, diff) = definitions.diff(state.engine.org(), &query.from, &query.to).await?;
    Ok(Json(Difference::of((query.from, &from), (query.to, &to), diff)))
}
