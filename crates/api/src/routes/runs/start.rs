//! `POST /runs`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use milepost_core::document::{self, Loaded};
use milepost_core::id::RunId;
use milepost_core::json::Json as RawJson;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_core::trace::TraceContext;
use milepost_engine::{Accepted, Engine, NewRun};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::{Problem, Result};
use crate::extract::{Body, IdempotencyKey};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Any, Started};

/// What to run: a deployed `workflow`, or a `document` that comes along.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"workflow": "order", "payload": {"id": 7}, "request_id": "order-7"}))]
pub(super) struct StartBody {
    /// A workflow's name, or `sha256:…`.
    workflow: Option<String>,
    /// A document: JSON, or its YAML as one text.
    document: Option<DocumentBody>,
    /// What the run works on; `{}` if left out.
    #[schema(value_type = Option<Any>)]
    payload: Option<RawJson>,
    /// The same id again gives the same run.
    #[schema(min_length = 1, max_length = 255)]
    request_id: Option<String>,
    /// Higher goes first.
    priority: Option<i32>,
    /// Start at this moment.
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<Timestamp>,
}

/// A document as an object, or as text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum DocumentBody {
    Text(String),
    Object(serde_json::Map<String, Value>),
}

impl DocumentBody {
    pub(crate) fn load(self, limits: &Limits) -> Result<Loaded> {
        self.read(limits).map_err(Problem::invalid_document)
    }

    /// The document, or all that is wrong with it.
    pub(crate) fn read(self, limits: &Limits) -> std::result::Result<Loaded, Vec<document::Problem>> {
        match self {
            DocumentBody::Text(text) => document::load(&text, limits),
            DocumentBody::Object(object) => document::load_value(&Value::Object(object), limits),
        }
    }
}

/// Start a run
///
/// Answers when the run is on disk. With a `request_id` (or an `Idempotency-Key`, which stands for one where there is none) the
/// same request again answers 200 with the run that is there.
#[utoipa::path(post, path = "/runs", tag = "runs", request_body = StartBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("traceparent" = Option<String>, Header, description = "the caller's trace (W3C); the run becomes part of it")),
    responses(
        (status = 201, description = "the run was started", body = Started),
        (status = 200, description = "a run with that request id was there already", body = Started),
        NotFound, WriteProblems, Problems,
    ))]
pub(super) async fn start(
    State(state): State<AppState>,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    Body(body): Body<StartBody>,
) -> Result<(StatusCode, Json<Started>)> {
    let engine = &*state.engine;
    let new = NewRun {
        payload: body.payload.clone().unwrap_or_else(|| NewRun::default().payload),
        request_id: body.request_id.clone().or(key),
        priority: body.priority.unwrap_or(0),
        start_at: body.start_at,
        trace: trace(&headers),
    };
    let by_key = body.request_id.is_none();
    let plan = body.plan(engine).await?;
    let payload = new.payload.clone();
    let accepted = engine.start_plan(&plan, new).await?;
    if accepted.existing && by_key {
        check_same(engine, &plan, &payload, accepted.run).await?;
    }
    Ok(answer(accepted))
}

/// The caller's trace. A header that is not one is left alone, as its specification asks.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

/// A key that comes again must come with the same request.
async fn check_same(engine: &Engine, plan: &Plan, payload: &RawJson, run: RunId) -> Result<()> {
    let head = engine.store().head(engine.org(), run).await?;
    let same = head.is_some_and(|head| head.plan_hash == plan.hash)
        && engine.run(run).await?.payload.to_value() == payload.to_value();
    if same {
        return Ok(());
    }
    let detail =
        format!("this Idempotency-Key started run {run}, which is another one; use a new key for a new request");
    Err(Problem::unprocessable("idempotency_key_reused", detail))
}

fn answer(accepted: Accepted) -> (StatusCode, Json<Started>) {
    let status = if accepted.existing { StatusCode::OK } else { StatusCode::CREATED };
    (status, Json(accepted.into()))
}

impl StartBody {
    async fn plan(self, engine: &Engine) -> Result<Arc<Plan>> {
        match (self.workflow, self.document) {
            (Some(workflow), None) => Ok(engine.resolve(&workflow).await?),
            (None, Some(document)) => Ok(engine.add(document.load(engine.limits())?).await?),
            (Some(_), Some(_)) => Err(Problem::unprocessable(
                "two_definitions",
                "there are both `workflow` and `document`; send the one that is to run",
            )),
            (None, None) => Err(Problem::unprocessable(
                "nothing_to_run",
                "there is neither `workflow` nor `document`; name a deployed workflow, or send a document",
            )),
        }
    }
}
