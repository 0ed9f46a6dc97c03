//! `PUT` and `DELETE /tags/{tag}/protection`.

use axum::Json;
use axum::extract::State;
use milepost_engine::definitions::Protection as Protecting;

use crate::error::Result;
use crate::extract::{Actor, Body, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Protection, Tag};

/// Protect a tag
///
/// From then on only `movers` move it or change its protection, and it only points at documents that pass today's checks.
#[utoipa::path(put, path = "/tags/{tag}/protection", tag = "tags", request_body = Protection,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello/experiment"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it; a token that has a name says it itself")),
    responses((status = 200, description = "the tag", body = Tag), NotFound, WriteProblems, Problems))]
pub(super) async fn protect(
    State(state): State<AppState>,
    Name(tag): Name,
    Actor(by): Actor,
    Body(body): Body<Protection>,
) -> Result<Json<Tag>> {
    let protection = Protecting::from(body);
    let definitions = state.engine.definitions();
    let row = definitions.protect(state.engine.org(), &tag, Some(&protection), by.as_deref()).await?;
    Ok(Json(row.try_into()?))
}

/// Take a tag's protection away
#[utoipa::path(delete, path = "/tags/{tag}/protection", tag = "tags",
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello/experiment"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it; a token that has a name says it itself")),
    responses((status = 200, description = "the tag", body = Tag), NotFound, Problems))]
pub(super) async fn unprotect(State(state): State<AppState>, Name(tag): Name, Actor(by): Actor) -> Result<Json<Tag>> {
    let row = state.engine.definitions().protect(state.engine.org(), &tag, None, by.as_deref()).await?;
    Ok(Json(row.try_into()?))
}
