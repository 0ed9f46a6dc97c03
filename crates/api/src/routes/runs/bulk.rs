//! `POST /runs/bulk`: one word to many runs.

use axum::Json;
use axum::extract::State;
use futures::StreamExt as _;
use milepost_core::id::RunId;
use milepost_core::json::Json as RawJson;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_core::text::check_remark;
use milepost_core::time::Timestamp;
use milepost_engine::EngineError;
use milepost_store::rows::RunFilter;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::list::{limit, statuses};
use super::signal::{new_signal, send};
use super::verbs::{VerbBody, retry_all};
use crate::error::{Problem, Result};
use crate::extract::{Body, IdempotencyKey};
use crate::openapi::{Problems, WriteProblems};
use crate::security::Caller;
use crate::state::AppState;
use crate::wire::task::name;

const DEFAULT_LIMIT: u32 = 1000;
const MAX_LIMIT: u32 = 100_000;
const PAGE: u32 = 500;
/// Signals on their way at once: enough to fill batches.
const AT_ONCE: usize = 128;
/// Refusals told one by one; the rest are counted.
const TOLD: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    Cancel,
    Terminate,
    Pause,
    Resume,
    Retry,
}

impl Action {
    fn signal(self) -> &'static str {
        match self {
            Action::Cancel => "CANCEL",
            Action::Terminate => "TERMINATE",
            Action::Pause => "PAUSE",
            Action::Resume => "RESUME",
            Action::Retry => "RETRY_STEP",
        }
    }

    fn deed(self) -> &'static str {
        match self {
            Action::Cancel => "runs.cancel",
            Action::Terminate => "runs.terminate",
            Action::Pause => "runs.pause",
            Action::Resume => "runs.resume",
            Action::Retry => "runs.retry",
        }
    }

    /// Runs that the word can mean anything to.
    fn fits(self, status: RunStatus) -> bool {
        match self {
            Action::Cancel | Action::Terminate => !status.is_terminal(),
            Action::Pause => status == RunStatus::Running,
            Action::Resume => status == RunStatus::Paused,
            Action::Retry => status == RunStatus::Failed,
        }
    }
}

/// One word to all runs that a filter names.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"action": "cancel", "filter": {"workflow": "order", "status": "running"}, "dry_run": true}))]
pub(super) struct BulkBody {
    action: Action,
    filter: BulkFilter,
    /// Only count the runs that are meant.
    #[serde(default)]
    dry_run: bool,
    /// Runs at most; the answer says whether there are more.
    #[schema(minimum = 1, maximum = 100_000, default = 1000)]
    limit: Option<u32>,
    /// Recorded with each signal.
    reason: Option<String>,
}

/// Which runs are meant: all that fit every field.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkFilter {
    /// One status, or several separated by commas. Runs for which the action means nothing are left out in any case.
    status: Option<String>,
    workflow: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    created_after: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    created_before: Option<Timestamp>,
    request_id: Option<String>,
    base_run_id: Option<Uuid>,
    parent_run_id: Option<Uuid>,
    submitted_by: Option<String>,
    /// Only runs that are parked because they took their process down.
    #[serde(default)]
    stuck: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BulkAnswer {
    action: Action,
    dry_run: bool,
    /// Runs that the filter means (at most `limit`).
    matched: u64,
    accepted: u64,
    /// Runs that did not take it, and why; the first hundred of them.
    rejected: Vec<Refused>,
    rejected_count: u64,
    /// There are runs beyond `limit`: send the same again.
    more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Refused {
    run_id: Uuid,
    code: String,
    message: String,
}

/// Send one word to many runs
///
/// Cancel, terminate, pause, resume or retry all runs that fit a filter. `dry_run` only counts them. An empty filter means all
/// runs that the action fits.
#[utoipa::path(post, path = "/runs/bulk", tag = "runs", request_body = BulkBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key again sends the same signals")),
    responses((status = 200, description = "what came of it", body = BulkAnswer), WriteProblems, Problems))]
