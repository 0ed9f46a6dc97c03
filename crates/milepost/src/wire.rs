//! What this program reads of the answers of a server, or of a database that is asked in its place. What it does not
//! read is kept all the same: `-o json` prints an answer as it came.

mod cache;
mod definitions;
mod explanation;
pub(crate) mod plan;

pub(crate) use cache::{CacheCounts, CacheKey, CacheResult, CacheStats, Disowned, Evicted, StepCacheStats};
pub(crate) use definitions::{
    Change, Collected, Conflict, Diff, DiffEnd, Difference, FieldDiff, Merged, Move, MoveKind, Moved, Protection, Tag,
};
pub(crate) use explanation::{Difference as KeyDifference, Explanation, Nearest, Origin};
use milepost_core::event::ErrorInfo;
use milepost_core::id::{OutboxId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;
pub(crate) use milepost_sdk::wire::Page;
pub(crate) use plan::{Planned, PlannedStep};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An answer, read, with its own words.
#[derive(Clone, Debug)]
pub(crate) struct Said<T> {
    json: Json,
    pub(crate) value: T,
}

impl<T: DeserializeOwned> Said<T> {
    /// What a server would say of it.
    pub(crate) fn of(view: &impl Serialize) -> anyhow::Result<Said<T>> {
        Ok(serde_json::from_str(&serde_json::to_string(view)?)?)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let value = serde_json::from_str(json.as_str()).map_err(D::Error::custom)?;
        Ok(Said { json, value })
    }
}

impl<T> Serialize for Said<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

/// A run in a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Summary {
    pub(crate) run_id: RunId,
    pub(crate) workflow: String,
    #[serde(default)]
    pub(crate) workflow_version: String,
    pub(crate) status: RunStatus,
    pub(crate) base_run_id: Option<RunId>,
    pub(crate) parent_run_id: Option<RunId>,
    pub(crate) request_id: Option<String>,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default)]
    pub(crate) steps_total: u32,
    #[serde(default)]
    pub(crate) steps_done: u32,
    #[serde(default)]
    pub(crate) steps_failed: u32,
    pub(crate) error: Option<ErrorInfo>,
    /// Its log has a gap.
    pub(crate) stale: Option<Stale>,
    pub(crate) stuck: Option<Stuck>,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) completed_at: Option<Timestamp>,
    pub(crate) submitted_by: Option<String>,
}

/// The first event that a run's log lacks.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Stale {
    pub(crate) from_seq: u64,
}

/// Why a run is parked.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stuck {
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
}

/// A file that a run left.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Artifact {
    pub(crate) artifact_id: String,
    pub(crate) run_id: RunId,
    pub(crate) step_id: Option<String>,
    pub(crate) kind: String,
    pub(crate) uri: String,
    pub(crate) sha256: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) filename: Option<String>,
    pub(crate) training_step: Option<i64>,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

/// A run with its steps.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) summary: Summary,
    pub(crate) payload: Json,
    #[serde(default, deserialize_with = "some")]
    pub(crate) output: Option<Json>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) step_id: String,
    pub(crate) skill: String,
    pub(crate) status: StepStatus,
    pub(crate) skip_reason: Option<String>,
    #[serde(default)]
    pub(crate) logical_attempt: u32,
    #[serde(default)]
    pub(crate) engine_attempt: u32,
    #[serde(default, deserialize_with = "some")]
    pub(crate) output: Option<Json>,
    pub(crate) error: Option<ErrorInfo>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<u64>,
}

/// A step with all that is known of it.
#[derive(Clone, Debug)]
pub(crate) struct StepDetail {
    pub(crate) step: Step,
    pub(crate) more: StepMore,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StepMore {
    #[serde(default)]
    pub(crate) depends_on: Vec<String>,
    #[serde(default, deserialize_with = "some")]
    pub(crate) input: Option<Json>,
    #[serde(default)]
    pub(crate) attempts: Vec<Attempt>,
}

// Twice from the same text: serde's `flatten` cannot pass JSON through as it is written.
impl<'de> Deserialize<'de> for StepDetail {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let step = Said::<Step>::deserialize(deserializer)?;
        let more = serde_json::from_str(step.json.as_str()).map_err(D::Error::custom)?;
        Ok(StepDetail { step: step.value, more })
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attempt {
    #[serde(default)]
    pub(crate) logical_attempt: u32,
    #[serde(default)]
    pub(crate) engine_attempt: u32,
    #[serde(default)]
    pub(crate) status: String,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) error: Option<ErrorInfo>,
}

/// What came of a word to many runs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Bulk {
    #[serde(default)]
    pub(crate) dry_run: bool,
    pub(crate) matched: u64,
    #[serde(default)]
    pub(crate) accepted: u64,
    #[serde(default)]
    pub(crate) rejected: Vec<Rejected>,
    #[serde(default)]
    pub(crate) more: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rejected {
    pub(crate) run_id: RunId,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// A change of a run's status.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Transition {
    pub(crate) run_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<RunStatus>,
    pub(crate) to: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal_id: Option<SignalId>,
    /// Who had it happen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed_by: Option<String>,
    pub(crate) at: Timestamp,
}

/// The answer to a start.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Started {
    pub(crate) run_id: RunId,
}

