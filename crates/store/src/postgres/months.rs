//! Months that nothing is left of are dropped: files are removed, no row is touched.
//!
//! Dropping a partition needs its table to itself for a moment. Everybody else waits meanwhile, and behind whoever we wait
//! for, so we wait for a fraction of a second and otherwise come again later.

use deadpool_postgres::{Object, Pool};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::col;
use super::runs::query;
use super::transaction::Open;
use crate::{Result, StoreError};

/// For one table, and for all of a month.
const PATIENCE: &str = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '1s'";

/// Who keeps runs for so long does not mind that their events stay until the month is over.
const LONG_US: i64 = 60 * 24 * 60 * 60 * 1_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dropped {
    pub(super) partitions: u32,
    /// Somebody else had a table; a month that is empty is still there.
    pub(super) busy: bool,
}

// Partitions are named after their month by `ensure_run_partitions`.
const EMPTY: &str = "SELECT to_char(month, 'YYYY_MM') FROM (
        SELECT to_date(right(c.relname, 7), 'YYYY_MM')::timestamp AS month
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'runs'::regclass AND c.relname ~ '^runs_[0-9]{4}_[0-9]{2}$'
    ) AS months
    WHERE month + interval '1 month' <= to_timestamp($1::int8 / 1000000) AT TIME ZONE 'UTC'
      AND NOT EXISTS (
          SELECT FROM runs AS r
          WHERE r.run_id >= first_run_id(month) AND r.run_id < first_run_id(month + interval '1 month')
      )
    ORDER BY month";

/// Drops the months before this moment in which no run has a head any more.
pub(super) async fn drop_empty(pool: &Pool, before: Timestamp) -> Result<Dropped> {
    let months = query(&pool.get().await?, EMPTY, &[&before.0]).await?;
    let mut dropped = Dropped::default();
    for month in &months {
        match drop_month(pool, month).await? {
            Some(partitions) => dropped.partitions += partitions,
            None => dropped.busy = true,
        }
        if dropped.busy {
            break;
        }
    }
    Ok(dropped)
}

/// Answers how many partitions it had; `None` if somebody else has one.
async fn drop_month(pool: &Pool, month: &Row) -> Result<Option<u32>> {
    let month: &str = col(month, 0)?;
    let open = Open::on(pool).await?;
    open.connection()?.batch_execute(&format!("BEGIN; {PATIENCE}")).await?;
    match query(open.connection()?, "SELECT drop_run_month($1)", &[&month]).await {
        Ok(rows) => {
            let partitions = rows.first().map_or(Ok(0), |row| col::<i32>(row, 0))?;
            open.commit().await?;
            if partitions > 0 {
                tracing::info!(month, partitions, "dropped a month of runs");
            }
            Ok(Some(partitions.cast_unsigned()))
        }
        Err(StoreError::Unavailable(reason)) => {
            tracing::debug!(month, reason, "a month of runs is dropped later");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Below which ids leftovers of runs are removed row by row. The month that `ended_before` is in will be dropped as a
/// whole when it is over, and that is worth waiting for unless runs are kept for a short time only.
pub(super) async fn emptied_before(connection: &Object, ended_before: Timestamp, now: Timestamp) -> Result<Uuid> {
    if now.0.saturating_sub(ended_before.0) < LONG_US {
        return Ok(Uuid::max());
    }
    let sql = "SELECT first_run_id(date_trunc('month', to_timestamp($1::int8 / 1000000) AT TIME ZONE 'UTC'))";
    let rows = query(connection, sql, &[&ended_before.0]).await?;
    rows.first().map_or(Ok(Uuid::nil()), |row| col(row, 0))
}
