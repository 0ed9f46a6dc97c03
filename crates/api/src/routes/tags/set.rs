//! `PUT /tags/{tag}`.

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
use crate::wire::MovedTag;

/// What a tag is to point at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "hello~1", "message": "back to last week's"}))]
pub(super) struct SetBody {
    /// A tag, the id of a revision, `sha256:…`, `tag@2026-01-31T10:00:00Z` or `tag~2`.
    target: String,
    /// Why; kept in the tag's history.
    message: Option<String>,
}

/// Point a tag at a revision
///
/// Makes the tag if there is none. A tag that points there already does not move.
#[utoipa::path(put, path = "/tags/{tag}", tag = "tags", request_body = SetBody,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag moved, or pointed there", body = MovedTag),
        (status = 201, description = "the tag is new", body = MovedTag), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn set(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    Body(body): Body<SetBody>,
) -> Result<Response> {
    let moving = Moving { by, message: body.message, expected, key, meta: None };
    let moved = state.engine.definitions().set(state.engine.org(), &tag, &body.target, &moving).await?;
    let status = if moved.moved.move_id == 1 && !moved.unchanged { StatusCode::CREATED } else { StatusCode::OK };
    Ok(tagged(status, moved.tag.version, MovedTag::try_from(moved)?))
}
