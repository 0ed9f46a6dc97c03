//! Content by its hash.

mod answer;
mod fetch;
mod presign;
mod range;
mod store;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use milepost_core::hash::Digest;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{Problem, Result};
use crate::extract::Name;
use crate::state::AppState;

pub(in crate::routes) use answer::{AsItIs, Described, content};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(store::store))
        .routes(routes!(fetch::fetch, fetch::look, store::store_as))
        .routes(routes!(presign::presign))
}

/// `sha256:` and 64 hexadecimal digits.
pub(super) struct BlobPath(pub(super) Digest);

impl<S: Send + Sync> FromRequestParts<S> for BlobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<BlobPath> {
        let Name(name) = Name::from_request_parts(parts, state).await?;
        let digest = name.strip_prefix("sha256:").and_then(|hex| hex.parse().ok());
        digest.map(BlobPath).ok_or_else(|| {
            let detail = format!("`{name}` names no content; write sha256: and 64 hexadecimal digits");
            Problem::new(StatusCode::NOT_FOUND, "unknown_blob", detail)
        })
    }
}
