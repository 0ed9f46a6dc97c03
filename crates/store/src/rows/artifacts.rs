//! Files that runs leave, and their content in the blob store.

use std::sync::Arc;

use milepost_core::artifact::Artifact;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;

/// An artifact, and the event that records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRow {
    pub run: RunId,
    pub position: ArtifactPosition,
    /// `shots`, or `shots[3]` for a sub-step.
    pub step_id: Option<Arc<str>>,
    pub skill: Option<Arc<str>>,
    pub artifact: Artifact,
    pub created_at: Timestamp,
}

/// An artifact's place in its run: its event, and where in that. Lists are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactPosition {
    pub seq: u64,
    pub place: u32,
}

/// Which artifacts of a run are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArtifactFilter {
    pub step_id: Option<String>,
    pub kind: Option<String>,
}

impl ArtifactFilter {
    #[must_use]
    pub fn matches(&self, row: &ArtifactRow) -> bool {
        let of_step = |step: &String| row.step_id.as_deref() == Some(step);
        self.step_id.as_ref().is_none_or(of_step) && self.kind.as_ref().is_none_or(|kind| *kind == row.artifact.kind)
    }
}

/// Content in the blob store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRow {
    pub sha256: Digest,
    /// Where in the blob store.
    pub blob: String,
    pub size_bytes: u64,
    /// When somebody last uploaded it or was about to name it, give or take a few minutes.
    pub used_at: Timestamp,
}

/// Content, by org and hash.
pub type ContentKey = (OrgId, Digest);
