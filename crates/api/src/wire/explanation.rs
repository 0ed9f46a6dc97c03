//! Why a step stands as it does.

use milepost_core::json::Json;
use milepost_engine as engine;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;

/// Why a step ran or was reused, or what it waits for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    run_id: Uuid,
    step_id: String,
    skill: String,
    /// `pending`, `running`, `completed`, `failed` or `skipped`.
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_reason: Option<String>,
    /// `ran`, `running`, `reused`, `skipped` or `waiting`.
    decision: String,
    /// A stable word: `not_cached`, `rebuild`, `first`, `changed`, `no_result`, `items` or `failed_early` for what ran or runs,
    /// `cached` for what was reused; the skip reason; the first thing it waits for.
    reason: String,
    /// The same as a sentence.
    message: String,
    /// Whether its results are kept.
    cache_enabled: bool,
    /// Under which its result is kept, or was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_key: Option<String>,
    /// What that key is made of, as long as it is kept: variables by the hashes of their values, secrets by their versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    preimage: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Origin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Nearest>,
    /// In what the nearest key differs from this one.
    differences: Vec<Difference>,
    /// How many differences there are beyond those.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_differences: Option<usize>,
    /// What it waits for, of a step that has not ended.
    waits: Vec<Wait>,
}

/// Who made the result that the step has, and when.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Origin {
    run_id: Uuid,
    run_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
}

/// The earlier key that is compared with this one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Nearest {
    cache_key: String,
    /// The run that began with it.
    run_id: Uuid,
    /// It is the base run's, not just the most alike of the last few.
    of_base_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    began_at: Option<String>,
}

/// A smallest place where two keys differ. A side that does not have it has no value.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Difference {
    /// `definition`, `input`, `artifacts` (of steps before it), `env`, `secrets`, `epoch`, `trust` or `other`.
    part: String,
    /// A JSON pointer below the part.
    path: String,
    /// A value of more than 2,000 bytes is told by its `sha256` and its `bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    before: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    after: Option<serde_json::Value>,
}

/// One thing that a step waits for.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Wait {
    /// `dependency`, `retry`, `queue`, `queue_limit`, `rate_limit`, `concurrency_key`, `executor`, `worker`, `same_work`, `run_slot`, `pause`,
    /// `approval`, `start`, `sleep`, `signal`, `child`, `items`, `failure` or `cancellation`.
    #[serde(rename = "for")]
    kind: String,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    steps: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// The concurrency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    /// The child run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<Uuid>,
}

impl From<engine::Explanation> for Explanation {
    fn from(told: engine::Explanation) -> Explanation {
        Explanation {
            run_id: told.run_id.0,
            step_id: told.step_id,
            skill: told.skill,
            status: told.status.to_string(),
            skip_reason: told.skip_reason.map(|reason| reason.to_string()),
            decision: told.decision.to_owned(),
            reason: told.reason.to_owned(),
            message: told.message,
            cache_enabled: told.cache_enabled,
            cache_key: told.cache_key.map(|key| key.to_string()),
            preimage: told.preimage,
            result: told.result.map(|result| Origin {
                run_id: result.run_id.0,
                run_seq: result.run_seq,
                created_at: result.created_at.map(|at| at.to_string()),
                duration_ms: result.duration_ms,
            }),
            nearest: told.nearest.map(|nearest| Nearest {
                cache_key: nearest.cache_key.to_string(),
                run_id: nearest.run_id.0,
                of_base_run: nearest.of_base_run,
                began_at: nearest.began_at.map(|at| at.to_string()),
            }),
            differences: told.differences.into_iter().map(Difference::from).collect(),
            more_differences: Some(told.more_differences).filter(|more| *more > 0),
            waits: told.waits.into_iter().map(Wait::from).collect(),
        }
    }
}

impl From<milepost_core::difference::Difference> for Difference {
    fn from(difference: milepost_core::difference::Difference) -> Difference {
        let milepost_core::difference::Difference { part, path, before, after } = difference;
        Difference { part: part.as_str().to_owned(), path, before, after }
    }
}

impl From<engine::Wait> for Wait {
    fn from(wait: engine::Wait) -> Wait {
        let engine::Wait { kind, message, steps, until, queue, key, limit, signal, run_id } = wait;
        let (until, run_id) = (until.map(|at| at.to_string()), run_id.map(|run| run.0));
        Wait { kind: kind.to_owned(), message, steps, until, queue, key, limit, signal, run_id }
    }
}
