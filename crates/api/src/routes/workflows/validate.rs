//! `POST /workflows/validate`.

use axum::Json;
use axum::extract::State;
use milepost_engine::EngineError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{DocumentProblem, Result};
use crate::extract::JsonOrYaml;
use crate::openapi::{Problems, WriteProblems};
use crate::routes::runs::{Document, DocumentBody};
use crate::state::AppState;
use crate::wire::Any;

/// A document to be looked at.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"document": {"name": "hello", "steps": {"greet": {"skil": "echo"}}}}))]
pub(super) struct ValidateBody {
    /// A document: JSON, or its YAML as one text.
    #[schema(value_type = DocumentBody)]
    document: Document,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Validation {
    valid: bool,
    /// All that is wrong, in the order of the text.
    problems: Vec<DocumentProblem>,
}

/// Look for problems in a document
///
/// Nothing is stored.
#[utoipa::path(post, path = "/workflows/validate", tag = "workflows",
    request_body(content((ValidateBody = "application/json"), (Any = "application/yaml"))),
    responses((status = 200, description = "what is wrong with it", body = Validation), WriteProblems, Problems))]
pub(super) async fn validate(
    State(state): State<AppState>,
    body: JsonOrYaml<ValidateBody>,
) -> Result<Json<Validation>> {
    let source = match body {
        JsonOrYaml::Json(body) => body.document.into_text()?,
        JsonOrYaml::Yaml(text) => text,
    };
    let problems = match state.engine.load(source).await {
        Ok(_) => Vec::new(),
        Err(EngineError::Invalid(problems)) => problems,
        Err(error) => return Err(error.into()),
    };
    let problems: Vec<DocumentProblem> = problems.into_iter().map(Into::into).collect();
    Ok(Json(Validation { valid: problems.is_empty(), problems }))
}
