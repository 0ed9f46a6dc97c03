//! `GET /workflows`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::Result;
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::{Page, Tag};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::routes) struct TagsQuery {
    /// Names at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List workflows
///
/// By name.
#[utoipa::path(get, path = "/workflows", tag = "workflows", params(TagsQuery),
    responses((status = 200, description = "a page of workflows", body = Page<Tag>), Problems))]
pub(super) async fn list(State(state): State<AppState>, Query(query): Query<TagsQuery>) -> Result<Json<Page<Tag>>> {
    tags(&state, &query).await
}

pub(in crate::routes) async fn tags(state: &AppState, query: &TagsQuery) -> Result<Json<Page<Tag>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let rows = state.engine.definitions().tags(state.engine.org(), query.cursor.as_deref(), limit + 1).await?;
    let tags = rows.into_iter().map(Tag::try_from).collect::<Result<Vec<Tag>, _>>()?;
    Ok(Json(Page::cut(tags, limit, |tag: &Tag| tag.tag.clone())))
}
