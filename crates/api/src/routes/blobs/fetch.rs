//! `GET` and `HEAD /blobs/{digest}`.

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;

use super::{BlobPath, Described, content};
use crate::error::{Problem, Result};
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;

/// Download content
///
/// Whole, or with `Range: bytes=…` in part.
#[utoipa::path(get, path = "/blobs/{digest}", tag = "artifacts",
    params(("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits"),
        ("Range" = Option<String>, Header, description = "`bytes=0-99`, `bytes=100-` or `bytes=-5`")),
    responses(
        (status = 200, description = "the content", body = String, content_type = "application/octet-stream"),
        (status = 206, description = "the bytes asked for", body = String, content_type = "application/octet-stream"),
        (status = 304, description = "you have it already (`If-None-Match`)"),
        (status = 416, description = "there are no such bytes", body = Problem, content_type = "application/problem+json"),
        NotFound, Problems,
    ))]
pub(super) async fn fetch(
    State(state): State<AppState>,
    BlobPath(digest): BlobPath,
    headers: HeaderMap,
) -> Result<Response> {
    answer(&state, Method::GET, digest, &headers).await
}

/// See whether content is there
///
/// `Content-Length` says how large it is.
#[utoipa::path(head, path = "/blobs/{digest}", tag = "artifacts",
    params(("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits")),
    responses(
        (status = 200, description = "it is there"),
        (status = 206, description = "the bytes asked for are there"),
        (status = 304, description = "you have it already (`If-None-Match`)"),
        (status = 416, description = "there are no such bytes"),
        NotFound, Problems,
    ))]
pub(super) async fn look(
    State(state): State<AppState>,
    BlobPath(digest): BlobPath,
    headers: HeaderMap,
) -> Result<Response> {
    answer(&state, Method::HEAD, digest, &headers).await
}

async fn answer(
    state: &AppState,
    method: Method,
    digest: milepost_core::hash::Digest,
    headers: &HeaderMap,
) -> Result<Response> {
    let (files, org) = (state.engine.files(), state.engine.org());
    let found = files.find(org, digest).await?;
    let media_type = files.media_type(org, digest).await?;
    content(state, &method, headers, &found, Described { media_type, filename: None }).await
}
