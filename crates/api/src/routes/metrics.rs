//! `GET /metrics`.

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::openapi::Problems;
use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Metrics for Prometheus
///
/// In its text format. Wants a token where the server has one.
#[utoipa::path(get, path = "/metrics", tag = "server", responses(
    (status = 200, description = "the metrics", body = String, content_type = "text/plain"),
    Problems,
))]
async fn metrics(State(state): State<AppState>) -> impl IntoResponse {
    let page = state.scrape.page(&state.engine).await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}
