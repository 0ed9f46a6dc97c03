//! Requests with an idempotency key: what they did is written with what they are answered.

use std::sync::Mutex;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::StoreError;
use milepost_store::rows::{RequestRow, TagRow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{DefinitionError, Definitions, MergeOutcome, Moved, Moving};
use crate::error::EngineError;

/// What is asked, by whom.
pub(super) struct Asked<'a> {
    pub(super) moving: &'a Moving,
    /// Of all that is asked, but for who asks and why.
    fingerprint: Digest,
    /// Of a merge, once it is decided or was answered before.
    merge: Mutex<Option<MergeNote>>,
}

/// What a merge was, where its move does not say it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct MergeNote {
    pub(super) outcome: MergeOutcome,
    pub(super) base: Option<Uuid>,
}

/// What is kept of an answer: the rest can be read again.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    #[serde(rename = "move")]
    moved: u64,
    existing: bool,
    unchanged: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    merge: Option<MergeNote>,
}

impl<'a> Asked<'a> {
    pub(super) fn new<'p>(moving: &'a Moving, parts: impl IntoIterator<Item = &'p str>) -> Asked<'a> {
        Asked { moving, fingerprint: Digest::of_parts(parts.into_iter().map(str::as_bytes)), merge: Mutex::default() }
    }

    pub(super) fn note_merge(&self, note: MergeNote) {
        *self.merge.lock().expect("no holder of this lock panics") = Some(note);
    }

    pub(super) fn merge(&self) -> Option<MergeNote> {
        *self.merge.lock().expect("no holder of this lock panics")
    }

    pub(super) fn answer(&self, moved: &Moved, now: Timestamp) -> Option<RequestRow> {
        let key = self.moving.key.clone()?;
        let Moved { moved, existing, unchanged, .. } = moved;
        let answer = Answer { moved: moved.move_id, existing: *existing, unchanged: *unchanged, merge: self.merge() };
        let answer = serde_json::to_string(&answer).expect("numbers, words and ids can be written");
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
        if let Some(note) = answer.merge {
            asked.note_merge(note);
        }
        let moved = self.known_move(org, tag, answer.moved).await?;
        let now = self.tag(org, tag).await?;
        let tag = TagRow {
            kind: moved.to_kind,
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
