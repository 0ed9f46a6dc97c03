//! `GET /tags/{tag}`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::tagged;
use crate::error::Result;
use crate::extract::Name;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::Tag;

/// Look at a tag
///
/// The ETag is the tag's version: with `If-Match` a later call is carried out only if the tag has not moved since.
#[utoipa::path(get, path = "/tags/{tag}", tag = "tags",
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello")),
    responses((status = 200, description = "the tag", body = Tag, headers(("ETag" = String, description = "its version"))),
        NotFound, Problems))]
pub(super) async fn show(State(state): State<AppState>, Name(tag): Name) -> Result<Response> {
    let row = state.engine.definitions().tag(state.engine.org(), &tag).await?;
    Ok(tagged(StatusCode::OK, row.version, Tag::try_from(row)?))
}
