//! Queues.

mod limit;
mod list;

use milepost_engine::workers::{QueueState, Rate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list::list)).routes(routes!(limit::limit))
}

/// A queue that has tasks, or limits.
#[derive(Debug, Serialize, ToSchema)]
struct Queue {
    queue: String,
    /// Tasks that wait for a worker.
    waiting: u64,
    /// Tasks that workers have.
    running: u64,
    /// Since when the oldest of those that wait does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    oldest_ready_at: Option<String>,
    /// So many tasks may be under way at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<RateLimit>,
}

/// So many tasks may begin within so much time: `limit` at once, and then as fast as that fills up again.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RateLimit {
    #[schema(minimum = 1, maximum = 1_000_000)]
    limit: u32,
    /// A minute is 60000; a day at most.
    #[schema(minimum = 1, maximum = 86_400_000)]
    per_ms: u64,
}

impl From<QueueState> for Queue {
    fn from(state: QueueState) -> Queue {
        Queue {
            queue: state.queue.to_string(),
            waiting: state.waiting,
            running: state.running,
            oldest_ready_at: state.oldest.map(|at| at.to_string()),
            concurrency: state.concurrency,
            rate: state.rate.map(|Rate { limit, per_ms }| RateLimit { limit, per_ms }),
        }
    }
}
