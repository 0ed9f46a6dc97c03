//! `GET /tags/{tag}/history`.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{Problem, Result};
use crate::extract::{Name, Query};
use crate::openapi::{NotFound, Problems};
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::{Move, Page};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// Moves at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Look at a tag's history
///
/// Every move that it made, newest first; nothing is ever taken out.
#[utoipa::path(get, path = "/tags/{tag}/history", tag = "tags",
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it", example = "hello"), HistoryQuery),
    responses((status = 200, description = "a page of moves", body = Page<Move>), NotFound, Problems))]
pub(super) async fn history(
    State(state): State<AppState>,
    Name(tag): Name,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<Page<Move>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let before = query.cursor.map(|cursor| cursor.parse::<u64>()).transpose().map_err(|_| {
        Problem::bad_request("bad_cursor", "the cursor is none; pass the `next_cursor` of the page before")
    })?;
    let moves = state.engine.definitions().history(state.engine.org(), &tag, before, limit + 1).await?;
    let moves = moves.into_iter().map(Move::from).collect();
    Ok(Json(Page::cut(moves, limit, |moved: &Move| moved.move_id.to_string())))
}
