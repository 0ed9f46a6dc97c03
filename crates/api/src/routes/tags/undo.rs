//! `POST /tags/{tag}/undo` and `/redo`.

use axum::extract::State;
use axum::response::Response;
use milepost_engine::definitions::Moving;

use super::{TagMoved, WhyBody, moved};
use crate::error::Result;
use crate::extract::{Actor, IdempotencyKey, IfMatch, Name, OptionalBody};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::MovedTag;

/// Take a tag's newest move back
///
/// Twice takes two moves back, as in an editor. If the newest move is somebody else's, say with `If-Match` that you have
/// seen it.
#[utoipa::path(post, path = "/tags/{tag}/undo", tag = "tags", request_body = Option<WhyBody>,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag as it is now", body = MovedTag), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn undo(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    OptionalBody(body): OptionalBody<WhyBody>,
) -> Result<Response> {
    let moving = Moving { by, message: body.message, expected, key, meta: None };
    moved(state.engine.definitions().undo(state.engine.org(), &tag, &moving).await?)
}

/// Take an undo back
///
/// Any other move ends what can be redone.
#[utoipa::path(post, path = "/tags/{tag}/redo", tag = "tags", request_body = Option<WhyBody>,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag as it is now", body = MovedTag), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn redo(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    OptionalBody(body): OptionalBody<WhyBody>,
) -> Result<Response> {
    let moving = Moving { by, message: body.message, expected, key, meta: None };
    moved(state.engine.definitions().redo(state.engine.org(), &tag, &moving).await?)
}
