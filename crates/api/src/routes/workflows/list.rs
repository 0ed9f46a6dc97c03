//! `GET /workflows`.

use axum::Json;
use axum::extract::State;
use milepost_store::rows::TagRow;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::error::Result;
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::Page;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TagsQuery {
    /// Workflows at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A name and what it points at.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Tag {
    tag: String,
    version_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision_id: Option<Uuid>,
    tag_version: u64,
    #[schema(format = DateTime)]
    moved_at: String,
}

impl From<TagRow> for Tag {
    fn from(row: TagRow) -> Tag {
        Tag {
            tag: row.tag,
            version_hash: format!("sha256:{}", row.target),
            revision_id: row.revision_id,
            tag_version: row.version,
            moved_at: row.moved_at.to_string(),
        }
    }
}

/// List workflows
///
/// By name.
#[utoipa::path(get, path = "/workflows", tag = "workflows", params(TagsQuery),
    responses((status = 200, description = "a page of workflows", body = Page<Tag>), Problems))]
pub(super) async fn list(State(state): State<AppState>, Query(query): Query<TagsQuery>) -> Result<Json<Page<Tag>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let rows = state.engine.store().tags(state.engine.org(), query.cursor.as_deref(), limit + 1).await?;
    let tags = rows.into_iter().map(Tag::from).collect();
    Ok(Json(Page::cut(tags, limit, |tag: &Tag| tag.tag.clone())))
}
