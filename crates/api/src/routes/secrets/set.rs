//! `PUT /secrets/{name}`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_engine::secrets::SecretAccess;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Result;
use crate::extract::{Body, Name};
use crate::openapi::{Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;

/// A value, and who may have it. It has no `Debug`: nothing prints it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"value": "a1b2c3", "queues": ["audio"]}))]
pub(super) struct SecretBody {
    /// Text; encode what is none, say in base64.
    #[schema(min_length = 1, max_length = 65536)]
    value: String,
    /// Only tasks of these queues may have it, `inline` being the steps that a server carries out itself. Left out: as before.
    /// Empty: any.
    #[schema(max_items = 100)]
    queues: Option<Vec<String>>,
    /// Only runs of these workflows may have it. Left out: as before. Empty: any.
    #[schema(max_items = 100)]
    workflows: Option<Vec<String>>,
}

/// What is kept now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SecretSet {
    name: String,
    /// Grows with each new value; the same value again makes none.
    version: u32,
}

/// Keep a secret
///
/// Documents refer to it by `secret://NAME`. Versions before stay until they are removed: `secret://NAME@2`. Percent-encode
/// a `/` in the name.
#[utoipa::path(put, path = "/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "its name, such as `audio/api-key`")),
    request_body = SecretBody,
    responses(
        (status = 201, description = "there was none of that name", body = SecretSet),
        (status = 200, description = "it has that value now", body = SecretSet),
        WriteProblems, Problems,
    ))]
pub(super) async fn set(
    State(state): State<AppState>,
    Name(name): Name,
    caller: Caller,
    Body(body): Body<SecretBody>,
) -> Result<(StatusCode, Json<SecretSet>)> {
    let SecretBody { value, queues, workflows } = body;
    let access = SecretAccess { queues, workflows };
    let set = state.engine.secrets().set(state.engine.org(), &name, &value, &access).await?;
    caller.did("secret.set", &format!("secret:{name}@{}", set.version));
    let status = if set.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(SecretSet { name, version: set.version })))
}
