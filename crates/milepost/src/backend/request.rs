//! What the verbs ask for, the same for a server and for a database.

use milepost_core::change::RebuildRequest;
use milepost_core::document::Loaded;
use milepost_core::id::{RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use serde::{Serialize, Serializer};

/// Which runs are meant.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RunFilter {
    /// Any of these.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "with_commas")]
    pub(crate) status: Vec<RunStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) submitted_by: Option<String>,
    /// Only runs that are parked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stuck: bool,
}

fn with_commas<S: Serializer>(statuses: &[RunStatus], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&joined(statuses))
}

/// `running,paused`
pub(crate) fn joined(statuses: &[RunStatus]) -> String {
    statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(",")
}

/// A secret to be kept. It has no `Debug`: nothing prints it.
pub(crate) struct NewSecret {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Who may have it; as before if it is not said, any if there is none.
    pub(crate) queues: Option<Vec<String>>,
    pub(crate) workflows: Option<Vec<String>>,
}

/// Who moves a tag and why, and what it must still be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mover {
    pub(crate) actor: Option<String>,
    pub(crate) message: Option<String>,
    /// The version that the tag has now; any where it is not said.
    pub(crate) expect: Option<u64>,
}

/// Where a tag is to be brought back to.
#[derive(Clone, Debug)]
pub(crate) enum Past {
    /// What a reference means.
    Target(String),
    /// Where it was then.
    At(Timestamp),
}

/// What is done to many runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Cancel,
    Terminate,
    Pause,
    Resume,
    Retry,
}

impl Action {
    /// As it is typed.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Action::Cancel => "cancel",
            Action::Terminate => "terminate",
            Action::Pause => "pause",
            Action::Resume => "resume",
            Action::Retry => "retry",
        }
    }

    pub(crate) fn signal(self) -> &'static str {
        match self {
            Action::Cancel => "CANCEL",
            Action::Terminate => "TERMINATE",
            Action::Pause => "PAUSE",
            Action::Resume => "RESUME",
            Action::Retry => "RETRY_STEP",
        }
    }

    /// Whether it can mean anything to a run that stands so.
    pub(crate) fn fits(self, status: RunStatus) -> bool {
        match self {
            Action::Cancel | Action::Terminate => !status.is_terminal(),
            Action::Pause => status == RunStatus::Running,
            Action::Resume => status == RunStatus::Paused,
            Action::Retry => status == RunStatus::Failed,
        }
    }
}

/// One word to all runs that fit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BulkOrder {
    pub(crate) action: Action,
    pub(crate) filter: RunFilter,
    /// Only count them.
    pub(crate) dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// A signal to a run. It has its id from the beginning, so that sending it twice is sending it once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewSignal {
    #[serde(rename = "type")]
    pub(crate) name: String,
    pub(crate) signal_id: SignalId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step_id: Option<String>,
    pub(crate) payload: Json,
}

impl NewSignal {
    pub(crate) fn new(name: &str, payload: Json) -> NewSignal {
        NewSignal { name: name.to_owned(), signal_id: SignalId(uuid::Uuid::now_v7()), step_id: None, payload }
    }

    /// One without payload.
    pub(crate) fn plain(name: &str) -> NewSignal {
        NewSignal::new(name, Json::trusted("{}"))
    }
}

/// A change of a run's definition.
#[derive(Debug, Serialize)]
pub(crate) struct NewPatch {
    pub(crate) ops: Json,
    pub(crate) rerun: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    pub(crate) patch_id: SignalId,
}

/// The newest patch of a run is to be taken back.
#[derive(Debug, Serialize)]
pub(crate) struct UndoPatch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    pub(crate) patch_id: SignalId,
}

/// A run to be started.
#[derive(Debug)]
pub(crate) struct NewRun {
    pub(crate) subject: Subject,
    pub(crate) payload: Json,
    pub(crate) request_id: Option<String>,
    pub(crate) priority: i32,
    pub(crate) start_at: Option<Timestamp>,
    /// Steps that run whatever is kept.
    pub(crate) rebuild: Option<RebuildRequest>,
}

/// What is run.
#[derive(Debug)]
pub(crate) enum Subject {
    /// What was deployed under this name, or has this hash.
    Workflow(String),
    /// The first of these; the others are deployed, so that it finds them.
    Documents(Box<Documents>),
    /// A run that was, with changes.
    Update(Update),
}

/// What an update run goes back to, and what is different. Its payload is made of the base run's.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) base: RunId,
    pub(crate) changes: Vec<Change>,
    /// The definition to run now, where it is not the base run's own.
    pub(crate) definition: Option<Newer>,
}

/// A definition that an update run has instead of its base run's.
#[derive(Debug)]
pub(crate) enum Newer {
    /// What was deployed under this name, or has this hash.
    Workflow(String),
    /// The first of these, as with a start.
    Documents(Box<Documents>),
}

/// A change of a type that the document declares.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) payload: Json,
}

/// The documents of a file, read and checked.
#[derive(Debug)]
pub(crate) struct Documents {
    pub(crate) first: Loaded,
    pub(crate) others: Vec<Loaded>,
}
