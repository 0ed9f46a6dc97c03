//! Secrets that steps may refer to. Values go in, and never come out.

mod list;
mod remove;
mod rotate;
mod set;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list))
        .routes(routes!(set::set, remove::remove))
        .routes(routes!(rotate::rotate))
}
