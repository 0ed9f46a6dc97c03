//! `GET` and `POST /runs/{run_id}/artifacts`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::json::Json as RawJson;
use milepost_core::time::Timestamp;
use milepost_engine::artifacts::NewRecord;
use milepost_store::rows::ArtifactFilter;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::list::limit;
use crate::error::{Problem, Result};
use crate::extract::{Body, IdempotencyKey, Query, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Any, Artifact, Page};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ArtifactsQuery {
    /// Only of this step, such as `shots` or `shots[3]`.
    step: Option<String>,
    /// Only of this kind.
    kind: Option<String>,
    /// Artifacts at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List the files that a run left
///
/// In the order in which they were recorded.
#[utoipa::path(get, path = "/runs/{run_id}/artifacts", tag = "artifacts",
    params(("run_id" = Uuid, Path, description = "the run"), ArtifactsQuery),
    responses((status = 200, description = "a page of artifacts", body = Page<Artifact>), NotFound, Problems))]
pub(super) async fn list(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<ArtifactsQuery>,
) -> Result<Json<Page<Artifact>>> {
    let limit = limit(query.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let filter = ArtifactFilter { step_id: query.step, kind: query.kind };
    let page = state.engine.artifacts(run, &filter, query.cursor.as_deref(), limit).await?;
    let items = page.items.into_iter().map(Artifact::from).collect();
    Ok(Json(Page { items, next_cursor: page.next_cursor }))
}

/// A file to be recorded: content that was uploaded, by its `sha256`, or a `uri` somewhere else.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "evaluation", "uri": "s3://bucket/report.html", "media_type": "text/html"}))]
pub(super) struct RecordBody {
    /// The step that it belongs to; without it, the run as a whole.
    step_id: Option<String>,
    #[schema(default = "custom", min_length = 1, max_length = 255)]
    kind: Option<String>,
    /// Where the content is, if it is not here.
    #[schema(max_length = 2048)]
    uri: Option<String>,
    /// 64 hexadecimal digits.
    sha256: Option<String>,
    /// Compared with what was uploaded.
    #[schema(minimum = 0)]
    size_bytes: Option<u64>,
    #[schema(min_length = 1, max_length = 255)]
    media_type: Option<String>,
    #[schema(min_length = 1, max_length = 255)]
    filename: Option<String>,
    training_step: Option<i64>,
    #[schema(value_type = Option<Any>)]
    metadata: Option<RawJson>,
    /// When it is removed; otherwise the server's settings say how long its kind is kept.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

impl RecordBody {
    fn read(self, key: Option<String>) -> Result<NewRecord> {
        let sha256 = self.sha256.map(|hash| hash.parse()).transpose();
        let sha256 = sha256.map_err(|error| Problem::unprocessable("bad_artifact", format!("`sha256`: {error}")))?;
        let expires_at = self.expires_at.map(|at| at.parse::<Timestamp>()).transpose();
        let expires_at =
            expires_at.map_err(|error| Problem::unprocessable("bad_time", format!("`expires_at`: {error}")))?;
        let artifact = milepost_core::artifact::NewArtifact {
            kind: self.kind,
            uri: self.uri,
            sha256,
            size_bytes: self.size_bytes,
            media_type: self.media_type,
            filename: self.filename,
            training_step: self.training_step,
            metadata: self.metadata,
            expires_at,
        };
        Ok(NewRecord { artifact, step_id: self.step_id, key })
    }
}

/// Record a file of a run
///
/// While it runs or after its end. Content that was uploaded must be there (else 409 `artifact_missing`). A run has one artifact
/// of a kind for each `training_step`: the same again is answered as the first time, another is refused (409
/// `artifact_exists`).
#[utoipa::path(post, path = "/runs/{run_id}/artifacts", tag = "artifacts", request_body = RecordBody,
    params(("run_id" = Uuid, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request")),
    responses(
        (status = 201, description = "it is recorded", body = Artifact),
        (status = 200, description = "it was recorded already", body = Artifact),
        NotFound, WriteProblems, Problems,
    ))]
pub(super) async fn record(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    IdempotencyKey(key): IdempotencyKey,
    Body(body): Body<RecordBody>,
) -> Result<(StatusCode, Json<Artifact>)> {
    let recorded = state.engine.record_artifact(run, body.read(key)?).await?;
    let status = if recorded.existing { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(recorded.artifact.into())))
}
