//! `POST /workflows/{tag}/patches`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::json::Json as RawJson;
use milepost_engine::definitions::Moving;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::{Actor, Body, IdempotencyKey, IfMatch, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::routes::runs::Operations;
use crate::routes::tags::TagMoved;
use crate::state::AppState;
use crate::wire::{Any, Deployed};

/// Operations on the document that a tag points at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ops": [{"op": "replace", "path": "/steps/greet/input/text", "value": "good morning"}], "message": "friendlier"}))]
pub(super) struct DocumentPatchBody {
    /// RFC 6902, on the canonical form: steps are a map by id. A `test` that fails refuses the whole patch.
    #[schema(value_type = Vec<Any>)]
    ops: Operations,
    /// Why; kept in the tag's history.
    message: Option<String>,
    /// Kept with the revision that this makes: an object of your own, up to 16 KiB.
    #[schema(value_type = Option<std::collections::BTreeMap<String, Any>>)]
    meta: Option<RawJson>,
}

/// Patch a workflow
///
/// Makes a revision on top of the one that the tag points at, and moves the tag. The result is checked before anything is
/// stored. A patch that changes nothing moves nothing: 200.
#[utoipa::path(post, path = "/workflows/{ref}/patches", tag = "workflows", request_body = DocumentPatchBody,
    params(("ref" = String, Path, description = "the tag; percent-encode a `/` in it", example = "hello"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 201, description = "it is stored", body = Deployed),
        (status = 200, description = "it changes nothing", body = Deployed), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn patch(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    Body(body): Body<DocumentPatchBody>,
) -> Result<(StatusCode, Json<Deployed>)> {
    let ops = body.ops.read(state.engine.limits())?;
    let moving = Moving { by, message: body.message, expected, key, meta: body.meta };
    let moved = state.engine.definitions().patch(state.engine.org(), &tag, &ops, &moving).await?;
    let status = if moved.existing { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(moved.tag.into())))
}
