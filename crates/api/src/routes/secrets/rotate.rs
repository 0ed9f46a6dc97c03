//! `POST /rotate-secrets`. Not below `/secrets`, where every name may be that of a secret.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{Problem, Result};
use crate::openapi::Problems;
use crate::security::Caller;
use crate::state::AppState;

/// What was done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Rotated {
    /// Versions that are sealed with the server's first key now and were not before.
    resealed: u64,
    /// Versions that none of the server's keys opens.
    unreadable: u64,
}

/// Seal all secrets with the server's first key
///
/// After a new key was put before the old ones. When nothing is `unreadable`, the old keys are not needed any more. Doing it
/// again does no harm.
#[utoipa::path(post, path = "/rotate-secrets", tag = "secrets", responses(
    (status = 200, description = "all that can be opened is sealed with the first key", body = Rotated),
    (status = 409, description = "the server has no key", body = Problem, content_type = "application/problem+json"),
    Problems,
))]
pub(super) async fn rotate(State(state): State<AppState>, caller: Caller) -> Result<Json<Rotated>> {
    let rotated = state.engine.secrets().rotate().await?;
    caller.did("secrets.rotate", &format!("resealed:{} unreadable:{}", rotated.resealed, rotated.unreadable));
    Ok(Json(Rotated { resealed: rotated.resealed, unreadable: rotated.unreadable }))
}
