//! Merges: what one line of revisions did since it left another is done there too.

use std::collections::HashSet;
use std::sync::Arc;

use milepost_core::document::{self, Diff, Merged};
use milepost_core::id::OrgId;
use milepost_store::StoreError;
use milepost_store::rows::{MoveKind, RevisionKind, RevisionRow, TagRow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::moves::{Change, Decision, Destination, Step};
use super::request::{Asked, MergeNote};
use super::{DOCUMENT, DefinitionError, Definitions, Moving, value_of};
use crate::error::EngineError;
use crate::work::Lane;

/// So many generations are read at a time when two lines are followed back to where they parted.
const GENERATIONS: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeOutcome {
    /// There is nothing in it that the tag does not have.
    UpToDate,
    /// The tag has done nothing since: it goes there.
    FastForward,
    Merged,
}

/// What a merge did, or would do.
#[derive(Clone, Debug)]
pub struct Merging {
    pub outcome: MergeOutcome,
    /// Where the two lines parted.
    pub base: Option<Uuid>,
    /// As it is after, or as it would be: then its version and time are those of now.
    pub tag: TagRow,
    /// What it changes.
    pub diff: Diff,
}

struct Prepared {
    outcome: MergeOutcome,
    base: Option<Uuid>,
    ours: Arc<str>,
    result: Arc<str>,
    decision: Decision,
}

impl Definitions {
    /// Merges what a reference means into a tag.
    ///
    /// # Errors
    /// The reference means nothing, the two do not fit together (`merge_conflict`, with all conflicts), or the tag moved or
    /// may not be moved.
    pub async fn merge(&self, org: OrgId, tag: &str, from: &str, moving: &Moving) -> Result<Merging, EngineError> {
        let asked = Asked::new(moving, ["merge", tag, from]);
        let moved = self
            .change(org, tag, &asked, |now| async {
                let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))?;
                let prepared = self.prepare_merge(org, &now, from, moving).await?;
                asked.note_merge(MergeNote { outcome: prepared.outcome, base: prepared.base });
                Ok(prepared.decision)
            })
            .await?;
        let note = asked.merge().ok_or_else(|| {
            let key = moving.key.as_deref().unwrap_or_default();
            StoreError::Corrupt(format!("the answer under key `{key}` does not say what the merge was"))
        })?;
        let diff = match (moved.unchanged, moved.moved.from_revision_id) {
            (false, Some(before)) => {
                let after = moved.moved.to_revision_id;
                self.diff(org, &before.to_string(), &after.to_string()).await?.2
            }
            _ => Diff::default(),
        };
        Ok(Merging { outcome: note.outcome, base: note.base, tag: moved.tag, diff })
    }

    /// What [`Definitions::merge`] would do; nothing is stored.
    ///
    /// # Errors
    /// As [`Definitions::merge`].
    pub async fn try_merge(&self, org: OrgId, tag: &str, from: &str, moving: &Moving) -> Result<Merging, EngineError> {
        let now = self.tag(org, tag).await?;
        let prepared = self.prepare_merge(org, &now, from, moving).await?;
        let Prepared { ours, result, .. } = prepared;
        let diff = self.diff_texts(ours, result).await?;
        let tag = match prepared.decision {
            Decision::Stay => now,
            Decision::Move(change) => {
                let Destination { kind, revision_id, version_hash } = change.to;
                TagRow { kind, revision_id, version_hash, ..now }
            }
        };
        Ok(Merging { outcome: prepared.outcome, base: prepared.base, tag, diff })
    }

    async fn prepare_merge(
        &self,
        org: OrgId,
        now: &TagRow,
        from: &str,
        moving: &Moving,
    ) -> Result<Prepared, EngineError> {
        let theirs = self.revision(org, self.resolve(org, from).await?.revision_id).await?;
        let ours = self.revision(org, now.revision_id).await?;
        let base = self.common(org, &ours, &theirs).await?;
        let base_id = base.as_ref().map(|base| base.revision_id);
        let our_text = self.documents.of(org, &ours).await?;
        let step = |merged| Step::Go { kind: MoveKind::Merge, restores: None, merged: Some(merged) };
        if base_id == Some(theirs.revision_id) || ours.version_hash == theirs.version_hash {
            let (ours, result) = (our_text.clone(), our_text);
            return Ok(Prepared {
                outcome: MergeOutcome::UpToDate,
                base: base_id,
                ours,
                result,
                decision: Decision::Stay,
            });
        }
        let their_text = self.documents.of(org, &theirs).await?;
        if base_id == Some(ours.revision_id) {
            self.check_target(org, Some(now), &Destination::from(&theirs)).await?;
            let decision = Change::to_existing(step(theirs.revision_id), Destination::from(&theirs));
            let outcome = MergeOutcome::FastForward;
            return Ok(Prepared { outcome, base: base_id, ours: our_text, result: their_text, decision });
        }
        let base_text = match &base {
            Some(base) => self.documents.of(org, base).await?,
            None => "{}".into(),
        };
        let (limits, our_side) = (self.limits.clone(), our_text.clone());
        let bytes = base_text.len() + our_side.len() + their_text.len();
        let merge = move || {
            let (base, ours, theirs) = (value_of(&base_text)?, value_of(&our_side)?, value_of(&their_text)?);
            match document::merge(&base, &ours, &theirs, &limits) {
                Merged::Clean(loaded) => Ok(loaded),
                Merged::Conflicts(conflicts) => Err(EngineError::from(DefinitionError::MergeConflict(conflicts))),
            }
        };
        let loaded = self.work.sized(Lane::Documents, bytes, merge).await??;
        let result: Arc<str> = loaded.canonical.as_str().into();
        let prepared =
            |decision| Prepared { outcome: MergeOutcome::Merged, base: base_id, ours: our_text, result, decision };
        if loaded.hash == ours.version_hash {
            return Ok(prepared(Decision::Stay));
        }
        if let Some(there) = self.version_of(org, loaded.hash).await? {
            return Ok(prepared(Change::to_existing(step(theirs.revision_id), Destination::from(&there))));
        }
        let at = self.clock.now();
        let text = loaded.canonical.into_bytes();
        let blob = self.documents.content.row(org, DOCUMENT, text, at).await?;
        let revision = RevisionRow {
            revision_id: Uuid::now_v7(),
            kind: RevisionKind::DagVersion,
            cas_hash: loaded.hash,
            version_hash: loaded.hash,
            plan_hash: None,
            base_version: None,
            parent_id: Some(ours.revision_id),
            merge_parent_id: Some(theirs.revision_id),
            depth: 0,
            message: moving.message.clone(),
            created_by: moving.by.clone(),
            created_at: at,
            name: Some(loaded.plan.name.to_string()),
            meta: moving.meta_text(),
        };
        Ok(prepared(Decision::Move(Box::new(Change {
            step: step(theirs.revision_id),
            to: Destination::from(&revision),
            existing: false,
            blobs: blob.into_iter().collect(),
            revisions: vec![revision],
            chain: Vec::new(),
        }))))
    }

    /// The nearest revision that both came from; one of them, if the other came from it.
    async fn common(
        &self,
        org: OrgId,
        ours: &RevisionRow,
        theirs: &RevisionRow,
    ) -> Result<Option<RevisionRow>, EngineError> {
        let (mut generations, mut seen) = (GENERATIONS, 0);
        loop {
            let definitions = self.store.definitions();
            let left = definitions.ancestors(org, ours.revision_id, generations).await?;
            let right = definitions.ancestors(org, theirs.revision_id, generations).await?;
            let of_left: HashSet<Uuid> = left.iter().map(|row| row.revision_id).collect();
            let common = right.iter().find(|row| of_left.contains(&row.revision_id));
            let read = left.len() + right.len();
            if common.is_some() || read == seen {
                return Ok(common.cloned());
            }
            (seen, generations) = (read, generations.saturating_mul(4));
        }
    }
}
