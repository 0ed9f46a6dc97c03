//! What goes over the wire. Names are fixed; the engine's own types may change behind them.

mod artifact;
pub mod cache;
pub mod definition;
mod event;
mod explanation;
mod log;
mod masked;
mod outbox;
mod page;
mod patch;
mod plan;
mod run;
mod secret;
mod step;
pub(crate) mod task;

pub(crate) use artifact::{Artifact, NewArtifact, Presigned, StoredBlob};
pub(crate) use definition::{
    Collected, Deployed, Difference, Merged, Move, MovedTag, Protection, Revision, RevisionAnswer, Tag, Workflow,
    WorkflowOrRevision, WorkflowRevision,
};
pub(crate) use event::{Event, Transition};
pub(crate) use explanation::Explanation;
pub(crate) use log::LogLine;
pub(crate) use masked::{MaskedRun, MaskedSummary};
pub(crate) use outbox::Delivery;
pub(crate) use page::Page;
pub(crate) use patch::{PatchOutlook, Patched};
pub(crate) use plan::Plan;
pub(crate) use run::{Run, RunSummary, Stale, Started};
pub(crate) use secret::Secret;
pub(crate) use step::{Step, StepDetail};

/// The schema of any JSON value.
pub(crate) type Any = serde_json::Value;
