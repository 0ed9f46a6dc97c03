//! A step of a run.

use milepost_core::json::Json;
use milepost_engine::view;
use serde::Serialize;
use utoipa::ToSchema;

use super::Any;

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
    step_id: String,
    skill: String,
    /// `pending`, `running`, `completed`, `failed` or `skipped`.
    status: String,
    /// `cache_hit`, `condition`, `upstream_failed`, `cancelled` or `operator`.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    #[schema(value_type = Vec<Any>)]
    artifacts: [(); 0],
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
            error: step.error.map(ErrorInfo::from),
            artifacts: [],
            started_at: step.started_at.map(|at| at.to_string()),
            ended_at: step.ended_at.map(|at| at.to_string()),
            duration_ms: step.duration_ms,
        }
    }
}
