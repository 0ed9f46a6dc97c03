//! Requests with an idempotency key: what they did is written with what they are answered.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::StoreError;
use milepost_store::rows::{RequestRow, TagRow};
use serde::{Deserialize, Serialize};

use super::{DefinitionError, Definitions, Moved, Moving};
use crate::error::EngineError;

/// What is asked, by whom.
pub(super) struct Asked<'a> {
    pub(super) moving: &'a Moving,
    /// Of all that is asked, but for who asks and why.
    fingerprint: Digest,
}

/// What is kept of an answer: the rest can be read again.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    #[serde(rename = "move")]
    moved: u64,
    existing: bool,
    unchanged: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn new<'p>(moving: &'a Moving, parts: impl IntoIterator<Item = &'p str>) -> Asked<'a> {
        Asked { moving, fingerprint: Digest::of_parts(parts.into_iter().map(str::as_bytes)) }
    }

    pub(super) fn answer(&self, moved: &Moved, now: Timestamp) -> Option<RequestRow> {
        let key = self.moving.key.clone()?;
        let Moved { moved, existing, unchanged, .. } = moved;
        let answer = Answer { moved: moved.move_id, existing: *existing, unchanged: *unchanged };
        let answer = serde_json::to_string(&answer).expect("numbers and truth values can be written");
        Some(RequestRow { key, fingerprint: self.fingerprint, answer, created_at: now })
    }
}

impl Definitions {
    /// What the same request was answered before, if it was.
    pub(super) async fn answered(
        &self,
        org: OrgId,
        tag: &str,
        asked: &Asked<'_>,
    ) -> Result<Option<Moved>, EngineError> {
        let Some(key) = &asked.moving.key else { return Ok(None) };
        let Some(request) = self.store.definitions().request(org, key).await? else { return Ok(None) };
        if request.fingerprint != asked.fingerprint {
            return Err(DefinitionError::KeyReused(key.clone()).into());
        }
        let answer: Answer = serde_json::from_str(&request.answer)
            .map_err(|error| StoreError::Corrupt(format!("the answer under key `{key}`: {error}")))?;
        let moved = self.known_move(org, tag, answer.moved).await?;
        let revision = self.revision(org, moved.to_revision_id).await?;
        let now = self.tag(org, tag).await?;
        let tag = TagRow {
            kind: revision.kind,
            revision_id: moved.to_revision_id,
            version_hash: moved.to_version_hash,
            version: moved.move_id,
            moved_by: moved.moved_by.clone(),
            moved_at: moved.moved_at,
            message: moved.message.clone(),
            ..now
        };
        Ok(Some(Moved { tag, moved, existing: answer.existing, unchanged: answer.unchanged }))
    }
}
