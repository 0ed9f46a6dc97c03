//! Workflows: documents, and the names that point at them.

mod deploy;
mod list;
mod patch;
mod show;
mod validate;

use utoipa::IntoResponses;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::Problem;
use crate::state::AppState;

pub(super) use list::{TagsQuery, tags};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list, deploy::deploy))
        .routes(routes!(validate::validate, show::show_validate))
        .routes(routes!(show::show))
        .routes(routes!(patch::patch))
}

/// What a call that is given a reference may answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) enum Unprocessable {
    /// It may mean more than one thing; the detail says what to write instead.
    #[response(status = 422, content_type = "application/problem+json")]
    Ambiguous(Problem),
}
