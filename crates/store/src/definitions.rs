//! The part of the seam that keeps documents in versions.
//!
//! **Invariant:** revisions and moves are written once and never changed; a tag and its move are written together.

use std::collections::HashSet;
use std::fmt;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::rows::{BlobRow, ChainRow, DefinitionWrite, MoveRow, RequestRow, RevisionRow, StoredRevision, TagRow};

#[async_trait]
pub trait DefinitionStore: Send + Sync + fmt::Debug {
    /// Writes all of it, or nothing: then the tag does not have the expected version, there is a version of that document, a
    /// snapshot of that plan or a request of that key already, or something that it builds upon is gone. Look again.
    async fn write(&self, org: OrgId, write: &DefinitionWrite) -> Result<bool>;

    async fn blob(&self, org: OrgId, hash: Digest) -> Result<Option<BlobRow>>;

    async fn tag(&self, org: OrgId, tag: &str) -> Result<Option<TagRow>>;
    /// Names in the order of their bytes, after `after`.
    async fn tags(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>>;
    /// Sets or takes away a tag's protection; false if there is no such tag.
    async fn protect(&self, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool>;

    /// Newest first, before `before`.
    async fn moves(&self, org: OrgId, tag: &str, before: Option<u64>, limit: u32) -> Result<Vec<MoveRow>>;
    async fn move_of(&self, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>>;
    /// The newest move that was made then or before.
    async fn move_at(&self, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>>;
    /// Where `steps` undos would lead from a move; nothing if there are not so many.
    async fn move_back(&self, org: OrgId, tag: &str, from: u64, steps: u32) -> Result<Option<MoveRow>>;

    async fn revision(&self, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>>;
    /// Revisions whose document's digest lies in this range, in its order.
    async fn revisions_in(&self, org: OrgId, from: Digest, to: Digest, limit: u32) -> Result<Vec<RevisionRow>>;
    /// A revision's base and its patches in the order they are applied, with their content, read in one go. Of a revision
    /// that is no patch: itself.
    async fn chain(&self, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>>;
    /// A revision and those it came from, both parents of a merge among them: the nearest first, `limit` generations.
    async fn ancestors(&self, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>>;

    /// All revisions in the order of their ids, after `after`. For `doctor`.
    async fn revisions_after(&self, org: OrgId, after: Option<Uuid>, limit: u32) -> Result<Vec<RevisionRow>>;
    /// What is stored of the chains of these heads, in any order, whether it fits or not. For `doctor`.
    async fn chain_rows(&self, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>>;
    /// Replaces what is stored of a head's chain: its members in the order they are applied.
    async fn rebuild_chain(&self, org: OrgId, head: Uuid, members: &[Uuid]) -> Result<()>;

    async fn request(&self, org: OrgId, key: &str) -> Result<Option<RequestRow>>;

    /// Says that a plan is about to be run; false if there is no snapshot of it.
    async fn use_plan(&self, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool>;
    /// Says that a run's log needs these plans beside the one in its head.
    async fn keep_plans(&self, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()>;

    /// Orgs that have content or tags.
    async fn orgs(&self) -> Result<Vec<OrgId>>;
    /// Plans that runs need. Forgets those of runs that are forgotten. Costs what is stored of runs.
    async fn plans_in_use(&self, org: OrgId) -> Result<HashSet<Digest>>;
    /// Revisions that are older than `before`, that no tag, no move and no other revision knows of, and that are in use by
    /// no run for as long, in order of id, after `after`. Whether a run has the plan of a snapshot is for the caller to see.
    async fn loose_revisions(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<RevisionRow>>;
    /// Removes those of them that are still loose; says how many.
    async fn remove_revisions(&self, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> Result<u64>;
    /// Content that is older than `before` and of no revision, in order of its digest, after `after`. Without what it holds.
    async fn loose_blobs(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<BlobRow>>;
    /// Of these contents, those that are older than `before`, with how many revisions have them. Without what they hold.
    async fn blobs_in_use(&self, org: OrgId, before: Timestamp, hashes: &[Digest]) -> Result<Vec<(BlobRow, u64)>>;
    /// Removes those of them that are still loose, and notes their keys; says how many and how many bytes.
    async fn remove_blobs(&self, org: OrgId, before: Timestamp, blobs: &[Digest]) -> Result<(u64, u64)>;
    /// Forgets requests that were answered before that.
    async fn forget_requests(&self, before: Timestamp) -> Result<()>;

    /// Says that a key of the blob store is about to be written.
    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()>;
    /// Keys that were noted before that and are named by no content.
    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>>;
    /// They are in the blob store no more.
    async fn clear_key(&self, key: &str) -> Result<()>;
}
