//! Between columns and the rows of the seam.

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::rows::{HeadRow, SlotRow, SnapshotRow, StepRow, Stuck, TimerRow};
use crate::{Result, StoreError};

pub(super) const HEAD: &str = "r.org_id, r.run_id, r.workflow, r.workflow_version, r.plan_hash, r.request_id, \
     r.base_run_id, r.parent_run_id, r.priority, r.status, r.last_seq, r.owner, r.created_at, r.started_at, \
     r.completed_at, u.changed_at, u.crashes, u.deed";
pub(super) const HEAD_COLUMNS: usize = 18;
/// Where they are.
pub(super) const HEADS: &str = "runs AS r LEFT JOIN run_suspects AS u \
     ON u.run_id = r.run_id AND u.org_id = r.org_id AND u.state <> 'suspected'";

pub(super) const EVENT: &str = "e.run_seq, e.format, e.event_type, e.step_id, e.logical_attempt, e.engine_attempt, \
     e.data, e.idempotency_key, e.caused_by_signal_id, e.parent_seq, e.emitted_at, e.persisted_at";
pub(super) const EVENT_COLUMNS: usize = 12;

pub(super) const TIMER: &str = "org_id, run_id, seq, due_at";

pub(super) const SLOT: &str = "org_id, run_id, slot_key, holding, slot_limit, priority";

pub(super) const SNAPSHOT: &str = "org_id, run_id, workflow, workflow_version, status, last_event_seq, request_id, \
     base_run_id, parent_run_id, priority, steps_total, steps_done, steps_failed, error, created_at, started_at, \
     completed_at, submitted_by, updated_at, engine_node";

pub(super) const STEP: &str = "step_id, skill, status, skip_reason, logical_attempt, engine_attempt, input_hash, \
     output_seq, error, started_at, ended_at";

pub(super) fn col<'a, T: FromSql<'a>>(row: &'a Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Sequence numbers and their like, which the database keeps as signed integers.
pub(super) fn int8(value: u64) -> i64 {
    value.cast_signed()
}

/// Counts and attempts; one that needs the 32nd bit is nonsense and stops there.
pub(super) fn int4(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(super) fn seq(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is no sequence number")))
}

pub(super) fn count(value: i32) -> Result<u32> {
    u32::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is no count")))
}

pub(super) fn digest(bytes: &[u8]) -> Result<Digest> {
    bytes.try_into().map(Digest).map_err(|_| StoreError::Corrupt(format!("a digest of {} bytes", bytes.len())))
}

pub(super) fn word<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| StoreError::Corrupt(error.to_string()))
}

pub(super) fn org_run(row: &Row, at: usize) -> Result<(OrgId, RunId)> {
    Ok((OrgId(col(row, at)?), RunId(col(row, at + 1)?)))
}

pub(super) fn moment(row: &Row, at: usize) -> Result<Option<Timestamp>> {
    Ok(col::<Option<i64>>(row, at)?.map(Timestamp))
}

fn run(row: &Row, at: usize) -> Result<Option<RunId>> {
    Ok(col::<Option<Uuid>>(row, at)?.map(RunId))
}

pub(super) fn json(row: &Row, at: usize) -> Result<Option<Json>> {
    Ok(col::<Option<&str>>(row, at)?.map(Json::trusted))
}

/// Columns as in [`HEAD`].
pub(super) fn head(row: &Row, at: usize) -> Result<HeadRow> {
    let (org, id) = org_run(row, at)?;
    Ok(HeadRow {
        org,
        run: id,
        workflow: col(row, at + 2)?,
        workflow_version: col(row, at + 3)?,
        plan_hash: digest(col(row, at + 4)?)?,
        request_id: col(row, at + 5)?,
        base_run: run(row, at + 6)?,
        parent_run: run(row, at + 7)?,
        priority: col(row, at + 8)?,
        status: word(col(row, at + 9)?)?,
        last_seq: seq(col(row, at + 10)?)?,
        owner: col::<Option<i64>>(row, at + 11)?.map(NodeId),
        created_at: Timestamp(col(row, at + 12)?),
        started_at: moment(row, at + 13)?,
        completed_at: moment(row, at + 14)?,
        stuck: match moment(row, at + 15)? {
            None => None,
            Some(since) => Some(Stuck { since, crashes: count(col(row, at + 16)?)?, deed: col(row, at + 17)? }),
        },
    })
}

