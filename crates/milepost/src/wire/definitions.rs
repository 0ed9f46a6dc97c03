//! What is read of answers about tags, their history, diffs and merges.

use milepost_core::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::some;

/// A name and what it points at.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Tag {
    pub(crate) tag: String,
    pub(crate) revision_id: String,
    /// `dag_version` or `patch_set`.
    #[serde(default)]
    pub(crate) kind: String,
    pub(crate) version_hash: String,
    pub(crate) tag_version: u64,
    pub(crate) moved_by: Option<String>,
    pub(crate) moved_at: Option<Timestamp>,
    pub(crate) message: Option<String>,
    pub(crate) protected: Option<Protection>,
}

/// Who may move a tag, and how far its runs are trusted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Protection {
    Flag(bool),
    Rules { movers: Option<Vec<String>>, trust: Option<String> },
}

/// Why a tag moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MoveKind {
    Move,
    Undo,
    Redo,
    Restore,
    Merge,
}

/// One move of a tag.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Move {
    /// The tag's version that it made.
    pub(crate) move_id: u64,
    pub(crate) kind: MoveKind,
    pub(crate) to_version_hash: String,
    /// Of an undo, a redo or a restore: the move whose result it brought back.
    pub(crate) restores_move_id: Option<u64>,
    pub(crate) merged_revision_id: Option<String>,
    pub(crate) moved_by: Option<String>,
    pub(crate) moved_at: Option<Timestamp>,
    pub(crate) message: Option<String>,
}

/// A tag, and the move that brought it there.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Moved {
    #[serde(flatten)]
    pub(crate) tag: Tag,
    #[serde(rename = "move")]
    pub(crate) last: Move,
}

/// What is different between two documents.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Diff {
    #[serde(default)]
    pub(crate) steps: Vec<StepDiff>,
    #[serde(default)]
    pub(crate) settings: Vec<FieldDiff>,
    #[serde(default)]
    pub(crate) truncated: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StepDiff {
    pub(crate) step_id: String,
    pub(crate) change: Change,
    #[serde(default)]
    pub(crate) fields: Vec<FieldDiff>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Added,
    Removed,
    Changed,
}

/// A field that differs; a side that does not have it has no value, which is not the same as null.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct FieldDiff {
    pub(crate) path: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) from: Option<Value>,
    #[serde(default, deserialize_with = "some")]
    pub(crate) to: Option<Value>,
}

/// A diff, and what of.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Difference {
    pub(crate) from: DiffEnd,
    pub(crate) to: DiffEnd,
    #[serde(flatten)]
    pub(crate) diff: Diff,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DiffEnd {
    #[serde(rename = "ref")]
    pub(crate) reference: String,
    pub(crate) version_hash: String,
}

/// What a merge did, or would do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Merged {
    /// `up_to_date`, `fast_forward` or `merged`.
    pub(crate) outcome: String,
    pub(crate) tag: Tag,
    #[serde(default)]
    pub(crate) diff: Diff,
}

/// Something that a merge could not decide.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Conflict {
    pub(crate) kind: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default, deserialize_with = "some")]
    pub(crate) base: Option<Value>,
    #[serde(default, deserialize_with = "some")]
    pub(crate) ours: Option<Value>,
    #[serde(default, deserialize_with = "some")]
    pub(crate) theirs: Option<Value>,
}

/// What nothing refers to any more.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Collected {
    #[serde(default)]
    pub(crate) dry_run: bool,
    pub(crate) revisions: u64,
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    /// Chains of patches that were made short.
    #[serde(default)]
    pub(crate) compacted: u64,
}
