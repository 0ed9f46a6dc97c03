//! Steps that wait for workers, and steps that workers have.

use deadpool_postgres::Object;
use milepost_core::event::StepRef;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::{col, count, int8, json, moment};
use super::runs::query;
use crate::rows::{LeaseExtension, LeaseRow, QueueCount, TaskRow, TaskSlot};
use crate::{Result, StoreError};

const COLUMNS: &str =
    "t.task_id, t.org_id, t.run_id, t.step, t.item, t.step_id, t.queue, t.skill, t.workflow, t.priority,
    t.ready_at, t.node, t.since, t.slot_key, t.slot_limit, t.worker_id, t.nonce, t.logical_attempt, t.engine_attempt,
    t.lease_ms, t.lease_expires_at, t.progress";

pub(super) async fn by_id(connection: &Object, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
    let ids: Vec<Uuid> = tasks.iter().map(|task| task.0).collect();
    let sql = format!("SELECT {COLUMNS} FROM tasks AS t WHERE t.task_id = ANY($1) AND t.org_id = $2");
    rows(&query(connection, &sql, &[&ids, &org.0]).await?)
}

/// The tasks of a run lie between the ids that begin as its own.
pub(super) async fn of_run(connection: &Object, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
    let (mut first, mut last) = (*run.0.as_bytes(), *run.0.as_bytes());
    first[8..].fill(0);
    last[8..].fill(0xFF);
    let (first, last) = (Uuid::from_bytes(first), Uuid::from_bytes(last));
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks AS t
         WHERE t.task_id >= $1 AND t.task_id <= $2 AND t.run_id = $3 AND t.org_id = $4 ORDER BY t.task_id"
    );
    rows(&query(connection, &sql, &[&first, &last, &run.0, &org.0]).await?)
}

/// Gives a node what waits elsewhere for longer than that. Rows that somebody else is taking are passed over.
pub(super) async fn pull(
    connection: &Object,
    node: NodeId,
    queues: &[String],
    before: Timestamp,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskRow>> {
    let sql = format!(
        "WITH RECURSIVE kinds AS (
             SELECT q.queue, k.node, k.org_id, k.workflow
             FROM unnest($3::text[]) AS q (queue) CROSS JOIN LATERAL (
                 SELECT f.node, f.org_id, f.workflow FROM tasks AS f WHERE f.worker_id IS NULL AND f.queue = q.queue
                 ORDER BY f.node, f.org_id, f.workflow LIMIT 1
             ) AS k
             UNION ALL
             SELECT c.queue, n.node, n.org_id, n.workflow
             FROM kinds AS c CROSS JOIN LATERAL (
                 SELECT f.node, f.org_id, f.workflow FROM tasks AS f
                 WHERE f.worker_id IS NULL AND f.queue = c.queue
                   AND (f.node, f.org_id, f.workflow) > (c.node, c.org_id, c.workflow)
                 ORDER BY f.node, f.org_id, f.workflow LIMIT 1
             ) AS n
         )
         UPDATE tasks AS t SET node = $1, since = $2 WHERE t.task_id IN (
             SELECT w.task_id FROM kinds AS k CROSS JOIN LATERAL (
                 SELECT s.task_id FROM tasks AS s
                 WHERE s.worker_id IS NULL AND s.queue = k.queue AND s.node = k.node AND s.org_id = k.org_id
                   AND s.workflow = k.workflow AND s.since < $4
                 ORDER BY s.priority DESC, s.ready_at LIMIT $5 FOR UPDATE SKIP LOCKED
             ) AS w WHERE k.node <> $1)
         RETURNING {COLUMNS}"
    );
    rows(&query(connection, &sql, &[&node.0, &now.0, &queues, &before.0, &i64::from(limit)]).await?)
}

pub(super) async fn take_over(
    connection: &Object,
    dead: NodeId,
    node: NodeId,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskRow>> {
    let sql = format!(
        "UPDATE tasks AS t SET node = $2, since = $3 WHERE t.task_id IN (
             SELECT s.task_id FROM tasks AS s WHERE s.node = $1 LIMIT $4 FOR UPDATE SKIP LOCKED)
         RETURNING {COLUMNS}"
    );
    rows(&query(connection, &sql, &[&dead.0, &node.0, &now.0, &i64::from(limit)]).await?)
}

