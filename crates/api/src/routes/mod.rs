//! One file per deed: `routes/<noun>/<verb>.rs`.

mod blobs;
mod cache;
mod docs;
mod health;
mod home;
mod metrics;
mod outbox;
mod queues;
mod revisions;
mod runs;
mod secrets;
mod socket;
mod tags;
mod tasks;
mod worker;
mod workflows;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate as _, SizeAbove};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::doorway;
use crate::error::Problem;
use crate::guard::guard;
use crate::openapi;
use crate::sending;
use crate::state::AppState;

/// The calls of the API, with their description.
pub(crate) fn api() -> OpenApiRouter<AppState> {
    let calls = OpenApiRouter::new()
        .merge(queues::routes())
        .merge(blobs::routes())
        .merge(outbox::routes())
        .merge(cache::routes())
        .merge(runs::routes())
        .merge(socket::routes())
        .merge(tasks::routes())
        .merge(worker::routes())
        .merge(workflows::routes())
        .merge(tags::routes())
        .merge(revisions::routes())
        .merge(secrets::routes())
        .routes(routes!(docs::openapi));
    OpenApiRouter::with_openapi(openapi::base()).nest("/api/v1", calls).merge(health::routes()).merge(metrics::routes())
}

/// All that the server answers.
pub fn router(state: AppState) -> Router {
    let (calls, document) = api().split_for_parts();
    docs::remember(&openapi::finished(document));
    // Streams are never held back to be compressed.
    // Files go as they are: whoever asks for some bytes of one counts them.
    let compressed = SizeAbove::new(1024)
        .and(NotForContentType::const_new("text/event-stream"))
        .and(|_, _, _: &_, extensions: &axum::http::Extensions| extensions.get::<blobs::AsItIs>().is_none());
    calls
        .route("/", get(home::home))
        .route("/docs", get(docs::docs))
        .route(doorway::PATH, get(doorway::enter))
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(|| async { wrong_method() })
        // The guard has gathered the body, up to its limit.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(state.clone(), sending::hold))
        .layer(CompressionLayer::new().compress_when(compressed))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(state.clone(), guard))
        .layer(middleware::from_fn(crate::metrics::measure))
        .with_state(state)
}

pub(crate) fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown_path", "there is nothing at this path; /docs lists what there is")
}

fn wrong_method() -> Problem {
    let detail = "this path does not have that method; /docs lists what there is";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    let detail = "the server failed in an unforeseen way; its log says where, please report it";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "panic", detail).into_response()
}
