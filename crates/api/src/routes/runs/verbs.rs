//! `POST /runs/{run_id}/pause` and its like: signals in short.

use axum::extract::State;
use axum::http::StatusCode;
use milepost_core::id::{RunId, SignalId};
use milepost_core::json::Json as RawJson;
use milepost_core::run::Signal;
use milepost_core::status::StepStatus;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::signal::{Accepted, Moved, SignalAccepted, accepted_as, derived, new_signal, send};
use crate::error::{Problem, Result};
use crate::extract::{IdempotencyKey, IfMatch, OptionalBody, RunPath};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::Any;

/// What goes with a word to a run; all of it may be left out.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"payload": {"reason": "maintenance"}}))]
pub(super) struct VerbBody {
    /// The same id again is the same signal.
    signal_id: Option<Uuid>,
    /// The step it is about (`retry`, `skip`).
    step_id: Option<String>,
    /// Such as `{"reason": "…"}`.
    #[schema(value_type = Option<Any>)]
    payload: Option<RawJson>,
}

impl VerbBody {
    fn signal(self, name: &str, key: Option<&str>, run: RunId) -> Signal {
        Signal {
            step: self.step_id,
            payload: self.payload.unwrap_or_else(|| RawJson::trusted("{}")),
            ..new_signal(name, self.signal_id, key, run)
        }
    }
}

macro_rules! verbs {
    ($($verb:ident $path:literal $signal:literal $what:literal;)+) => {
        $(
            #[doc = $what]
            #[utoipa::path(post, path = $path, tag = "runs", request_body(content = Option<VerbBody>),
                params(("run_id" = Uuid, Path, description = "the run"),
                    ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same signal"),
                    ("If-Match" = Option<String>, Header, description = "only if the run still has this ETag")),
                responses((status = 202, description = "it is accepted", body = SignalAccepted),
                    Moved, NotFound, WriteProblems, Problems))]
            async fn $verb(
                State(state): State<AppState>,
                RunPath(run): RunPath,
                IdempotencyKey(key): IdempotencyKey,
                IfMatch(expected): IfMatch,
                caller: Caller,
                OptionalBody(body): OptionalBody<VerbBody>,
            ) -> Result<Accepted> {
                send(&state, run, body.signal($signal, key.as_deref(), run), expected, &caller).await
            }
        )+

        pub(super) fn routes() -> OpenApiRouter<AppState> {
            OpenApiRouter::new()$(.routes(routes!($verb)))+.routes(routes!(retry))
        }
    };
}

verbs! {
    pause "/runs/{run_id}/pause" "PAUSE" "Pause a run: what is under way ends, nothing new begins";
    resume "/runs/{run_id}/resume" "RESUME" "Go on with a paused run";
    cancel "/runs/{run_id}/cancel" "CANCEL" "Cancel a run: what is under way is told to stop";
    terminate "/runs/{run_id}/terminate" "TERMINATE" "Terminate a run at once";
    approve "/runs/{run_id}/approve" "APPROVE" "Approve a run that waits for it";
    reject "/runs/{run_id}/reject" "REJECT" "Reject a run that waits for approval";
    skip "/runs/{run_id}/skip" "SKIP_STEP" "Skip a step; `step_id` says which";
}

/// Try a failed step again
///
/// `step_id` says which; without one, every failed step of the run is tried again.
#[utoipa::path(post, path = "/runs/{run_id}/retry", tag = "runs", request_body(content = Option<VerbBody>),
    params(("run_id" = Uuid, Path, description = "the run"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same signal"),
        ("If-Match" = Option<String>, Header, description = "only if the run still has this ETag")),
    responses((status = 202, description = "it is accepted", body = SignalAccepted), Moved, NotFound, WriteProblems, Problems))]
async fn retry(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    IdempotencyKey(key): IdempotencyKey,
    IfMatch(expected): IfMatch,
    caller: Caller,
    OptionalBody(body): OptionalBody<VerbBody>,
) -> Result<Accepted> {
    if body.step_id.is_some() {
        return send(&state, run, body.signal("RETRY_STEP", key.as_deref(), run), expected, &caller).await;
    }
    retry_all(&state, run, &body, key.as_deref(), expected, &caller).await
}

/// Every failed step, one signal each. Items of a `foreach` step are tried again with their step.
///
/// Each signal has an id of its own, made of the caller's; the last one has that itself. So a call that was cut off in the
/// middle goes on when it is made again, and one that was carried out changes nothing then.
pub(super) async fn retry_all(
    state: &AppState,
    run: RunId,
    body: &VerbBody,
    key: Option<&str>,
    expected: Option<u64>,
    caller: &Caller,
) -> Result<Accepted> {
    const NAME: &str = "RETRY_STEP";
    let own = body.signal_id.or_else(|| key.map(|key| derived(key, NAME, run)));
    if let Some(id) = own
        && let Some(accepted) = state.engine.answered(run, NAME, SignalId(id)).await?
    {
        return Ok(accepted_as(id, accepted));
    }
    let view = state.engine.run(run).await?;
    let failed: Vec<&str> = view
        .steps
        .iter()
        .filter(|step| step.status == StepStatus::Failed && !step.step_id.ends_with(']'))
        .map(|step| step.step_id.as_str())
        .collect();
    let signal = |step: &str, signal_id| {
        VerbBody { step_id: Some(step.to_owned()), signal_id, ..body.clone() }.signal(NAME, None, run)
    };
    let Some((last, others)) = failed.split_last() else {
        let detail = format!("no step of run {run} has failed; there is nothing to try again");
        return Err(Problem::new(StatusCode::CONFLICT, "nothing_failed", detail));
    };
    // The first one moves the run, so only for it the caller's ETag can hold.
    let mut expected = expected;
    for step in others {
        let id = own.map(|own| derived(&own.to_string(), step, run));
        let _ = send(state, run, signal(step, id), expected.take(), caller).await?;
    }
    send(state, run, signal(last, own), expected, caller).await
}
