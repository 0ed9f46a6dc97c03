//! Revisions, and what they say.

use milepost_core::json::Json as RawJson;
use milepost_core::plan::Plan;
use milepost_engine::definitions::{Collected as CoreCollected, Target as CoreTarget};
use milepost_store::rows::{GarbageCount, RevisionRow};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::wire::Any;

/// A document at one moment of its life.
#[derive(Debug, Serialize, ToSchema)]
pub struct Revision {
    revision_id: Uuid,
    /// Of the document that it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
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
    /// What its author noted beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, Any>>)]
    meta: Option<RawJson>,
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
            name: row.name,
            meta: row.meta.map(RawJson::trusted),
        }
    }
}

/// A document.
#[derive(Debug, Serialize, ToSchema)]
pub struct Workflow {
    /// As it was asked for.
    #[serde(rename = "ref")]
    reference: String,
    name: String,
    version: String,
    revision_id: Uuid,
    version_hash: String,
    #[schema(value_type = Any)]
    document: RawJson,
}

impl Workflow {
    #[must_use]
    pub fn of(reference: String, plan: &Plan, target: &CoreTarget, document: RawJson) -> Workflow {
        Workflow {
            reference,
            name: plan.name.to_string(),
            version: plan.version.to_string(),
            revision_id: target.revision_id,
            version_hash: format!("sha256:{}", target.version_hash),
            document,
        }
    }
}

/// A revision with what is stored of it; nothing was applied to anything.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkflowRevision {
    /// As it was asked for.
    #[serde(rename = "ref")]
    reference: String,
    #[serde(flatten)]
    revision: Revision,
    /// The document of a version, the operations of a patch.
    #[schema(value_type = Any)]
    stored: RawJson,
}

impl WorkflowRevision {
    #[must_use]
    pub fn of(reference: String, revision: RevisionRow, stored: RawJson) -> WorkflowRevision {
        WorkflowRevision { reference, revision: revision.into(), stored }
    }
}

/// What a reference means: a document, or a revision where `materialize=false` was said.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum WorkflowOrRevision {
    Workflow(Workflow),
    Revision(WorkflowRevision),
}

/// A revision, with its document where that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevisionAnswer {
    #[serde(flatten)]
    pub(crate) revision: Revision,
    /// The document that it means.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Any>)]
    pub(crate) document: Option<RawJson>,
}

/// What nothing led to any more.
#[derive(Debug, Serialize, ToSchema)]
pub struct Collected {
    dry_run: bool,
    revisions: u64,
    blobs: u64,
    bytes: u64,
    /// Chains of patches that were made short.
    compacted: u64,
}

impl Collected {
    #[must_use]
    pub fn of(collected: CoreCollected, dry_run: bool) -> Collected {
        let CoreCollected { found: GarbageCount { revisions, blobs, bytes }, compacted } = collected;
        Collected { dry_run, revisions, blobs, bytes, compacted }
    }
}
