//! What is counted of results: hits with each of them, misses and the hits of those that are gone beside them.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, ToSql, params};

use milepost_core::id::OrgId;

use super::cache::condition;
use super::columns::{Columns, all};
use crate::Result;
use crate::rows::{CacheWrite, ResultFilter, ResultStats, RunWrite};

/// By workflow and step of an org.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<(i32, String, String), Count>);

#[derive(Default)]
struct Count {
    hits: u64,
    misses: u64,
    saved_ms: u64,
}

impl Counts {
    pub(super) fn add_missed(&mut self, changes: &[(&RunWrite, &CacheWrite)]) {
        for (write, cache) in changes {
            for missed in &cache.missed {
                let key = (write.org.0, missed.workflow.to_string(), missed.step_id.to_string());
                self.0.entry(key).or_default().misses += missed.times;
            }
        }
    }

    /// What was removed: `org_id, workflow, step_id, hits, duration_ms`.
    pub(super) fn add_gone(&mut self, row: &Row) -> rusqlite::Result<()> {
        let mut columns = Columns::of(row);
        let key = (columns.org()?.0, columns.get()?, columns.get()?);
        let (hits, duration_ms) = (columns.seq()?, columns.seq()?);
        if hits > 0 {
            let count = self.0.entry(key).or_default();
            count.hits += hits;
            count.saved_ms += hits * duration_ms;
        }
        Ok(())
    }

    pub(super) fn write(&self, tx: &Connection) -> Result<()> {
        for ((org, workflow, step), Count { hits, misses, saved_ms }) in &self.0 {
            tx.prepare_cached(
                "INSERT INTO cache_counts (org_id, workflow, step_id, hits, misses, saved_ms) VALUES (?, ?, ?, ?, ?, ?)
                 ON CONFLICT (org_id, workflow, step_id) DO UPDATE
                 SET hits = hits + excluded.hits, misses = misses + excluded.misses,
                     saved_ms = saved_ms + excluded.saved_ms",
            )?
            .execute(params![
                org,
                workflow,
                step,
                hits.cast_signed(),
                misses.cast_signed(),
                saved_ms.cast_signed()
            ])?;
        }
        Ok(())
    }
}

pub(super) fn stats(conn: &Connection, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>> {
    let (wanted, of_filter) = condition(filter);
    let mut sql = format!(
        "SELECT workflow, step_id, sum(results), sum(bytes), sum(hits), sum(misses), sum(saved_ms) FROM (
             SELECT workflow, step_id, 1 AS results, bytes, hits, 0 AS misses, hits * duration_ms AS saved_ms
             FROM step_cache WHERE org_id = ? AND {wanted}"
    );
    let mut parameters: Vec<&dyn ToSql> = vec![&org.0];
    parameters.extend(&of_filter);
    if !matches!(filter, ResultFilter::Key(_) | ResultFilter::Keys { .. }) {
        sql += &format!(
            " UNION ALL SELECT workflow, step_id, 0, 0, hits, misses, saved_ms FROM cache_counts
             WHERE org_id = ? AND {wanted}"
        );
        parameters.push(&org.0);
        parameters.extend(&of_filter);
    }
    sql += ") GROUP BY workflow, step_id ORDER BY workflow, step_id";
    all(conn, &sql, &parameters[..], |row| {
        let mut columns = Columns::of(row);
        Ok(ResultStats {
            workflow: columns.get()?,
            step_id: columns.get()?,
            results: columns.seq()?,
            bytes: columns.seq()?,
            hits: columns.seq()?,
            misses: columns.seq()?,
            saved_ms: columns.seq()?,
        })
    })
}
