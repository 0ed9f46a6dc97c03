//! Definitions: tags, their moves, and revisions.

use milepost_core::document::{Diff as CoreDiff, FieldDiff, Operation, StepDiff};
use milepost_engine::EngineError;
use milepost_engine::definitions::{Moved, Protection as CoreProtection, Target as CoreTarget, Trust as CoreTrust};
use milepost_store::rows::{MoveRow, RevisionRow, TagRow};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;

/// A name and what it points at.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Tag {
    pub(crate) tag: String,
    pub(crate) revision_id: Uuid,
    /// Of the revision: `dag_version`, `patch_set` or `run_snapshot`.
    kind: String,
    /// The SHA-256 of the document that it means.
    version_hash: String,
    /// 1 at first; grows each time the tag moves. The ETag.
    pub(crate) tag_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_by: Option<String>,
    #[schema(format = DateTime)]
    moved_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protected: Option<Protection>,
}

impl TryFrom<TagRow> for Tag {
    type Error = EngineError;

    fn try_from(row: TagRow) -> Result<Tag, EngineError> {
        let protected = CoreProtection::of(&row)?.map(Protection::from);
        Ok(Tag {
            tag: row.tag,
            revision_id: row.revision_id,
            kind: row.kind.to_string(),
            version_hash: format!("sha256:{}", row.version_hash),
            tag_version: row.version,
            moved_by: row.moved_by,
            moved_at: row.moved_at.to_string(),
            message: row.message,
            protected,
        })
    }
}

/// What protects a tag. A protected tag only points at documents that pass today's checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"movers": ["release-bot"], "trust": "protected"}))]
pub(crate) struct Protection {
    /// Who may move it; anybody if there is none.
    #[serde(default)]
    movers: Vec<String>,
    /// Whose results its runs may reuse.
    #[serde(default)]
    trust: Trust,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Trust {
    /// Those of protected tags.
    #[default]
    Protected,
    /// Anybody's.
    Any,
}

impl From<CoreProtection> for Protection {
    fn from(protection: CoreProtection) -> Protection {
        let trust = match protection.trust {
            CoreTrust::Protected => Trust::Protected,
            CoreTrust::Any => Trust::Any,
        };
        Protection { movers: protection.movers, trust }
    }
}

impl From<Protection> for CoreProtection {
    fn from(protection: Protection) -> CoreProtection {
        let trust = match protection.trust {
            Trust::Protected => CoreTrust::Protected,
            Trust::Any => CoreTrust::Any,
        };
        CoreProtection { movers: protection.movers, trust }
    }
}

/// One move of a tag.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Move {
    /// 1, 2, 3 …: the tag's version that the move made.
    pub(crate) move_id: u64,
    /// `move`, `undo`, `redo`, `restore` or `merge`.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_revision_id: Option<Uuid>,
    to_revision_id: Uuid,
    to_version_hash: String,
    /// The move whose result it brought back.
    #[serde(skip_serializing_if = "Option::is_none")]
    restores_move_id: Option<u64>,
    /// What was merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged_revision_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_by: Option<String>,
    #[schema(format = DateTime)]
    moved_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<MoveRow> for Move {
    fn from(row: MoveRow) -> Move {
        Move {
            move_id: row.move_id,
            kind: row.kind.to_string(),
            from_revision_id: row.from_revision_id,
            to_revision_id: row.to_revision_id,
            to_version_hash: format!("sha256:{}", row.to_version_hash),
            restores_move_id: row.restores_move_id,
            merged_revision_id: row.merged_revision_id,
            moved_by: row.moved_by,
            moved_at: row.moved_at.to_string(),
            message: row.message,
        }
    }
}

/// A tag that moved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MovedTag {
    #[serde(flatten)]
    pub(crate) tag: Tag,
    /// The move that made it so.
    #[serde(rename = "move")]
    moved: Move,
}

impl TryFrom<Moved> for MovedTag {
    type Error = EngineError;

    fn try_from(moved: Moved) -> Result<MovedTag, EngineError> {
        Ok(MovedTag { tag: moved.tag.try_into()?, moved: moved.moved.into() })
    }
}

/// A document at one moment of its life.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Revision {
    revision_id: Uuid,
    /// `dag_version`: a whole document. `patch_set`: operations on top of another revision. `run_snapshot`: what runs ran.
    kind: String,
    /// The SHA-256 of the document that it means.
    version_hash: String,
    /// The SHA-256 of what is stored of it.
    cas_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_hash: Option<String>,
    /// The document that a chain of patches begins with.
    base_version: Option<Uuid>,
    parent_id: Option<Uuid>,
    /// What was merged into the parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    merge_parent_id: Option<Uuid>,
    /// How many patches are between it and its base.
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<RevisionRow> for Revision {
    fn from(row: RevisionRow) -> Revision {
        Revision {
            revision_id: row.revision_id,
            kind: row.kind.to_string(),
            version_hash: format!("sha256:{}", row.version_hash),
            cas_id: format!("sha256:{}", row.cas_hash),
            plan_hash: row.plan_hash.map(|hash| format!("sha256:{hash}")),
            base_version: row.base_version,
            parent_id: row.parent_id,
            merge_parent_id: row.merge_parent_id,
            depth: row.depth,
            message: row.message,
            created_by: row.created_by,
            created_at: row.created_at.to_string(),
        }
    }
}

/// What a reference means.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Target {
    /// As it was asked for.
    #[serde(rename = "ref")]
    reference: String,
    revision_id: Uuid,
    version_hash: String,
}

impl Target {
    pub(crate) fn of(reference: String, target: &CoreTarget) -> Target {
        let version_hash = format!("sha256:{}", target.version_hash);
        Target { reference, revision_id: target.revision_id, version_hash }
    }
}

/// What is different.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Diff {
    /// RFC 6902 operations that make the second document of the first.
    #[schema(value_type = Vec<Any>)]
    ops: Vec<Operation>,
    /// Step by step: added, removed or changed, with the fields that changed.
    #[schema(value_type = Vec<Any>)]
    steps: Vec<StepDiff>,
    /// What changed outside of steps.
    #[schema(value_type = Vec<Any>)]
    settings: Vec<FieldDiff>,
}

impl From<CoreDiff> for Diff {
    fn from(diff: CoreDiff) -> Diff {
        Diff { ops: diff.ops, steps: diff.steps, settings: diff.settings }
    }
}
