//! What is read of projections, apart from lists.

use rusqlite::{Connection, Row, params};

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id, one};
use crate::Result;
use crate::rows::{SnapshotRow, StepRow};

pub(super) const SNAPSHOT: &str =
    "SELECT org_id, run_id, workflow, workflow_version, status, last_event_seq, request_id,
    base_run_id, parent_run_id, priority, steps_total, steps_done, steps_failed, error, created_at, started_at,
    completed_at, submitted_by, updated_at, engine_node FROM run_snapshots";

pub(super) fn snapshot_row(row: &Row) -> rusqlite::Result<SnapshotRow> {
    let mut columns = Columns::of(row);
    let mut row = SnapshotRow {
        org: columns.org()?,
        run: columns.run()?,
        workflow: columns.get()?,
        workflow_version: columns.get()?,
        status: columns.word()?,
        last_event_seq: columns.seq()?,
        request_id: columns.get()?,
        base_run: columns.opt_run()?,
        parent_run: columns.opt_run()?,
        priority: columns.get()?,
        steps_total: columns.get()?,
        steps_done: columns.get()?,
        steps_failed: columns.get()?,
        error: columns.opt_json()?,
        created_at: columns.time()?,
        started_at: columns.opt_time()?,
        completed_at: columns.opt_time()?,
        submitted_by: columns.get()?,
        updated_at: Timestamp(0),
        engine_node: None,
    };
    row.updated_at = SnapshotRow::updated_or(columns.opt_time()?, (row.created_at, row.started_at, row.completed_at));
    row.engine_node = columns.get::<Option<i64>>()?.map(NodeId);
    Ok(row)
}

pub(super) fn snapshot(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
    one(conn, &format!("{SNAPSHOT} WHERE org_id = ? AND run_id = ?"), params![org.0, id(&run)], snapshot_row)
}

const STEP: &str =
    "SELECT step_id, skill, status, skip_reason, logical_attempt, engine_attempt, input_hash, output_seq,
    error, started_at, ended_at FROM run_steps WHERE org_id = ? AND run_id = ?";

fn step_row(row: &Row) -> rusqlite::Result<StepRow> {
    let mut columns = Columns::of(row);
    Ok(StepRow {
        step_id: columns.get()?,
        skill: columns.get()?,
        status: columns.word()?,
        skip_reason: columns.opt_word()?,
        logical_attempt: columns.get()?,
        engine_attempt: columns.get()?,
        input_hash: columns.opt_digest()?,
        output_seq: columns.opt_seq()?,
        error: columns.opt_json()?,
        started_at: columns.opt_time()?,
        ended_at: columns.opt_time()?,
    })
}

/// The caller has a transaction open: the steps must be of the same moment as the snapshot.
pub(super) fn projection(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
    let Some(snapshot) = snapshot(conn, org, run)? else { return Ok(None) };
    let steps = all(conn, &format!("{STEP} ORDER BY step_id"), params![org.0, id(&run)], step_row)?;
    Ok(Some((snapshot, steps)))
}

pub(super) fn steps_by_id(conn: &Connection, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
    let sql = format!("{STEP} AND step_id = ?");
    ids.iter().filter_map(|step| one(conn, &sql, params![org.0, id(&run), step], step_row).transpose()).collect()
}
