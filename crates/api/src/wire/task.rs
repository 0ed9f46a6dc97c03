//! What workers say and are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::id::TaskId;
use milepost_core::json::Json;
use milepost_core::text::check_name;
use milepost_core::time::Timestamp;
use milepost_engine::EngineError;
use milepost_engine::skills::LogStream;
use milepost_engine::workers::{self, DirectiveKind, Outcome, TaskState, WorkerTask};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;
use super::artifact::NewArtifact;
use crate::error::{Problem, Result};

/// Longest time that a call waits.
const MAX_WAIT_MS: u64 = 60_000;
const MAX_CAPACITY: u64 = 1000;
/// Results, heartbeats, queues, skills and lines in one call.
const MAX_ITEMS: usize = 10_000;
const MAX_NAME: usize = 255;
/// Shorter ones could be guessed.
const SHORTEST_SECRET: usize = 16;

/// A step to carry out.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Task {
    /// One for all attempts of the step.
    task_id: Uuid,
    run_id: Uuid,
    /// `shots`, or `shots[3]` for one item of a `foreach` step.
    step_id: String,
    skill: String,
    #[schema(value_type = Any)]
    input: Json,
    /// Counts retries by policy and by operators.
    logical_attempt: u32,
    /// Counts how often that attempt was handed out.
    engine_attempt: u32,
    /// Goes with every word about this attempt.
    lease_token: String,
    #[schema(format = DateTime)]
    lease_expires_at: String,
    /// Say that you live at least this often, else the step goes to another worker.
    heartbeat_ms: u64,
    /// The step fails when it takes longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// By the names that the document gives them.
    secrets: BTreeMap<String, String>,
    /// The environment variables that the document declares, those that are set.
    env: BTreeMap<String, String>,
    context: TaskContext,
}

/// Where a task belongs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TaskContext {
    workflow: String,
    workflow_version: String,
    queue: String,
    priority: i32,
    /// W3C trace context with this attempt as the parent.
    traceparent: String,
}

impl From<WorkerTask> for Task {
    fn from(task: WorkerTask) -> Task {
        Task {
            task_id: task.task.0,
            run_id: task.run.0,
            step_id: task.step_id,
            skill: task.skill.to_string(),
            input: task.input,
            logical_attempt: task.logical_attempt,
            engine_attempt: task.engine_attempt,
            lease_token: task.token.to_string(),
            lease_expires_at: task.lease_expires_at.to_string(),
            heartbeat_ms: task.heartbeat_ms,
            timeout_ms: task.timeout_ms,
            secrets: task.secrets.into_iter().collect(),
            env: task.env.into_iter().collect(),
            context: TaskContext {
                workflow: task.workflow.to_string(),
                workflow_version: task.workflow_version.to_string(),
                queue: task.queue.to_string(),
                priority: task.priority,
                traceparent: task.traceparent,
            },
        }
    }
}

/// What a worker says and asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"worker_id": "host-4711-9f2c6c1d", "queues": ["default"], "capacity": 8}))]
pub(crate) struct ExchangeBody {
    /// The worker's name, with a part that is new whenever it starts.
    #[schema(min_length = 1, max_length = 255)]
    worker_id: String,
    /// What only this worker knows, new whenever it starts: whoever says it is told at once what is new of the tasks that this
    /// worker was given. Without it, that is told in answer to heartbeats.
    #[schema(min_length = 16, max_length = 255)]
    worker_secret: Option<String>,
    /// Where it takes tasks from.
    #[serde(default = "default_queues")]
    #[schema(default = json!(["default"]), max_items = 10000)]
    queues: Vec<String>,
    /// Only tasks of these skills; without it, all.
    #[schema(max_items = 10000)]
    skills: Option<Vec<String>>,
    /// How many tasks it takes now.
    #[serde(default)]
    #[schema(maximum = 1000)]
    capacity: u64,
    /// How long to wait when there is nothing to say.
    #[serde(default)]
    #[schema(maximum = 60000)]
    wait_ms: u64,
    /// Attempts that ended.
    #[serde(default)]
    #[schema(max_items = 10000)]
    results: Vec<ResultItem>,
    /// Attempts that go on.
    #[serde(default)]
    #[schema(max_items = 10000)]
    heartbeats: Vec<HeartbeatItem>,
}

pub(crate) fn default_queues() -> Vec<String> {
    vec!["default".to_owned()]
}

