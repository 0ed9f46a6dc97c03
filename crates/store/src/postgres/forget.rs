//! Forgetting runs that ended long ago.
//!
//! ```text
//! candidates  runs that may go, by the index of ends
//! heads       each is looked at again and locked; head, projection, timers, … go together, and the run is noted
//! months      a month in which no head is left is dropped with all that is still in it (`months.rs`)
//! leftovers   of the runs that are noted, elsewhere: events from the oldest on, steps, logs; then the note
//! ```
//!
//! So the few rows of each run go one by one, and are checked one by one, while its events, steps and logs mostly go with
//! their month, which costs next to nothing. Nothing here waits for a row that somebody else has.
//!
//! **Invariant:** who reads sees a run whole or not at all: its head goes first, and with it the run.

use std::sync::LazyLock;

use deadpool_postgres::{Object, Pool};
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use uuid::Uuid;

use super::columns::{self, col};
use super::months;
use super::runs::query;
use crate::Result;
use crate::rows::Forgotten;

/// Heads in one transaction.
const HEADS: usize = 200;
/// Events in one transaction.
const EVENTS: i64 = 5000;
/// Runs whose leftovers are removed together.
const LEFTOVERS: i64 = 100;

pub(super) async fn forget_runs(pool: &Pool, ended_before: Timestamp, now: Timestamp, limit: u32) -> Result<Forgotten> {
    let connection = pool.get().await?;
    let mut forgotten = Forgotten::default();
    let found = candidates(&connection, ended_before, i64::from(limit) + 1).await?;
    let within = &found[..found.len().min(limit as usize)];
    let mut frees_others = false;
    for chunk in within.chunks(HEADS) {
        let (gone, updated) = heads(&connection, chunk, ended_before).await?;
        forgotten.runs += gone;
        frees_others |= updated;
    }
    forgotten.more = found.len() > within.len() || frees_others;
    if forgotten.more {
        // With the next ones a month may become empty; until then, what is in it is not worth removing.
        return Ok(forgotten);
    }
    drop(connection);
    let dropped = months::drop_empty(pool, ended_before).await?;
    forgotten.partitions = dropped.partitions;
    // A month that somebody is reading is dropped the next time, and not emptied meanwhile.
    if dropped.busy {
        forgotten.more = true;
    } else {
        (forgotten.remains, forgotten.more) = leftovers(pool, ended_before, now, limit).await?;
    }
    Ok(forgotten)
}

/// Of a head `r`: ended before `$1`, in nobody's hands, and no other run builds upon it.
const REMOVABLE: &str = "r.completed_at < $1 AND r.owner IS NULL
    AND r.status IN ('completed', 'failed', 'cancelled', 'terminated')
    AND NOT EXISTS (SELECT FROM runs AS u WHERE u.base_run_id = r.run_id AND u.org_id = r.org_id)";

// In this order whatever the planner thinks of the tables: one end after the other, and the head of each.
static CANDIDATES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT h.org_id, h.run_id FROM (
             SELECT org_id, run_id, completed_at FROM run_snapshots WHERE completed_at < $1 ORDER BY completed_at OFFSET 0
         ) AS s CROSS JOIN LATERAL (
             SELECT r.org_id, r.run_id FROM runs AS r
             WHERE r.run_id = s.run_id AND r.org_id = s.org_id AND {REMOVABLE} LIMIT 1
         ) AS h
         ORDER BY s.completed_at LIMIT $2"
    )
});

/// Runs that may go, those that ended first before the others.
async fn candidates(connection: &Object, ended_before: Timestamp, limit: i64) -> Result<Vec<(OrgId, RunId)>> {
    let rows = query(connection, &CANDIDATES, &[&ended_before.0, &limit]).await?;
    rows.iter().map(|row| columns::org_run(row, 0)).collect()
}

