//! Documents in versions.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use uuid::Uuid;

use super::MemoryStore;
use crate::rows::{
    BlobRow, ChainRow, DefinitionWrite, MoveRow, RequestRow, RevisionKind, RevisionRow, StoredRevision, TagRow,
    TagWrite,
};
use crate::{DefinitionStore, Result};

#[derive(Debug, Default)]
pub(super) struct Definitions {
    blobs: BTreeMap<(OrgId, Digest), BlobRow>,
    revisions: BTreeMap<(OrgId, Uuid), RevisionRow>,
    chain: BTreeMap<(OrgId, Uuid, u32), Uuid>,
    tags: BTreeMap<(OrgId, String), TagRow>,
    moves: BTreeMap<(OrgId, String, u64), MoveRow>,
    requests: BTreeMap<(OrgId, String), RequestRow>,
    uses: BTreeMap<(OrgId, Uuid), Timestamp>,
    run_plans: HashSet<(OrgId, RunId, Digest)>,
    notes: BTreeMap<String, Timestamp>,
}

impl Definitions {
    fn of_org(&self, org: OrgId) -> impl Iterator<Item = &RevisionRow> {
        self.revisions.range((org, Uuid::nil())..=(org, Uuid::max())).map(|(_, row)| row)
    }

    fn snapshot(&self, org: OrgId, plan: Digest) -> Option<Uuid> {
        let mut rows = self.of_org(org).filter(|row| row.kind == RevisionKind::RunSnapshot);
        rows.find(|row| row.plan_hash == Some(plan)).map(|row| row.revision_id)
    }

    fn may_write(&self, org: OrgId, write: &DefinitionWrite) -> bool {
        let version = |tag: &str| self.tags.get(&(org, tag.to_owned())).map_or(0, |row| row.version);
        let tag_stands = write.tag.as_ref().is_none_or(|tag| version(&tag.tag.tag) == tag.expected_version);
        let is_new = |revision: &RevisionRow| match revision.kind {
            RevisionKind::DagVersion => !self
                .of_org(org)
                .any(|row| row.kind == RevisionKind::DagVersion && row.version_hash == revision.version_hash),
            RevisionKind::RunSnapshot => revision.plan_hash.is_some_and(|plan| self.snapshot(org, plan).is_none()),
            RevisionKind::PatchSet => true,
        };
        let asked = |request: &RequestRow| self.requests.contains_key(&(org, request.key.clone()));
        let is_there = |revision: &Uuid| {
            self.revisions.contains_key(&(org, *revision))
                || write.revisions.iter().any(|row| row.revision_id == *revision)
        };
        let has_parents = |row: &RevisionRow| {
            let content = self.blobs.contains_key(&(org, row.cas_hash))
                || write.blobs.iter().any(|blob| blob.hash == row.cas_hash);
            content && [row.base_version, row.parent_id, row.merge_parent_id].iter().flatten().all(is_there)
        };
        tag_stands
            && write.revisions.iter().all(|row| is_new(row) && has_parents(row))
            && write.chain.iter().all(|row| is_there(&row.member_id))
            && write.tag.iter().all(|tag| is_there(&tag.tag.revision_id))
            && !write.request.iter().any(asked)
    }

    fn write(&mut self, org: OrgId, write: &DefinitionWrite) -> bool {
        if !self.may_write(org, write) {
            return false;
        }
        for blob in &write.blobs {
            if self.blobs.contains_key(&(org, blob.hash)) {
                continue;
            }
            if let Some(key) = &blob.blob {
                self.notes.remove(key);
            }
            self.blobs.insert((org, blob.hash), blob.clone());
        }
        self.revisions.extend(write.revisions.iter().map(|row| ((org, row.revision_id), row.clone())));
        self.chain.extend(write.chain.iter().map(|row| ((org, row.head_id, row.seq), row.member_id)));
        if let Some(TagWrite { tag, moved, .. }) = &write.tag {
            let key = (org, tag.tag.clone());
            let protection = self.tags.get(&key).and_then(|row| row.protection.clone());
            self.tags.insert(key, TagRow { protection, ..tag.clone() });
            self.moves.insert((org, tag.tag.clone(), moved.move_id), moved.clone());
        }
        self.requests.extend(write.request.iter().map(|row| ((org, row.key.clone()), row.clone())));
        true
    }

