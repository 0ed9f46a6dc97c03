//! Requests are read here, and whatever is wrong with one is answered as a problem.

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use milepost_core::id::{OutboxId, RunId, TaskId};
use milepost_core::text::name_fault;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::state::{Actors, AppState};

/// A JSON body. Anything else is refused: a page of another site cannot send JSON without being asked for it first.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>> {
        match read(request, state).await? {
            (Media::Json, bytes) => parse(&bytes).map(Body),
            (Media::Yaml | Media::Other, _) => Err(unsupported("application/json")),
        }
    }
}

/// A JSON body that may be left out.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<OptionalBody<T>> {
        match read(request, state).await? {
            (_, bytes) if bytes.is_empty() => Ok(OptionalBody(T::default())),
            (Media::Json, bytes) => parse::<Option<T>>(&bytes).map(|body| OptionalBody(body.unwrap_or_default())),
            (Media::Yaml | Media::Other, _) => Err(unsupported("application/json")),
        }
    }
}

/// A body that is JSON, or a document as YAML.
pub(crate) enum JsonOrYaml<T> {
    Json(T),
    Yaml(String),
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonOrYaml<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<JsonOrYaml<T>> {
        match read(request, state).await? {
            (Media::Json, bytes) => parse(&bytes).map(JsonOrYaml::Json),
            (Media::Yaml, bytes) => match String::from_utf8(bytes.into()) {
                Ok(text) => Ok(JsonOrYaml::Yaml(text)),
                Err(_) => Err(Problem::bad_request("not_utf8", "the body is not UTF-8 text; save it as UTF-8")),
            },
            (Media::Other, _) => Err(unsupported("application/json or application/yaml")),
        }
    }
}

enum Media {
    Json,
    Yaml,
    Other,
}

fn media(headers: &HeaderMap) -> Media {
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match named.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Media::Json,
        "application/yaml" | "application/x-yaml" | "text/yaml" => Media::Yaml,
        _ => Media::Other,
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<(Media, Bytes)> {
    let media = media(request.headers());
    let bytes = Bytes::from_request(request, state).await.map_err(|rejection| {
        let detail = format!("the body could not be read: {rejection}; send it again");
        Problem::bad_request("unreadable_body", detail)
    })?;
    Ok((media, bytes))
}

fn unsupported(wanted: &str) -> Problem {
    let detail = format!("the body is not of a type that is read here; send it with content-type {wanted}");
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
}

/// Every body is an object. A list could be taken for the fields of one in their order.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        let detail = "the body does not fit: it is a list, and an object is expected; see /docs";
        return Err(Problem::unprocessable("bad_body", detail));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => Problem::unprocessable(
            "bad_body",
            format!("the body does not fit: {error}; see /docs for what is expected"),
        ),
        _ => Problem::bad_request("not_json", format!("the body is not JSON: {error}; check its syntax")),
    })
}

/// Characters of a query's parameter, and of a part of a path.
const MAX_PARAMETER: usize = 8192;

/// Query parameters; unknown ones are told, so that a mistyped filter is not an absent one.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Query<T>> {
        let misfit = |error: QueryRejection| {
            let detail = format!("the query does not fit: {}; see /docs for what is expected", error.body_text());
            Problem::bad_request("bad_query", detail)
        };
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(misfit)?;
        for (name, value) in &pairs.0 {
            let text = if name_fault(name, MAX_PARAMETER).is_some() { name } else { value };
            if let Some(fault) = name_fault(text, MAX_PARAMETER).filter(|_| !text.is_empty()) {
                let code = if name == "cursor" { "bad_cursor" } else { "bad_query" };
                return Err(Problem::bad_request(code, format!("a text in the query {fault}; leave it out")));
            }
        }
        axum::extract::Query::<T>::from_request_parts(parts, state).await.map(|query| Query(query.0)).map_err(misfit)
    }
}

/// The run that a path names.
pub(crate) struct RunPath(pub(crate) RunId);

impl<S: Send + Sync> FromRequestParts<S> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<RunPath> {
        let RunParts { run_id } = path(parts, state).await?;
        parse_run(&run_id).map(RunPath)
    }
}

#[derive(serde::Deserialize)]
struct RunParts {
    run_id: String,
}

/// The queue that a path names.
pub(crate) struct QueuePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<QueuePath> {
        let QueueParts { queue } = path(parts, state).await?;
        Ok(QueuePath(queue))
    }
}

#[derive(serde::Deserialize)]
struct QueueParts {
    queue: String,
}

/// The delivery that a path names.
pub(crate) struct OutboxPath(pub(crate) OutboxId);

impl<S: Send + Sync> FromRequestParts<S> for OutboxPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<OutboxPath> {
        let OutboxParts { id } = path(parts, state).await?;
        id.parse().map(OutboxPath).map_err(|_| {
            let detail = format!("`{id}` is not the id of a delivery; GET /api/v1/outbox lists them");
            Problem::new(StatusCode::NOT_FOUND, "unknown_delivery", detail)
        })
    }
}

