//! `POST /tags/{tag}/restore`.

use axum::extract::State;
use axum::response::Response;
use milepost_core::time::Timestamp;
use milepost_engine::definitions::{Moving, Restore};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{TagMoved, moved};
use crate::error::{Problem, Result};
use crate::extract::{Actor, Body, IdempotencyKey, IfMatch, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::MovedTag;

/// What to go back to: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "hello~2", "message": "as it was before the outage"}))]
pub(super) struct RestoreBody {
    /// Any reference: `tag~2`, the id of a revision, `sha256:…`.
    target: Option<String>,
    /// Where the tag was at this moment.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// Why; kept in the tag's history.
    message: Option<String>,
}

/// Bring a tag back to where it was
///
/// A move like any other: it can be undone. If the newest move is somebody else's, say with `If-Match` that you have seen it.
#[utoipa::path(post, path = "/tags/{tag}/restore", tag = "tags", request_body = RestoreBody,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag as it is now", body = MovedTag), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn restore(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    Body(body): Body<RestoreBody>,
) -> Result<Response> {
    let to = match (body.target, body.at) {
        (Some(target), None) => Restore::Target(target),
        (None, Some(at)) => Restore::At(at),
        _ => {
            let detail = "say what to go back to: either `target` or `at`";
            return Err(Problem::unprocessable("bad_body", detail));
        }
    };
    let moving = Moving { by, message: body.message, expected, key, meta: None };
    moved(state.engine.definitions().restore(state.engine.org(), &tag, &to, &moving).await?)
}
