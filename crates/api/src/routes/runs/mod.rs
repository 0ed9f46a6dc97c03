//! Runs.

mod artifact;
mod artifacts;
mod at;
mod body;
mod bulk;
mod events;
mod explain;
mod list;
mod logs;
mod patch;
mod patch_preview;
mod patch_undo;
mod plan;
mod show;
mod signal;
mod start;
mod step;
mod steps;
mod stream;
mod transitions;
mod verbs;

pub(super) use body::{Document, DocumentBody, Operations};
pub(in crate::routes) use list::limit;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list, start::start))
        .routes(routes!(bulk::bulk))
        .routes(routes!(plan::plan))
        .routes(routes!(show::show))
        .routes(routes!(at::at))
        .routes(routes!(steps::steps))
        .routes(routes!(step::step))
        .routes(routes!(explain::explain))
        .routes(routes!(artifacts::list, artifacts::record))
        .routes(routes!(artifact::show))
        .routes(routes!(artifact::content))
        .routes(routes!(logs::of_run))
        .routes(routes!(logs::of_step))
        .routes(routes!(events::events))
        .routes(routes!(stream::stream))
        .routes(routes!(transitions::transitions))
        .routes(routes!(signal::signal))
        .routes(routes!(patch::patch))
        .routes(routes!(patch_preview::preview_patch))
        .routes(routes!(patch_undo::undo_patch))
        .merge(verbs::routes())
}
