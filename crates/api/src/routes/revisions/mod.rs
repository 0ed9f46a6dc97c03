//! Revisions: documents at moments of their lives.

mod chain;
mod collect;
mod diff;
mod show;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(show::show))
        .routes(routes!(chain::chain))
        .routes(routes!(diff::diff))
        .routes(routes!(collect::collect))
}
