//! Patches: RFC 6902 operations on top of what a tag points at.
//!
//! **Invariant:** the operations that are kept make exactly the document that was checked. Chains are never longer than
//! `chain_depth`: the patch after that begins at a version of the document, which has the same `version_hash` as the chain
//! before it.

use milepost_core::document::{self, PatchError};
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_store::rows::{BlobRow, ChainRow, MoveKind, RevisionKind, RevisionRow, TagRow};
use serde_json::{Value, json};
use uuid::Uuid;

use super::moves::{Change, Decision, Destination, go};
use super::request::Asked;
use super::{DOCUMENT, Definitions, Moved, Moving, PATCH, corrupt};
use crate::error::EngineError;
use crate::work::{Lane, weight};

impl Definitions {
    /// Patches the document that a tag points at, and moves the tag.
    ///
    /// # Errors
    /// There is no such tag, an operation does not fit (a `test` among them), the result is no document that can be run,
    /// the tag moved or may not be moved, or the store cannot be written.
    pub async fn patch(
        &self,
        org: OrgId,
        tag: &str,
        operations: &Value,
        moving: &Moving,
    ) -> Result<Moved, EngineError> {
        self.check_tag(tag)?;
        let given = operations.to_string();
        let asked = Asked::new(moving, ["patch", tag, &given]);
        self.change(org, tag, &asked, |now| async {
            let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))?;
            let (parent, members) = self.parent(org, &now).await?;
            self.patched(org, parent, members, operations, moving).await
        })
        .await
    }

    /// What a tag points at, and the patches that it is made of.
    async fn parent(&self, org: OrgId, now: &TagRow) -> Result<(RevisionRow, Vec<Uuid>), EngineError> {
        if now.kind != RevisionKind::PatchSet {
            return Ok((self.revision(org, now.revision_id).await?, Vec::new()));
        }
        let mut chain = self.store.definitions().chain(org, now.revision_id).await?;
        let members = chain.iter().skip(1).map(|member| member.revision.revision_id).collect();
        match chain.pop().filter(|head| head.revision.revision_id == now.revision_id) {
            Some(head) => Ok((head.revision, members)),
            None => Err(corrupt(now.version_hash, "what it is made of is not there").into()),
        }
    }

    async fn patched(
        &self,
        org: OrgId,
        parent: RevisionRow,
        members: Vec<Uuid>,
        operations: &Value,
        moving: &Moving,
    ) -> Result<Decision, EngineError> {
        let before = self.documents.of(org, &parent).await?;
        let make = {
            let (before, operations, limits) = (before.clone(), operations.clone(), self.limits.clone());
            move || {
                let loaded = document::patch(&before, &operations, &limits)?;
                let kept = exact(&before, &loaded.canonical, &operations)?.into_bytes();
                Ok::<_, EngineError>((loaded, kept))
            }
        };
        let (loaded, kept) = self.work.sized(Lane::Documents, before.len() + weight(operations), make).await??;
        if loaded.hash == parent.version_hash {
            return Ok(Decision::Stay);
        }
        let now = self.clock.now();
        let cas_hash = Digest::of(&kept);
        let blob = self.documents.content.row(org, PATCH, kept, now).await?;
        let mut base = self.base_for(org, parent, members, &before, moving).await?;
        let revision = RevisionRow {
            revision_id: Uuid::now_v7(),
            kind: RevisionKind::PatchSet,
            cas_hash,
            version_hash: loaded.hash,
            plan_hash: None,
            base_version: Some(base.version),
            parent_id: Some(base.parent),
            merge_parent_id: None,
            depth: u32::try_from(base.members.len()).unwrap_or(u32::MAX) + 1,
            message: moving.message.clone(),
            created_by: moving.by.clone(),
            created_at: now,
            name: Some(loaded.plan.name.to_string()),
            meta: moving.meta_text(),
        };
        base.members.push(revision.revision_id);
        let chain =
            (1..).zip(base.members).map(|(seq, member_id)| ChainRow { head_id: revision.revision_id, seq, member_id });
        base.revisions.push(revision.clone());
        base.blobs.extend(blob);
        self.documents.keep(org, loaded.hash, loaded.canonical);
        Ok(Decision::Move(Box::new(Change {
            step: go(MoveKind::Move),
            to: Destination::from(&revision),
            existing: false,
            blobs: base.blobs,
            revisions: base.revisions,
            chain: chain.collect(),
        })))
    }

    /// What a patch on this revision begins with.
    async fn base_for(
        &self,
        org: OrgId,
        parent: RevisionRow,
        members: Vec<Uuid>,
        text: &str,
        moving: &Moving,
    ) -> Result<Base, EngineError> {
        let id = parent.revision_id;
        if parent.kind != RevisionKind::PatchSet {
            return Ok(Base::at(id));
        }
        if parent.depth < self.config.chain_depth.min(50) {
            let version = parent.base_version.unwrap_or(id);
            return Ok(Base { version, parent: id, members, ..Base::at(id) });
        }
        if let Some(there) = self.version_of(org, parent.version_hash).await? {
            return Ok(Base::at(there.revision_id));
        }
        let (revision, blob) = self.compacted(org, &parent, text, moving.by.clone()).await?;
        Ok(Base {
            revisions: vec![revision.clone()],
            blobs: blob.into_iter().collect(),
            ..Base::at(revision.revision_id)
        })
    }

    /// The document of a chain as a version of its own.
    pub(super) async fn compacted(
        &self,
        org: OrgId,
        head: &RevisionRow,
        text: &str,
        by: Option<String>,
    ) -> Result<(RevisionRow, Option<BlobRow>), EngineError> {
        let now = self.clock.now();
        let blob = self.documents.content.row(org, DOCUMENT, text.as_bytes().to_vec(), now).await?;
        let revision = RevisionRow {
            revision_id: Uuid::now_v7(),
            kind: RevisionKind::DagVersion,
            cas_hash: head.version_hash,
            version_hash: head.version_hash,
            plan_hash: None,
            base_version: None,
            parent_id: Some(head.revision_id),
            merge_parent_id: None,
            depth: 0,
            message: None,
            created_by: by,
            created_at: now,
            name: head.name.clone(),
            meta: None,
        };
        Ok((revision, blob))
    }
}

struct Base {
    version: Uuid,
    parent: Uuid,
    members: Vec<Uuid>,
    revisions: Vec<RevisionRow>,
    blobs: Vec<BlobRow>,
}

impl Base {
    fn at(version: Uuid) -> Base {
        let (members, revisions, blobs) = Default::default();
        Base { version, parent: version, members, revisions, blobs }
    }
}

/// The operations as they were given, if they alone make the document; otherwise (they wrote steps as a list, say) those
/// that do.
fn exact(before: &str, after: &str, operations: &Value) -> Result<String, EngineError> {
    let given = operations.to_string();
    if document::patched(before, std::slice::from_ref(&given)).is_ok_and(|text| text == after) {
        return Ok(given);
    }
    let value = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| PatchError::Failed(format!("it is not JSON: {error}")))
    };
    let after = value(after)?;
    let diff = document::diff(&value(before)?, &after);
    Ok(match diff.truncated {
        false => diff.patch().to_string(),
        true => json!([{"op": "replace", "path": "", "value": after}]).to_string(),
    })
}
