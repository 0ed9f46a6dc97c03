//! `POST /workflows`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::json::Json as RawJson;
use milepost_engine::definitions::Moving;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::error::Result;
use crate::extract::{Actor, IdempotencyKey, IfMatch, JsonOrYaml, Query};
use crate::openapi::{Problems, WriteProblems};
use crate::routes::runs::{Document, DocumentBody};
use crate::routes::tags::TagMoved;
use crate::state::AppState;
use crate::wire::{Any, Deployed};

/// A document to be stored under a name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"document": {"name": "hello", "steps": {"greet": {"skill": "echo", "input": {"text": "hello"}}}}}))]
pub(super) struct DeployBody {
    /// A document: JSON, or its YAML as one text.
    #[schema(value_type = DocumentBody)]
    document: Document,
    /// The name to point at it; the document's own if left out.
    #[schema(min_length = 1, max_length = 255)]
    tag: Option<String>,
    /// Why; kept in the tag's history.
    message: Option<String>,
    /// Kept with the revision that this makes: an object of your own, up to 16 KiB.
    #[schema(value_type = Option<std::collections::BTreeMap<String, Any>>)]
    meta: Option<RawJson>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeployQuery {
    /// The name to point at it, where the body is the document itself.
    #[param(min_length = 1, max_length = 255)]
    tag: Option<String>,
    /// Why, where the body is the document itself.
    message: Option<String>,
}

/// Deploy a document
///
/// Stores it and points its name (or `tag`) at it. The same content again is no change: 200, with the same revision.
#[utoipa::path(post, path = "/workflows", tag = "workflows",
    params(DeployQuery,
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it, where nobody needs a token (`milepost dev`); elsewhere the name of the token counts, and this does not")),
    request_body(content(
        (DeployBody = "application/json"),
        (Any = "application/yaml", example = "name: hello\nsteps:\n  greet: {skill: echo, input: {text: hello}}\n"),
    )),
    responses(
        (status = 201, description = "it is stored", body = Deployed),
        (status = 200, description = "it was stored already", body = Deployed),
        TagMoved, WriteProblems, Problems,
    ))]
pub(super) async fn deploy(
    State(state): State<AppState>,
    Query(query): Query<DeployQuery>,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    body: JsonOrYaml<DeployBody>,
) -> Result<(StatusCode, Json<Deployed>)> {
    let (source, tag, message, meta) = match body {
        JsonOrYaml::Json(body) => (body.document.into_text()?, body.tag.or(query.tag), body.message, body.meta),
        JsonOrYaml::Yaml(text) => (text, query.tag, query.message, None),
    };
    let loaded = state.engine.load(source).await?;
    let tag = tag.unwrap_or_else(|| loaded.plan.name.to_string());
    let moving = Moving { by, message, expected, key, meta };
    let (_, moved) = state.engine.deploy_as(&tag, loaded, &moving).await?;
    let status = if moved.existing { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(moved.tag.into())))
}
