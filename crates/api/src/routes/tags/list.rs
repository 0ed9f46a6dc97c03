//! `GET /tags`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::workflows::{TagsQuery, tags};
use crate::state::AppState;
use crate::wire::{Page, Tag};

/// List tags
///
/// By name.
#[utoipa::path(get, path = "/tags", tag = "tags", params(TagsQuery),
    responses((status = 200, description = "a page of tags", body = Page<Tag>), Problems))]
pub(super) async fn list(State(state): State<AppState>, Query(query): Query<TagsQuery>) -> Result<Json<Page<Tag>>> {
    tags(&state, &query).await
}
