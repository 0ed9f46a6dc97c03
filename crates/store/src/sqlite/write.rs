//! The statements that write. All run inside a transaction that the caller has begun.
//!
//! One prepared statement per row: for SQLite that is faster than one statement with many rows.

use rusqlite::{CachedStatement, Connection, ToSql, Transaction, TransactionBehavior, params};

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::request::idempotency_key;
use milepost_core::time::Timestamp;

use super::{artifacts, cache, flights, outbox, queues, tasks};
use crate::Result;
use crate::groups::in_groups;
use crate::rows::{
    Batch, CheckpointRow, HeadWrite, NewHead, PatchedHead, ProjectionWrite, RunWrite, SlotWrite, SnapshotRow, StepRow,
    TimerWrite, WriteResult,
};

/// Runs `work` in a transaction that takes the write lock at once, and commits it.
pub(super) fn in_transaction<T>(conn: &mut Connection, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&tx)?;
    tx.commit()?;
    Ok(done)
}

/// The same without waiting for the disk: it survives the process, though perhaps not the loss of power.
pub(super) fn unsynced<T>(conn: &mut Connection, work: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
    conn.execute_batch("PRAGMA synchronous = NORMAL")?;
    let done = in_transaction(conn, work);
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    done
}

fn opt_run(run: Option<&RunId>) -> Option<&[u8]> {
    run.map(|run| run.0.as_bytes().as_slice())
}

fn opt_time(time: Option<Timestamp>) -> Option<i64> {
    time.map(|time| time.0)
}

/// Sequence numbers stay far below 2^63.
fn seq(seq: u64) -> i64 {
    seq.cast_signed()
}

/// What nearly every write needs, looked up once per batch.
struct Hot<'c> {
    conn: &'c Connection,
    advance: CachedStatement<'c>,
    event: CachedStatement<'c>,
}

