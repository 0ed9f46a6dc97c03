//! `PUT` and `DELETE /tags/{tag}/protection`.

use axum::Json;
use axum::extract::State;
use milepost_engine::definitions::Protection as Protecting;

use crate::error::Result;
use crate::extract::{Body, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::{Protection, Tag};

/// Protect a tag
///
/// From then on only `movers` move it or change its protection, and it only points at documents that pass today's checks.
#[utoipa::path(put, path = "/tags/{tag}/protection", tag = "tags", request_body = Protection,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello/experiment"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag", body = Tag), NotFound, WriteProblems, Problems))]
pub(super) async fn protect(
    State(state): State<AppState>,
    Name(tag): Name,
    caller: Caller,
    Body(body): Body<Protection>,
) -> Result<Json<Tag>> {
    let protection = Protecting::from(body);
    let definitions = state.engine.definitions();
    let row = definitions.protect(state.engine.org(), &tag, Some(&protection), caller.actor.as_deref()).await?;
    caller.did("tag.protect", &format!("tag:{tag}"));
    Ok(Json(row.try_into()?))
}

/// Take a tag's protection away
#[utoipa::path(delete, path = "/tags/{tag}/protection", tag = "tags",
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello/experiment"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    responses((status = 200, description = "the tag", body = Tag), NotFound, Problems))]
pub(super) async fn unprotect(State(state): State<AppState>, Name(tag): Name, caller: Caller) -> Result<Json<Tag>> {
    let by = caller.actor.as_deref();
    let row = state.engine.definitions().protect(state.engine.org(), &tag, None, by).await?;
    caller.did("tag.unprotect", &format!("tag:{tag}"));
    Ok(Json(row.try_into()?))
}
