//! `POST /workflows`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::document;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::error::{Problem, Result};
use crate::extract::{JsonOrYaml, Query};
use crate::openapi::{Problems, WriteProblems};
use crate::routes::runs::DocumentBody;
use crate::state::AppState;
use crate::wire::Any;

/// A document to be stored under a name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"document": {"name": "hello", "steps": {"greet": {"skill": "echo", "input": {"text": "hello"}}}}}))]
pub(super) struct DeployBody {
    /// A document: JSON, or its YAML as one text.
    document: DocumentBody,
    /// The name to point at it; the document's own if left out.
    #[schema(min_length = 1, max_length = 255)]
    tag: Option<String>,
    /// Why; kept in the server's log.
    message: Option<String>,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeployQuery {
    /// The name to point at it, where the body is the document itself.
    #[param(min_length = 1, max_length = 255)]
    tag: Option<String>,
}

/// What a name points at now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Deployed {
    revision_id: Uuid,
    /// The SHA-256 of the canonical document.
    version_hash: String,
    tag: String,
    /// Grows each time the tag moves.
    tag_version: u64,
}

/// Deploy a document
///
/// Stores it and points its name (or `tag`) at it. The same content again is no change: 200, with the same revision.
#[utoipa::path(post, path = "/workflows", tag = "workflows", params(DeployQuery),
    request_body(content(
        (DeployBody = "application/json"),
        (Any = "application/yaml", example = "name: hello\nsteps:\n  greet: {skill: echo, input: {text: hello}}\n"),
    )),
    responses(
        (status = 201, description = "it is stored", body = Deployed),
        (status = 200, description = "it was stored already", body = Deployed),
        WriteProblems, Problems,
    ))]
pub(super) async fn deploy(
    State(state): State<AppState>,
    Query(query): Query<DeployQuery>,
    body: JsonOrYaml<DeployBody>,
) -> Result<(StatusCode, Json<Deployed>)> {
    let limits = state.engine.limits();
    let (loaded, tag) = match body {
        JsonOrYaml::Json(body) => {
            let tag = body.tag.or(query.tag);
            if let Some(message) = &body.message {
                tracing::info!(tag, message, "a document is deployed");
            }
            (body.document.load(limits)?, tag)
        }
        JsonOrYaml::Yaml(text) => (document::load(&text, limits).map_err(Problem::invalid_document)?, query.tag),
    };
    let tag = tag.unwrap_or_else(|| loaded.plan.name.to_string());
    let (plan, deployed) = state.engine.deploy_as(&tag, loaded).await?;
    let status = if deployed.existing { StatusCode::OK } else { StatusCode::CREATED };
    let answer = Deployed {
        revision_id: deployed.revision_id,
        version_hash: format!("sha256:{}", plan.hash),
        tag,
        tag_version: deployed.tag_version,
    };
    Ok((status, Json(answer)))
}
