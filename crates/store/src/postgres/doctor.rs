//! Looks over the whole database. Slow by nature; nothing here is on the way of a run.

use deadpool_postgres::{Object, Pool};
use milepost_core::id::{OrgId, RunId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{self, col};
use super::runs::query;
use super::transaction::Open;
use crate::Result;
use crate::rows::LogGap;

/// Below this, runs are counted one by one.
const ESTIMATE_FROM: i64 = 10_000;

/// A query over everything, planned as such: the settings of our connections forbid what is best here.
async fn sweep(pool: &Pool, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    let open = Open::on(pool).await?;
    let connection = open.connection()?;
    connection
        .batch_execute(
            "BEGIN READ ONLY; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on;
             SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL plan_cache_mode = auto",
        )
        .await?;
    let rows = connection.query(sql, parameters).await?;
    open.commit().await?;
    Ok(rows)
}

pub(super) async fn unprojected(pool: &Pool, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
    let sql = "SELECT r.org_id, r.run_id, r.last_seq - coalesce(s.last_event_seq, 0)
               FROM runs AS r LEFT JOIN run_snapshots AS s ON s.run_id = r.run_id AND s.org_id = r.org_id
               WHERE r.last_seq > coalesce(s.last_event_seq, 0)
               ORDER BY r.run_id LIMIT $1";
    let rows = sweep(pool, sql, &[&i64::from(limit)]).await?;
    rows.iter()
        .map(|row| {
            let (org, run) = columns::org_run(row, 0)?;
            Ok((org, run, columns::seq(col(row, 2)?)?))
        })
        .collect()
}

pub(super) async fn log_gaps(pool: &Pool, limit: u32) -> Result<Vec<LogGap>> {
    let sql = "SELECT coalesce(r.org_id, e.org_id), coalesce(r.run_id, e.run_id),
                      r.last_seq, coalesce(e.count, 0), coalesce(e.first, 0), coalesce(e.last, 0)
               FROM runs AS r FULL JOIN (
                   SELECT org_id, run_id, count(*) AS count, min(run_seq) AS first, max(run_seq) AS last
                   FROM run_events AS l
                   WHERE NOT EXISTS (SELECT FROM forgotten_runs AS f WHERE f.run_id = l.run_id AND f.org_id = l.org_id)
                   GROUP BY org_id, run_id
               ) AS e ON e.run_id = r.run_id AND e.org_id = r.org_id
               WHERE r.run_id IS NULL OR coalesce(e.count, 0) <> r.last_seq
                  OR (r.last_seq > 0 AND (e.first <> 1 OR e.last <> r.last_seq))
               ORDER BY 2 LIMIT $1";
    sweep(pool, sql, &[&i64::from(limit)]).await?.iter().map(gap).collect()
}

fn gap(row: &Row) -> Result<LogGap> {
    let (org, run) = columns::org_run(row, 0)?;
    let (head, count, first, last): (Option<i64>, i64, i64, i64) =
        (col(row, 2)?, col(row, 3)?, col(row, 4)?, col(row, 5)?);
    let message = match head {
        None => format!("the log holds {count} events of a run that has no head"),
        Some(head) if count == 0 => format!("the head is at {head}, but the log holds no event"),
        Some(head) => format!("the head is at {head}, but the log holds {count} events from {first} to {last}"),
    };
    Ok(LogGap { org, run, message })
}

/// A number is missing if the one before it is there, or if it is the first, and it is not.
pub(super) async fn first_missing(connection: &Object, org: OrgId, run: RunId) -> Result<u64> {
    let sql = "SELECT min(q.seq) FROM (
             SELECT 1::int8 AS seq UNION ALL SELECT run_seq + 1 FROM run_events WHERE org_id = $1 AND run_id = $2
         ) AS q
         WHERE NOT EXISTS (SELECT FROM run_events AS e WHERE e.org_id = $1 AND e.run_id = $2 AND e.run_seq = q.seq)";
    let rows = query(connection, sql, &[&org.0, &run.0]).await?;
    rows.first().map_or(Ok(1), |row| columns::seq(col(row, 0)?))
}

pub(super) async fn mark_stale(connection: &Object, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
    match from_seq.map(columns::int8) {
        Some(seq) => {
            let sql = "INSERT INTO stale_runs (org_id, run_id, from_seq) VALUES ($1, $2, $3)
                ON CONFLICT (org_id, run_id) DO UPDATE SET from_seq = excluded.from_seq";
            query(connection, sql, &[&org.0, &run.0, &seq]).await?;
        }
        None => {
            let sql = "DELETE FROM stale_runs WHERE org_id = $1 AND run_id = $2";
            query(connection, sql, &[&org.0, &run.0]).await?;
        }
    }
    Ok(())
}

pub(super) async fn stale_runs(connection: &Object, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
    let ids: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
    let sql = "SELECT org_id, run_id, from_seq FROM stale_runs WHERE org_id = $1 AND run_id = ANY ($2::uuid[])";
    let rows = query(connection, sql, &[&org.0, &ids]).await?;
    rows.iter().map(|row| Ok((columns::org_run(row, 0)?.1, columns::seq(col(row, 2)?)?))).collect()
}

pub(super) async fn count_runs(pool: &Pool) -> Result<u64> {
    // A partition that was never analysed says -1.
    let sql = "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8
               FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = 'runs'::regclass";
    let estimate: i64 = sweep(pool, sql, &[]).await?.first().map_or(Ok(0), |row| col(row, 0))?;
    if estimate > ESTIMATE_FROM {
        return columns::seq(estimate);
    }
    let rows = sweep(pool, "SELECT count(*) FROM runs", &[]).await?;
    columns::seq(rows.first().map_or(Ok(0), |row| col(row, 0))?)
}