impl ExchangeBody {
    pub(crate) fn read(self) -> Result<workers::Exchange> {
        at_most("capacity", self.capacity, MAX_CAPACITY)?;
        let items = [self.queues.len(), self.skills.as_ref().map_or(0, Vec::len), self.results.len()];
        if items.into_iter().chain([self.heartbeats.len()]).any(|count| count > MAX_ITEMS) {
            let detail = format!("a list has more than {MAX_ITEMS} items; say the rest in another call");
            return Err(Problem::unprocessable("too_many_items", detail));
        }
        Ok(workers::Exchange {
            worker: name("worker_id", &self.worker_id)?,
            secret: self.worker_secret.as_deref().map(secret).transpose()?,
            queues: names("queues", &self.queues)?,
            every_org: false,
            skills: self.skills.as_deref().map(|skills| names("skills", skills)).transpose()?,
            capacity: usize::try_from(self.capacity).unwrap_or(usize::MAX),
            wait: wait(self.wait_ms)?,
            results: self.results.into_iter().map(ResultItem::read).collect::<Result<_>>()?,
            heartbeats: self.heartbeats.into_iter().map(HeartbeatItem::read).collect::<Result<_>>()?,
        })
    }
}

/// No more than its hash is kept.
fn secret(text: &str) -> Result<Digest> {
    let chars = text.chars().count();
    if (SHORTEST_SECRET..=MAX_NAME).contains(&chars) {
        return Ok(Digest::of(text.as_bytes()));
    }
    let detail =
        format!("`worker_secret` has {SHORTEST_SECRET} to {MAX_NAME} characters; make a random one at every start");
    Err(Problem::unprocessable("bad_worker_secret", detail))
}

pub(crate) fn wait(wait_ms: u64) -> Result<Duration> {
    at_most("wait_ms", wait_ms, MAX_WAIT_MS)?;
    Ok(Duration::from_millis(wait_ms))
}

pub(crate) fn names(field: &str, texts: &[String]) -> Result<Vec<Arc<str>>> {
    texts.iter().map(|text| name(field, text)).collect()
}

pub(crate) fn name(field: &str, text: &str) -> Result<Arc<str>> {
    check_name(&format!("`{field}`"), text, MAX_NAME, "bad_name").map_err(EngineError::from)?;
    Ok(text.into())
}

fn at_most(field: &str, value: u64, most: u64) -> Result<()> {
    if value <= most {
        return Ok(());
    }
    Err(Problem::unprocessable("bad_body", format!("`{field}` is {value}, and {most} at most; ask for less")))
}

/// How an attempt ended.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultItem {
    task_id: Uuid,
    lease_token: String,
    outcome: OutcomeWord,
    /// Of an attempt that completed.
    #[schema(value_type = Option<Any>)]
    output: Option<Json>,
    /// Files that an attempt leaves that completed. One that does not fit, or whose content is not there, is among what is
    /// `rejected`: put it right and say it again.
    #[serde(default)]
    #[schema(value_type = Vec<NewArtifact>)]
    artifacts: Vec<Json>,
    /// Of an attempt that failed.
    error: Option<Failure>,
    /// The last lines of its log.
    #[serde(default)]
    lines: Vec<Line>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OutcomeWord {
    Completed,
    Failed,
}

impl ResultItem {
    fn read(self) -> Result<workers::WorkerResult> {
        let outcome = match (self.outcome, self.error) {
            (OutcomeWord::Completed, None) => completed(self.output),
            (OutcomeWord::Failed, Some(error)) if self.output.is_none() => Outcome::Failed(error.into()),
            (OutcomeWord::Completed, Some(_)) => {
                let detail = "a result that is completed has no `error`; leave it out, or say failed";
                return Err(Problem::unprocessable("bad_body", detail));
            }
            (OutcomeWord::Failed, _) => {
                let detail = "a result that is failed has an `error` with code and message, and no `output`";
                return Err(Problem::unprocessable("bad_body", detail));
            }
        };
        result(self.task_id, self.lease_token, outcome, self.artifacts, self.lines)
    }
}

pub(crate) fn completed(output: Option<Json>) -> Outcome {
    Outcome::Completed(output.unwrap_or_else(Json::null))
}

pub(crate) fn result(
    task: Uuid,
    token: String,
    outcome: Outcome,
    artifacts: Vec<Json>,
    lines: Vec<Line>,
) -> Result<workers::WorkerResult> {
    Ok(workers::WorkerResult { task: TaskId(task), token, outcome, artifacts, lines: read_lines(lines)? })
}

/// Why an attempt failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    /// A stable word for programs; `non_retryable` of a step's `retry` names such words.
    #[schema(min_length = 1)]
    code: String,
    message: String,
    /// Whether another attempt may succeed.
    #[serde(default = "yes")]
    #[schema(default = true)]
    retryable: bool,
}

fn yes() -> bool {
    true
}

impl From<Failure> for milepost_core::event::ErrorInfo {
    fn from(failure: Failure) -> milepost_core::event::ErrorInfo {
        let Failure { code, message, retryable } = failure;
        let code = if code.is_empty() { "failed".to_owned() } else { code };
        milepost_core::event::ErrorInfo { code, message, retryable }
    }
}

