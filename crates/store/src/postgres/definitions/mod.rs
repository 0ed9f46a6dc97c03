//! Documents in versions.

mod collect;
mod read;
mod write;

use std::collections::HashSet;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use crate::rows::{BlobRow, ChainRow, DefinitionWrite, MoveRow, RequestRow, RevisionRow, StoredRevision, TagRow};
use crate::{DefinitionStore, Result};

#[async_trait]
impl DefinitionStore for PostgresStore {
    async fn write(&self, org: OrgId, write: &DefinitionWrite) -> Result<bool> {
        write::all(&self.pool, org, write).await
    }

    async fn blob(&self, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
        read::blob(&self.reading().await?, org, hash).await
    }

    async fn tag(&self, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
        read::tag(&self.reading().await?, org, tag).await
    }

    async fn tags(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>> {
        read::tags(&self.reading().await?, org, after.unwrap_or_default(), limit).await
    }

    async fn protect(&self, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool> {
        write::protect(&self.writing().await?, org, tag, protection).await
    }

    async fn moves(&self, org: OrgId, tag: &str, before: Option<u64>, limit: u32) -> Result<Vec<MoveRow>> {
        read::moves(&self.reading().await?, org, tag, before, limit).await
    }

    async fn move_of(&self, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>> {
        read::move_of(&self.reading().await?, org, tag, move_id).await
    }

    async fn move_at(&self, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>> {
        read::move_at(&self.reading().await?, org, tag, at).await
    }

    async fn move_back(&self, org: OrgId, tag: &str, from: u64, steps: u32) -> Result<Option<MoveRow>> {
        read::move_back(&self.reading().await?, org, tag, from, steps).await
    }

    async fn revision(&self, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>> {
        read::revision(&self.reading().await?, org, revision).await
    }

    async fn revisions_in(&self, org: OrgId, from: Digest, to: Digest, limit: u32) -> Result<Vec<RevisionRow>> {
        read::revisions_in(&self.reading().await?, org, from, to, limit).await
    }

    async fn chain(&self, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>> {
        read::chain(&self.reading().await?, org, revision).await
    }

    async fn ancestors(&self, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>> {
        read::ancestors(&self.reading().await?, org, revision, limit).await
    }

    async fn revisions_after(&self, org: OrgId, after: Option<Uuid>, limit: u32) -> Result<Vec<RevisionRow>> {
        read::revisions_after(&self.reading().await?, org, after, limit).await
    }

    async fn chain_rows(&self, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>> {
        read::chain_rows(&self.reading().await?, org, heads).await
    }

    async fn rebuild_chain(&self, org: OrgId, head: Uuid, members: &[Uuid]) -> Result<()> {
        write::rebuild_chain(self.written(), org, head, members).await
    }

    async fn request(&self, org: OrgId, key: &str) -> Result<Option<RequestRow>> {
        read::request(&self.reading().await?, org, key).await
    }

    async fn use_plan(&self, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool> {
        write::use_plan(&self.writing().await?, org, plan, now).await
    }

    async fn keep_plans(&self, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()> {
        write::keep_plans(&self.writing().await?, org, run, plans).await
    }

    async fn orgs(&self) -> Result<Vec<OrgId>> {
        collect::orgs(&self.reading().await?).await
    }

    async fn plans_in_use(&self, org: OrgId) -> Result<HashSet<Digest>> {
        collect::plans_in_use(&self.writing().await?, org).await
    }

    async fn loose_revisions(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<RevisionRow>> {
        collect::loose_revisions(&self.reading().await?, org, before, after, limit).await
    }

    async fn remove_revisions(&self, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> Result<u64> {
        collect::remove_revisions(&self.writing().await?, org, before, revisions).await
    }

    async fn loose_blobs(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<BlobRow>> {
        collect::loose_blobs(&self.reading().await?, org, before, after, limit).await
    }

    async fn blobs_in_use(&self, org: OrgId, before: Timestamp, hashes: &[Digest]) -> Result<Vec<(BlobRow, u64)>> {
        collect::blobs_in_use(&self.reading().await?, org, before, hashes).await
    }

    async fn remove_blobs(&self, org: OrgId, before: Timestamp, blobs: &[Digest]) -> Result<(u64, u64)> {
        collect::remove_blobs(&self.writing().await?, org, before, blobs).await
    }

    async fn forget_requests(&self, before: Timestamp) -> Result<()> {
        collect::forget_requests(&self.writing().await?, before).await
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        collect::note_key(&self.writing().await?, key, now).await
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        collect::loose_keys(&self.reading().await?, before, limit).await
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        collect::clear_key(&self.writing().await?, key).await
    }
}
