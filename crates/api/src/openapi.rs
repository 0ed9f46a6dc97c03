//! The OpenAPI document, made from the routes.

use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, SecurityRequirement};
use utoipa::{IntoResponses, OpenApi as _};

use crate::error::Problem;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Milepost",
        description = "A durable workflow engine. Times are RFC 3339 in UTC, ids are UUIDs, lists are pages (`limit`, `cursor` → `items`, `next_cursor`), errors are problem details (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "this server")),
    tags(
        (name = "runs", description = "Start runs, look at them, talk to them"),
        (name = "artifacts", description = "Files that runs leave, and their content"),
        (name = "streams", description = "Events as they happen"),
        (name = "workers", description = "Carry steps out"),
        (name = "workflows", description = "Documents and the names that point at them"),
        (name = "tags", description = "Names that point at documents, and where they have been"),
        (name = "revisions", description = "Documents at moments of their lives"),
        (name = "secrets", description = "What steps must know and nobody else"),
        (name = "outbox", description = "What is owed to others, and what was given up"),
        (name = "cache", description = "Results of steps that are kept"),
        (name = "server", description = "The server itself"),
    ),
)]
struct Described;

/// What the routes are gathered into.
pub(crate) fn base() -> OpenApi {
    let mut api = Described::openapi();
    let components = api.components.get_or_insert_default();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.security_schemes.insert("token".to_owned(), bearer.into());
    // A server without tokens wants none.
    api.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", Vec::<String>::new())]);
    api
}

/// The document as it is served.
#[must_use]
pub fn document() -> OpenApi {
    finished(crate::routes::api().split_for_parts().1)
}

/// Gives every call a name of its own: `runs_list` beside `workflows_list`.
pub(crate) fn finished(mut api: OpenApi) -> OpenApi {
    for item in api.paths.paths.values_mut() {
        for call in
            [&mut item.get, &mut item.head, &mut item.post, &mut item.put, &mut item.delete].into_iter().flatten()
        {
            let tag = call.tags.iter().flatten().next().cloned().unwrap_or_default();
            call.operation_id = call.operation_id.take().map(|name| format!("{tag}_{name}"));
        }
    }
    api
}

/// What any call may answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum Problems {
    /// The request cannot be read.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(Problem),
    /// This server wants a token.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(Problem),
    /// A page of another site may not call this server.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// The server failed; nothing was changed.
    #[response(status = 500, content_type = "application/problem+json")]
    Failed(Problem),
    /// Try again soon: the database cannot be reached, or the server is shutting down or has too much to do.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(Problem),
}

/// What a call that names something may answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum NotFound {
    /// There is no such thing.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(Problem),
}

/// What a call that needs all of a run's log may answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum LogGap {
    /// The run's log lacks an event, and this cannot be told without it.
    #[response(status = 409, content_type = "application/problem+json")]
    LogGap(Problem),
}

/// What a call with a body may answer.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum WriteProblems {
    /// The body did not arrive in time.
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(Problem),
    /// It does not fit what is there now.
    #[response(status = 409, content_type = "application/problem+json")]
    Conflict(Problem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The body is not of a type that is read here.
    #[response(status = 415, content_type = "application/problem+json")]
    UnsupportedMediaType(Problem),
    /// The body can be read and does not fit; the detail says what to correct.
    #[response(status = 422, content_type = "application/problem+json")]
    Unprocessable(Problem),
    /// Too much at once: try again later.
    #[response(status = 429, content_type = "application/problem+json")]
    TooMany(Problem),
    /// The disk of the database is full; nothing was written.
    #[response(status = 507, content_type = "application/problem+json")]
    DiskFull(Problem),
}
