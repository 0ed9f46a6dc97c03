//! Files that runs leave, and where their content is.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::time::Timestamp;

use super::MemoryStore;
use super::tables::{Key, Tables};
use crate::rows::{ArtifactFilter, ArtifactPosition, ArtifactRow, ContentKey, ContentRow};
use crate::{ArtifactStore, Result};

#[derive(Debug, Default)]
pub(super) struct Artifacts {
    pub(super) rows: BTreeMap<(Key, ArtifactPosition), ArtifactRow>,
    contents: BTreeMap<ContentKey, ContentRow>,
    notes: BTreeMap<String, Timestamp>,
}

impl Artifacts {
    pub(super) fn of_run(&self, key: Key) -> impl Iterator<Item = &ArtifactRow> {
        let first = ArtifactPosition { seq: 0, place: 0 };
        let last = ArtifactPosition { seq: u64::MAX, place: u32::MAX };
        self.rows.range((key, first)..=(key, last)).map(|(_, row)| row)
    }

    fn names(&self, org: OrgId, sha256: Digest) -> bool {
        self.rows.iter().any(|(((of, _), _), row)| *of == org && row.artifact.sha256 == Some(sha256))
    }

    fn name(&mut self, org: OrgId, content: &ContentRow, instead_of: Option<&str>) -> bool {
        let there = self.contents.get(&(org, content.sha256)).map(|there| there.blob.as_str());
        if there.is_some_and(|there| Some(there) != instead_of) {
            return false;
        }
        self.contents.insert((org, content.sha256), content.clone());
        self.notes.remove(&content.blob);
        if let Some(before) = instead_of {
            self.notes.insert(before.to_owned(), content.used_at);
        }
        true
    }
}

impl Tables {
    fn is_loose(&self, (org, sha256): ContentKey, before: Timestamp) -> bool {
        let content = self.artifacts.contents.get(&(org, sha256));
        content.is_some_and(|content| content.used_at < before)
            && !self.artifacts.names(org, sha256)
            && !self.results.name(org, sha256)
    }

    fn remove_content(&mut self, key: ContentKey) -> u64 {
        let Some(content) = self.artifacts.contents.remove(&key) else { return 0 };
        self.artifacts.notes.insert(content.blob, Timestamp(0));
        content.size_bytes
    }
}

#[async_trait]
impl ArtifactStore for MemoryStore {
    async fn artifacts(
        &self,
        org: OrgId,
        run: RunId,
        filter: &ArtifactFilter,
        after: Option<ArtifactPosition>,
        limit: u32,
    ) -> Result<Vec<ArtifactRow>> {
        let tables = self.tables();
        let later = |row: &&ArtifactRow| after.is_none_or(|after| row.position > after) && filter.matches(row);
        Ok(tables.artifacts.of_run((org, run)).filter(later).take(limit as usize).cloned().collect())
    }

    async fn artifact(&self, org: OrgId, run: RunId, id: ArtifactId) -> Result<Option<ArtifactRow>> {
        Ok(self.tables().artifacts.of_run((org, run)).find(|row| row.artifact.id == id).cloned())
    }

    async fn numbered(&self, org: OrgId, run: RunId, kind: &str, training_step: i64) -> Result<Option<ArtifactRow>> {
        let tables = self.tables();
        let same = |row: &&ArtifactRow| row.artifact.kind == kind && row.artifact.training_step == Some(training_step);
        Ok(tables.artifacts.of_run((org, run)).find(same).cloned())
    }

    async fn media_type(&self, org: OrgId, sha256: Digest) -> Result<Option<String>> {
        let tables = self.tables();
        let of = tables
            .artifacts
            .rows
            .iter()
            .filter(|(((of, _), _), row)| *of == org && row.artifact.sha256 == Some(sha256));
        Ok(of.filter_map(|(_, row)| row.artifact.media_type.clone()).next())
    }

    async fn forget_expired(&self, now: Timestamp, limit: u32) -> Result<u64> {
        let mut tables = self.tables();
        let expired =
            tables.artifacts.rows.iter().filter(|(_, row)| row.artifact.expires_at.is_some_and(|at| at <= now));
        let expired: Vec<_> = expired.map(|(key, _)| *key).take(limit as usize).collect();
        expired.iter().for_each(|key| drop(tables.artifacts.rows.remove(key)));
        Ok(expired.len() as u64)
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        self.tables().artifacts.notes.insert(key.to_owned(), now);
        Ok(())
    }

    async fn contents(&self, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>> {
        let tables = self.tables();
        Ok(hashes.iter().filter_map(|hash| tables.artifacts.contents.get(&(org, *hash)).cloned()).collect())
    }

    async fn name_content(&self, org: OrgId, content: &ContentRow, instead_of: Option<&str>) -> Result<bool> {
        Ok(self.tables().artifacts.name(org, content, instead_of))
    }

    async fn touch_contents(&self, org: OrgId, hashes: &[Digest], now: Timestamp) -> Result<Vec<ContentRow>> {
        for hash in hashes {
            if let Some(content) = self.tables().artifacts.contents.get_mut(&(org, *hash)) {
                content.used_at = content.used_at.max(now);
            }
        }
        self.contents(org, hashes).await
    }

    async fn loose_contents(
        &self,
        before: Timestamp,
        after: Option<ContentKey>,
        limit: u32,
    ) -> Result<Vec<(OrgId, ContentRow)>> {
        let tables = self.tables();
        let contents = tables.artifacts.contents.iter().filter(|(key, _)| after.is_none_or(|after| **key > after));
        let loose = contents.filter(|(key, _)| tables.is_loose(**key, before));
        Ok(loose.map(|((org, _), content)| (*org, content.clone())).take(limit as usize).collect())
    }

    async fn remove_contents(&self, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)> {
        let mut tables = self.tables();
        let loose: Vec<ContentKey> = contents.iter().copied().filter(|key| tables.is_loose(*key, before)).collect();
        let bytes = loose.iter().map(|key| tables.remove_content(*key)).sum();
        Ok((loose.len() as u64, bytes))
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        let tables = self.tables();
        let loose = tables.artifacts.notes.iter().filter(|(_, at)| **at < before);
        Ok(loose.map(|(key, _)| key.clone()).take(limit as usize).collect())
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        self.tables().artifacts.notes.remove(key);
        Ok(())
    }
}
