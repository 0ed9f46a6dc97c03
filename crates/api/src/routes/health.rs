//! Whether the server lives, and whether it can do its work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::id::RunId;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{Problem, Result};
use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

/// The server lives.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok`
    status: &'static str,
    version: &'static str,
    /// What makes things slower and nothing wrong: `redis_unreachable`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

const OK: Health = Health { status: "ok", version: env!("CARGO_PKG_VERSION"), warnings: Vec::new() };

/// Whether the process lives
///
/// Says nothing about the database: a server that cannot reach it is not helped by being restarted.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, description = "it does", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(OK)
}

/// Whether the server can do its work
///
/// The database answers and the server is not shutting down. Send no requests elsewhere. A Redis that does not answer is a
/// warning: all works without it.
#[utoipa::path(get, path = "/readyz", tag = "server", responses(
    (status = 200, description = "it can", body = Health),
    (status = 503, description = "it cannot now", body = Problem, content_type = "application/problem+json"),
))]
async fn readyz(State(state): State<AppState>) -> Result<Json<Health>> {
    if state.is_draining() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", "this server is shutting down"));
    }
    let nobody = RunId(uuid::Uuid::nil());
    state.engine.store().head(state.engine.org(), nobody).await?;
    let warnings = match state.engine.redis_is_up() {
        Some(false) => vec!["redis_unreachable"],
        _ => Vec::new(),
    };
    Ok(Json(Health { warnings, ..OK }))
}
