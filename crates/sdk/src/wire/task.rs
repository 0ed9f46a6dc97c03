//! A task as a worker is given it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::RunId;

/// One attempt of one step, in the hands of a worker. Written without its lease: that is between worker and server.
#[derive(Clone, Deserialize, Serialize)]
pub struct Task {
    pub task_id: String,
    pub run_id: RunId,
    pub step_id: String,
    pub skill: String,
    pub input: Box<RawValue>,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    #[serde(skip_serializing)]
    pub(crate) lease_token: String,
    #[serde(default)]
    pub lease_expires_at: String,
    pub heartbeat_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub context: TaskContext,
}

/// Where a task comes from.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TaskContext {
    pub workflow: String,
    pub workflow_version: String,
    pub queue: String,
    pub priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

// By hand, so that no secret and no lease gets into a log.
impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Task { task_id, run_id, step_id, skill, logical_attempt, engine_attempt, .. } = self;
        write!(f, "task {task_id}: {skill} for {step_id} of {run_id} ({logical_attempt}/{engine_attempt})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = r#"{"task_id":"01a1defb-20b0-76b2-bcac-6128b7360904","run_id":"01a1defb-20b0-76b2-bcac-6128b7360903","step_id":"shots[3]","skill":"image.render","input":{"n": 1.0},"logical_attempt":1,"engine_attempt":2,"lease_token":"opaque","lease_expires_at":"2026-11-15T11:12:25Z","heartbeat_ms":10000,"secrets":{"KEY":"hush"},"env":{},"context":{"workflow":"w","workflow_version":"1.0.0","queue":"audio","priority":0},"colour":"blue"}"#;

    #[test]
    fn the_lease_is_not_passed_on_and_the_input_is_as_it_was_written() {
        let task: Task = serde_json::from_str(TASK).unwrap();
        let text = serde_json::to_string(&task).unwrap();
        assert!(!text.contains("opaque") && !text.contains("lease_token"), "{text}");
        assert!(text.contains(r#""input":{"n": 1.0}"#), "{text}");
    }

    #[test]
    fn nothing_secret_is_shown() {
        let shown = format!("{:?}", serde_json::from_str::<Task>(TASK).unwrap());
        assert!(!shown.contains("hush") && !shown.contains("opaque"), "{shown}");
    }
}
