//! Results of steps.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::artifact::Beyond;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::MemoryStore;
use crate::rows::{
    EpochRow, FoundResult, KeptWrite, PreimageRow, PreimageWrite, ResultAge, ResultFilter, ResultKey, ResultPosition,
    ResultRow, ResultStats, RunWrite,
};
use crate::{Asker, CacheStore, Result};

/// What an attempt began with, and whose it was.
#[derive(Debug)]
struct Began {
    run: RunId,
    at: Timestamp,
    of: PreimageWrite,
}

#[derive(Debug)]
struct Kept {
    output_hash: Digest,
    output: Json,
    beyond: Option<Box<Beyond>>,
}

#[derive(Debug, Default)]
pub(super) struct Results {
    rows: BTreeMap<(OrgId, ResultKey), (ResultRow, Kept)>,
    preimages: BTreeMap<(OrgId, Digest), Began>,
    /// Hits of results that are gone, misses, and the milliseconds that those hits saved; by workflow and step.
    counts: BTreeMap<(OrgId, String, String), [u64; 3]>,
    /// The step of a whole workflow is empty.
    epochs: BTreeMap<(OrgId, String, String), u64>,
}

impl Results {
    /// What writes that stand do to results.
    pub(super) fn write(&mut self, writes: &[&RunWrite]) {
        let changes = || writes.iter().filter_map(|write| Some((*write, write.cache.as_deref()?)));
        for (write, cache) in changes() {
            for began in &cache.preimages {
                let (run, at) = (write.run, cache.at);
                self.preimages.entry((write.org, began.key)).or_insert_with(|| Began { run, at, of: began.clone() });
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
            let own = self.rows.keys().filter(|(org, key)| (*org, key.run) == (write.org, Some(write.run)));
            let own: Vec<(OrgId, ResultKey)> = own.copied().collect();
            own.into_iter().for_each(|place| self.remove(place));
        }
        for (write, cache) in changes() {
            for missed in &cache.missed {
                self.count(write.org, &missed.workflow, &missed.step_id)[1] += missed.times;
            }
        }
    }

    fn count(&mut self, org: OrgId, workflow: &str, step: &str) -> &mut [u64; 3] {
        self.counts.entry((org, workflow.to_owned(), step.to_owned())).or_default()
    }

    fn remove(&mut self, place: (OrgId, ResultKey)) {
        if let Some((row, _)) = self.rows.remove(&place).filter(|(row, _)| row.hits > 0) {
            let count = self.count(place.0, &row.workflow, &row.step_id);
            count[0] += row.hits;
            count[2] += row.hits * row.duration_ms;
        }
    }

    /// What is counted beside results, where a filter asks for more than keys.
    fn counted(&self, org: OrgId, filter: &ResultFilter) -> Vec<ResultStats> {
        let is_meant = |workflow: &str, step: &str| match filter {
            ResultFilter::All => true,
            ResultFilter::Workflow(of) => of == workflow,
            ResultFilter::Step { workflow: of, step_id } => of == workflow && step_id == step,
            ResultFilter::Key(_) | ResultFilter::Keys { .. } => false,
        };
        let counts = self.counts.iter().filter(|((of, workflow, step), _)| *of == org && is_meant(workflow, step));
        let stats =
            |((_, workflow, step), [hits, misses, saved_ms]): (&(OrgId, String, String), &[u64; 3])| ResultStats {
                workflow: workflow.clone(),
                step_id: step.clone(),
                results: 0,
                bytes: 0,
                hits: *hits,
                misses: *misses,
                saved_ms: *saved_ms,
            };
        counts.map(stats).collect()
    }

    fn ages(&self, after: Option<(OrgId, ResultKey)>) -> impl Iterator<Item = ResultAge> {
        let later = self.rows.iter().filter(move |(place, _)| after.is_none_or(|after| **place > after));
        later.map(|((org, key), (row, _))| ResultAge {
            org: *org,
            key: *key,
            used_at: row.created_at.max(row.last_hit_at.unwrap_or(row.created_at)),
            bytes: row.bytes,
        })
    }

    fn evict_unused(&mut self, unused: &[ResultAge]) -> u64 {
        let still = |wanted: &&ResultAge| {
            self.rows.get(&wanted.place()).is_some_and(|(row, _)| {
                row.created_at <= wanted.used_at && row.last_hit_at.is_none_or(|at| at <= wanted.used_at)
            })
        };
        let gone: Vec<_> = unused.iter().filter(still).map(ResultAge::place).collect();
        gone.iter().for_each(|place| self.remove(*place));
        gone.len() as u64
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
        let result = Kept { output_hash: kept.output_hash, output: kept.output.clone(), beyond: kept.beyond.clone() };
        self.rows.insert((write.org, kept.key), (row, result));
    }

    pub(super) fn find(&self, org: OrgId, key: ResultKey, held: Option<Digest>) -> Option<FoundResult> {
        let (row, Kept { output_hash, output, beyond }) = self.rows.get(&(org, key))?;
        let output = (held != Some(*output_hash)).then(|| output.clone());
        let (output_hash, beyond) = (*output_hash, beyond.clone());
        let (producer, duration_ms) = (row.producer, row.duration_ms);
        Some(FoundResult { key, producer, output_hash, output, beyond, duration_ms })
    }

    /// Whether a result names this content.
    pub(super) fn name(&self, org: OrgId, content: Digest) -> bool {
        let named = |kept: &Kept| kept.beyond.as_ref().is_some_and(|beyond| beyond.blobs().contains(&content));
        self.rows.iter().any(|((of, _), (_, kept))| *of == org && named(kept))
    }

    pub(super) fn forget_runs(&mut self, is_gone: impl Fn(OrgId, RunId) -> bool) {
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
        keys.iter().for_each(|key| self.remove((org, *key)));
        keys.len() as u64
    }

    fn forget_preimages(&mut self, before: Timestamp, limit: u32) -> u64 {
        let has_result = |org: OrgId, key: Digest| {
            let (first, last) = (ResultKey { key, run: None }, ResultKey { key, run: Some(MAX_RUN) });
            self.rows.range((org, first)..=(org, last)).next().is_some()
        };
        let old = self.preimages.iter().filter(|((org, key), began)| began.at < before && !has_result(*org, *key));
        let old: Vec<_> = old.map(|(key, _)| *key).take(limit as usize).collect();
        old.iter().for_each(|key| drop(self.preimages.remove(key)));
        old.len() as u64
    }
}

const MAX_RUN: RunId = RunId(uuid::Uuid::max());

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
        let of_row = |row: &ResultRow| ResultStats {
            workflow: row.workflow.clone(),
            step_id: row.step_id.clone(),
            results: 1,
            bytes: row.bytes,
            hits: row.hits,
            misses: 0,
            saved_ms: row.hits * row.duration_ms,
        };
        let mut all: Vec<ResultStats> = tables.results.matching(org, filter).into_iter().map(of_row).collect();
        all.extend(tables.results.counted(org, filter));
        all.sort_by(|a, b| (&a.workflow, &a.step_id).cmp(&(&b.workflow, &b.step_id)));
        let mut stats: Vec<ResultStats> = Vec::new();
        for one in all {
            let same = |last: &&mut ResultStats| (&last.workflow, &last.step_id) == (&one.workflow, &one.step_id);
            match stats.last_mut().filter(same) {
                Some(last) => {
                    last.results += one.results;
                    last.bytes += one.bytes;
                    last.hits += one.hits;
                    last.misses += one.misses;
                    last.saved_ms += one.saved_ms;
                }
                None => stats.push(one),
            }
        }
        Ok(stats)
    }

    async fn evict(&self, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().results.evict(org, filter, limit))
    }

    async fn output(&self, org: OrgId, key: &ResultKey, chars: u32) -> Result<Option<String>> {
        let tables = self.tables();
        let found = tables.results.rows.get(&(org, *key));
        Ok(found.map(|(_, kept)| kept.output.as_str().chars().take(chars as usize).collect()))
    }

    async fn ages(&self, after: Option<(OrgId, ResultKey)>, limit: u32) -> Result<Vec<ResultAge>> {
        Ok(self.tables().results.ages(after).take(limit as usize).collect())
    }

    async fn evict_unused(&self, unused: &[ResultAge]) -> Result<u64> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().results.evict_unused(unused))
    }

    async fn preimage(&self, org: OrgId, key: Digest) -> Result<Option<Json>> {
        Ok(self.tables().results.preimages.get(&(org, key)).map(|began| began.of.preimage.clone()))
    }

    async fn preimages(&self, org: OrgId, workflow: &str, step: &str, limit: u32) -> Result<Vec<PreimageRow>> {
        let tables = self.tables();
        let of_step = |began: &&Began| *began.of.workflow == *workflow && *began.of.step_id == *step;
        let all = tables.results.preimages.iter().filter(|((of, _), _)| *of == org).map(|(_, began)| began);
        let mut found: Vec<&Began> = all.filter(of_step).collect();
        found.sort_by_key(|began| std::cmp::Reverse(began.at));
        let row = |began: &Began| PreimageRow {
            key: began.of.key,
            run: began.run,
            created_at: began.at,
            preimage: began.of.preimage.clone(),
        };
        Ok(found.into_iter().take(limit as usize).map(row).collect())
    }

    async fn converse(&self, org: OrgId, mut asker: Asker) -> Result<()> {
        let mut asked = asker(Vec::new());
        while !asked.is_empty() {
            let found = {
                let tables = self.tables();
                let first = |keys: &Vec<ResultKey>| keys.iter().find_map(|key| tables.results.find(org, *key, None));
                asked.iter().map(first).collect()
            };
            asked = asker(found);
        }
        Ok(())
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