/// Writes what it can of a batch. An error leaves the transaction in a state that must be rolled back.
pub(super) fn batch(tx: &Connection, batch: &Batch) -> Result<Vec<WriteResult>> {
    let mut hot = Hot {
        conn: tx,
        advance: tx
            .prepare_cached("UPDATE runs SET last_seq = ?4 WHERE org_id = ?1 AND run_id = ?2 AND last_seq = ?3")?,
        event: tx.prepare_cached(
            "INSERT INTO run_events (org_id, run_id, run_seq, format, event_type, step_id, logical_attempt,
                 engine_attempt, idempotency_key, caused_by_signal_id, parent_seq, emitted_at, persisted_at, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?,
    };
    if !batch.rates.is_empty() {
        queues::take(tx, &batch.rates)?;
    }
    let mut results = vec![WriteResult::Conflict; batch.writes.len()];
    for group in in_groups(&batch.writes) {
        if hot.heads(&batch.writes, &group)? {
            for index in group {
                hot.rest(&batch.writes[index])?;
                results[index] = WriteResult::Written;
            }
        }
    }
    if batch.writes.iter().any(|write| write.cache.is_some()) {
        let written = batch.writes.iter().zip(&results).filter(|(_, result)| **result == WriteResult::Written);
        cache::write(tx, &written.map(|(write, _)| write).collect::<Vec<_>>())?;
    }
    Ok(results)
}

impl Hot<'_> {
    /// Moves all heads of a group and begins their flights, or none.
    fn heads(&mut self, writes: &[RunWrite], group: &[usize]) -> Result<bool> {
        if let [only] = group
            && !flights::are_led_by(&writes[*only])
        {
            return self.head(&writes[*only]);
        }
        self.conn.prepare_cached("SAVEPOINT heads")?.execute([])?;
        let mut moved = true;
        for index in group {
            let write = &writes[*index];
            moved = self.head(write)? && flights::lead(self.conn, write)?;
            if !moved {
                self.conn.prepare_cached("ROLLBACK TO heads")?.execute([])?;
                break;
            }
        }
        self.conn.prepare_cached("RELEASE heads")?.execute([])?;
        Ok(moved)
    }

    /// The compare-and-swap of one head. The common case names no column but `last_seq`: SQLite rewrites the entries of
    /// every index that has a column in the list, changed or not.
    fn head(&mut self, write: &RunWrite) -> Result<bool> {
        let (org, run) = (write.org.0, write.run.0.as_bytes().as_slice());
        let (expected, last) = (seq(write.expected_seq), seq(write.last_seq));
        let changed = match &write.head {
            HeadWrite::Insert(head) => self.insert_head(write, head)?,
            HeadWrite::Update { status: None, owner: None } => {
                self.advance.execute(params![org, run, expected, last])?
            }
            HeadWrite::Update { status: None, owner: Some(owner) } => self
                .conn
                .prepare_cached(
                    "UPDATE runs SET last_seq = ?4, owner = ?5 WHERE org_id = ?1 AND run_id = ?2 AND last_seq = ?3",
                )?
                .execute(params![org, run, expected, last, owner.0])?,
            HeadWrite::Update { status: Some(to), owner: None } => self
                .conn
                .prepare_cached(
                    "UPDATE runs SET last_seq = ?4, status = ?5, started_at = ?6, completed_at = ?7
                     WHERE org_id = ?1 AND run_id = ?2 AND last_seq = ?3",
                )?
                .execute(params![
                    org,
                    run,
                    expected,
                    last,
                    to.status.as_str(),
                    opt_time(to.started_at),
                    opt_time(to.completed_at)
                ])?,
            HeadWrite::Update { status: Some(to), owner: Some(owner) } => self
                .conn
                .prepare_cached(
                    "UPDATE runs SET last_seq = ?4, status = ?5, started_at = ?6, completed_at = ?7, owner = ?8
                     WHERE org_id = ?1 AND run_id = ?2 AND last_seq = ?3",
                )?
                .execute(params![
                    org,
                    run,
                    expected,
                    last,
                    to.status.as_str(),
                    opt_time(to.started_at),
                    opt_time(to.completed_at),
                    owner.0
                ])?,
            HeadWrite::Patch(to) => self.patch_head(write, to)?,
        };
        Ok(changed == 1)
    }

    fn patch_head(&self, write: &RunWrite, to: &PatchedHead) -> rusqlite::Result<usize> {
        let status = to.status.as_ref();
        self.conn
            .prepare_cached(
                "UPDATE runs SET last_seq = ?4, plan_hash = ?5, status = coalesce(?6, status),
                    started_at = iif(?6 IS NULL, started_at, ?7), completed_at = iif(?6 IS NULL, completed_at, ?8),
                    owner = coalesce(?9, owner)
                 WHERE org_id = ?1 AND run_id = ?2 AND last_seq = ?3",
            )?
            .execute(params![
                write.org.0,
                write.run.0.as_bytes().as_slice(),
                seq(write.expected_seq),
                seq(write.last_seq),
                to.plan_hash.0.as_slice(),
                status.map(|to| to.status.as_str()),
                status.and_then(|to| opt_time(to.started_at)),
                status.and_then(|to| opt_time(to.completed_at)),
                to.owner.map(|owner| owner.0)
            ])
    }

    /// Takes the request id of a new run, if it is free and the run is new.
    fn take_request(&self, write: &RunWrite, head: &NewHead, request_id: &str) -> rusqlite::Result<usize> {
        let asked = head.asked.as_ref();
        let key = idempotency_key(write.org, &head.workflow, &head.workflow_version, request_id);
        self.conn
            .prepare_cached(
                "INSERT INTO run_requests (org_id, request_id, workflow, run_id, plan_version, version_hash,
                     idempotency_key, asked)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
                 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE org_id = ?1 AND run_id = ?4)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                write.org.0,
                request_id,
                head.workflow.as_ref(),
                write.run.0.as_bytes().as_slice(),
                head.workflow_version.as_ref(),
                asked.map(|asked| asked.version_hash.0),
                key.0.as_slice(),
                asked.map(|asked| asked.digest.as_bytes()),
            ])
    }

    fn insert_head(&self, write: &RunWrite, head: &NewHead) -> rusqlite::Result<usize> {
        if let Some(request_id) = &head.request_id
            && self.take_request(write, head, request_id)? == 0
        {
            return Ok(0);
        }
        self.conn
            .prepare_cached(
                "INSERT INTO runs (org_id, run_id, last_seq, status, owner, priority, created_at, started_at,
                     completed_at, workflow, workflow_version, plan_hash, request_id, base_run_id, parent_run_id)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                write.org.0,
                write.run.0.as_bytes().as_slice(),
                seq(write.last_seq),
                head.status.status.as_str(),
                head.owner.map(|owner| owner.0),
                head.priority,
                head.created_at.0,
                opt_time(head.status.started_at),
                opt_time(head.status.completed_at),
                head.workflow.as_ref(),
                head.workflow_version.as_ref(),
                head.plan_hash.0.as_slice(),
                head.request_id,
                opt_run(head.base_run.as_ref()),
                opt_run(head.parent_run.as_ref()),
            ])
    }

    /// Everything of a write but its head.
    fn rest(&mut self, write: &RunWrite) -> Result<()> {
        let run = write.run.0.as_bytes().as_slice();
        for event in &write.events {
            self.insert_event(write.org, run, event)?;
        }
        for timer in &write.timers {
            self.timer(write.org, run, timer)?;
        }
        for task in &write.tasks {
            tasks::write(self.conn, task)?;
        }
        for new in &write.outbox {
            outbox::write(self.conn, write.org, write.run, new)?;
        }
        if let Some(slot) = &write.slot {
            self.slot(write.org, run, slot)?;
        }
        if let Some(checkpoint) = &write.checkpoint {
            self.checkpoint(write.org, run, checkpoint)?;
        }
        if !write.artifacts.is_empty() {
            artifacts::write(self.conn, write)?;
        }
        Ok(())
    }

    fn insert_event(&mut self, org: OrgId, run: &[u8], event: &EventRow) -> Result<()> {
        self.event.execute(params![
            org.0,
            run,
            seq(event.seq),
            event.format,
            event.event_type.as_ref(),
            event.step_id.as_deref(),
            event.logical_attempt,
            event.engine_attempt,
            event.idempotency_key.0.as_slice(),
            event.signal.as_ref().map(|signal| signal.0.as_bytes().as_slice()),
            event.parent_seq.map(seq),
            event.emitted_at.0,
            event.persisted_at.0,
            event.data.as_str(),
        ])?;
        Ok(())
    }

    fn timer(&self, org: OrgId, run: &[u8], timer: &TimerWrite) -> Result<()> {
        match timer {
            TimerWrite::Arm { seq: armed, due_at } => self
                .conn
                .prepare_cached("INSERT OR REPLACE INTO timers (org_id, run_id, seq, due_at) VALUES (?, ?, ?, ?)")?
                .execute(params![org.0, run, seq(*armed), due_at.0])?,
            TimerWrite::Disarm { seq: armed } => self
                .conn
                .prepare_cached("DELETE FROM timers WHERE org_id = ? AND run_id = ? AND seq = ?")?
                .execute(params![org.0, run, seq(*armed)])?,
        };
        Ok(())
    }

    fn slot(&self, org: OrgId, run: &[u8], slot: &SlotWrite) -> Result<()> {
        let put = |key: &str, holding: bool, limit: Option<u32>, priority: i32| {
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO run_slots (org_id, run_id, slot_key, holding, slot_limit, priority)
                     VALUES (?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![org.0, run, key, holding, limit, priority])
        };
        match slot {
            SlotWrite::Hold { key } => put(key, true, None, 0)?,
            SlotWrite::Wait { key, limit, priority } => put(key, false, Some(*limit), *priority)?,
            SlotWrite::Release => self
                .conn
                .prepare_cached("DELETE FROM run_slots WHERE org_id = ? AND run_id = ?")?
                .execute(params![org.0, run])?,
        };
        Ok(())
    }

    fn checkpoint(&self, org: OrgId, run: &[u8], checkpoint: &CheckpointRow) -> Result<()> {
        self.conn
            .prepare_cached(
                "INSERT OR REPLACE INTO run_checkpoints (org_id, run_id, seq, format, state) VALUES (?, ?, ?, ?, ?)",
            )?
            .execute(params![org.0, run, seq(checkpoint.seq), checkpoint.format, checkpoint.state])?;
        Ok(())
    }
}

