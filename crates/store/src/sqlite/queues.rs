//! What queues may do at most.

use rusqlite::{Connection, Row, params};

use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, one};
use crate::Result;
use crate::rows::{QueueRow, Rate, RateWrite, TaskLimits};

const COLUMNS: &str = "org_id, queue, concurrency, rate, per_ms, taken_until";

pub(super) fn read(conn: &Connection) -> Result<Vec<QueueRow>> {
    let rows = all(conn, &format!("SELECT {COLUMNS} FROM queues ORDER BY org_id, queue"), [], row)?;
    Ok(rows.into_iter().map(|(queue, _)| queue).collect())
}

pub(super) fn set(tx: &Connection, queue: &QueueRow) -> Result<()> {
    if queue.concurrency.is_none() && queue.rate.is_none() {
        tx.prepare_cached("DELETE FROM queues WHERE org_id = ? AND queue = ?")?
            .execute(params![queue.org.0, queue.queue.as_ref()])?;
        return Ok(());
    }
    tx.prepare_cached(
        "INSERT INTO queues (org_id, queue, concurrency, rate, per_ms, taken_until) VALUES (?1, ?2, ?3, ?4, ?5, 0)
         ON CONFLICT (org_id, queue) DO UPDATE SET concurrency = ?3, rate = ?4, per_ms = ?5, taken_until = 0",
    )?
    .execute(params![
        queue.org.0,
        queue.queue.as_ref(),
        queue.concurrency,
        queue.rate.map(|rate| rate.limit),
        queue.rate.map(|rate| rate.per_ms.cast_signed())
    ])?;
    Ok(())
}

pub(super) fn take(tx: &Connection, rates: &[RateWrite]) -> Result<()> {
    let mut statement = tx.prepare_cached("UPDATE queues SET taken_until = ? WHERE org_id = ? AND queue = ?")?;
    for rate in rates {
        statement.execute(params![rate.taken_until.0, rate.org.0, rate.queue.as_ref()])?;
    }
    Ok(())
}

pub(super) fn limits(conn: &Connection, org: OrgId, queue: &str, key: Option<&str>) -> Result<TaskLimits> {
    let sql = format!("SELECT {COLUMNS} FROM queues WHERE org_id = ? AND queue = ?");
    let mut limits = TaskLimits::default();
    if let Some((row, taken_until)) = one(conn, &sql, params![org.0, queue], row)? {
        limits.taken_until = Some(taken_until);
        if row.concurrency.is_some() {
            let sql = "SELECT count(*) FROM tasks WHERE org_id = ? AND queue = ? AND worker_id IS NOT NULL";
            limits.in_queue = one(conn, sql, params![org.0, queue], |row| row.get(0))?.unwrap_or(0);
        }
        limits.queue = Some(row);
    }
    if let Some(key) = key {
        let sql = "SELECT count(*) FROM tasks WHERE org_id = ? AND slot_key = ? AND worker_id IS NOT NULL";
        limits.with_key = one(conn, sql, params![org.0, key], |row| row.get(0))?.unwrap_or(0);
    }
    Ok(limits)
}

fn row(row: &Row) -> rusqlite::Result<(QueueRow, Timestamp)> {
    let mut columns = Columns::of(row);
    let (org, queue, concurrency) = (columns.org()?, columns.get()?, columns.get()?);
    let rate = match (columns.get()?, columns.opt_seq()?) {
        (Some(limit), Some(per_ms)) => Some(Rate { limit, per_ms }),
        _ => None,
    };
    Ok((QueueRow { org, queue, concurrency, rate }, columns.time()?))
}