/// The answer to a signal.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) run_id: RunId,
    pub(crate) status: RunStatus,
}

/// The answer to a patch.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Patched {
    pub(crate) run_id: RunId,
    pub(crate) status: RunStatus,
    #[serde(default)]
    pub(crate) existing: bool,
    #[serde(flatten)]
    pub(crate) steps: StepLists,
}

/// What a patch would do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PatchOutlook {
    pub(crate) fits: bool,
    pub(crate) refusal: Option<PatchRefusal>,
    #[serde(flatten)]
    pub(crate) steps: StepLists,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PatchRefusal {
    pub(crate) message: String,
}

/// The steps of a run, by what a patch means for them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StepLists {
    pub(crate) kept: Vec<String>,
    pub(crate) new: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) orphaned: Vec<String>,
    pub(crate) rerun: Vec<String>,
}

/// A line that a step said.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LogLine {
    pub(crate) step_id: String,
    #[serde(default)]
    pub(crate) logical_attempt: u32,
    #[serde(default)]
    pub(crate) engine_attempt: u32,
    /// Counted within the attempt.
    pub(crate) line: u64,
    pub(crate) at: Option<Timestamp>,
    pub(crate) text: String,
}

/// The answer to a deployment.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Deployed {
    pub(crate) version_hash: String,
    pub(crate) tag: String,
    pub(crate) tag_version: Option<u64>,
}

/// A name in the list of workflows.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Workflow {
    pub(crate) tag: String,
    pub(crate) version_hash: String,
    pub(crate) tag_version: Option<u64>,
    pub(crate) moved_at: Option<Timestamp>,
}

/// A document, as it is stored.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Definition {
    #[serde(default)]
    pub(crate) version_hash: String,
    pub(crate) document: Json,
}

/// Something that is owed to others, or was given up.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) id: OutboxId,
    /// `pending`, `processing` or `dead`.
    pub(crate) status: String,
    pub(crate) run_id: RunId,
    pub(crate) step_id: Option<String>,
    #[serde(default)]
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) next_try_at: Option<Timestamp>,
}

/// What trying a delivery again came to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Retried {
    pub(crate) id: OutboxId,
    /// `pending`, `step_retried` or `dropped`.
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
}

/// A queue that has tasks, or limits.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Queue {
    pub(crate) queue: String,
    pub(crate) waiting: u64,
    pub(crate) running: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_ready_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<Rate>,
}

/// So many tasks may begin within so much time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Rate {
    pub(crate) limit: u32,
    pub(crate) per_ms: u64,
}

/// What a queue may do from now on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Limited {
    pub(crate) queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<Rate>,
}

/// A secret without its value.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Secret {
    pub(crate) name: String,
    /// The newest.
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) queues: Vec<String>,
    #[serde(default)]
    pub(crate) workflows: Vec<String>,
    pub(crate) created_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SecretSet {
    pub(crate) name: String,
    pub(crate) version: u32,
}

/// What sealing anew did.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Rotated {
    pub(crate) resealed: u64,
    pub(crate) unreadable: u64,
}

/// A value that is `null` is a value.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_pass_through_as_they_are_written() {
        let step = r#"{"step_id":"a","skill":"echo","status":"completed","output":{"n": 1.0},"input":[1 ,2],"depends_on":["b"]}"#;
        let detail: Said<StepDetail> = serde_json::from_str(step).unwrap();
        assert_eq!(detail.value.step.output.unwrap().as_str(), r#"{"n": 1.0}"#);
        assert_eq!(detail.value.more.input.unwrap().as_str(), "[1 ,2]");
        let run = r#"{"run_id":"01a1defb-2230-7772-a9d6-506d39a96b23","workflow":"w","status":"completed","created_at":"2026-11-15T11:12:25Z","payload":{ },"output":null,"steps":[],"colour":"blue"}"#;
        let run: Said<Run> = serde_json::from_str(run).unwrap();
        assert_eq!(run.value.payload.as_str(), "{ }");
        assert_eq!(run.value.output.unwrap().as_str(), "null");
    }

    #[test]
    fn what_is_not_read_is_kept() {
        let text = r#"{"run_id":"01a1defb-2230-7772-a9d6-506d39a96b23","status":"running","colour":"blue"}"#;
        let said: Said<Accepted> = serde_json::from_str(text).unwrap();
        assert_eq!(said.value.status, RunStatus::Running);
        assert_eq!(serde_json::to_string(&said).unwrap(), text);
    }
}
