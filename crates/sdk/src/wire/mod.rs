//! What goes over the wire, as this crate reads and writes it. What a later release adds is passed over.

mod artifact;
mod exchange;
mod run;
mod task;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use artifact::{Artifact, Blob, NewArtifact};
pub(crate) use exchange::{Answer, Directive, Heartbeat, Outcome, Rejected, TaskResult, instant_text};
pub use exchange::{Line, LogStream, TaskError};
pub use run::{
    Accepted, Deployed, Event, LogLine, Move, Page, Revision, Run, RunStatus, RunSummary, Stale, Started, Step, Stuck,
    Workflow,
};
pub use task::{Task, TaskContext};

/// The id of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<RunId, uuid::Error> {
        text.parse().map(RunId)
    }
}
