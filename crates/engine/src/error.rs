//! What the engine answers when it cannot do what it was asked. Cut by what the caller does next.

use milepost_core::document::Problem;
use milepost_core::id::{OutboxId, RunId, TaskId};
use milepost_core::run::Rejection;
use milepost_store::StoreError;
use milepost_store::blobs::BlobError;
use milepost_store::rows::Stuck;

use crate::care::stuck_reason;
use crate::definitions::{DefinitionError, DefinitionErrorKind};
use crate::room::Full;
use crate::work::WorkError;

/// What a caller is told when the store refuses what the caller sent. The log of the process has the store's own words.
pub const NOT_KEPT: &str = "the database does not take this: a text in it has a character that cannot be kept, or is too long; \
                            take out control characters, or shorten it";

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request does not fit; its message says what to do.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The document has problems.
    #[error("the document has {} problem(s), the first: {}", .0.len(), .0.first().map(ToString::to_string).unwrap_or_default())]
    Invalid(Vec<Problem>),
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    #[error("there is no open task {0}: it has ended, or never was")]
    NoSuchTask(TaskId),
    #[error("there is nothing owed and nothing given up under {0}: it was done, or never was")]
    NoSuchDelivery(OutboxId),
    /// The run's log does not have that event.
    #[error("run {run} has the events 1 to {last_seq}, and no event {seq}")]
    NoSuchEvent { run: RunId, seq: u64, last_seq: u64 },
    /// The caller named the event at which the run had to stand.
    #[error(
        "run {run} is at event {last_seq}, not at {expected}: it went on since you saw it; read it again and decide anew"
    )]
    Moved { run: RunId, expected: u64, last_seq: u64 },
    #[error(
        "run {run} has {last_seq} events, there is nothing after event {after_seq} yet; ask for those after {last_seq} or less"
    )]
    AfterLastEvent { run: RunId, after_seq: u64, last_seq: u64 },
    /// A definition is not found, or not changed.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error("there is no workflow `{0}`; deploy it first, or put it into the same file")]
    NoSuchWorkflow(String),
    /// Nobody here can carry out these skills.
    #[error("{}", unknown_skills(.0))]
    UnknownSkills(Vec<(String, String)>),
    /// It could not be checked.
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// The run took its process down; nobody decides it until somebody says so.
    #[error(
        "run {run} is parked: {}; `milepost runs resume {run}` has it decided again, `milepost runs terminate {run}` ends it without",
        stuck_reason(.stuck)
    )]
    Stuck { run: RunId, stuck: Stuck },
    /// What is stored makes no sense: stop this run and tell someone.
    #[error("run {run} cannot be read: {reason}")]
    Corrupt { run: RunId, reason: String },
    /// An event is missing: nothing can be done with the run until it is there again.
    #[error(
        "run {run} is stale: its log lacks event {seq}, so nothing can be done with it until that is there again; `milepost doctor` lists such runs, a backup has what is missing"
    )]
    LogGap { run: RunId, seq: u64 },
    #[error("the engine is shutting down")]
    ShuttingDown,
}

fn unknown_skills(skills: &[(String, String)]) -> String {
    let list: Vec<String> = skills.iter().map(|(step, skill)| format!("`{skill}` (step `{step}`)")).collect();
    format!(
        "no worker and no built-in skill is there for {}; built-in are {}",
        list.join(", "),
        crate::skills::BUILT_IN.join(", ")
    )
}

impl EngineError {
    /// The same may succeed when it is tried again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            EngineError::Store(StoreError::Unavailable(_) | StoreError::DiskFull(_))
                | EngineError::Blobs(BlobError::Unavailable(_))
                | EngineError::Work(WorkError::Busy)
                | EngineError::Full(_)
        ) || matches!(self, EngineError::Definition(error) if error.kind() == DefinitionErrorKind::Busy)
    }

    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Rejected(rejection) => rejection.code,
            EngineError::Invalid(_) => "invalid_document",
            EngineError::NoSuchRun(_) => "unknown_run",
            EngineError::Stuck { .. } => "run_stuck",
            EngineError::NoSuchTask(_) => "unknown_task",
            EngineError::NoSuchDelivery(_) => "unknown_delivery",
            EngineError::NoSuchEvent { .. } => "unknown_event",
            EngineError::Moved { .. } => Rejection::MOVED,
            EngineError::AfterLastEvent { .. } => "after_last_event",
            EngineError::Definition(error) => error.code(),
            EngineError::NoSuchWorkflow(_) => "unknown_workflow",
            EngineError::UnknownSkills(_) => "unknown_skill",
            EngineError::Work(error) => error.code(),
            EngineError::Full(_) => Full::CODE,
            EngineError::Store(StoreError::Unavailable(_)) => "store_unavailable",
            EngineError::Blobs(_) => "blobs_unavailable",
            EngineError::Store(StoreError::DiskFull(_)) => "disk_full",
            EngineError::Store(StoreError::Refused(_)) => "store_refused",
            EngineError::Store(StoreError::Corrupt(_)) | EngineError::Corrupt { .. } => "corrupt",
            EngineError::Store(StoreError::Unusable(_)) => "store_unusable",
            EngineError::LogGap { .. } => "log_gap",
            EngineError::ShuttingDown => "shutting_down",
        }
    }
}
