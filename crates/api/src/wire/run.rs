//! A run.

use milepost_core::json::Json;
use milepost_engine::{Accepted, view};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;
use super::artifact::Artifact;
use super::step::{ErrorInfo, Step};

/// A run in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RunSummary {
    pub(crate) run_id: Uuid,
    workflow: String,
    workflow_version: String,
    /// `pending`, `approved`, `queued`, `provisioning`, `running`, `paused`, `completed`, `failed`, `cancelled` or
    /// `terminated`.
    pub(crate) status: String,
    /// `initial` or `update`.
    trigger_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_run_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    priority: i32,
    steps_total: u32,
    steps_done: u32,
    steps_failed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    /// The run is parked: it took its process down, and nobody decides it until `RESUME` or `TERMINATE` is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    stuck: Option<Stuck>,
    /// The number of the last event; the ETag of the run.
    pub(crate) last_event_seq: u64,
    /// Only if the log has a gap: what is shown is as it was before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stale: Option<Stale>,
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    completed_at: Option<String>,
    /// When the last event came about.
    #[schema(format = DateTime)]
    updated_at: String,
    /// From its start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_duration_ms: Option<u64>,
    /// Who asked for it: the name of the token. Not there if that had none, and of children, whose parent did.
    #[serde(skip_serializing_if = "Option::is_none")]
    submitted_by: Option<String>,
    /// The engine that began it; a node has its id from when it starts to when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_run_ref: Option<EngineRunRef>,
}

/// The process that began a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EngineRunRef {
    node: String,
}

/// A run's log lacks an event: what is shown is as it was before that, or cannot be made anew from the log. It goes on when
/// the event is there again.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Stale {
    /// The number of the first event that is missing.
    pub(crate) from_seq: u64,
}

impl From<view::Stale> for Stale {
    fn from(stale: view::Stale) -> Stale {
        Stale { from_seq: stale.from_seq }
    }
}

/// Why a run is parked.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Stuck {
    /// For people.
    reason: String,
    #[schema(format = DateTime)]
    since: String,
    /// How often it took its process down.
    crashes: u32,
}

impl From<view::StuckView> for Stuck {
    fn from(stuck: view::StuckView) -> Stuck {
        Stuck { reason: stuck.reason, since: stuck.since.to_string(), crashes: stuck.crashes }
    }
}

/// A run with its steps.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) summary: RunSummary,
    /// Where its plan came from: `ref` as it was asked for, `revision_id`, `version_hash`, the `tags_snapshot` of that
    /// moment (where its tag and the tags of the workflows were that it may run as children, and of theirs), and the
    /// `patch` for this run alone. A run of a document that came along has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    definition: Option<Json>,
    #[schema(value_type = Any)]
    payload: Json,
    /// The outputs of the last steps (those that nothing depends on), by step id; once the run has completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    output: Option<Json>,
    /// Files that are of the run as a whole; those of steps are with them, and `/runs/{run_id}/artifacts` has all.
    artifacts: Vec<Artifact>,
    steps: Vec<Step>,
}

impl RunSummary {
    /// What the run's ETag says: how far it has come, and whether that is all.
    pub(crate) fn version(&self) -> String {
        match self.stale {
            None => self.last_event_seq.to_string(),
            Some(Stale { from_seq }) => format!("{}~{from_seq}", self.last_event_seq),
        }
    }

    pub(crate) const FIELDS: &'static [&'static str] = &[
        "run_id",
        "workflow",
        "workflow_version",
        "status",
        "trigger_type",
        "base_run_id",
        "parent_run_id",
        "request_id",
        "priority",
        "steps_total",
        "steps_done",
        "steps_failed",
        "error",
        "stuck",
        "last_event_seq",
        "stale",
        "created_at",
        "started_at",
        "completed_at",
        "updated_at",
        "total_duration_ms",
        "submitted_by",
        "engine_run_ref",
    ];
}

impl Run {
    /// What a run has beyond its summary.
    pub(crate) const BODY_FIELDS: &'static [&'static str] = &["definition", "payload", "output", "artifacts", "steps"];
}

impl From<view::RunSummary> for RunSummary {
    fn from(run: view::RunSummary) -> RunSummary {
        RunSummary {
            run_id: run.run_id.0,
            workflow: run.workflow,
            workflow_version: run.workflow_version,
            status: run.status.to_string(),
            trigger_type: run.trigger_type.to_owned(),
            base_run_id: run.base_run_id.map(|run| run.0),
            parent_run_id: run.parent_run_id.map(|run| run.0),
            request_id: run.request_id,
            priority: run.priority,
            steps_total: run.steps_total,
            steps_done: run.steps_done,
            steps_failed: run.steps_failed,
            error: run.error.map(ErrorInfo::from),
            stuck: run.stuck.map(Stuck::from),
            last_event_seq: run.last_event_seq,
            stale: run.stale.map(Stale::from),
            created_at: run.created_at.to_string(),
            started_at: run.started_at.map(|at| at.to_string()),
            completed_at: run.completed_at.map(|at| at.to_string()),
            updated_at: run.updated_at.to_string(),
            total_duration_ms: run.total_duration_ms,
            submitted_by: run.submitted_by,
            engine_run_ref: run.engine_run_ref.map(|engine| EngineRunRef { node: engine.node }),
        }
    }
}

impl From<view::RunView> for Run {
    fn from(run: view::RunView) -> Run {
        Run {
            summary: run.summary.into(),
            definition: run.definition,
            payload: run.payload,
            output: run.output,
            artifacts: run.artifacts.into_iter().map(Artifact::from).collect(),
            steps: run.steps.into_iter().map(Step::from).collect(),
        }
    }
}

/// A run that was started.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({"run_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "status": "running"}))]
pub(crate) struct Started {
    run_id: Uuid,
    /// Where it stands now.
    status: String,
}

impl From<Accepted> for Started {
    fn from(accepted: Accepted) -> Started {
        Started { run_id: accepted.run.0, status: accepted.status.to_string() }
    }
}
