//! Whole documents.

use milepost_core::document::Loaded;
use milepost_core::id::OrgId;
use milepost_core::plan::Plan;
use milepost_store::rows::{MoveKind, RevisionKind, RevisionRow};
use uuid::Uuid;

use super::moves::{Change, Decision, Destination, go};
use super::reference::is_tag;
use super::request::Asked;
use super::{DOCUMENT, DefinitionError, Definitions, Moved, Moving};
use crate::error::EngineError;

impl Definitions {
    /// Stores a document and points a tag at it. The same document again is the same revision; a tag that points there
    /// already does not move.
    ///
    /// # Errors
    /// The name cannot be one, the tag moved or may not be moved, or the store cannot be written.
    pub async fn deploy(
        &self,
        org: OrgId,
        tag: &str,
        loaded: Loaded,
        moving: &Moving,
    ) -> Result<(Plan, Moved), EngineError> {
        self.check_tag(tag)?;
        let Loaded { canonical, hash, plan } = loaded;
        let text = self.documents.keep(org, hash, canonical);
        let digest = hash.to_string();
        let asked = Asked::new(moving, ["deploy", tag, &digest]);
        let moved = self
            .change(org, tag, &asked, |now| {
                let (text, plan) = (text.clone(), &plan);
                async move {
                    if now.as_ref().is_some_and(|now| now.version_hash == hash) {
                        return Ok(Decision::Stay);
                    }
                    if let Some(there) = self.version_of(org, hash).await? {
                        return Ok(Change::to_existing(go(MoveKind::Move), Destination::from(&there)));
                    }
                    let at = self.clock.now();
                    let blob = self.documents.content.row(org, DOCUMENT, text.as_bytes().to_vec(), at).await?;
                    let revision = RevisionRow {
                        revision_id: Uuid::now_v7(),
                        kind: RevisionKind::DagVersion,
                        cas_hash: hash,
                        version_hash: hash,
                        plan_hash: None,
                        base_version: None,
                        parent_id: now.map(|now| now.revision_id),
                        merge_parent_id: None,
                        depth: 0,
                        message: moving.message.clone(),
                        created_by: moving.by.clone(),
                        created_at: at,
                        name: Some(plan.name.to_string()),
                        meta: moving.meta_text(),
                    };
                    Ok(Decision::Move(Box::new(Change {
                        step: go(MoveKind::Move),
                        to: Destination::from(&revision),
                        existing: false,
                        blobs: blob.into_iter().collect(),
                        revisions: vec![revision],
                        chain: Vec::new(),
                    })))
                }
            })
            .await?;
        Ok((plan, moved))
    }

    pub(super) fn check_tag(&self, tag: &str) -> Result<(), EngineError> {
        match self.can_be_tag(tag) {
            true => Ok(()),
            false => Err(DefinitionError::BadTag(self.limits.name_chars).into()),
        }
    }

    /// Whether there may be a tag of that name. A store is not asked for any other.
    pub(super) fn can_be_tag(&self, tag: &str) -> bool {
        is_tag(tag, self.limits.name_chars)
    }
}
