//! A step of a run.

use milepost_core::json::Json;
use milepost_engine::view;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;
use super::artifact::{Artifact, BlobRef};

/// A failure, of a step or of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorInfo {
    /// A stable word for programs.
    code: String,
    message: String,
    /// Whether another attempt may succeed.
    retryable: bool,
}

impl From<milepost_core::event::ErrorInfo> for ErrorInfo {
    fn from(error: milepost_core::event::ErrorInfo) -> ErrorInfo {
        ErrorInfo { code: error.code, message: error.message, retryable: error.retryable }
    }
}

/// A step as it stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Step {
    /// `shots`, or `shots[3]` for one item of a `foreach` step.
    pub(crate) step_id: String,
    skill: String,
    /// `pending`, `running`, `completed`, `failed` or `skipped`.
    status: String,
    /// `cache_hit`, `condition`, `upstream_failed`, `cancelled`, `operator`, `removed` or `run_stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_reason: Option<String>,
    /// Counts retries by policy and by operators.
    logical_attempt: u32,
    /// Counts how often that attempt was handed out.
    engine_attempt: u32,
    cache_hit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    output: Option<Json>,
    /// Where the output is, if it is too large to be shown: there is no `output` then, and `GET /blobs/sha256:…` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_blob: Option<BlobRef>,
    /// It has an output, which is not shown here, as together those of the run are too large: the step alone shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_omitted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    /// Files that it left.
    artifacts: Vec<Artifact>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

impl From<view::StepView> for Step {
    fn from(step: view::StepView) -> Step {
        Step {
            step_id: step.step_id,
            skill: step.skill,
            status: step.status.to_string(),
            skip_reason: step.skip_reason.map(|reason| reason.to_string()),
            logical_attempt: step.logical_attempt,
            engine_attempt: step.engine_attempt,
            cache_hit: step.cache_hit,
            input_hash: step.input_hash.map(|hash| hash.to_string()),
            output: step.output,
            output_blob: step.output_blob.map(BlobRef::from),
            output_omitted: step.output_omitted.then_some(true),
            error: step.error.map(ErrorInfo::from),
            artifacts: step.artifacts.into_iter().map(Artifact::from).collect(),
            started_at: step.started_at.map(|at| at.to_string()),
            ended_at: step.ended_at.map(|at| at.to_string()),
            duration_ms: step.duration_ms,
        }
    }
}

/// A step with all that is known of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct StepDetail {
    #[serde(flatten)]
    step: Step,
    depends_on: Vec<String>,
    /// What its expressions yield, worked out again; left out when that differs from what it ran with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    input: Option<Json>,
    /// In order.
    attempts: Vec<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemCounts>,
}

/// One attempt of a step.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Attempt {
    logical_attempt: u32,
    engine_attempt: u32,
    /// `running`, `completed`, `failed` or `lost`.
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
    /// Of a `workflow` step.
    #[serde(skip_serializing_if = "Option::is_none")]
    child_run_id: Option<Uuid>,
    /// Of a `wait` step.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    /// When a timer ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    due_at: Option<String>,
}

/// The items of a `foreach` step, by status.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ItemCounts {
    total: u32,
    pending: u32,
    running: u32,
    completed: u32,
    failed: u32,
    skipped: u32,
}

impl From<milepost_engine::StepDetail> for StepDetail {
    fn from(detail: milepost_engine::StepDetail) -> StepDetail {
        StepDetail {
            step: detail.step.into(),
            depends_on: detail.depends_on,
            input: detail.input,
            attempts: detail.attempts.into_iter().map(Attempt::from).collect(),
            items: detail.items.map(ItemCounts::from),
        }
    }
}

impl From<milepost_engine::AttemptView> for Attempt {
    fn from(attempt: milepost_engine::AttemptView) -> Attempt {
        Attempt {
            logical_attempt: attempt.logical_attempt,
            engine_attempt: attempt.engine_attempt,
            status: attempt.status.to_owned(),
            worker: attempt.worker,
            started_at: attempt.started_at.map(|at| at.to_string()),
            ended_at: attempt.ended_at.map(|at| at.to_string()),
            duration_ms: attempt.duration_ms,
            error: attempt.error.map(ErrorInfo::from),
            input_hash: attempt.input_hash.map(|hash| hash.to_string()),
            child_run_id: attempt.child_run_id.map(|run| run.0),
            waits_for: attempt.waits_for,
            due_at: attempt.due_at.map(|at| at.to_string()),
        }
    }
}

impl From<milepost_engine::ItemCounts> for ItemCounts {
    fn from(counts: milepost_engine::ItemCounts) -> ItemCounts {
        let milepost_engine::ItemCounts { total, pending, running, completed, failed, skipped } = counts;
        ItemCounts { total, pending, running, completed, failed, skipped }
    }
}
