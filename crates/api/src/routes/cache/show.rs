//! `GET /cache/{key}`.

use axum::Json;
use axum::extract::State;
use milepost_engine::cache::describe_key;

use super::{KeyPath, nothing_kept};
use crate::error::Result;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::cache::CacheKeyDetail;

/// Look at a key
///
/// What it is made of, and what is kept under it, with the beginning of the output.
#[utoipa::path(get, path = "/cache/{key}", tag = "cache",
    params(("key" = String, Path, description = "the key, 64 hexadecimal digits")),
    responses((status = 200, description = "the key", body = CacheKeyDetail), NotFound, Problems))]
pub(super) async fn show(State(state): State<AppState>, KeyPath(key): KeyPath) -> Result<Json<CacheKeyDetail>> {
    let found = describe_key(state.engine.store(), state.engine.org(), key).await?;
    found.map(|found| Json(found.into())).ok_or_else(|| nothing_kept(key))
}
