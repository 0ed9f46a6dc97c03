//! `GET /secrets`.

use axum::Json;
use axum::extract::State;
use milepost_core::secret::name_fault;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{Problem, Result};
use crate::extract::Query;
use crate::openapi::Problems;
use crate::routes::runs::limit;
use crate::state::AppState;
use crate::wire::{Page, Secret};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SecretsQuery {
    /// Secrets at most, 1 to 1,000.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List secrets
///
/// Those in the database, by name, without their values.
#[utoipa::path(get, path = "/secrets", tag = "secrets", params(SecretsQuery),
    responses((status = 200, description = "a page of secrets", body = Page<Secret>), Problems))]
pub(super) async fn list(
    State(state): State<AppState>,
    Query(query): Query<SecretsQuery>,
) -> Result<Json<Page<Secret>>> {
    let limit = limit(query.limit, 50, 1000)?;
    let after = query.cursor.as_deref();
    if after.is_some_and(|after| name_fault(after, state.engine.limits().name_chars).is_some()) {
        let detail = "this is not a cursor; pass the next_cursor of the page before";
        return Err(Problem::bad_request("bad_cursor", detail));
    }
    let rows = state.engine.secrets().list(state.engine.org(), after, limit + 1).await?;
    let secrets = rows.into_iter().map(Secret::from).collect();
    Ok(Json(Page::cut(secrets, limit, |secret: &Secret| secret.name.clone())))
}
