//! What queues may do at most.

use deadpool_postgres::Object;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;

use super::columns::{col, int8};
use super::runs::query;
use crate::rows::{QueueRow, Rate, RateWrite, TaskLimits};
use crate::{Result, StoreError};

const COLUMNS: &str = "org_id, queue, concurrency, rate, per_ms, taken_until";

pub(super) async fn read(connection: &Object) -> Result<Vec<QueueRow>> {
    let sql = format!("SELECT {COLUMNS} FROM queues ORDER BY org_id, queue");
    let rows = query(connection, &sql, &[]).await?;
    rows.iter().map(|found| Ok(row(found)?.0)).collect()
}

pub(super) async fn set(connection: &Object, queue: &QueueRow) -> Result<()> {
    let name: &str = &queue.queue;
    if queue.concurrency.is_none() && queue.rate.is_none() {
        query(connection, "DELETE FROM queues WHERE org_id = $1 AND queue = $2", &[&queue.org.0, &name]).await?;
        return Ok(());
    }
    let sql =
        "INSERT INTO queues (org_id, queue, concurrency, rate, per_ms, taken_until) VALUES ($1, $2, $3, $4, $5, 0)
               ON CONFLICT (org_id, queue) DO UPDATE
               SET concurrency = excluded.concurrency, rate = excluded.rate, per_ms = excluded.per_ms, taken_until = 0";
    let concurrency = queue.concurrency.map(i64::from);
    let (rate, per_ms) = (queue.rate.map(|rate| i64::from(rate.limit)), queue.rate.map(|rate| int8(rate.per_ms)));
    query(connection, sql, &[&queue.org.0, &name, &concurrency, &rate, &per_ms]).await?;
    Ok(())
}

pub(super) async fn take(connection: &Object, rates: &[RateWrite]) -> Result<()> {
    for rate in rates {
        let (sql, name) = ("UPDATE queues SET taken_until = $1 WHERE org_id = $2 AND queue = $3", &*rate.queue);
        query(connection, sql, &[&rate.taken_until.0, &rate.org.0, &name]).await?;
    }
    Ok(())
}

/// The caller has locked the queue and the key: what is counted can fall until the end of the transaction, never rise.
pub(super) async fn limits(connection: &Object, org: OrgId, queue: &str, key: Option<&str>) -> Result<TaskLimits> {
    let mut limits = TaskLimits::default();
    let sql = format!("SELECT {COLUMNS} FROM queues WHERE org_id = $1 AND queue = $2");
    if let Some(found) = query(connection, &sql, &[&org.0, &queue]).await?.first() {
        let (row, taken_until) = row(found)?;
        limits.taken_until = Some(taken_until);
        if row.concurrency.is_some() {
            let sql = "SELECT count(*) FROM tasks WHERE org_id = $1 AND queue = $2 AND worker_id IS NOT NULL";
            limits.in_queue = count(&query(connection, sql, &[&org.0, &queue]).await?)?;
        }
        limits.queue = Some(row);
    }
    if let Some(key) = key {
        let sql = "SELECT count(*) FROM tasks
                   WHERE org_id = $1 AND slot_key = $2 AND slot_key IS NOT NULL AND worker_id IS NOT NULL";
        limits.with_key = count(&query(connection, sql, &[&org.0, &key]).await?)?;
    }
    Ok(limits)
}

fn count(rows: &[Row]) -> Result<u32> {
    let count: i64 = rows.first().map_or(Ok(0), |row| col(row, 0))?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

fn row(row: &Row) -> Result<(QueueRow, Timestamp)> {
    let small = |value: i64| u32::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is no limit")));
    let concurrency = col::<Option<i64>>(row, 2)?.map(small).transpose()?;
    let rate = match (col::<Option<i64>>(row, 3)?, col::<Option<i64>>(row, 4)?) {
        (Some(limit), Some(per_ms)) => Some(Rate { limit: small(limit)?, per_ms: per_ms.cast_unsigned() }),
        _ => None,
    };
    let queue: &str = col(row, 1)?;
    Ok((QueueRow { org: OrgId(col(row, 0)?), queue: queue.into(), concurrency, rate }, Timestamp(col(row, 5)?)))
}
