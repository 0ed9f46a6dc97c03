//! `GET /cache`.

use axum::Json;
use axum::extract::State;
use milepost_engine::cache::{cursor_of, key_range, read_cursor};
use milepost_store::rows::{ResultFilter, ResultRow};
use serde::Deserialize;
use utoipa::IntoParams;

use super::filter;
use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::Page;
use crate::wire::cache::CacheResult;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CacheQuery {
    /// Only of this workflow.
    workflow: Option<String>,
    /// Only of this step of the workflow.
    step: Option<String>,
    /// Only those whose key begins so: 6 hexadecimal digits or more. Not beside `workflow`.
    key: Option<String>,
    /// Results at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List results that are kept
///
/// By workflow, step and key. A result that was disowned is among them until it goes.
#[utoipa::path(get, path = "/cache", tag = "cache", params(CacheQuery),
    responses((status = 200, description = "a page of results", body = Page<CacheResult>), Problems))]
pub(super) async fn list(
    State(state): State<AppState>,
    Query(query): Query<CacheQuery>,
) -> Result<Json<Page<CacheResult>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let filter = match query.key.as_deref() {
        None => filter(query.workflow.as_deref(), query.step.as_deref())?,
        Some(digits) => of_key(digits, query.workflow.is_some() || query.step.is_some())?,
    };
    let after = query.cursor.as_deref().map(|text| read_cursor(text).ok_or_else(bad_cursor)).transpose()?;
    let rows = state.engine.store().cache();
    let rows = rows.results(state.engine.org(), &filter, after.as_ref(), limit + 1).await?;
    let Page { items, next_cursor } = Page::cut(rows, limit, |row: &ResultRow| cursor_of(row));
    Ok(Json(Page { items: items.into_iter().map(CacheResult::from).collect(), next_cursor }))
}

fn of_key(digits: &str, and_more: bool) -> Result<ResultFilter> {
    if and_more {
        return Err(Problem::bad_request("bad_query", "a key says all; leave out `workflow` and `step`"));
    }
    key_range(digits).ok_or_else(|| {
        Problem::bad_request("bad_key", "a key begins with 6 to 64 hexadecimal digits, in lower case; give more of it")
    })
}

fn bad_cursor() -> Problem {
    Problem::bad_request("bad_cursor", "this is not a cursor; pass the next_cursor of the page before")
}