#[derive(serde::Deserialize)]
struct OutboxParts {
    id: String,
}

/// The revision that a path names.
pub(crate) struct RevisionPath(pub(crate) Uuid);

impl<S: Send + Sync> FromRequestParts<S> for RevisionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<RevisionPath> {
        let RevisionParts { revision_id } = path(parts, state).await?;
        revision_id.parse().map(RevisionPath).map_err(|_| {
            let detail =
                format!("`{revision_id}` is not the id of a revision; GET /api/v1/tags has those that are in use");
            Problem::new(StatusCode::NOT_FOUND, "unknown_ref", detail)
        })
    }
}

#[derive(serde::Deserialize)]
struct RevisionParts {
    revision_id: String,
}

/// The task that a path names.
pub(crate) struct TaskPath(pub(crate) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<TaskPath> {
        let TaskParts { task_id } = path(parts, state).await?;
        task_id.parse().map(TaskPath).map_err(|_| {
            let detail = format!("`{task_id}` is not a task id; it comes with the task");
            Problem::new(StatusCode::NOT_FOUND, "unknown_task", detail)
        })
    }
}

#[derive(serde::Deserialize)]
struct TaskParts {
    task_id: String,
}

fn parse_run(text: &str) -> Result<RunId> {
    text.parse().map_err(|_| {
        let detail = format!("`{text}` is not a run id; ids are UUIDs, GET /api/v1/runs lists them");
        Problem::new(StatusCode::NOT_FOUND, "unknown_run", detail)
    })
}

async fn path<S: Send + Sync, T: DeserializeOwned + Send>(parts: &mut Parts, state: &S) -> Result<T> {
    let raw = RawPathParams::from_request_parts(parts, state).await;
    let texts = raw.iter().flatten().map(|(_, text)| text).filter(|text| !text.is_empty());
    if let Some(fault) = texts.filter_map(|text| name_fault(text, MAX_PARAMETER)).next() {
        return Err(Problem::bad_request("bad_path", format!("a part of the path {fault}; check its encoding")));
    }
    let read = Path::<T>::from_request_parts(parts, state).await;
    read.map(|path| path.0).map_err(|error: PathRejection| {
        Problem::bad_request("bad_path", format!("the path cannot be read: {}; check its encoding", error.body_text()))
    })
}

/// One more part of a path, besides the run: a step's id, or a sequence number.
pub(crate) struct RunAnd<T>(pub(crate) RunId, pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for RunAnd<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<RunAnd<T>> {
        let (run, rest): (String, T) = path(parts, state).await?;
        parse_run(&run).map(|run| RunAnd(run, rest))
    }
}

/// A part of a path that may hold anything, percent-encoded.
pub(crate) struct Name(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Name> {
        path(parts, state).await.map(Name)
    }
}

/// Who does it: the name of the token. Only a server that is one person's, and asks for no token, believes `Milepost-Actor`;
/// everywhere else that header counts for nothing.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub(crate) Option<String>);

impl FromRequestParts<AppState> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Actor> {
        if let Some(actor) = parts.extensions.get::<Actor>() {
            return Ok(actor.clone());
        }
        let settings = &state.settings;
        let Actors::Said { otherwise } = &settings.actors else { return Ok(Actor(None)) };
        if !settings.tokens.is_empty() {
            return Ok(Actor(None));
        }
        let bad =
            |fault: &str| Problem::bad_request("bad_actor", format!("Milepost-Actor {fault}; send a name, as UTF-8"));
        let mut values = parts.headers.get_all("milepost-actor").iter();
        let value = match (values.next(), values.next()) {
            (None, _) => return Ok(Actor(otherwise.clone())),
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Err(bad("is there more than once")),
        };
        let name = std::str::from_utf8(value.as_bytes()).unwrap_or_default().trim();
        match name_fault(name, state.engine.limits().name_chars) {
            None => Ok(Actor(Some(name.to_owned()))),
            Some(fault) => Err(bad(&fault)),
        }
    }
}

/// `If-Match`: the sequence number or the version that the caller last saw. `*` is any.
pub(crate) struct IfMatch(pub(crate) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IfMatch> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(IfMatch(None)) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(IfMatch(None));
        }
        // Of a run with a gap the ETag says where that is, too.
        let version = text.trim_matches('"').split('~').next().unwrap_or_default();
        version
            .parse()
            .map(|seq| IfMatch(Some(seq)))
            .map_err(|_| Problem::bad_request("bad_if_match", "If-Match is no ETag; send the one that GET answered"))
    }
}

/// `Idempotency-Key`: the same key again is the same request.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<IdempotencyKey> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(IdempotencyKey(None)) };
        match value.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= 255 => Ok(IdempotencyKey(Some(key.to_owned()))),
            _ => Err(Problem::bad_request(
                "bad_idempotency_key",
                "Idempotency-Key has 1 to 255 visible ASCII characters; a UUID will do",
            )),
        }
    }
}
