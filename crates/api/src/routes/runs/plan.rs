//! `POST /runs/plan`.

use axum::Json;
use axum::extract::State;

use super::body::{Keep, Request, StartBody, Subject};
use crate::error::Result;
use crate::extract::Body;
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Plan;

/// See what a run would do
///
/// Takes the body of `POST /runs`, checks all that a start checks, and tells for each step whether it would run, by the results
/// that are there now. Nothing is stored.
#[utoipa::path(post, path = "/runs/plan", tag = "runs", request_body = StartBody,
    responses((status = 200, description = "what would run", body = Plan), NotFound, WriteProblems, Problems))]
pub(super) async fn plan(State(state): State<AppState>, Body(body): Body<StartBody>) -> Result<Json<Plan>> {
    let engine = &*state.engine;
    let Request { subject, new } = body.read(engine, Keep::No, None, None, None).await?;
    let view = match subject {
        Subject::Initial(plan) => engine.plan_run(&plan, new).await?,
        Subject::Update { base, plan, changes } => engine.plan_update(base, plan, changes, new).await?,
        Subject::Before(_) => unreachable!("only a start is answered with a run that is there"),
    };
    Ok(Json(view.into()))
}
