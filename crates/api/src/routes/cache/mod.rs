//! Results of steps that are kept.

mod disown;
mod evict;
mod list;
mod remove;
mod show;
mod stats;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use milepost_core::hash::Digest;
use milepost_store::rows::ResultFilter;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{Problem, Result};
use crate::extract::Name;
use crate::state::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list, evict::evict))
        .routes(routes!(stats::stats))
        .routes(routes!(disown::disown))
        .routes(routes!(show::show, remove::remove))
}

/// The key that a path names.
struct KeyPath(Digest);

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<KeyPath> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        text.parse().map(KeyPath).map_err(|_| {
            let detail = format!("`{text}` is not a key of 64 hexadecimal digits; GET /api/v1/cache lists them");
            Problem::new(StatusCode::NOT_FOUND, "unknown_key", detail)
        })
    }
}

fn nothing_kept(key: Digest) -> Problem {
    let detail = format!("nothing is kept under {key}; GET /api/v1/cache lists what is");
    Problem::new(StatusCode::NOT_FOUND, "unknown_key", detail)
}

/// Which results a query means. A step is a step of a workflow.
fn filter(workflow: Option<&str>, step: Option<&str>) -> Result<ResultFilter> {
    let given = |text: &str| match text.is_empty() {
        true => Err(Problem::bad_request("bad_query", "a name is empty; leave the parameter out, or name something")),
        false => Ok(text.to_owned()),
    };
    match (workflow, step) {
        (None, None) => Ok(ResultFilter::All),
        (Some(workflow), None) => Ok(ResultFilter::Workflow(given(workflow)?)),
        (Some(workflow), Some(step)) => Ok(ResultFilter::Step { workflow: given(workflow)?, step_id: given(step)? }),
        (None, Some(_)) => {
            Err(Problem::bad_request("bad_query", "`step` is a step of a workflow; name that as well, with `workflow`"))
        }
    }
}
