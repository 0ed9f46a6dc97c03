//! `POST /tags/{tag}/merge`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use milepost_engine::definitions::Moving;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{TagMoved, tagged};
use crate::error::Result;
use crate::extract::{Actor, Body, IdempotencyKey, IfMatch, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Merged;

/// What to merge into the tag.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "hello/experiment", "dry_run": true}))]
pub(super) struct MergeBody {
    /// Any reference.
    from: String,
    /// Why; kept in the tag's history.
    message: Option<String>,
    /// Only say what would become of it.
    #[serde(default)]
    dry_run: bool,
}

/// Merge into a tag
///
/// Three-way, by step id: what either side did since they parted. What does not fit together is answered as
/// `merge_conflict`, with all `conflicts`, and nothing is changed.
#[utoipa::path(post, path = "/tags/{tag}/merge", tag = "tags", request_body = MergeBody,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "what became of it", body = Merged), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn merge(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    Body(body): Body<MergeBody>,
) -> Result<Response> {
    let moving = Moving { by, message: body.message, expected, key, meta: None };
    let (definitions, org) = (state.engine.definitions(), state.engine.org());
    let merging = match body.dry_run {
        true => definitions.try_merge(org, &tag, &body.from, &moving).await?,
        false => definitions.merge(org, &tag, &body.from, &moving).await?,
    };
    let version = merging.tag.version;
    Ok(tagged(StatusCode::OK, version, Merged::try_from(merging)?))
}
