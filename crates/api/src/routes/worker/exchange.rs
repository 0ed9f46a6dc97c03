//! `POST /worker/exchange`.

use axum::Json;
use axum::extract::State;

use crate::error::Result;
use crate::extract::Body;
use crate::openapi::{Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::task::{ExchangeAnswer, ExchangeBody};

/// Report outcomes, say what goes on, take tasks
///
/// The one call a fast worker needs. Results are on disk when it answers; the same result again is answered as the first time.
/// It answers at once when it was given a task or there is a directive, and waits up to `wait_ms` otherwise. One bad item never
/// spoils the others.
#[utoipa::path(post, path = "/worker/exchange", tag = "workers", request_body = ExchangeBody,
    responses((status = 200, description = "what to do", body = ExchangeAnswer), WriteProblems, Problems))]
pub(super) async fn exchange(
    State(state): State<AppState>,
    Body(body): Body<ExchangeBody>,
) -> Result<Json<ExchangeAnswer>> {
    let answer = state.engine.exchange(body.read()?, state.drained()).await?;
    Ok(Json(answer.into()))
}
