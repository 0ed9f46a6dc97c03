//! Why a step ran, was reused or waits, as somebody outside sees it.

use milepost_core::difference::{Difference, Differences};
use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::{SkipReason, StepStatus};
use milepost_core::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

/// So many differences are told.
const TOLD: usize = 50;
/// A longer value is told by its hash.
const VALUE_BYTES: usize = 2000;

/// Why a step stands as it does.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub run_id: RunId,
    pub step_id: String,
    pub skill: String,
    pub status: StepStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<SkipReason>,
    /// `ran`, `running`, `reused`, `skipped` or `waiting`.
    pub decision: &'static str,
    /// A stable word: `not_cached`, `rebuild`, `first`, `changed`, `no_result`, `items` or `failed_early` for what ran or
    /// runs, `cached` for what was reused; the skip reason; the first thing it waits for.
    pub reason: &'static str,
    /// The same as a sentence.
    pub message: String,
    /// Whether its results are kept.
    pub cache_enabled: bool,
    /// Under which its result is kept, or was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<Digest>,
    /// What that key is made of, as long as it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preimage: Option<Json>,
    /// Whose result it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultOrigin>,
    /// The earlier key that is compared with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestKey>,
    /// In what the two differ.
    pub differences: Vec<Difference>,
    /// How many more there are.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_differences: usize,
    /// What it waits for, of a step that has not ended.
    pub waits: Vec<Wait>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Who made a result, and when.
#[derive(Clone, Debug, Serialize)]
pub struct ResultOrigin {
    pub run_id: RunId,
    pub run_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct NearestKey {
    pub cache_key: Digest,
    /// The run that began with it first; of the base run's key, the base run.
    pub run_id: RunId,
    /// It is the base run's, not just the most alike of the last few.
    pub of_base_run: bool,
    pub began_at: Option<Timestamp>,
}

/// One thing that a step waits for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Wait {
    /// `dependency`, `retry`, `queue`, `queue_limit`, `rate_limit`, `concurrency_key`, `executor`, `worker`, `same_work`, `run_slot`,
    /// `pause`, `approval`, `start`, `sleep`, `signal`, `child`, `items`, `failure` or `cancellation`.
    #[serde(rename = "for")]
    pub kind: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The concurrency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The child run, or the one that makes the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

impl Wait {
    pub(super) fn new(kind: &'static str, message: impl Into<String>) -> Wait {
        Wait { kind, message: message.into(), ..Wait::default() }
    }
}

impl Explanation {
    /// Tells differences, long values by their hashes.
    pub(super) fn tell(&mut self, found: Differences) {
        self.more_differences = found.count().saturating_sub(TOLD.min(found.list.len()));
        let mut differences = found.list;
        differences.truncate(TOLD);
        for difference in &mut differences {
            difference.before = difference.before.take().map(shortened);
            difference.after = difference.after.take().map(shortened);
        }
        self.differences = differences;
    }
}

fn shortened(value: Value) -> Value {
    let text = value.to_string();
    match text.len() > VALUE_BYTES {
        true => json!({"sha256": Digest::of(text.as_bytes()), "bytes": text.len()}),
        false => value,
    }
}