/// Columns as in [`EVENT`].
pub(super) fn event(row: &Row, at: usize) -> Result<EventRow> {
    Ok(EventRow {
        seq: seq(col(row, at)?)?,
        format: col(row, at + 1)?,
        event_type: Cow::Owned(col(row, at + 2)?),
        step_id: col::<Option<&str>>(row, at + 3)?.map(Arc::from),
        logical_attempt: col::<Option<i32>>(row, at + 4)?.map(count).transpose()?,
        engine_attempt: col::<Option<i32>>(row, at + 5)?.map(count).transpose()?,
        data: Json::trusted(col::<&str>(row, at + 6)?),
        idempotency_key: digest(col(row, at + 7)?)?,
        signal: col::<Option<Uuid>>(row, at + 8)?.map(SignalId),
        parent_seq: col::<Option<i64>>(row, at + 9)?.map(seq).transpose()?,
        emitted_at: Timestamp(col(row, at + 10)?),
        persisted_at: Timestamp(col(row, at + 11)?),
    })
}

/// Columns as in [`TIMER`].
pub(super) fn timer(row: &Row) -> Result<TimerRow> {
    let (org, run) = org_run(row, 0)?;
    Ok(TimerRow { org, run, seq: seq(col(row, 2)?)?, due_at: Timestamp(col(row, 3)?) })
}

/// Columns as in [`SLOT`].
pub(super) fn slot(row: &Row) -> Result<SlotRow> {
    let (org, run) = org_run(row, 0)?;
    let limit = col::<Option<i64>>(row, 4)?
        .map(|limit| u32::try_from(limit).map_err(|_| StoreError::Corrupt(format!("{limit} is no limit"))))
        .transpose()?;
    Ok(SlotRow { org, run, key: col(row, 2)?, holding: col(row, 3)?, limit, priority: col(row, 5)? })
}

/// Columns as in [`SNAPSHOT`].
pub(super) fn snapshot(row: &Row) -> Result<SnapshotRow> {
    let (org, id) = org_run(row, 0)?;
    let (created_at, started_at, completed_at) = (Timestamp(col(row, 14)?), moment(row, 15)?, moment(row, 16)?);
    Ok(SnapshotRow {
        org,
        run: id,
        workflow: col(row, 2)?,
        workflow_version: col(row, 3)?,
        status: word(col(row, 4)?)?,
        last_event_seq: seq(col(row, 5)?)?,
        request_id: col(row, 6)?,
        base_run: run(row, 7)?,
        parent_run: run(row, 8)?,
        priority: col(row, 9)?,
        steps_total: count(col(row, 10)?)?,
        steps_done: count(col(row, 11)?)?,
        steps_failed: count(col(row, 12)?)?,
        error: json(row, 13)?,
        created_at,
        started_at,
        completed_at,
        submitted_by: col(row, 17)?,
        updated_at: SnapshotRow::updated_or(moment(row, 18)?, (created_at, started_at, completed_at)),
        engine_node: col::<Option<i64>>(row, 19)?.map(NodeId),
    })
}

/// Columns as in [`STEP`].
pub(super) fn step(row: &Row) -> Result<StepRow> {
    Ok(StepRow {
        step_id: col(row, 0)?,
        skill: col(row, 1)?,
        status: word(col(row, 2)?)?,
        skip_reason: col::<Option<&str>>(row, 3)?.map(word).transpose()?,
        logical_attempt: count(col(row, 4)?)?,
        engine_attempt: count(col(row, 5)?)?,
        input_hash: col::<Option<&[u8]>>(row, 6)?.map(digest).transpose()?,
        output_seq: col::<Option<i64>>(row, 7)?.map(seq).transpose()?,
        error: json(row, 8)?,
        started_at: moment(row, 9)?,
        ended_at: moment(row, 10)?,
    })
}
