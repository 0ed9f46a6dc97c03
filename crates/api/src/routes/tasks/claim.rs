//! `POST /tasks/claim`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use milepost_engine::workers::Exchange;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::Body;
use crate::openapi::{Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::task::{Task, default_queues, name, names, wait};

/// Who takes a task, and from where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker_id": "host-4711-9f2c6c1d"}))]
pub(super) struct ClaimBody {
    /// The worker's name, with a part that is new whenever it starts.
    #[schema(min_length = 1, max_length = 255)]
    worker_id: String,
    #[serde(default = "default_queues")]
    #[schema(default = json!(["default"]))]
    queues: Vec<String>,
    /// Only tasks of these skills; without it, all.
    skills: Option<Vec<String>>,
    /// How long to wait when there is none.
    #[serde(default)]
    #[schema(maximum = 60000)]
    wait_ms: u64,
}

/// Take a task
///
/// The step is yours until its lease ends: send heartbeats, then `complete` or `fail`.
#[utoipa::path(post, path = "/tasks/claim", tag = "workers", request_body = ClaimBody,
    responses((status = 200, description = "the task", body = Task), (status = 204, description = "there is none now"),
        WriteProblems, Problems))]
pub(super) async fn claim(State(state): State<AppState>, Body(body): Body<ClaimBody>) -> Result<Response> {
    let exchange = Exchange {
        worker: name("worker_id", &body.worker_id)?,
        secret: None,
        queues: names("queues", &body.queues)?,
        every_org: false,
        skills: body.skills.as_deref().map(|skills| names("skills", skills)).transpose()?,
        capacity: 1,
        wait: wait(body.wait_ms)?,
        results: Vec::new(),
        heartbeats: Vec::new(),
    };
    let task = state.engine.exchange(exchange, state.drained()).await?.tasks.pop();
    Ok(match task {
        Some(task) => Json(Task::from(task)).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}
