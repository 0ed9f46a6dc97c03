//! Steps that wait for workers, and steps that workers have.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use milepost_core::event::StepRef;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id, one};
use crate::Result;
use crate::rows::{LeaseExtension, LeaseRow, QueueCount, TaskRow, TaskSlot, TaskWrite};

const COLUMNS: &str =
    "task_id, org_id, run_id, step, item, step_id, queue, skill, workflow, priority, ready_at, node, since,
    slot_key, slot_limit, worker_id, nonce, logical_attempt, engine_attempt, lease_ms, lease_expires_at, progress";

const PUT: &str = "INSERT OR REPLACE INTO tasks (task_id, org_id, run_id, step, item, step_id, queue, skill, workflow,
        priority, ready_at, node, since, slot_key, slot_limit, worker_id, nonce, logical_attempt, engine_attempt, lease_ms,
        lease_expires_at, progress)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)";

fn key(task: &TaskId) -> &[u8] {
    task.0.as_bytes()
}

pub(super) fn write(tx: &Connection, write: &TaskWrite) -> Result<()> {
    match write {
        TaskWrite::Put(row) => put(tx, row)?,
        TaskWrite::Delete(task) => tx.prepare_cached("DELETE FROM tasks WHERE task_id = ?")?.execute([key(task)])?,
        TaskWrite::Withdraw(task) => {
            tx.prepare_cached("DELETE FROM tasks WHERE task_id = ? AND worker_id IS NULL")?.execute([key(task)])?
        }
    };
    Ok(())
}

fn put(tx: &Connection, row: &TaskRow) -> Result<usize> {
    let lease = row.lease.as_ref();
    Ok(tx.prepare_cached(PUT)?.execute(params![
        key(&row.task),
        row.org.0,
        id(&row.run),
        row.step.step,
        row.step.item,
        row.step_id.as_ref(),
        row.queue.as_ref(),
        row.skill.as_ref(),
        row.workflow.as_ref(),
        row.priority,
        row.ready_at.0,
        row.node.0,
        row.since.0,
        row.slot.as_ref().map(|slot| slot.key.as_ref()),
        row.slot.as_ref().map(|slot| slot.limit),
        lease.map(|lease| lease.worker.as_ref()),
        lease.map(|lease| lease.nonce.cast_signed()),
        lease.map(|lease| lease.logical_attempt),
        lease.map(|lease| lease.engine_attempt),
        lease.map(|lease| lease.lease_ms.cast_signed()),
        lease.map(|lease| lease.expires_at.0),
        lease.and_then(|lease| lease.progress.as_ref()).map(|progress| progress.as_str()),
    ])?)
}

pub(super) fn by_id(conn: &Connection, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE task_id = ? AND org_id = ?");
    let mut found = Vec::with_capacity(tasks.len());
    for task in tasks {
        found.extend(one(conn, &sql, params![key(task), org.0], row)?);
    }
    Ok(found)
}

/// The tasks of a run lie between the ids that begin as its own.
pub(super) fn of_run(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
    let (mut first, mut last) = (*run.0.as_bytes(), *run.0.as_bytes());
    first[8..].fill(0);
    last[8..].fill(0xFF);
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks WHERE task_id >= ? AND task_id <= ? AND run_id = ? AND org_id = ? ORDER BY task_id"
    );
    all(conn, &sql, params![first, last, id(&run), org.0], row)
}

