//! Why a definition is not found, or not changed.

use milepost_core::document::Conflicts;

/// Cut by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    #[error("`{reference}` means nothing here: {reason}")]
    UnknownRef { reference: String, reason: String },
    #[error(
        "`{reference}` may mean any of {}; write more digits, or the id of the revision", .candidates.join(", ")
    )]
    AmbiguousRef { reference: String, candidates: Vec<String> },
    #[error(
        "a tag has 1 to {0} characters, no control characters, `@` or `~` among them, and is no id and no digest; choose another name"
    )]
    BadTag(usize),
    /// The caller named the version that the tag had to have.
    #[error(
        "tag `{tag}` is at version {version}, not at {expected}: it moved since you saw it; look at it again and decide anew"
    )]
    TagMoved { tag: String, expected: u64, version: u64 },
    #[error("there is nothing to undo: tag `{0}` has made no move before this one")]
    NothingToUndo(String),
    #[error("there is nothing to redo: tag `{0}` has moved since the last undo, or none was made")]
    NothingToRedo(String),
    #[error(
        "the newest move of tag `{tag}` is by {by}, not by you; look at it, and say with If-Match that version {version} is the one you mean (CLI: --expect {version})"
    )]
    MovedByAnother { tag: String, by: String, version: u64 },
    #[error("tag `{tag}` is protected: it may be moved by {}; ask one of them, or have the protection changed", .movers.join(", "))]
    Protected { tag: String, movers: Vec<String> },
    #[error("the two do not fit together in {} place(s); change one of them, or write the document as it should be", .0.list.len())]
    MergeConflict(Conflicts),
    #[error("the idempotency key `{0}` was used for another request; use a new one")]
    KeyReused(String),
    #[error("tag `{0}` moves faster than this request could be done; try again")]
    Busy(String),
}

/// What the caller can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionErrorKind {
    NotFound,
    Invalid,
    Conflict,
    Precondition,
    Forbidden,
    Busy,
}

impl DefinitionError {
    #[must_use]
    pub fn kind(&self) -> DefinitionErrorKind {
        match self {
            DefinitionError::UnknownRef { .. } => DefinitionErrorKind::NotFound,
            DefinitionError::AmbiguousRef { .. } | DefinitionError::BadTag(_) | DefinitionError::KeyReused(_) => {
                DefinitionErrorKind::Invalid
            }
            DefinitionError::TagMoved { .. } => DefinitionErrorKind::Precondition,
            DefinitionError::NothingToUndo(_)
            | DefinitionError::NothingToRedo(_)
            | DefinitionError::MovedByAnother { .. }
            | DefinitionError::MergeConflict(_) => DefinitionErrorKind::Conflict,
            DefinitionError::Protected { .. } => DefinitionErrorKind::Forbidden,
            DefinitionError::Busy(_) => DefinitionErrorKind::Busy,
        }
    }

    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            DefinitionError::UnknownRef { .. } => "unknown_ref",
            DefinitionError::AmbiguousRef { .. } => "ambiguous_ref",
            DefinitionError::BadTag(_) => "bad_tag",
            DefinitionError::TagMoved { .. } => "tag_moved",
            DefinitionError::NothingToUndo(_) => "nothing_to_undo",
            DefinitionError::NothingToRedo(_) => "nothing_to_redo",
            DefinitionError::MovedByAnother { .. } => "moved_by_another",
            DefinitionError::Protected { .. } => "tag_protected",
            DefinitionError::MergeConflict(_) => "merge_conflict",
            DefinitionError::KeyReused(_) => "idempotency_key_reused",
            DefinitionError::Busy(_) => "tag_busy",
        }
    }
}
