//! `PUT /queues/{queue}`.

use axum::Json;
use axum::extract::State;
use milepost_engine::workers::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RateLimit;
use crate::error::Result;
use crate::extract::{Body, QueuePath};
use crate::openapi::{Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::task::name;

/// What a queue may do at most. What is left out is without limit.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"concurrency": 4, "rate": {"limit": 100, "per_ms": 60000}}))]
pub(super) struct LimitBody {
    /// So many tasks may be under way at once.
    #[schema(minimum = 1, maximum = 1_000_000)]
    concurrency: Option<u32>,
    rate: Option<RateLimit>,
}

/// What the queue may do from now on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Limited {
    queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateLimit>,
}

/// Limit a queue
///
/// Without any limit, all that the queue had are lifted. What is under way goes on.
#[utoipa::path(put, path = "/queues/{queue}", tag = "workers", request_body = LimitBody,
    params(("queue" = String, Path, description = "the queue")),
    responses((status = 200, description = "it is set", body = Limited), WriteProblems, Problems))]
pub(super) async fn limit(
    State(state): State<AppState>,
    QueuePath(queue): QueuePath,
    caller: Caller,
    Body(body): Body<LimitBody>,
) -> Result<Json<Limited>> {
    let rate = body.rate.map(|RateLimit { limit, per_ms }| Rate { limit, per_ms });
    state.engine.limit_queue(name("queue", &queue)?, body.concurrency, rate).await?;
    caller.did("queue.limit", &format!("queue:{queue}"));
    Ok(Json(Limited { queue, concurrency: body.concurrency, rate: body.rate }))
}
