//! What is counted of results: hits with each of them, misses and the hits of those that are gone beside them.
//!
//! A row is added to until the batch is committed, so each process has rows of its own: its lane. Two that share one by
//! chance wait for each other, and in the same order, so not for ever.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use deadpool_postgres::Object;
use milepost_core::id::OrgId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::cache::Asking;
use super::columns::{col, int8, seq};
use super::runs::query;
use crate::Result;
use crate::rows::{CacheWrite, ResultFilter, ResultStats, RunWrite};

/// Rows per step at most.
const LANES: u128 = 64;

pub(super) fn lane() -> i16 {
    static LANE: LazyLock<i16> = LazyLock::new(|| (Uuid::new_v4().as_u128() % LANES) as i16);
    *LANE
}

/// By workflow and step of an org, in the order in which all count.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<(i32, String, String), Count>);

#[derive(Default)]
struct Count {
    hits: u64,
    misses: u64,
    saved_ms: u64,
}

const COUNT: &str = "INSERT INTO cache_counts AS c (org_id, workflow, step_id, lane, hits, misses, saved_ms)
    SELECT n.org_id, n.workflow, n.step_id, $7, n.hits, n.misses, n.saved_ms
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::int8[])
        AS n (org_id, workflow, step_id, hits, misses, saved_ms)
    ON CONFLICT (org_id, workflow, step_id, lane) DO UPDATE
    SET hits = c.hits + excluded.hits, misses = c.misses + excluded.misses, saved_ms = c.saved_ms + excluded.saved_ms";

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
    pub(super) fn add_gone(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            let (hits, duration_ms) = (seq(col(row, 3)?)?, seq(col(row, 4)?)?);
            if hits > 0 {
                let count = self.0.entry((col(row, 0)?, col(row, 1)?, col(row, 2)?)).or_default();
                count.hits += hits;
                count.saved_ms += hits * duration_ms;
            }
        }
        Ok(())
    }

    pub(super) async fn write(&self, connection: &Object) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let orgs: Vec<i32> = self.0.keys().map(|(org, _, _)| *org).collect();
        let workflows: Vec<&str> = self.0.keys().map(|(_, workflow, _)| workflow.as_str()).collect();
        let steps: Vec<&str> = self.0.keys().map(|(_, _, step)| step.as_str()).collect();
        let hits: Vec<i64> = self.0.values().map(|count| int8(count.hits)).collect();
        let misses: Vec<i64> = self.0.values().map(|count| int8(count.misses)).collect();
        let saved_ms: Vec<i64> = self.0.values().map(|count| int8(count.saved_ms)).collect();
        query(connection, COUNT, &[&orgs, &workflows, &steps, &hits, &misses, &saved_ms, &lane()]).await?;
        Ok(())
    }
}

/// Removes the results that a query chooses by `org_id, key, run_id`, and keeps their hits. The parameter of this number is
/// the lane. Answers how many went.
pub(super) fn removing(chosen: &str, lane: usize) -> String {
    format!(
        "WITH chosen AS ({chosen}), gone AS (
             DELETE FROM step_cache AS c USING chosen AS d
             WHERE c.org_id = d.org_id AND c.key = d.key AND c.run_id = d.run_id
             RETURNING c.org_id, c.workflow, c.step_id, c.hits, c.duration_ms
         ), counted AS (
             INSERT INTO cache_counts AS n (org_id, workflow, step_id, lane, hits, misses, saved_ms)
             SELECT org_id, workflow, step_id, ${lane}::int2, sum(hits)::int8, 0, sum(hits * duration_ms)::int8
             FROM gone WHERE hits > 0 GROUP BY org_id, workflow, step_id ORDER BY org_id, workflow, step_id
             ON CONFLICT (org_id, workflow, step_id, lane) DO UPDATE
             SET hits = n.hits + excluded.hits, saved_ms = n.saved_ms + excluded.saved_ms
         )
         SELECT count(*) FROM gone"
    )
}

pub(super) async fn stats(connection: &Object, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>> {
    let mut asking = Asking::of(
        "SELECT workflow, step_id, sum(results)::int8, sum(bytes)::int8, sum(hits)::int8, sum(misses)::int8,
                sum(saved_ms)::int8
         FROM (SELECT workflow, step_id, 1 AS results, bytes, hits, 0 AS misses, hits * duration_ms AS saved_ms
               FROM step_cache",
        org,
        filter,
    );
    if !matches!(filter, ResultFilter::Key(_) | ResultFilter::Keys { .. }) {
        let counted = " UNION ALL SELECT workflow, step_id, 0, 0, hits, misses, saved_ms FROM cache_counts";
        asking.that(counted, org, filter);
    }
    asking.say(") AS a GROUP BY workflow, step_id ORDER BY workflow, step_id");
    let stats = |row: &Row| {
        Ok(ResultStats {
            workflow: col(row, 0)?,
            step_id: col(row, 1)?,
            results: seq(col(row, 2)?)?,
            bytes: seq(col(row, 3)?)?,
            hits: seq(col(row, 4)?)?,
            misses: seq(col(row, 5)?)?,
            saved_ms: seq(col(row, 6)?)?,
        })
    };
    asking.rows(connection).await?.iter().map(stats).collect()
}
