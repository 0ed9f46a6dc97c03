//! Documents under names.

use milepost_core::hash::Digest;
use milepost_core::time::Timestamp;
use uuid::Uuid;

/// A name and what it points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRow {
    pub tag: String,
    pub target: Digest,
    /// 1 at first; grows each time the tag moves.
    pub version: u64,
    pub moved_at: Timestamp,
    /// The revision with that content.
    pub revision_id: Option<Uuid>,
}

/// What became of a deploy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    pub revision_id: Uuid,
    /// There was a revision with that content already.
    pub existing: bool,
    pub tag_version: u64,
}
