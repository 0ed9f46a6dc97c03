//! `POST /outbox/{id}/retry`.

use axum::Json;
use axum::extract::State;
use milepost_engine::Retried as Tried;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::Result;
use crate::extract::{Actor, OutboxPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;

/// What trying again came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Retried {
    id: Uuid,
    /// `pending`: it is tried now. `step_retried`: its attempt had failed, so its step is tried again, as by `RETRY_STEP`.
    /// `dropped`: nobody wants it any more.
    #[schema(example = "step_retried")]
    status: &'static str,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Try a delivery now
///
/// One that waits is tried at once. A step that could not be pushed has failed by the time its delivery is a dead letter: it
/// is tried again, and the letter goes.
#[utoipa::path(post, path = "/outbox/{id}/retry", tag = "outbox",
    params(("id" = Uuid, Path, description = "the delivery")),
    responses((status = 200, description = "what it came to", body = Retried), NotFound, WriteProblems, Problems))]
pub(super) async fn retry(
    State(state): State<AppState>,
    OutboxPath(id): OutboxPath,
    Actor(by): Actor,
    caller: Caller,
) -> Result<Json<Retried>> {
    let Tried { id, status, reason } = state.engine.retry_delivery(id, by).await?;
    caller.did("outbox.retry", &format!("delivery:{id} status:{status}"));
    Ok(Json(Retried { id: id.0, status, reason }))
}
