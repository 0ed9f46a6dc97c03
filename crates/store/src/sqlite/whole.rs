//! One run for somebody who looks at it, in one go: each trip to a reading connection costs more than what it reads.

use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use rusqlite::{Connection, params};

use super::columns::{all, id};
use super::{FEW_ROWS, projections, read};
use crate::Result;
use crate::rows::{HeadRow, RunRows};

/// What came of reading a run only if that is soon done.
#[derive(Debug)]
pub(super) enum Whole {
    Read(Option<Box<RunRows>>),
    /// It has more than a few events, and so may have more than a few rows of every kind.
    Long,
}

/// The caller has a transaction open: all is of one moment.
pub(super) fn read_run(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
    let Some(head) = read::head(conn, org, run)? else { return Ok(None) };
    rest(conn, head).map(Some)
}

/// The same for a run with few events.
pub(super) fn read_short_run(conn: &Connection, org: OrgId, run: RunId) -> Result<Whole> {
    Ok(match read::head(conn, org, run)? {
        None => Whole::Read(None),
        Some(head) if head.last_seq > FEW_ROWS as u64 => Whole::Long,
        Some(head) => Whole::Read(Some(Box::new(rest(conn, head)?))),
    })
}

fn rest(conn: &Connection, head: HeadRow) -> Result<RunRows> {
    let (org, run) = (head.org, head.run);
    let projection = projections::projection(conn, org, run)?;
    let after = projection.as_ref().map_or(0, |(snapshot, _)| snapshot.last_event_seq);
    let tail = if after < head.last_seq { read::events(conn, org, run, after, RunRows::TAIL)? } else { Vec::new() };
    let carrying = match &projection {
        None => Vec::new(),
        Some((_, steps)) => {
            let outputs = steps.iter().filter_map(|step| step.output_seq);
            let seqs: Vec<u64> = [1].into_iter().chain(outputs).take(RunRows::CARRYING).collect();
            read::events_at(conn, org, run, &seqs)?
        }
    };
    let artifacts = super::artifacts::of_run(conn, org, run)?;
    let (events, stale_from) = (read::count_events(conn, org, run)?, read::stale_from(conn, org, run)?);
    Ok(RunRows { head, projection, tail, carrying, events, stale_from, artifacts })
}

pub(super) fn step_events(
    conn: &Connection,
    org: OrgId,
    run: RunId,
    step: &str,
    after_seq: u64,
    limit: u32,
) -> Result<Vec<EventRow>> {
    let sql = format!("{} AND run_seq > ? AND step_id = ? ORDER BY run_seq LIMIT ?", read::EVENT);
    all(conn, &sql, params![org.0, id(&run), after_seq.cast_signed(), step, limit], read::event_row)
}
