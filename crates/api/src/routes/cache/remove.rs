//! `DELETE /cache/{key}`.

use axum::Json;
use axum::extract::State;
use milepost_engine::cache::evict_results;
use milepost_store::rows::ResultFilter;

use super::{KeyPath, nothing_kept};
use crate::error::Result;
use crate::openapi::{NotFound, Problems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::cache::Evicted;

/// Evict what is kept under a key
///
/// Whoever asks for it from now on runs the step.
#[utoipa::path(delete, path = "/cache/{key}", tag = "cache",
    params(("key" = String, Path, description = "the key, 64 hexadecimal digits")),
    responses((status = 200, description = "it is gone", body = Evicted), NotFound, Problems))]
pub(super) async fn remove(
    State(state): State<AppState>,
    caller: Caller,
    KeyPath(key): KeyPath,
) -> Result<Json<Evicted>> {
    match evict_results(state.engine.store(), state.engine.org(), &ResultFilter::Key(key)).await? {
        0 => Err(nothing_kept(key)),
        evicted => {
            caller.did("cache.remove", &format!("key:{key}"));
            Ok(Json(Evicted { evicted }))
        }
    }
}
