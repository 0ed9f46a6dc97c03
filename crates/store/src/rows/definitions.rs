//! Documents in versions: content by its digest, revisions, tags and their moves.

use std::fmt;
use std::str::FromStr;

use milepost_core::hash::Digest;
use milepost_core::time::Timestamp;
use uuid::Uuid;

/// Content under its digest: a canonical document, or the operations of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobRow {
    pub hash: Digest,
    pub media_type: String,
    pub size: u64,
    /// Empty if it is in the blob store.
    pub content: Vec<u8>,
    /// Its key in the blob store.
    pub blob: Option<String>,
    pub created_at: Timestamp,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),+ }

        impl $name {
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<$name, UnknownWord> {
                match text {
                    $($word => Ok($name::$variant),)+
                    other => Err(UnknownWord(other.to_owned())),
                }
            }
        }
    };
}

/// A word in a column that no release knows.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no kind of a revision or of a move")]
pub struct UnknownWord(String);

words! {
    /// What a revision is.
    RevisionKind {
        DagVersion = "dag_version",
        PatchSet = "patch_set",
        RunSnapshot = "run_snapshot",
    }
}

words! {
    /// Why a tag moved.
    MoveKind {
        Move = "move",
        Undo = "undo",
        Redo = "redo",
        Restore = "restore",
        Merge = "merge",
    }
}

/// A document at one moment of its life. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevisionRow {
    pub revision_id: Uuid,
    pub kind: RevisionKind,
    /// What is stored of it: the document, or the operations of a patch.
    pub cas_hash: Digest,
    /// The document that it means.
    pub version_hash: Digest,
    /// Of a snapshot.
    pub plan_hash: Option<Digest>,
    /// The document that a patch's chain begins with.
    pub base_version: Option<Uuid>,
    pub parent_id: Option<Uuid>,
    /// What was merged into the parent.
    pub merge_parent_id: Option<Uuid>,
    /// How many patches are between it and its base.
    pub depth: u32,
    pub message: Option<String>,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
    /// Of the document that it means; none if it was made by an early release.
    pub name: Option<String>,
    /// JSON: what its author noted beside it.
    pub meta: Option<String>,
}

/// One patch of a head's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainRow {
    pub head_id: Uuid,
    pub seq: u32,
    pub member_id: Uuid,
}

/// A revision with what is stored of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRevision {
    pub revision: RevisionRow,
    pub content: BlobRow,
}

/// A name and what it points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRow {
    pub tag: String,
    pub kind: RevisionKind,
    pub revision_id: Uuid,
    pub version_hash: Digest,
    /// 1 at first; grows each time the tag moves.
    pub version: u64,
    /// The move (no undo, no redo) whose result it points at.
    pub at_move: u64,
    /// The undo that a redo takes back.
    pub redo_move: Option<u64>,
    pub moved_by: Option<String>,
    pub moved_at: Timestamp,
    pub message: Option<String>,
    /// JSON: who may move it, and how far its runs are trusted. Not written by a move.
    pub protection: Option<String>,
}

/// One move of a tag. Never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRow {
    /// The tag's version that it made.
    pub move_id: u64,
    pub kind: MoveKind,
    pub from_revision_id: Option<Uuid>,
    /// Of the revision that it left.
    pub from_kind: Option<RevisionKind>,
    /// The document that the tag pointed at when its author saw it, if that was to be so still.
    pub expected_hash: Option<Digest>,
    /// Of the revision that it went to.
    pub to_kind: RevisionKind,
    pub to_revision_id: Uuid,
    pub to_version_hash: Digest,
    /// Of an undo, a redo or a restore: the move whose result it brought back.
    pub restores_move_id: Option<u64>,
    /// What an undo of it goes back to.
    pub before_move: Option<u64>,
    /// Of an undo: what it took back.
    pub undone_move: Option<u64>,
    /// Of an undo: the undo that a redo takes back after it.
    pub below_move: Option<u64>,
    pub merged_revision_id: Option<Uuid>,
    pub moved_by: Option<String>,
    pub moved_at: Timestamp,
    pub message: Option<String>,
}

/// A tag's move, written if the tag has the version that it is expected to have.
#[derive(Clone, Debug)]
pub struct TagWrite {
    /// 0: there is no such tag yet.
    pub expected_version: u64,
    pub tag: TagRow,
    pub moved: MoveRow,
}

/// A request with an idempotency key, and what it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    pub key: String,
    /// Of what was asked.
    pub fingerprint: Digest,
    pub answer: String,
    pub created_at: Timestamp,
}

/// What is written in one transaction, all of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct DefinitionWrite {
    /// Those that are there already stay as they are.
    pub blobs: Vec<BlobRow>,
    pub revisions: Vec<RevisionRow>,
    pub chain: Vec<ChainRow>,
    pub tag: Option<TagWrite>,
    pub request: Option<RequestRow>,
}

/// What a collection found or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GarbageCount {
    pub revisions: u64,
    pub blobs: u64,
    pub bytes: u64,
}
