//! `POST /blobs` and `PUT /blobs/{digest}`: content comes in, piece by piece.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use milepost_core::hash::Digest;
use milepost_engine::EngineError;

use super::BlobPath;
use crate::bodies::Upload;
use crate::error::{Problem, Result};
use crate::openapi::{Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::StoredBlob;

type Answer = (StatusCode, Json<StoredBlob>);

/// Store content
///
/// The body is the content, of any type and up to `artifact_bytes`. Answers its hash when it is on disk. The same content again
/// is stored once. What no artifact names is removed after a while.
#[utoipa::path(post, path = "/blobs", tag = "artifacts",
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "the content; none is an empty file"),
    responses(
        (status = 201, description = "it is stored", body = StoredBlob),
        (status = 200, description = "it was there already", body = StoredBlob),
        WriteProblems, Problems,
    ))]
pub(super) async fn store(State(state): State<AppState>, request: Request) -> Result<Answer> {
    take(&state, None, request).await
}

/// Store content under its hash
///
/// As `POST /blobs`, and compares what comes with the hash: if they differ, nothing is stored (`hash_mismatch`). With
/// `Expect: 100-continue`, content that is there already is not sent at all.
#[utoipa::path(put, path = "/blobs/{digest}", tag = "artifacts",
    params(("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits")),
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "the content; none is an empty file"),
    responses(
        (status = 201, description = "it is stored", body = StoredBlob),
        (status = 200, description = "it was there already", body = StoredBlob),
        (status = 404, description = "that is no hash", body = Problem, content_type = "application/problem+json"),
        WriteProblems, Problems,
    ))]
pub(super) async fn store_as(
    State(state): State<AppState>,
    BlobPath(digest): BlobPath,
    request: Request,
) -> Result<Answer> {
    take(&state, Some(digest), request).await
}

async fn take(state: &AppState, digest: Option<Digest>, request: Request) -> Result<Answer> {
    let (files, org) = (state.engine.files(), state.engine.org());
    let (parts, body) = request.into_parts();
    let length = content_length(&parts.headers);
    let most = state.engine.limits().artifact_bytes;
    if length.is_some_and(|length| length > most) {
        return Err(too_large(format!("the content has more than {most} bytes; store it elsewhere, record its uri")));
    }
    if let Some(digest) = digest.filter(|_| waits(&parts.headers))
        && let Ok(found) = files.find(org, digest).await
    {
        files.touch(org, Some(digest)).await?;
        let stored = milepost_engine::artifacts::Uploaded { sha256: digest, size_bytes: found.size_bytes, new: false };
        return Ok((StatusCode::OK, Json(stored.into())));
    }
    let stored = files.upload(org, digest, Upload::new(body, &state.settings)).await.map_err(problem)?;
    let status = if stored.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(stored.into())))
}

/// Whether the client sends nothing before it is asked to.
fn waits(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn problem(error: EngineError) -> Problem {
    match error.code() {
        "blob_too_large" => too_large(error.to_string()),
        "upload_broken" => Problem::bad_request("upload_broken", error.to_string()),
        _ => error.into(),
    }
}

fn too_large(detail: String) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "blob_too_large", detail)
}