    fn moves_of(&self, org: OrgId, tag: &str) -> impl DoubleEndedIterator<Item = &MoveRow> {
        let at = |move_id| (org, tag.to_owned(), move_id);
        self.moves.range(at(0)..=at(u64::MAX)).map(|(_, row)| row)
    }

    fn move_of(&self, org: OrgId, tag: &str, move_id: u64) -> Option<&MoveRow> {
        self.moves.get(&(org, tag.to_owned(), move_id))
    }

    fn chain(&self, org: OrgId, revision: Uuid) -> Vec<StoredRevision> {
        let Some(head) = self.revisions.get(&(org, revision)) else { return Vec::new() };
        let patches = self.chain.range((org, revision, 0)..=(org, revision, u32::MAX)).map(|(_, member)| *member);
        let ids = [head.base_version.unwrap_or(revision)].into_iter().chain(patches);
        let rows = ids.filter_map(|id| self.revisions.get(&(org, id)));
        rows.filter_map(|row| {
            let content = self.blobs.get(&(org, row.cas_hash))?.clone();
            Some(StoredRevision { revision: row.clone(), content })
        })
        .collect()
    }

    fn ancestors(&self, org: OrgId, revision: Uuid, limit: u32) -> Vec<RevisionRow> {
        let (mut line, mut seen) = (Vec::new(), HashSet::new());
        let mut generation = vec![revision];
        for _ in 0..=limit {
            generation.retain(|id| seen.insert(*id));
            generation.sort_unstable();
            let rows: Vec<&RevisionRow> = generation.iter().filter_map(|id| self.revisions.get(&(org, *id))).collect();
            generation = rows.iter().flat_map(|row| [row.parent_id, row.merge_parent_id]).flatten().collect();
            line.extend(rows.into_iter().cloned());
        }
        line
    }

    fn is_loose(&self, org: OrgId, row: &RevisionRow, before: Timestamp) -> bool {
        let id = Some(row.revision_id);
        let tagged = self.tags.iter().any(|(key, tag)| key.0 == org && Some(tag.revision_id) == id);
        let moved = self.moves.iter().any(|(key, moved)| {
            key.0 == org
                && (Some(moved.to_revision_id) == id || moved.from_revision_id == id || moved.merged_revision_id == id)
        });
        let child = self.of_org(org).any(|row| [row.base_version, row.parent_id, row.merge_parent_id].contains(&id));
        let member =
            self.chain.iter().any(|((of, head, _), member)| *of == org && Some(*member) == id && Some(*head) != id);
        let used = self.uses.get(&(org, row.revision_id)).is_some_and(|used| *used >= before);
        row.created_at < before && !tagged && !moved && !child && !member && !used
    }

    fn is_loose_blob(&self, org: OrgId, blob: &BlobRow, before: Timestamp) -> bool {
        blob.created_at < before && !self.of_org(org).any(|row| row.cas_hash == blob.hash)
    }

    fn remove_revisions(&mut self, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> u64 {
        let mut removed = 0;
        for revision in revisions {
            let key = (org, *revision);
            if self.revisions.get(&key).is_some_and(|row| self.is_loose(org, row, before)) {
                self.revisions.remove(&key);
                self.uses.remove(&key);
                self.chain.retain(|(of, head, _), _| (*of, *head) != key);
                removed += 1;
            }
        }
        removed
    }

    fn remove_blobs(&mut self, org: OrgId, before: Timestamp, blobs: &[Digest]) -> (u64, u64) {
        let (mut removed, mut bytes) = (0, 0);
        for hash in blobs {
            let loose = self.blobs.get(&(org, *hash)).is_some_and(|blob| self.is_loose_blob(org, blob, before));
            if let Some(blob) = loose.then(|| self.blobs.remove(&(org, *hash))).flatten() {
                removed += 1;
                bytes += blob.size;
                self.notes.extend(blob.blob.map(|key| (key, Timestamp(0))));
            }
        }
        (removed, bytes)
    }
}

#[async_trait]
impl DefinitionStore for MemoryStore {
    async fn write(&self, org: OrgId, write: &DefinitionWrite) -> Result<bool> {
        Ok(self.tables().definitions.write(org, write))
    }