pub(super) async fn extend(
    connection: &Object,
    org: OrgId,
    node: NodeId,
    now: Timestamp,
    leases: &[LeaseExtension],
) -> Result<Vec<TaskRow>> {
    // In order, so that two such statements cannot wait for each other.
    let mut leases: Vec<&LeaseExtension> = leases.iter().collect();
    leases.sort_unstable_by_key(|lease| lease.task);
    let ids: Vec<Uuid> = leases.iter().map(|lease| lease.task.0).collect();
    let nonces: Vec<i64> = leases.iter().map(|lease| int8(lease.nonce)).collect();
    let until: Vec<i64> = leases.iter().map(|lease| lease.expires_at.0).collect();
    let progress: Vec<Option<&str>> =
        leases.iter().map(|lease| lease.progress.as_ref().map(|progress| progress.as_str())).collect();
    let sql = format!(
        "UPDATE tasks AS t SET lease_expires_at = greatest(t.lease_expires_at, e.expires_at),
             progress = coalesce(e.progress, t.progress), node = $6,
             since = CASE WHEN t.node = $6 THEN t.since ELSE $7 END
         FROM unnest($1::uuid[], $2::int8[], $3::int8[], $4::text[]) AS e (task_id, nonce, expires_at, progress)
         WHERE t.task_id = e.task_id AND t.nonce = e.nonce AND t.org_id = $5
         RETURNING {COLUMNS}"
    );
    rows(&query(connection, &sql, &[&ids, &nonces, &until, &progress, &org.0, &node.0, &now.0]).await?)
}

pub(super) async fn counts(connection: &Object) -> Result<Vec<QueueCount>> {
    let sql = "SELECT org_id, queue, count(*) FILTER (WHERE worker_id IS NULL), count(worker_id),
                   min(ready_at) FILTER (WHERE worker_id IS NULL)
               FROM tasks GROUP BY org_id, queue ORDER BY org_id, queue";
    let counted = query(connection, sql, &[]).await?;
    counted
        .iter()
        .map(|row| {
            Ok(QueueCount {
                org: OrgId(col(row, 0)?),
                queue: col(row, 1)?,
                waiting: col::<i64>(row, 2)?.cast_unsigned(),
                leased: col::<i64>(row, 3)?.cast_unsigned(),
                oldest: moment(row, 4)?,
            })
        })
        .collect()
}

fn rows(rows: &[Row]) -> Result<Vec<TaskRow>> {
    rows.iter().map(row).collect()
}

fn small(value: i64) -> Result<u32> {
    u32::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is no place of a step")))
}

fn row(row: &Row) -> Result<TaskRow> {
    let text = |at| col::<&str>(row, at).map(Into::into);
    let slot = match (col::<Option<&str>>(row, 13)?, col::<Option<i64>>(row, 14)?) {
        (Some(key), Some(limit)) => Some(TaskSlot { key: key.into(), limit: small(limit)? }),
        _ => None,
    };
    let lease = match col::<Option<&str>>(row, 15)? {
        None => None,
        Some(worker) => Some(LeaseRow {
            worker: worker.into(),
            nonce: col::<i64>(row, 16)?.cast_unsigned(),
            logical_attempt: count(col(row, 17)?)?,
            engine_attempt: count(col(row, 18)?)?,
            lease_ms: col::<i64>(row, 19)?.cast_unsigned(),
            expires_at: Timestamp(col(row, 20)?),
            progress: json(row, 21)?,
        }),
    };
    let item = col::<Option<i64>>(row, 4)?.map(small).transpose()?;
    Ok(TaskRow {
        task: TaskId(col(row, 0)?),
        org: OrgId(col(row, 1)?),
        run: RunId(col(row, 2)?),
        step: StepRef { step: small(col(row, 3)?)?, item },
        step_id: text(5)?,
        queue: text(6)?,
        skill: text(7)?,
        workflow: text(8)?,
        priority: col(row, 9)?,
        ready_at: Timestamp(col(row, 10)?),
        node: NodeId(col(row, 11)?),
        since: Timestamp(col(row, 12)?),
        slot,
        lease,
    })
}
