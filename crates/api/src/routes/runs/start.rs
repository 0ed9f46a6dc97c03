//! `POST /runs`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use milepost_core::id::RunId;
use milepost_core::json::Json as RawJson;
use milepost_core::trace::TraceContext;
use milepost_engine::Engine;

use super::body::{Keep, Request, StartBody, Subject};
use crate::error::{Problem, Result};
use crate::extract::{Body, IdempotencyKey};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::Started;

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
    let by_key = body.request_id.is_none() && key.is_some();
    let Request { subject, new } = body.read(engine, Keep::Yes, key, trace(&headers)).await?;
    let meant = by_key.then(|| Meant::by(&subject, &new.payload));
    let accepted = match subject {
        Subject::Initial(plan) => engine.start_plan(&plan, new).await?,
        Subject::Update { base, plan, changes } => engine.update(base, plan, changes, new).await?,
    };
    if let (true, Some(meant)) = (accepted.existing, meant) {
        meant.check(engine, accepted.run).await?;
    }
    let status = if accepted.existing { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(accepted.into())))
}

/// The caller's trace. A header that is not one is left alone, as its specification asks.
fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

/// What a request with a key asked for: a key that comes again must come with the same.
enum Meant {
    Initial(milepost_core::hash::Digest, RawJson),
    Update(RunId),
}

impl Meant {
    fn by(subject: &Subject, payload: &RawJson) -> Meant {
        match subject {
            Subject::Initial(plan) => Meant::Initial(plan.hash, payload.clone()),
            Subject::Update { base, .. } => Meant::Update(*base),
        }
    }

    async fn check(&self, engine: &Engine, run: RunId) -> Result<()> {
        let head = engine.store().head(engine.org(), run).await?;
        let same = match self {
            Meant::Update(base) => head.is_some_and(|head| head.base_run == Some(*base)),
            Meant::Initial(plan, payload) => {
                head.is_some_and(|head| head.plan_hash == *plan && head.base_run.is_none())
                    && engine.run(run).await?.payload.to_value() == payload.to_value()
            }
        };
        if same {
            return Ok(());
        }
        let detail =
            format!("this Idempotency-Key started run {run}, which is another one; use a new key for a new request");
        Err(Problem::unprocessable("idempotency_key_reused", detail))
    }
}