pub(super) fn mark_stale(tx: &Connection, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
    let run = run.0.as_bytes().as_slice();
    match from_seq {
        Some(from_seq) => tx
            .prepare_cached("INSERT OR REPLACE INTO stale_runs (org_id, run_id, from_seq) VALUES (?, ?, ?)")?
            .execute(params![org.0, run, seq(from_seq)])?,
        None => {
            tx.prepare_cached("DELETE FROM stale_runs WHERE org_id = ? AND run_id = ?")?.execute(params![org.0, run])?
        }
    };
    Ok(())
}

pub(super) fn projections(tx: &Connection, writes: &[ProjectionWrite]) -> Result<Vec<WriteResult>> {
    writes.iter().map(|write| projection(tx, write)).collect()
}

fn projection(tx: &Connection, write: &ProjectionWrite) -> Result<WriteResult> {
    let run = write.run.0.as_bytes().as_slice();
    if !snapshot(tx, write, run)? {
        return Ok(WriteResult::Conflict);
    }
    for row in &write.steps {
        step(tx, write.org, run, row)?;
    }
    if write.release {
        tx.prepare_cached(
            "UPDATE runs SET owner = NULL WHERE org_id = ? AND run_id = ? AND last_seq = ? AND owner IS NOT NULL",
        )?
        .execute(params![write.org.0, run, seq(write.snapshot.last_event_seq)])?;
    }
    Ok(WriteResult::Written)
}

