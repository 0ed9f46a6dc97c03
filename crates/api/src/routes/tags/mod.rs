//! Tags: names that point at revisions, and where they have been.

mod history;
mod list;
mod merge;
mod protect;
mod restore;
mod set;
mod show;
mod undo;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_engine::definitions::Moved;
use serde::{Deserialize, Serialize};
use utoipa::{IntoResponses, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::{Problem, Result};
use crate::state::AppState;
use crate::wire::MovedTag;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list::list))
        .routes(routes!(show::show, set::set))
        .routes(routes!(history::history))
        .routes(routes!(undo::undo))
        .routes(routes!(undo::redo))
        .routes(routes!(restore::restore))
        .routes(routes!(merge::merge))
        .routes(routes!(protect::protect, protect::unprotect))
}

/// Why.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message": "the new prompt is worse"}))]
struct WhyBody {
    /// Kept in the tag's history.
    message: Option<String>,
}

/// If `If-Match` is given, and the tag moved since.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::routes) enum TagMoved {
    /// The tag moved since it was read with that ETag; nothing was changed.
    #[response(status = 412, content_type = "application/problem+json")]
    Moved(Problem),
}

/// A tag with its version as ETag.
fn tagged(status: StatusCode, version: u64, body: impl Serialize) -> Response {
    let mut response = (status, Json(body)).into_response();
    let etag = HeaderValue::try_from(format!("\"{version}\"")).expect("a number in quotes is a header's value");
    response.headers_mut().insert(header::ETAG, etag);
    response
}

fn moved(moved: Moved) -> Result<Response> {
    let version = moved.tag.version;
    Ok(tagged(StatusCode::OK, version, MovedTag::try_from(moved)?))
}