// One that is being written to right now is passed over: it is being opened again, or comes back the next time.
static TAKE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH chosen AS MATERIALIZED (
             SELECT r.org_id, r.run_id FROM unnest($2::int4[], $3::uuid[]) AS c (org_id, run_id)
             JOIN runs AS r ON r.run_id = c.run_id AND r.org_id = c.org_id
             WHERE {REMOVABLE} ORDER BY r.run_id FOR UPDATE OF r SKIP LOCKED
         ), heads AS (
             DELETE FROM runs AS r USING chosen AS c WHERE r.run_id = c.run_id AND r.org_id = c.org_id
             RETURNING r.org_id, r.run_id, r.request_id, r.workflow, r.base_run_id
         ), requests AS (
             DELETE FROM run_requests AS q USING heads AS h
             WHERE q.org_id = h.org_id AND q.request_id = h.request_id AND q.workflow = h.workflow AND q.run_id = h.run_id
         ), snapshots AS (
             DELETE FROM run_snapshots AS s USING chosen AS c WHERE s.org_id = c.org_id AND s.run_id = c.run_id
         ), stale AS (
             DELETE FROM stale_runs AS s USING chosen AS c WHERE s.org_id = c.org_id AND s.run_id = c.run_id
         ), checkpoints AS (
             DELETE FROM run_checkpoints AS p USING chosen AS c WHERE p.run_id = c.run_id AND p.org_id = c.org_id
         ), slots AS (
             DELETE FROM run_slots AS p USING chosen AS c WHERE p.run_id = c.run_id AND p.org_id = c.org_id
         ), suspects AS (
             DELETE FROM run_suspects AS p USING chosen AS c WHERE p.run_id = c.run_id AND p.org_id = c.org_id
         ), results AS (
             DELETE FROM step_cache AS p USING chosen AS c WHERE p.run_id = c.run_id AND p.org_id = c.org_id
                 AND p.run_id <> '00000000-0000-0000-0000-000000000000'
         ), files AS (
             DELETE FROM artifacts AS p USING chosen AS c WHERE p.run_id = c.run_id AND p.org_id = c.org_id
         ), armed AS (
             DELETE FROM timers AS t USING chosen AS c WHERE t.run_id = c.run_id AND t.org_id = c.org_id
         ), outside AS (
             UPDATE run_blobs AS b SET gone = true FROM chosen AS c WHERE b.run_id = c.run_id AND b.org_id = c.org_id
         ), noted AS (
             INSERT INTO forgotten_runs (org_id, run_id) SELECT org_id, run_id FROM heads ON CONFLICT DO NOTHING
         )
         SELECT count(*), coalesce(bool_or(base_run_id IS NOT NULL), false) FROM heads"
    )
});

/// Takes these runs away from all who read, if they still may go. Answers how many went, and whether one of them was built
/// upon another, which may go now.
async fn heads(connection: &Object, runs: &[(OrgId, RunId)], ended_before: Timestamp) -> Result<(u64, bool)> {
    let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
    let rows = query(connection, &TAKE, &[&ended_before.0, &orgs, &ids]).await?;
    rows.first().map_or(Ok((0, false)), |row| Ok((columns::seq(col(row, 0)?)?, col(row, 1)?)))
}

/// Removes what is left of at most `limit` runs, where no month takes it along soon. Answers of how many, and whether
/// there are more.
async fn leftovers(pool: &Pool, ended_before: Timestamp, now: Timestamp, limit: u32) -> Result<(u64, bool)> {
    let connection = pool.get().await?;
    let before = months::emptied_before(&connection, ended_before, now).await?;
    let (mut cleared, mut room) = (0, i64::from(limit));
    loop {
        let sql = "SELECT org_id, run_id FROM forgotten_runs WHERE run_id < $1 ORDER BY run_id LIMIT $2";
        let rows = query(&connection, sql, &[&before, &LEFTOVERS.min(room)]).await?;
        if rows.is_empty() {
            // None at all, or none that there was room for.
            let more = room == 0 && !query(&connection, sql, &[&before, &1_i64]).await?.is_empty();
            return Ok((cleared, more));
        }
        let runs: Vec<(OrgId, RunId)> = rows.iter().map(|row| columns::org_run(row, 0)).collect::<Result<_>>()?;
        room -= i64::try_from(runs.len()).unwrap_or(i64::MAX);
        clear(&connection, &runs).await?;
        cleared += runs.len() as u64;
    }
}

