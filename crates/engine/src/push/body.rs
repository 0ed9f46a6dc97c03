//! What a receiver is sent: the task, in the very form in which workers are given theirs.

use std::collections::BTreeMap;

use bytes::Bytes;
use milepost_core::json::Json;
use serde::Serialize;
use uuid::Uuid;

use crate::workers::WorkerTask;

#[derive(Serialize)]
struct Body<'a> {
    task_id: Uuid,
    run_id: Uuid,
    step_id: &'a str,
    skill: &'a str,
    input: &'a Json,
    logical_attempt: u32,
    engine_attempt: u32,
    lease_token: String,
    lease_expires_at: String,
    heartbeat_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    secrets: BTreeMap<&'a str, &'a str>,
    env: BTreeMap<&'a str, &'a str>,
    context: Context<'a>,
}

#[derive(Serialize)]
struct Context<'a> {
    workflow: &'a str,
    workflow_version: &'a str,
    queue: &'a str,
    priority: i32,
    traceparent: &'a str,
}

pub(super) fn of(task: &WorkerTask) -> Bytes {
    fn named(pairs: &[(String, String)]) -> BTreeMap<&str, &str> {
        pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
    let body = Body {
        task_id: task.task.0,
        run_id: task.run.0,
        step_id: &task.step_id,
        skill: &task.skill,
        input: &task.input,
        logical_attempt: task.logical_attempt,
        engine_attempt: task.engine_attempt,
        lease_token: task.token.to_string(),
        lease_expires_at: task.lease_expires_at.to_string(),
        heartbeat_ms: task.heartbeat_ms,
        timeout_ms: task.timeout_ms,
        secrets: named(&task.secrets),
        env: named(&task.env),
        context: Context {
            workflow: &task.workflow,
            workflow_version: &task.workflow_version,
            queue: &task.queue,
            priority: task.priority,
            traceparent: &task.traceparent,
        },
    };
    serde_json::to_vec(&body).expect("texts, numbers and JSON are JSON").into()
}
