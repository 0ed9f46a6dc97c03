//! Results of steps.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::cache::Cached;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::MemoryStore;
use crate::rows::{EpochRow, KeptWrite, ResultFilter, ResultKey, ResultPosition, ResultRow, ResultStats, RunWrite};
use crate::{CacheStore, Result};

#[derive(Debug, Default)]
pub(super) struct Results {
    rows: BTreeMap<(OrgId, ResultKey), (ResultRow, Json)>,
    preimages: BTreeMap<(OrgId, Digest), (Timestamp, Json)>,
    /// The step of a whole workflow is empty.
    epochs: BTreeMap<(OrgId, String, String), u64>,
}

impl Results {
    /// What writes that stand do to results.
    pub(super) fn write(&mut self, writes: &[&RunWrite]) {
        let changes = || writes.iter().filter_map(|write| Some((*write, write.cache.as_deref()?)));
        for (write, cache) in changes() {
            for (key, preimage) in &cache.preimages {
                self.preimages.entry((write.org, *key)).or_insert_with(|| (cache.at, preimage.clone()));
            }
        }
        for (write, cache) in changes() {
            cache.kept.iter().for_each(|kept| self.keep(write, kept, cache.at));
        }
        for (write, cache) in changes() {
            for used in &cache.used {
                if let Some((row, _)) = self.rows.get_mut(&(write.org, *used)) {
                    row.hits += 1;
                    row.last_hit_at = Some(cache.at);
                }
            }
        }
        for (write, _) in changes().filter(|(_, cache)| cache.run_ended) {
            self.rows.retain(|(org, key), _| (*org, key.run) != (write.org, Some(write.run)));
        }
    }

    fn keep(&mut self, write: &RunWrite, kept: &KeptWrite, at: Timestamp) {
        let before = self.rows.get(&(write.org, kept.key)).map(|(row, _)| (row.hits, row.last_hit_at));
        let (hits, last_hit_at) = before.unwrap_or_default();
        let row = ResultRow {
            key: kept.key,
            workflow: kept.workflow.to_string(),
            step_id: kept.step_id.to_string(),
            trust: kept.trust,
            producer: (write.run, kept.seq),
            created_at: at,
            last_hit_at,
            hits,
            duration_ms: kept.duration_ms,
            bytes: kept.output.len() as u64,
        };
        self.rows.insert((write.org, kept.key), (row, kept.output.clone()));
    }

    pub(super) fn find(&self, org: OrgId, key: ResultKey) -> Option<Cached> {
        let (row, output) = self.rows.get(&(org, key))?;
        let (run, seq) = row.producer;
        Some(Cached { key: key.key, output: output.clone(), run, seq })
    }

    pub(super) fn forget_runs(&mut self, is_gone: impl Fn(OrgId, milepost_core::id::RunId) -> bool) {
        self.rows.retain(|(org, key), _| !key.run.is_some_and(|run| is_gone(*org, run)));
    }

    pub(super) fn epochs(&self, org: OrgId, workflow: &str) -> Vec<EpochRow> {
        let of_workflow = self.epochs.iter().filter(|((of, name, _), _)| *of == org && name == workflow);
        let row = |((_, _, step), epoch): (&(OrgId, String, String), &u64)| EpochRow {
            step_id: (!step.is_empty()).then(|| step.clone()),
            epoch: *epoch,
        };
        of_workflow.map(row).collect()
    }

    fn matching(&self, org: OrgId, filter: &ResultFilter) -> Vec<&ResultRow> {
        let rows = self.rows.iter().filter(|((of, _), (row, _))| *of == org && filter.matches(row));
        let mut rows: Vec<&ResultRow> = rows.map(|(_, (row, _))| row).collect();
        rows.sort_by_key(|row| row.position());
        rows
    }

    fn evict(&mut self, org: OrgId, filter: &ResultFilter, limit: u32) -> u64 {
        let keys: Vec<ResultKey> = self.matching(org, filter).iter().take(limit as usize).map(|row| row.key).collect();
        keys.iter().for_each(|key| drop(self.rows.remove(&(org, *key))));
        keys.len() as u64
    }

    fn forget_preimages(&mut self, before: Timestamp, limit: u32) -> u64 {
        let has_result = |org: OrgId, key: Digest| {
            let (first, last) = (ResultKey { key, run: None }, ResultKey { key, run: Some(MAX_RUN) });
            self.rows.range((org, first)..=(org, last)).next().is_some()
        };
        let old = self.preimages.iter().filter(|((org, key), (at, _))| *at < before && !has_result(*org, *key));
        let old: Vec<_> = old.map(|(key, _)| *key).take(limit as usize).collect();
        old.iter().for_each(|key| drop(self.preimages.remove(key)));
        old.len() as u64
    }
}

const MAX_RUN: milepost_core::id::RunId = milepost_core::id::RunId(uuid::Uuid::max());

#[async_trait]
impl CacheStore for MemoryStore {
    async fn results(
        &self,
        org: OrgId,
        filter: &ResultFilter,
        after: Option<&ResultPosition>,
        limit: u32,
    ) -> Result<Vec<ResultRow>> {
        let tables = self.tables();
        let rows = tables.results.matching(org, filter).into_iter();
        let later = rows.filter(|row| after.is_none_or(|after| row.position() > *after));
        Ok(later.take(limit as usize).cloned().collect())
    }

    async fn result_stats(&self, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>> {
        let tables = self.tables();
        let mut stats: Vec<ResultStats> = Vec::new();
        for row in tables.results.matching(org, filter) {
            let same = |last: &&mut ResultStats| (&last.workflow, &last.step_id) == (&row.workflow, &row.step_id);
            let (bytes, hits, saved_ms) = (row.bytes, row.hits, row.hits * row.duration_ms);
            match stats.last_mut().filter(same) {
                Some(last) => {
                    last.results += 1;
                    last.bytes += bytes;
                    last.hits += hits;
                    last.saved_ms += saved_ms;
                }
                None => {
                    let (workflow, step_id) = (row.workflow.clone(), row.step_id.clone());
                    stats.push(ResultStats { workflow, step_id, results: 1, bytes, hits, saved_ms });
                }
            }
        }
        Ok(stats)
    }

    async fn evict(&self, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().results.evict(org, filter, limit))
    }

    async fn preimage(&self, org: OrgId, key: Digest) -> Result<Option<Json>> {
        Ok(self.tables().results.preimages.get(&(org, key)).map(|(_, preimage)| preimage.clone()))
    }

    async fn forget_preimages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().results.forget_preimages(before, limit))
    }

    async fn disown(&self, org: OrgId, workflow: &str, step: Option<&str>) -> Result<u64> {
        let _writing = self.writing.lock().await;
        let key = (org, workflow.to_owned(), step.unwrap_or_default().to_owned());
        let mut tables = self.tables();
        let epoch = tables.results.epochs.entry(key).or_default();
        *epoch += 1;
        Ok(*epoch)
    }

    async fn epochs(&self, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>> {
        Ok(self.tables().results.epochs(org, workflow))
    }
}
