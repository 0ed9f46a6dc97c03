//! What is different, and what becomes of a merge.

use milepost_core::document::{Diff as CoreDiff, FieldDiff, Operation, StepDiff};
use milepost_engine::EngineError;
use milepost_engine::definitions::{MergeOutcome, Merging, Target as CoreTarget};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Tag;
use crate::wire::Any;

/// What a reference means.
#[derive(Debug, Serialize, ToSchema)]
pub struct Target {
    /// As it was asked for.
    #[serde(rename = "ref")]
    reference: String,
    revision_id: Uuid,
    version_hash: String,
}

impl Target {
    fn of(reference: String, target: &CoreTarget) -> Target {
        let version_hash = format!("sha256:{}", target.version_hash);
        Target { reference, revision_id: target.revision_id, version_hash }
    }
}

/// What is different.
#[derive(Debug, Serialize, ToSchema)]
pub struct Diff {
    /// RFC 6902 operations that make the second document of the first.
    #[schema(value_type = Vec<Any>)]
    ops: Vec<Operation>,
    /// Step by step: added, removed or changed, with the fields that changed.
    #[schema(value_type = Vec<Any>)]
    steps: Vec<StepDiff>,
    /// What changed outside of steps.
    #[schema(value_type = Vec<Any>)]
    settings: Vec<FieldDiff>,
    /// The list is cut short at 10,000 differences or 32 MiB: there are more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    truncated: bool,
}

impl From<CoreDiff> for Diff {
    fn from(diff: CoreDiff) -> Diff {
        Diff { ops: diff.ops, steps: diff.steps, settings: diff.settings, truncated: diff.truncated }
    }
}

/// What is different between two documents.
#[derive(Debug, Serialize, ToSchema)]
pub struct Difference {
    from: Target,
    to: Target,
    #[serde(flatten)]
    diff: Diff,
}

impl Difference {
    #[must_use]
    pub fn of(from: (String, &CoreTarget), to: (String, &CoreTarget), diff: CoreDiff) -> Difference {
        Difference { from: Target::of(from.0, from.1), to: Target::of(to.0, to.1), diff: diff.into() }
    }
}

/// What became of a merge.
#[derive(Debug, Serialize, ToSchema)]
pub struct Merged {
    outcome: Outcome,
    /// Where the two parted.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_revision_id: Option<Uuid>,
    /// As it is now; after a dry run, as it would be.
    tag: Tag,
    /// What it changes in the tag's document.
    diff: Diff,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// There is nothing in it that the tag does not have.
    UpToDate,
    /// The tag had done nothing since: it went there.
    FastForward,
    Merged,
}

impl TryFrom<Merging> for Merged {
    type Error = EngineError;

    fn try_from(merging: Merging) -> Result<Merged, EngineError> {
        let Merging { outcome, base, tag, diff } = merging;
        let outcome = match outcome {
            MergeOutcome::UpToDate => Outcome::UpToDate,
            MergeOutcome::FastForward => Outcome::FastForward,
            MergeOutcome::Merged => Outcome::Merged,
        };
        Ok(Merged { outcome, base_revision_id: base, tag: tag.try_into()?, diff: diff.into() })
    }
}
