//! Whether the server lives, and whether it can do its work.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{Problem, Result};
use crate::guard::is_let_in;
use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// The server lives.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok`
    status: &'static str,
    /// Not told to those who have no token, where the server wants one.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    /// What makes things slower and nothing wrong: `redis_unreachable`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

impl Health {
    fn ok(state: &AppState, headers: &HeaderMap) -> Health {
        let version = is_let_in(state, headers).then_some(env!("CARGO_PKG_VERSION"));
        Health { status: "ok", version, warnings: Vec::new() }
    }
}

fn unavailable(code: &str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
}

/// A part of the engine has died or hangs for good: the process is about to end.
fn check_failure(state: &AppState) -> Result<()> {
    match state.engine.failure() {
        None => Ok(()),
        Some(failure) => {
            Err(unavailable("engine_failed", format!("this server is about to end: its {} has failed", failure.part)))
        }
    }
}

/// Whether the process lives
///
/// Says nothing about the database: a server that cannot reach it is not helped by being restarted. 503 is said only by a
/// server that is about to end because a part of it has failed.
#[utoipa::path(get, path = "/healthz", tag = "server", responses(
    (status = 200, description = "it does", body = Health),
    (status = 503, description = "it is about to end", body = Problem, content_type = "application/problem+json"),
))]
async fn healthz(State(state): State<AppState>, headers: HeaderMap) -> Result<Json<Health>> {
    check_failure(&state)?;
    Ok(Json(Health::ok(&state, &headers)))
}

/// Whether the server can do its work
///
/// The parts of the engine answer, the database answers (it is asked once a second at most) and the server is not shutting
/// down. Send no requests elsewhere. A Redis that does not answer is a warning: all works without it.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "it can", body = Health),
    (status = 503, description = "it cannot now", body = Problem, content_type = "application/problem+json"),
))]
async fn readyz(State(state): State<AppState>, headers: HeaderMap) -> Result<Json<Health>> {
    if state.is_draining() {
        return Err(unavailable("shutting_down", "this server is shutting down"));
    }
    check_failure(&state)?;
    let silent = state.engine.silent_parts();
    if !silent.is_empty() {
        let detail =
            format!("parts of this server do not answer: {}; if that lasts, it ends by itself", silent.join(", "));
        return Err(unavailable("engine_silent", detail));
    }
    state.database.check(&state.engine).await?;
    let warnings = match state.engine.redis_is_up() {
        Some(false) => vec!["redis_unreachable"],
        _ => Vec::new(),
    };
    Ok(Json(Health { warnings, ..Health::ok(&state, &headers) }))
}
