//! Workflows: documents, and the names that point at them.

mod deploy;
mod list;
mod show;
mod validate;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list, deploy::deploy))
        .routes(routes!(validate::validate))
        .routes(routes!(show::show))
}