const CLEAR_EVENTS: &str = "WITH old AS MATERIALIZED (
        SELECT e.org_id, e.run_id, e.run_seq FROM unnest($1::int4[], $2::uuid[]) AS f (org_id, run_id)
        CROSS JOIN LATERAL (
            SELECT l.org_id, l.run_id, l.run_seq FROM run_events AS l
            WHERE l.run_id = f.run_id AND l.org_id = f.org_id ORDER BY l.run_seq LIMIT $3
        ) AS e LIMIT $3
    ), gone AS (
        DELETE FROM run_events AS e USING old AS o
        WHERE e.run_id = o.run_id AND e.run_seq = o.run_seq AND e.org_id = o.org_id
    )
    SELECT count(*) FROM old";

const CLEAR_REST: &str = "WITH steps AS (
        DELETE FROM run_steps AS s USING unnest($1::int4[], $2::uuid[]) AS f (org_id, run_id)
        WHERE s.run_id = f.run_id AND s.org_id = f.org_id
    ), logs AS (
        DELETE FROM step_logs AS l USING unnest($1::int4[], $2::uuid[]) AS f (org_id, run_id)
        WHERE l.run_id = f.run_id AND l.org_id = f.org_id
    )
    DELETE FROM forgotten_runs AS g USING unnest($1::int4[], $2::uuid[]) AS f (org_id, run_id)
    WHERE g.run_id = f.run_id AND g.org_id = f.org_id";

/// Events some at a time, then the rest with the note that it has to go.
async fn clear(connection: &Object, runs: &[(OrgId, RunId)]) -> Result<()> {
    let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
    loop {
        let rows = query(connection, CLEAR_EVENTS, &[&orgs, &ids, &EVENTS]).await?;
        if rows.first().map_or(Ok(0), |row| col::<i64>(row, 0))? < EVENTS {
            break;
        }
    }
    query(connection, CLEAR_REST, &[&orgs, &ids]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ALIKE, Plan, client};
    use super::*;

    /// Walking through the runs takes hundreds of pages.
    const FEW: u64 = 250;

    #[tokio::test]
    async fn nothing_walks_through_all_runs() {
        let client = client().await;
        let nobody = || vec!["'{1}'".to_owned(), format!("'{{{}}}'", Uuid::nil())];
        for fill in ["SELECT", ALIKE] {
            client.batch_execute(fill).await.unwrap();
            let plan = Plan::of(&client, &CANDIDATES, &["2".to_owned(), "10".to_owned()]).await;
            assert!(plan.goes_along("run_snapshots", "completed_at_idx"), "{}", plan.text);
            assert!(plan.buffers < FEW, "{} pages\n{}", plan.buffers, plan.text);
            let ended = std::iter::once("2".to_owned());
            for (sql, values) in [
                (TAKE.as_str(), ended.chain(nobody()).collect::<Vec<_>>()),
                (CLEAR_EVENTS, nobody().into_iter().chain(["5000".to_owned()]).collect()),
                (CLEAR_REST, nobody()),
            ] {
                let plan = Plan::of(&client, sql, &values).await;
                assert!(plan.buffers < FEW, "{} pages\n{}", plan.buffers, plan.text);
                for table in ["run_snapshots", "run_events", "run_steps", "step_logs"] {
                    assert!(plan.goes_along(table, "pkey"), "{table}\n{}", plan.text);
                }
                let (scans, found) = (plan.text.matches("Scan using").count(), plan.text.matches("Index Cond").count());
                assert!(scans == found && !plan.text.contains("Seq Scan"), "each row is looked up\n{}", plan.text);
            }
        }
    }
}
