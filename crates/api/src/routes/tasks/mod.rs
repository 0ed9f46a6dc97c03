//! Tasks, one by one.

mod claim;
mod complete;
mod fail;
mod heartbeat;
mod show;

use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(claim::claim))
        .routes(routes!(show::show))
        .routes(routes!(heartbeat::heartbeat))
        .routes(routes!(complete::complete))
        .routes(routes!(fail::fail))
}

/// An outcome that is on disk.
#[derive(Debug, Serialize, ToSchema)]
struct Reported {
    accepted: bool,
}