pub(super) async fn bulk(
    State(state): State<AppState>,
    IdempotencyKey(key): IdempotencyKey,
    caller: Caller,
    Body(body): Body<BulkBody>,
) -> Result<Json<BulkAnswer>> {
    let limit = limit(body.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let filter = body.filter()?;
    let mut answer = BulkAnswer {
        action: body.action,
        dry_run: body.dry_run,
        matched: 0,
        accepted: 0,
        rejected: Vec::new(),
        rejected_count: 0,
        more: false,
    };
    let Some(filter) = filter else { return Ok(Json(answer)) };
    state.engine.freshen_lists().await;
    if body.dry_run {
        let (store, org) = (state.engine.store(), state.engine.org());
        let count = store.count_matching(org, &filter, u64::from(limit) + 1).await?;
        (answer.matched, answer.more) = (count.min(u64::from(limit)), count > u64::from(limit));
        return Ok(Json(answer));
    }
    let carried_out = carry_out(&state, &body, filter, limit, key.as_deref(), &caller, &mut answer).await;
    // What was done before it failed was done.
    caller.did(body.action.deed(), &format!("runs:{} accepted:{}", answer.matched, answer.accepted));
    carried_out?;
    Ok(Json(answer))
}

impl BulkBody {
    /// Which runs are meant; `None` if the action fits none of the statuses.
    fn filter(&self) -> Result<Option<RunFilter>> {
        let BulkFilter { workflow, request_id, submitted_by, .. } = &self.filter;
        for (field, text) in [("workflow", workflow), ("request_id", request_id), ("submitted_by", submitted_by)] {
            text.as_deref().map(|text| name(field, text)).transpose()?;
        }
        check_remark("`reason`", self.reason.as_deref()).map_err(EngineError::from)?;
        let named = statuses(self.filter.status.as_deref().unwrap_or_default())?;
        let all = if named.is_empty() { RunStatus::ALL.to_vec() } else { named };
        let statuses: Vec<RunStatus> = all.into_iter().filter(|status| self.action.fits(*status)).collect();
        let filter = RunFilter {
            statuses,
            workflow: self.filter.workflow.clone(),
            created_from: self.filter.created_after,
            created_until: self.filter.created_before,
            request_id: self.filter.request_id.clone(),
            base_run: self.filter.base_run_id.map(RunId),
            parent_run: self.filter.parent_run_id.map(RunId),
            submitted_by: self.filter.submitted_by.clone(),
            stuck: self.filter.stuck,
            before: None,
            limit: PAGE,
        };
        Ok(Some(filter).filter(|filter| !filter.statuses.is_empty()))
    }

    fn payload(&self) -> RawJson {
        match &self.reason {
            Some(reason) => RawJson::of(&json!({ "reason": reason })),
            None => RawJson::trusted("{}"),
        }
    }
}

async fn carry_out(
    state: &AppState,
    body: &BulkBody,
    mut filter: RunFilter,
    limit: u32,
    key: Option<&str>,
    caller: &Caller,
    answer: &mut BulkAnswer,
) -> Result<()> {
    loop {
        let left = u64::from(limit) - answer.matched;
        let page = state.engine.store().list_runs(state.engine.org(), &filter).await?;
        let whole = page.len() == PAGE as usize;
        filter.before = page.last().map(|row| row.run);
        answer.more = page.len() as u64 > left || (whole && page.len() as u64 == left);
        let runs: Vec<RunId> =
            page.iter().map(|row| row.run).take(usize::try_from(left).unwrap_or(usize::MAX)).collect();
        answer.matched += runs.len() as u64;
        let sent =
            futures::stream::iter(runs).map(|run| async move { (run, tell(state, body, run, key, caller).await) });
        let outcomes: Vec<(RunId, Result<()>)> = sent.buffer_unordered(AT_ONCE).collect().await;
        outcomes.into_iter().for_each(|(run, outcome)| answer.note(run, outcome));
        if !whole || answer.matched >= u64::from(limit) {
            return Ok(());
        }
    }
}

async fn tell(state: &AppState, body: &BulkBody, run: RunId, key: Option<&str>, caller: &Caller) -> Result<()> {
    let told = if body.action == Action::Retry {
        retry_all(state, run, &VerbBody::default(), key, None, caller).await
    } else {
        let signal = new_signal(body.action.signal(), None, key, run);
        send(state, run, Signal { payload: body.payload(), ..signal }, None, caller).await
    };
    told.map(drop)
}

impl BulkAnswer {
    fn note(&mut self, run: RunId, outcome: Result<()>) {
        match outcome {
            Ok(()) => self.accepted += 1,
            Err(problem) => {
                self.rejected_count += 1;
                if self.rejected.len() < TOLD {
                    self.rejected.push(refused(run, &problem));
                }
            }
        }
    }
}

fn refused(run: RunId, problem: &Problem) -> Refused {
    Refused { run_id: run.0, code: problem.code().to_owned(), message: problem.detail().to_owned() }
}