/// An attempt goes on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatItem {
    task_id: Uuid,
    lease_token: String,
    /// How far it is, in whatever form the skill likes, up to `progress_bytes`.
    #[schema(value_type = Option<Any>)]
    progress: Option<Json>,
    /// New lines of its log.
    #[serde(default)]
    lines: Vec<Line>,
}

impl HeartbeatItem {
    fn read(self) -> Result<workers::Heartbeat> {
        let lines = read_lines(self.lines)?;
        Ok(workers::Heartbeat { task: TaskId(self.task_id), token: self.lease_token, progress: self.progress, lines })
    }
}

/// A line of an attempt's log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    #[serde(default = "log_stream")]
    #[schema(default = "log")]
    stream: StreamWord,
    text: String,
    /// When it was said, by the worker's clock.
    #[schema(format = DateTime)]
    at: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum StreamWord {
    Stdout,
    Stderr,
    Log,
}

fn log_stream() -> StreamWord {
    StreamWord::Log
}

pub(crate) fn read_lines(lines: Vec<Line>) -> Result<Vec<workers::WorkerLine>> {
    if lines.len() > MAX_ITEMS {
        let detail = format!("there are more than {MAX_ITEMS} lines; say the rest in another call");
        return Err(Problem::unprocessable("too_many_items", detail));
    }
    lines.into_iter().map(Line::read).collect()
}

impl Line {
    fn read(self) -> Result<workers::WorkerLine> {
        let stream = match self.stream {
            StreamWord::Stdout => LogStream::Stdout,
            StreamWord::Stderr => LogStream::Stderr,
            StreamWord::Log => LogStream::Log,
        };
        let at = self.at.map(|at| at.parse::<Timestamp>()).transpose();
        let at = at.map_err(|error| Problem::unprocessable("bad_time", format!("`at` of a line: {error}")))?;
        Ok(workers::WorkerLine { stream, text: self.text, at })
    }
}

/// What a worker is answered.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExchangeAnswer {
    tasks: Vec<Task>,
    directives: Vec<Directive>,
    /// What changed nothing.
    rejected: Vec<Rejected>,
}

impl From<workers::Exchanged> for ExchangeAnswer {
    fn from(exchanged: workers::Exchanged) -> ExchangeAnswer {
        ExchangeAnswer {
            tasks: exchanged.tasks.into_iter().map(Task::from).collect(),
            directives: exchanged.directives.into_iter().map(Directive::from).collect(),
            rejected: exchanged.rejected.into_iter().map(Rejected::from).collect(),
        }
    }
}

/// What to do with something in hand. Kinds that you do not know may come: leave them alone.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Directive {
    task_id: Uuid,
    /// `cancel`: stop, and report `failed` with the code `cancelled`. `pause`: the run is paused; the step may go on or wait.
    kind: &'static str,
}

impl From<workers::Directive> for Directive {
    fn from(directive: workers::Directive) -> Directive {
        let kind = match directive.kind {
            DirectiveKind::Cancel => "cancel",
            DirectiveKind::Pause => "pause",
        };
        Directive { task_id: directive.token.task_id().0, kind }
    }
}

/// A result or a heartbeat that changed nothing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rejected {
    task_id: Uuid,
    lease_token: String,
    /// `stale_attempt`: somebody else has it now, or the run has ended; drop it. `artifact_missing`, `artifact_exists`,
    /// `bad_artifact`: put that artifact right, or leave it out, and report again. `progress_too_large`, `bad_progress`: the
    /// lease goes on, and the progress is as it was.
    code: String,
    message: String,
}

impl From<workers::RejectedItem> for Rejected {
    fn from(item: workers::RejectedItem) -> Rejected {
        let workers::RejectedItem { task, token, code, message } = item;
        Rejected { task_id: task.0, lease_token: token, code: code.to_owned(), message }
    }
}

/// A task that is open.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenTask {
    task_id: Uuid,
    run_id: Uuid,
    step_id: String,
    skill: String,
    queue: String,
    /// `queued` or `running`.
    status: &'static str,
    /// When it was in line.
    #[schema(format = DateTime)]
    ready_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    lease_expires_at: Option<String>,
    /// What the worker said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    progress: Option<Json>,
}

impl From<TaskState> for OpenTask {
    fn from(task: TaskState) -> OpenTask {
        OpenTask {
            task_id: task.task.0,
            run_id: task.run.0,
            step_id: task.step_id.to_string(),
            skill: task.skill.to_string(),
            queue: task.queue.to_string(),
            status: if task.worker.is_some() { "running" } else { "queued" },
            ready_at: task.ready_at.to_string(),
            worker_id: task.worker.map(|worker| worker.to_string()),
            logical_attempt: task.logical_attempt,
            engine_attempt: task.engine_attempt,
            lease_expires_at: task.lease_expires_at.map(|until| until.to_string()),
            progress: task.progress,
        }
    }
}
