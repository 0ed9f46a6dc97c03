//! `POST /blobs/{digest}/presign`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::ToSchema;

use super::BlobPath;
use crate::error::Result;
use crate::extract::OptionalBody;
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Presigned;

/// What for, and how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PresignBody {
    #[serde(default)]
    method: MethodWord,
    /// Seconds, a week at most.
    #[serde(default = "hour")]
    #[schema(default = 3600, minimum = 1, maximum = 604_800)]
    expires_in_s: u64,
}

fn hour() -> u64 {
    3600
}

#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
enum MethodWord {
    #[default]
    #[serde(rename = "GET")]
    Get,
}

/// Get an address of the bucket
///
/// Lets whoever has it download this content from the bucket itself, without a token of this server. Only where files are in a
/// bucket; in a folder the answer is 409 `not_presignable`.
#[utoipa::path(post, path = "/blobs/{digest}/presign", tag = "artifacts", request_body = Option<PresignBody>,
    params(("digest" = String, Path, description = "`sha256:` and 64 hexadecimal digits")),
    responses((status = 200, description = "the address", body = Presigned), NotFound, WriteProblems, Problems))]
pub(super) async fn presign(
    State(state): State<AppState>,
    BlobPath(digest): BlobPath,
    OptionalBody(body): OptionalBody<PresignBody>,
) -> Result<Json<Presigned>> {
    let (files, org) = (state.engine.files(), state.engine.org());
    let found = files.find(org, digest).await?;
    let seconds = if body.expires_in_s == 0 { hour() } else { body.expires_in_s };
    let (url, expires_at) = files.presign(&found, Duration::from_secs(seconds)).await?;
    let MethodWord::Get = body.method;
    Ok(Json(Presigned { url, method: "GET", headers: BTreeMap::new(), expires_at: expires_at.to_string() }))
}
