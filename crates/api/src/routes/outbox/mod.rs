//! What is owed to others, and what was given up.

mod list;
mod retry;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list::list)).routes(routes!(retry::retry))
}
