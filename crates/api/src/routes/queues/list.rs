//! `GET /queues`.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Queue;
use crate::error::Result;
use crate::openapi::Problems;
use crate::state::AppState;

/// All queues.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Queues {
    items: Vec<Queue>,
}

/// List queues
///
/// Those that have tasks or limits, by name.
#[utoipa::path(get, path = "/queues", tag = "workers",
    responses((status = 200, description = "the queues", body = Queues), Problems))]
pub(super) async fn list(State(state): State<AppState>) -> Result<Json<Queues>> {
    Ok(Json(Queues { items: state.engine.queues().await?.into_iter().map(Queue::from).collect() }))
}
