//! Runs, steps, events and definitions, as a server tells of them.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{Artifact, LogStream, RunId, TaskError};

/// One page of a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Asks for the next page; none after the last.
    pub next_cursor: Option<String>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    Pending,
    Approved,
    Queued,
    Provisioning,
    Running,
    Paused,
    Completed,
    Failed,
    Cancelled,
    Terminated,
    /// One that a later release has.
    #[serde(other)]
    Other,
}

impl RunStatus {
    /// Nothing more happens by itself.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Terminated)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A run in a list.
#[derive(Clone, Debug, Deserialize)]
pub struct RunSummary {
    pub run_id: RunId,
    pub workflow: String,
    #[serde(default)]
    pub workflow_version: String,
    pub status: RunStatus,
    pub base_run_id: Option<RunId>,
    pub parent_run_id: Option<RunId>,
    pub request_id: Option<String>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub steps_total: u32,
    #[serde(default)]
    pub steps_done: u32,
    #[serde(default)]
    pub steps_failed: u32,
    pub error: Option<TaskError>,
    /// It is parked: it took its server down, and waits for `RESUME` or `TERMINATE`.
    pub stuck: Option<Stuck>,
    #[serde(default)]
    pub last_event_seq: u64,
    /// Only if its log has a gap.
    pub stale: Option<Stale>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// When the last event came about.
    pub updated_at: Option<Timestamp>,
    /// From its start to its end.
    pub total_duration_ms: Option<u64>,
    /// Who asked for it: the name of a token.
    pub submitted_by: Option<String>,
}

/// The run's log lacks an event: what is shown is as it was before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Stale {
    /// The number of the first event that is missing.
    pub from_seq: u64,
}

/// Why a run is parked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Stuck {
    pub reason: String,
    pub since: Timestamp,
    /// How often it took its server down.
    pub crashes: u32,
}

/// A run with its steps.
#[derive(Clone, Debug, Deserialize)]
pub struct Run {
    #[serde(flatten)]
    pub summary: RunSummary,
    #[serde(default)]
    pub payload: Value,
    /// The outputs of the last steps, by step id; null until there are any.
    #[serde(default)]
    pub output: Value,
    #[serde(default)]
    pub steps: Vec<Step>,
}

impl Run {
    #[must_use]
    pub fn status(&self) -> RunStatus {
        self.summary.status
    }

    /// A step by its id; items of a `foreach` are `shots[3]`.
    #[must_use]
    pub fn step(&self, step_id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.step_id == step_id)
    }
}

/// A step of a run.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    pub step_id: String,
    pub skill: String,
    /// `pending`, `running`, `completed`, `failed` or `skipped`.
    pub status: String,
    pub skip_reason: Option<String>,
    #[serde(default)]
    pub logical_attempt: u32,
    #[serde(default)]
    pub engine_attempt: u32,
    #[serde(default)]
    pub output: Value,
    pub error: Option<TaskError>,
    /// Files that it left.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
}

/// A fact about a run.
#[derive(Clone, Debug, Deserialize)]
pub struct Event {
    pub event_id: Uuid,
    pub run_id: RunId,
    /// Counts 1, 2, 3, … in every run.
    pub run_seq: u64,
    pub event_type: String,
    pub step_id: Option<String>,
    pub logical_attempt: Option<u32>,
    pub engine_attempt: Option<u32>,
    #[serde(default)]
    pub data: Value,
    pub caused_by_signal_id: Option<Uuid>,
    pub emitted_at: Timestamp,
    pub persisted_at: Timestamp,
}

/// A line that a step said.
#[derive(Clone, Debug, Deserialize)]
pub struct LogLine {
    pub step_id: String,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// Counted from 0 within the attempt.
    pub line: u64,
    pub at: Timestamp,
    #[serde(default)]
    pub stream: LogStream,
    pub text: String,
}

/// The answer to a start.
#[derive(Clone, Debug, Deserialize)]
pub struct Started {
    pub run_id: RunId,
    pub status: RunStatus,
}

/// The answer to a signal.
#[derive(Clone, Debug, Deserialize)]
pub struct Accepted {
    pub run_id: RunId,
    /// Where the run stands now.
    pub status: RunStatus,
}

/// The answer to a deployment.
#[derive(Clone, Debug, Deserialize)]
pub struct Deployed {
    pub revision_id: Uuid,
    /// `sha256:…` of the canonical document.
    pub version_hash: String,
    pub tag: String,
    /// Grows each time the tag moves.
    pub tag_version: u64,
}

/// A name, and what it points at.
#[derive(Clone, Debug, Deserialize)]
pub struct Workflow {
    pub tag: String,
    pub version_hash: String,
    pub tag_version: Option<u64>,
    pub moved_at: Option<Timestamp>,
}

/// A document at one moment of its life.
#[derive(Clone, Debug, Deserialize)]
pub struct Revision {
    pub revision_id: Uuid,
    /// Of the document that it means.
    pub name: Option<String>,
    /// `dag_version`, `patch_set` or `run_snapshot`.
    pub kind: String,
    pub version_hash: String,
    /// The SHA-256 of what is stored of it.
    pub cas_id: String,
    /// The document that a chain of patches begins with.
    pub base_version: Option<Uuid>,
    pub parent_id: Option<Uuid>,
    pub merge_parent_id: Option<Uuid>,
    #[serde(default)]
    pub depth: u32,
    pub message: Option<String>,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    /// What its author noted beside it.
    #[serde(default)]
    pub meta: Value,
}

/// One move of a name.
#[derive(Clone, Debug, Deserialize)]
pub struct Move {
    /// The version of the name that it made.
    pub move_id: u64,
    /// `move`, `undo`, `redo`, `restore` or `merge`.
    pub kind: String,
    pub from_revision_id: Option<Uuid>,
    pub from_kind: Option<String>,
    pub to_revision_id: Uuid,
    pub to_version_hash: String,
    /// The document that the name still had to mean, if its author said so.
    pub expected_hash: Option<String>,
    /// The move whose result it brought back.
    pub restores_move_id: Option<u64>,
    pub moved_by: Option<String>,
    pub moved_at: Timestamp,
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_as_it_is_on_the_wire() {
        assert_eq!(RunStatus::Running.to_string(), "running");
        assert_eq!(serde_json::from_str::<RunStatus>("\"asleep\"").unwrap(), RunStatus::Other);
    }

    #[test]
    fn a_run_may_have_more_than_is_read_and_less_than_could_be() {
        let text = r#"{"run_id":"01a1defb-2230-7772-a9d6-506d39a96b23","workflow":"w","status":"completed","created_at":"2026-11-15T11:12:25Z","payload":{},"output":{"a":{"n":1}},"steps":[{"step_id":"a","skill":"echo","status":"completed","output":{"n":1}}],"colour":"blue"}"#;
        let run: Run = serde_json::from_str(text).unwrap();
        assert!(run.status().is_terminal());
        assert_eq!(run.step("a").unwrap().output["n"], 1);
        assert!(run.step("b").is_none());
    }
}
