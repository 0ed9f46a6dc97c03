//! `DELETE /secrets/{name}`.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::Result;
use crate::extract::{Name, Query};
use crate::openapi::{NotFound, Problems};
use crate::security::Caller;
use crate::state::AppState;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveQuery {
    /// Only this version.
    version: Option<u32>,
}

/// Remove a secret
///
/// With all its versions, or one of them. Tasks that have it keep it; servers believe what they know for five seconds.
#[utoipa::path(delete, path = "/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, description = "its name, such as `audio/api-key`"), RemoveQuery),
    responses((status = 204, description = "it is gone"), NotFound, Problems))]
pub(super) async fn remove(
    State(state): State<AppState>,
    Name(name): Name,
    caller: Caller,
    Query(query): Query<RemoveQuery>,
) -> Result<StatusCode> {
    state.engine.secrets().remove(state.engine.org(), &name, query.version).await?;
    let version = query.version.map(|version| format!("@{version}")).unwrap_or_default();
    caller.did("secret.remove", &format!("secret:{name}{version}"));
    Ok(StatusCode::NO_CONTENT)
}