/// The compare-and-swap of one snapshot. Its status is indexed and mostly stays, so the first try leaves it alone.
fn snapshot(tx: &Connection, write: &ProjectionWrite, run: &[u8]) -> Result<bool> {
    let row = &write.snapshot;
    // There may be a row at 0: of a run whose log lacks its first event.
    if write.expected_seq == 0 && insert_snapshot(tx, write.org, run, row)? {
        return Ok(true);
    }
    let values: [&dyn ToSql; 15] = [
        &write.org.0,
        &run,
        &seq(write.expected_seq),
        &seq(row.last_event_seq),
        &row.status.as_str(),
        &row.workflow_version,
        &row.priority,
        &row.steps_total,
        &row.steps_done,
        &row.steps_failed,
        &opt_time(row.started_at),
        &opt_time(row.completed_at),
        &row.error.as_ref().map(|error| error.as_str()),
        &row.updated_at.0,
        &row.engine_node.map(|node| node.0),
    ];
    let same_status = tx
        .prepare_cached(
            "UPDATE run_snapshots SET last_event_seq = ?4, workflow_version = ?6, priority = ?7, steps_total = ?8,
                 steps_done = ?9, steps_failed = ?10, started_at = ?11, completed_at = ?12, error = ?13, updated_at = ?14,
                 engine_node = ?15
             WHERE org_id = ?1 AND run_id = ?2 AND last_event_seq = ?3 AND status = ?5",
        )?
        .execute(&values[..])?;
    if same_status == 1 {
        return Ok(true);
    }
    let changed = tx
        .prepare_cached(
            "UPDATE run_snapshots SET last_event_seq = ?4, status = ?5, workflow_version = ?6, priority = ?7,
                 steps_total = ?8, steps_done = ?9, steps_failed = ?10, started_at = ?11, completed_at = ?12, error = ?13,
                 updated_at = ?14, engine_node = ?15
             WHERE org_id = ?1 AND run_id = ?2 AND last_event_seq = ?3",
        )?
        .execute(&values[..])?;
    Ok(changed == 1)
}

fn insert_snapshot(tx: &Connection, org: OrgId, run: &[u8], row: &SnapshotRow) -> Result<bool> {
    let inserted = tx
        .prepare_cached(
            "INSERT INTO run_snapshots (org_id, run_id, last_event_seq, status, workflow, workflow_version, request_id,
                 base_run_id, parent_run_id, priority, steps_total, steps_done, steps_failed, created_at, started_at,
                 completed_at, error, submitted_by, updated_at, engine_node)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            org.0,
            run,
            seq(row.last_event_seq),
            row.status.as_str(),
            row.workflow,
            row.workflow_version,
            row.request_id,
            opt_run(row.base_run.as_ref()),
            opt_run(row.parent_run.as_ref()),
            row.priority,
            row.steps_total,
            row.steps_done,
            row.steps_failed,
            row.created_at.0,
            opt_time(row.started_at),
            opt_time(row.completed_at),
            row.error.as_ref().map(|error| error.as_str()),
            row.submitted_by,
            row.updated_at.0,
            row.engine_node.map(|node| node.0),
        ])?;
    Ok(inserted == 1)
}

fn step(tx: &Connection, org: OrgId, run: &[u8], row: &StepRow) -> Result<()> {
    tx.prepare_cached(
        "INSERT OR REPLACE INTO run_steps (org_id, run_id, step_id, skill, status, skip_reason, logical_attempt,
             engine_attempt, input_hash, output_seq, started_at, ended_at, error)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        org.0,
        run,
        row.step_id,
        row.skill,
        row.status.as_str(),
        row.skip_reason.map(|reason| reason.as_str()),
        row.logical_attempt,
        row.engine_attempt,
        row.input_hash.as_ref().map(|hash| hash.0.as_slice()),
        row.output_seq.map(seq),
        opt_time(row.started_at),
        opt_time(row.ended_at),
        row.error.as_ref().map(|error| error.as_str()),
    ])?;
    Ok(())
}

pub(super) fn drop_projection(tx: &Connection, org: OrgId, run: RunId) -> Result<()> {
    for table in ["run_snapshots", "run_steps"] {
        tx.prepare_cached(&format!("DELETE FROM {table} WHERE org_id = ? AND run_id = ?"))?
            .execute(params![org.0, run.0.as_bytes().as_slice()])?;
    }
    Ok(())
}

pub(super) fn heartbeat(tx: &Connection, node: NodeId, expires_at: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO nodes (node_id, lease_expires_at, left) VALUES (?, ?, 0)
         ON CONFLICT (node_id) DO UPDATE SET lease_expires_at = excluded.lease_expires_at, left = 0, crashed_at = NULL",
    )?
    .execute(params![node.0, expires_at.0])?;
    Ok(())
}

pub(super) fn leave(tx: &Connection, node: NodeId) -> Result<()> {
    tx.prepare_cached("UPDATE nodes SET left = 1, deciding = NULL WHERE node_id = ?")?.execute([node.0])?;
    Ok(())
}

pub(super) fn forget_nodes(tx: &Connection, nodes: &[NodeId]) -> Result<()> {
    for node in nodes {
        tx.prepare_cached("DELETE FROM nodes WHERE node_id = ?")?.execute([node.0])?;
    }
    Ok(())
}