pub(super) fn nodes(conn: &Connection) -> Result<Vec<NodeId>> {
    let mut found = Vec::new();
    let mut after = i64::MIN;
    let sql = "SELECT node FROM tasks WHERE node >= ? ORDER BY node LIMIT 1";
    while let Some(node) = one(conn, sql, [after], |row| row.get::<_, i64>(0))? {
        found.push(NodeId(node));
        match node.checked_add(1) {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(found)
}

/// Gives a node what waits elsewhere for longer than that.
pub(super) fn pull(
    tx: &Connection,
    node: NodeId,
    queues: &[String],
    before: Timestamp,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskRow>> {
    let sql = format!(
        "UPDATE tasks SET node = ?1, since = ?2 WHERE task_id IN (
             SELECT task_id FROM tasks
             WHERE worker_id IS NULL AND queue = ?3 AND node = ?4 AND org_id = ?5 AND workflow = ?6 AND since < ?7
             ORDER BY priority DESC, ready_at LIMIT ?8)
         RETURNING {COLUMNS}"
    );
    let mut pulled = Vec::new();
    for queue in queues {
        for (other, org, workflow) in kinds(tx, queue)?.into_iter().filter(|(other, _, _)| *other != node.0) {
            let values = params![node.0, now.0, queue, other, org, workflow, before.0, limit];
            pulled.extend(all(tx, &sql, values, row)?);
        }
    }
    Ok(pulled)
}

/// Whose tasks wait in a queue: node, org and workflow. A step from one to the next, however many tasks each has.
fn kinds(conn: &Connection, queue: &str) -> Result<Vec<(i64, i32, String)>> {
    let sql = "SELECT node, org_id, workflow FROM tasks
               WHERE worker_id IS NULL AND queue = ?1 AND (node, org_id, workflow) > (?2, ?3, ?4)
               ORDER BY node, org_id, workflow LIMIT 1";
    let mut kinds: Vec<(i64, i32, String)> = Vec::new();
    loop {
        let (node, org, workflow) = kinds.last().map_or((i64::MIN, i32::MIN, ""), |(node, org, of)| (*node, *org, of));
        match one(conn, sql, params![queue, node, org, workflow], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))? {
            Some(kind) => kinds.push(kind),
            None => return Ok(kinds),
        }
    }
}

pub(super) fn take_over(
    tx: &Connection,
    dead: NodeId,
    node: NodeId,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TaskRow>> {
    let sql = format!(
        "UPDATE tasks SET node = ?2, since = ?3 WHERE task_id IN (SELECT task_id FROM tasks WHERE node = ?1 LIMIT ?4)
         RETURNING {COLUMNS}"
    );
    all(tx, &sql, params![dead.0, node.0, now.0, limit], row)
}

pub(super) fn extend(
    tx: &Connection,
    org: OrgId,
    node: NodeId,
    now: Timestamp,
    leases: &[LeaseExtension],
) -> Result<Vec<TaskRow>> {
    let sql = format!(
        "UPDATE tasks SET lease_expires_at = max(lease_expires_at, ?4), progress = coalesce(?5, progress), node = ?6,
             since = CASE WHEN node = ?6 THEN since ELSE ?7 END
         WHERE task_id = ?1 AND org_id = ?2 AND nonce = ?3
         RETURNING {COLUMNS}"
    );
    let mut extended = Vec::with_capacity(leases.len());
    for lease in leases {
        let progress = lease.progress.as_ref().map(|progress| progress.as_str());
        let values =
            params![key(&lease.task), org.0, lease.nonce.cast_signed(), lease.expires_at.0, progress, node.0, now.0];
        extended.extend(all(tx, &sql, values, row)?);
    }
    Ok(extended)
}

pub(super) fn counts(conn: &Connection) -> Result<Vec<QueueCount>> {
    let sql = "SELECT org_id, queue, sum(worker_id IS NULL), sum(worker_id IS NOT NULL),
                   min(CASE WHEN worker_id IS NULL THEN ready_at END)
               FROM tasks GROUP BY org_id, queue ORDER BY org_id, queue";
    all(conn, sql, [], |row| {
        let mut columns = Columns::of(row);
        Ok(QueueCount {
            org: columns.org()?,
            queue: columns.get()?,
            waiting: columns.seq()?,
            leased: columns.seq()?,
            oldest: columns.opt_time()?,
        })
    })
}

fn row(row: &Row) -> rusqlite::Result<TaskRow> {
    let mut columns = Columns::of(row);
    let task = columns.get::<[u8; 16]>().map(|bytes| TaskId(Uuid::from_bytes(bytes)))?;
    let mut row = TaskRow {
        task,
        org: columns.org()?,
        run: columns.run()?,
        step: StepRef { step: columns.get()?, item: columns.get()? },
        step_id: columns.get()?,
        queue: columns.get()?,
        skill: columns.get()?,
        workflow: columns.get()?,
        priority: columns.get()?,
        ready_at: columns.time()?,
        node: columns.get().map(NodeId)?,
        since: columns.time()?,
        slot: None,
        lease: None,
    };
    if let (Some(key), Some(limit)) = (columns.get()?, columns.get()?) {
        row.slot = Some(TaskSlot { key, limit });
    }
    if let Some(worker) = columns.get()? {
        row.lease = Some(LeaseRow {
            worker,
            nonce: columns.seq()?,
            logical_attempt: columns.get()?,
            engine_attempt: columns.get()?,
            lease_ms: columns.seq()?,
            expires_at: columns.time()?,
            progress: columns.opt_json()?,
        });
    }
    Ok(row)
}
