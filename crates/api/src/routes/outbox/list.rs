//! `GET /outbox`.

use axum::Json;
use axum::extract::State;
use milepost_core::id::OutboxId;
use milepost_engine::list_outbox;
use milepost_store::rows::OutboxFilter;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::{Delivery, Page};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OutboxQuery {
    /// Only what is still owed, or only what was given up.
    #[param(inline)]
    status: Option<OutboxPart>,
    /// Deliveries at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutboxPart {
    /// What waits or is being tried.
    Pending,
    /// Dead letters.
    Dead,
}

/// List deliveries
///
/// What is owed to others and what was given up, the oldest first.
#[utoipa::path(get, path = "/outbox", tag = "outbox", params(OutboxQuery),
    responses((status = 200, description = "a page of deliveries", body = Page<Delivery>), Problems))]
pub(super) async fn list(
    State(state): State<AppState>,
    Query(query): Query<OutboxQuery>,
) -> Result<Json<Page<Delivery>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let after = query.cursor.as_deref().map(str::parse::<OutboxId>).transpose().map_err(|_| {
        Problem::bad_request("bad_cursor", "this is not a cursor; pass the next_cursor of the page before")
    })?;
    let filter = match query.status {
        None => OutboxFilter::All,
        Some(OutboxPart::Pending) => OutboxFilter::Pending,
        Some(OutboxPart::Dead) => OutboxFilter::Dead,
    };
    let items = list_outbox(state.engine.store(), state.engine.org(), filter, after, limit + 1).await?;
    let items = items.into_iter().map(Delivery::from).collect();
    Ok(Json(Page::cut(items, limit, |delivery: &Delivery| delivery.id.to_string())))
}
