//! Tags and their moves.

use milepost_engine::EngineError;
use milepost_engine::definitions::{Moved, Protection as CoreProtection, Trust as CoreTrust};
use milepost_store::rows::{MoveRow, TagRow};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A name and what it points at.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Tag {
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
pub struct Protection {
    /// Who may move it; anybody if there is none.
    #[serde(default)]
    movers: Vec<String>,
    /// Whose results its runs may reuse.
    #[serde(default)]
    trust: Trust,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
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
pub struct Move {
    /// 1, 2, 3 …: the tag's version that the move made.
    pub(crate) move_id: u64,
    /// `move`, `undo`, `redo`, `restore` or `merge`.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_revision_id: Option<Uuid>,
    /// Of the revision that it left: `dag_version`, `patch_set` or `run_snapshot`; the first move has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_kind: Option<String>,
    to_kind: String,
    to_revision_id: Uuid,
    to_version_hash: String,
    /// The SHA-256 of the document that the tag still had to mean, if its author named the version that was seen (`If-Match`).
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_hash: Option<String>,
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
            from_kind: row.from_kind.map(|kind| kind.to_string()),
            to_kind: row.to_kind.to_string(),
            to_revision_id: row.to_revision_id,
            to_version_hash: format!("sha256:{}", row.to_version_hash),
            expected_hash: row.expected_hash.map(|hash| format!("sha256:{hash}")),
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
pub struct MovedTag {
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

/// What a name points at now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Deployed {
    revision_id: Uuid,
    /// The SHA-256 of the canonical document.
    version_hash: String,
    tag: String,
    /// Grows each time the tag moves.
    tag_version: u64,
}

impl From<TagRow> for Deployed {
    fn from(row: TagRow) -> Deployed {
        Deployed {
            revision_id: row.revision_id,
            version_hash: format!("sha256:{}", row.version_hash),
            tag: row.tag,
            tag_version: row.version,
        }
    }
}
