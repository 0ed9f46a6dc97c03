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

use super::SqliteStore;
use crate::rows::{BlobRow, ChainRow, DefinitionWrite, MoveRow, RequestRow, RevisionRow, StoredRevision, TagRow};
use crate::{DefinitionStore, Result, StoreError};

#[async_trait]
impl DefinitionStore for SqliteStore {
    async fn write(&self, org: OrgId, write: &DefinitionWrite) -> Result<bool> {
        let write = write.clone();
        match self.write(move |tx| write::all(tx, org, &write)).await {
            // What it builds upon is gone.
            Err(StoreError::Refused(_)) => Ok(false),
            result => result,
        }
    }

    async fn blob(&self, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
        self.read_rows(1, move |conn| read::blob(conn, org, hash)).await
    }

    async fn tag(&self, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
        let tag = tag.to_owned();
        self.read_rows(1, move |conn| read::tag(conn, org, &tag)).await
    }

    async fn tags(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>> {
        let after = after.unwrap_or_default().to_owned();
        self.read_rows(limit as usize, move |conn| read::tags(conn, org, &after, limit)).await
    }

    async fn protect(&self, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool> {
        let (tag, protection) = (tag.to_owned(), protection.map(ToOwned::to_owned));
        self.write(move |tx| write::protect(tx, org, &tag, protection.as_deref())).await
    }

    async fn moves(&self, org: OrgId, tag: &str, before: Option<u64>, limit: u32) -> Result<Vec<MoveRow>> {
        let tag = tag.to_owned();
        self.read_rows(limit as usize, move |conn| read::moves(conn, org, &tag, before, limit)).await
    }

    async fn move_of(&self, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>> {
        let tag = tag.to_owned();
        self.read_rows(1, move |conn| read::move_of(conn, org, &tag, move_id)).await
    }

    async fn move_at(&self, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>> {
        let tag = tag.to_owned();
        self.read_rows(1, move |conn| read::move_at(conn, org, &tag, at)).await
    }

    async fn move_back(&self, org: OrgId, tag: &str, from: u64, steps: u32) -> Result<Option<MoveRow>> {
        let tag = tag.to_owned();
        self.read_rows(steps as usize, move |conn| read::move_back(conn, org, &tag, from, steps)).await
    }

    async fn revision(&self, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>> {
        self.read_rows(1, move |conn| read::revision(conn, org, revision)).await
    }

    async fn revisions_in(&self, org: OrgId, from: Digest, to: Digest, limit: u32) -> Result<Vec<RevisionRow>> {
        self.read_rows(limit as usize, move |conn| read::revisions_in(conn, org, from, to, limit)).await
    }

    async fn chain(&self, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>> {
        self.read_rows(1, move |conn| read::chain(conn, org, revision)).await
    }

    async fn ancestors(&self, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>> {
        self.read_rows(limit as usize, move |conn| read::ancestors(conn, org, revision, limit)).await
    }

    async fn revisions_after(&self, org: OrgId, after: Option<Uuid>, limit: u32) -> Result<Vec<RevisionRow>> {
        self.read(move |conn| read::revisions_after(conn, org, after, limit)).await
    }

    async fn chain_rows(&self, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>> {
        let heads = heads.to_vec();
        self.read(move |conn| read::chain_rows(conn, org, &heads)).await
    }

    async fn rebuild_chain(&self, org: OrgId, head: Uuid, members: &[Uuid]) -> Result<()> {
        let members = members.to_vec();
        self.write(move |tx| write::rebuild_chain(tx, org, head, &members)).await
    }

    async fn request(&self, org: OrgId, key: &str) -> Result<Option<RequestRow>> {
        let key = key.to_owned();
        self.read_rows(1, move |conn| read::request(conn, org, &key)).await
    }

    async fn use_plan(&self, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool> {
        self.write(move |tx| write::use_plan(tx, org, plan, now)).await
    }

    async fn keep_plans(&self, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()> {
        let plans = plans.to_vec();
        self.write(move |tx| write::keep_plans(tx, org, run, &plans)).await
    }

    async fn orgs(&self) -> Result<Vec<OrgId>> {
        self.read(collect::orgs).await
    }

    async fn plans_in_use(&self, org: OrgId) -> Result<HashSet<Digest>> {
        self.write(move |tx| collect::forget_plans(tx, org)).await?;
        self.read(move |conn| collect::plans_in_use(conn, org)).await
    }

    async fn loose_revisions(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<RevisionRow>> {
        self.read(move |conn| collect::loose_revisions(conn, org, before, after, limit)).await
    }

    async fn remove_revisions(&self, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> Result<u64> {
        let revisions = revisions.to_vec();
        self.write(move |tx| collect::remove_revisions(tx, org, before, &revisions)).await
    }

    async fn loose_blobs(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<BlobRow>> {
        self.read(move |conn| collect::loose_blobs(conn, org, before, after, limit)).await
    }

    async fn blobs_in_use(&self, org: OrgId, before: Timestamp, hashes: &[Digest]) -> Result<Vec<(BlobRow, u64)>> {
        let hashes = hashes.to_vec();
        self.read(move |conn| collect::blobs_in_use(conn, org, before, &hashes)).await
    }

    async fn remove_blobs(&self, org: OrgId, before: Timestamp, blobs: &[Digest]) -> Result<(u64, u64)> {
        let blobs = blobs.to_vec();
        self.write(move |tx| collect::remove_blobs(tx, org, before, &blobs)).await
    }

    async fn forget_requests(&self, before: Timestamp) -> Result<()> {
        self.write(move |tx| collect::forget_requests(tx, before)).await
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        let key = key.to_owned();
        self.write(move |tx| collect::note_key(tx, &key, now)).await
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        self.read(move |conn| collect::loose_keys(conn, before, limit)).await
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        self.write(move |tx| collect::clear_key(tx, &key)).await
    }
}

fn opt_id(id: Option<&Uuid>) -> Option<&[u8]> {
    id.map(|id| id.as_bytes().as_slice())
}