    async fn blob(&self, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
        Ok(self.tables().definitions.blobs.get(&(org, hash)).cloned())
    }

    async fn tag(&self, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
        Ok(self.tables().definitions.tags.get(&(org, tag.to_owned())).cloned())
    }

    async fn tags(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>> {
        let tables = self.tables();
        let of_org = tables.definitions.tags.iter().filter(|(key, _)| key.0 == org);
        let later = of_org.filter(|(key, _)| after.is_none_or(|after| key.1.as_str() > after));
        Ok(later.map(|(_, row)| row.clone()).take(limit as usize).collect())
    }

    async fn protect(&self, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool> {
        let mut tables = self.tables();
        let row = tables.definitions.tags.get_mut(&(org, tag.to_owned()));
        Ok(row.map(|row| row.protection = protection.map(ToOwned::to_owned)).is_some())
    }

    async fn moves(&self, org: OrgId, tag: &str, before: Option<u64>, limit: u32) -> Result<Vec<MoveRow>> {
        let tables = self.tables();
        let rows = tables.definitions.moves_of(org, tag).rev();
        let earlier = rows.filter(|row| before.is_none_or(|before| row.move_id < before));
        Ok(earlier.take(limit as usize).cloned().collect())
    }

    async fn move_of(&self, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>> {
        Ok(self.tables().definitions.move_of(org, tag, move_id).cloned())
    }

    async fn move_at(&self, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>> {
        Ok(self.tables().definitions.moves_of(org, tag).rev().find(|row| row.moved_at <= at).cloned())
    }

    async fn move_back(&self, org: OrgId, tag: &str, from: u64, steps: u32) -> Result<Option<MoveRow>> {
        let tables = self.tables();
        let mut row = tables.definitions.move_of(org, tag, from);
        for _ in 0..steps {
            row = row.and_then(|row| tables.definitions.move_of(org, tag, row.before_move?));
        }
        Ok(row.cloned())
    }

    async fn revision(&self, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>> {
        Ok(self.tables().definitions.revisions.get(&(org, revision)).cloned())
    }

    async fn revisions_in(&self, org: OrgId, from: Digest, to: Digest, limit: u32) -> Result<Vec<RevisionRow>> {
        let tables = self.tables();
        let inside = |row: &&RevisionRow| (from.0..=to.0).contains(&row.version_hash.0);
        let mut rows: Vec<RevisionRow> = tables.definitions.of_org(org).filter(inside).cloned().collect();
        rows.sort_by_key(|row| (row.version_hash.0, row.revision_id));
        rows.truncate(limit as usize);
        Ok(rows)
    }

    async fn chain(&self, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>> {
        Ok(self.tables().definitions.chain(org, revision))
    }

    async fn ancestors(&self, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>> {
        Ok(self.tables().definitions.ancestors(org, revision, limit))
    }

    async fn revisions_after(&self, org: OrgId, after: Option<Uuid>, limit: u32) -> Result<Vec<RevisionRow>> {
        let tables = self.tables();
        let later = tables.definitions.of_org(org).filter(|row| after.is_none_or(|after| row.revision_id > after));
        Ok(later.take(limit as usize).cloned().collect())
    }

    async fn chain_rows(&self, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>> {
        let tables = self.tables();
        let of = |head: &Uuid| tables.definitions.chain.range((org, *head, 0)..=(org, *head, u32::MAX));
        let rows = heads.iter().flat_map(of);
        Ok(rows
            .map(|((_, head_id, seq), member_id)| ChainRow { head_id: *head_id, seq: *seq, member_id: *member_id })
            .collect())
    }

    async fn rebuild_chain(&self, org: OrgId, head: Uuid, members: &[Uuid]) -> Result<()> {
        let chain = &mut self.tables().definitions.chain;
        chain.retain(|(of, its_head, _), _| (*of, *its_head) != (org, head));
        chain.extend((1..).zip(members).map(|(seq, member)| ((org, head, seq), *member)));
        Ok(())
    }

    async fn request(&self, org: OrgId, key: &str) -> Result<Option<RequestRow>> {
        Ok(self.tables().definitions.requests.get(&(org, key.to_owned())).cloned())
    }

    async fn use_plan(&self, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool> {
        let mut tables = self.tables();
        let Some(snapshot) = tables.definitions.snapshot(org, plan) else { return Ok(false) };
        let used = tables.definitions.uses.entry((org, snapshot)).or_insert(now);
        *used = (*used).max(now);
        Ok(true)
    }

    async fn keep_plans(&self, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()> {
        self.tables().definitions.run_plans.extend(plans.iter().map(|plan| (org, run, *plan)));
        Ok(())
    }

    async fn orgs(&self) -> Result<Vec<OrgId>> {
        let definitions = &self.tables().definitions;
        let orgs = definitions.blobs.keys().map(|key| key.0).chain(definitions.tags.keys().map(|key| key.0));
        Ok(orgs.collect::<BTreeSet<OrgId>>().into_iter().collect())
    }

    async fn plans_in_use(&self, org: OrgId) -> Result<HashSet<Digest>> {
        let tables = &mut *self.tables();
        tables.definitions.run_plans.retain(|(of, run, _)| *of != org || tables.runs.contains_key(&(*of, *run)));
        let heads = tables.runs.values().filter(|head| head.org == org).map(|head| head.plan_hash);
        let kept = tables.definitions.run_plans.iter().filter(|(of, ..)| *of == org).map(|(_, _, plan)| *plan);
        Ok(heads.chain(kept).collect())
    }

    async fn loose_revisions(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Uuid>,
        limit: u32,
    ) -> Result<Vec<RevisionRow>> {
        let tables = self.tables();
        let definitions = &tables.definitions;
        let later = definitions.of_org(org).filter(|row| after.is_none_or(|after| row.revision_id > after));
        Ok(later.filter(|row| definitions.is_loose(org, row, before)).take(limit as usize).cloned().collect())
    }

    async fn remove_revisions(&self, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> Result<u64> {
        Ok(self.tables().definitions.remove_revisions(org, before, revisions))
    }

    async fn loose_blobs(
        &self,
        org: OrgId,
        before: Timestamp,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<BlobRow>> {
        let tables = self.tables();
        let definitions = &tables.definitions;
        let later = definitions.blobs.iter().filter(|(key, _)| key.0 == org && after.is_none_or(|hash| key.1 > hash));
        let loose = later.filter(|(_, row)| definitions.is_loose_blob(org, row, before));
        Ok(loose.take(limit as usize).map(|(_, row)| BlobRow { content: Vec::new(), ..row.clone() }).collect())
    }

    async fn blobs_in_use(&self, org: OrgId, before: Timestamp, hashes: &[Digest]) -> Result<Vec<(BlobRow, u64)>> {
        let tables = self.tables();
        let definitions = &tables.definitions;
        let rows = hashes.iter().filter_map(|hash| definitions.blobs.get(&(org, *hash)));
        let old = rows.filter(|row| row.created_at < before);
        let with_uses = |row: &BlobRow| {
            let uses = definitions.of_org(org).filter(|revision| revision.cas_hash == row.hash).count() as u64;
            (BlobRow { content: Vec::new(), ..row.clone() }, uses)
        };
        Ok(old.map(with_uses).collect())
    }

    async fn remove_blobs(&self, org: OrgId, before: Timestamp, blobs: &[Digest]) -> Result<(u64, u64)> {
        Ok(self.tables().definitions.remove_blobs(org, before, blobs))
    }

    async fn forget_requests(&self, before: Timestamp) -> Result<()> {
        self.tables().definitions.requests.retain(|_, row| row.created_at >= before);
        Ok(())
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        self.tables().definitions.notes.entry(key.to_owned()).or_insert(now);
        Ok(())
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        let tables = self.tables();
        let loose = tables.definitions.notes.iter().filter(|(_, noted)| **noted < before);
        Ok(loose.map(|(key, _)| key.clone()).take(limit as usize).collect())
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        self.tables().definitions.notes.remove(key);
        Ok(())
    }
}
