//! `GET /runs/{run_id}/artifacts/{artifact_id}` and its content.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use milepost_core::id::{ArtifactId, RunId};
use milepost_engine::artifacts::ArtifactView;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{Problem, Result};
use crate::extract::{Query, RunAnd};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::routes::blobs::{Described, content as answer};
use crate::state::AppState;
use crate::wire::Artifact;

/// An address that a redirect leads to is used at once.
const REDIRECT: Duration = Duration::from_secs(300);

/// Look at a file of a run
#[utoipa::path(get, path = "/runs/{run_id}/artifacts/{artifact_id}", tag = "artifacts",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("artifact_id" = Uuid, Path, description = "the artifact")),
    responses((status = 200, description = "the artifact", body = Artifact), NotFound, Problems))]
pub(super) async fn show(State(state): State<AppState>, RunAnd(run, id): RunAnd<String>) -> Result<Json<Artifact>> {
    Ok(Json(find(&state, run, &id).await?.into()))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ContentQuery {
    /// Answer with a redirect (307) to an address of the bucket, which is good for five minutes.
    #[serde(default)]
    #[param(default = false)]
    presign: bool,
}

/// Download a file of a run
///
/// Under the name that it has. Whole, or with `Range: bytes=…` in part. What is recorded by a `uri` of somebody else is not here
/// (409 `content_elsewhere`).
#[utoipa::path(get, path = "/runs/{run_id}/artifacts/{artifact_id}/content", tag = "artifacts",
    params(("run_id" = Uuid, Path, description = "the run"),
        ("artifact_id" = Uuid, Path, description = "the artifact"), ContentQuery,
        ("Range" = Option<String>, Header, description = "`bytes=0-99`, `bytes=100-` or `bytes=-5`")),
    responses(
        (status = 200, description = "the content", body = String, content_type = "*/*"),
        (status = 206, description = "the bytes asked for", body = String, content_type = "*/*"),
        (status = 304, description = "you have it already (`If-None-Match`)"),
        (status = 307, description = "it is at that address (`presign`)"),
        (status = 416, description = "there are no such bytes", body = Problem, content_type = "application/problem+json"),
        NotFound, WriteProblems, Problems,
    ))]
pub(super) async fn content(
    State(state): State<AppState>,
    RunAnd(run, id): RunAnd<String>,
    Query(query): Query<ContentQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let artifact = find(&state, run, &id).await?;
    let found = state.engine.content_of(&artifact).await?;
    if query.presign {
        let (url, _) = state.engine.files().presign(&found, REDIRECT).await?;
        return Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url)]).into_response());
    }
    let described = Described { media_type: artifact.media_type, filename: artifact.filename };
    answer(&state, &Method::GET, &headers, &found, described).await
}

async fn find(state: &AppState, run: RunId, id: &str) -> Result<ArtifactView> {
    let id: ArtifactId = id.parse().map_err(|_| {
        let detail = format!("`{id}` is not the id of an artifact; GET /api/v1/runs/{run}/artifacts lists them");
        Problem::new(StatusCode::NOT_FOUND, "unknown_artifact", detail)
    })?;
    Ok(state.engine.artifact(run, id).await?)
}
