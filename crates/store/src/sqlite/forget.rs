//! Forgetting runs that ended long ago, a few rows at a time, so that no commit waits for long.
//!
//! ```text
//! candidates  (reading)       runs that may go, by the index of ends
//! heads       (transactions)  each is looked at again; head, projection, timers, … go together, and the run is noted
//! leftovers   (transactions)  of the runs that are noted: events from the oldest on, steps, logs, artifacts; then the note
//! ```
//!
//! **Invariant:** who reads sees a run whole or not at all: its head goes first, and with it the run. What a process that
//! died leaves is noted, and goes the next time.

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id, one};
use crate::Result;

/// Heads in one transaction.
pub(super) const HEADS: usize = 50;

/// Rows of events and steps in one transaction; each may be on a page of its own. About ten milliseconds of work.
const ROWS: usize = 1000;

/// A chunk of a log is as much work as so many rows.
const CHUNK_ROWS: usize = 16;

/// Of a head `r`: ended before ?1, in nobody's hands, and no other run builds upon it.
macro_rules! removable {
    () => {
        "r.completed_at < ?1 AND r.owner IS NULL AND r.status IN ('completed', 'failed', 'cancelled', 'terminated')
         AND NOT EXISTS (SELECT 1 FROM runs AS u WHERE u.base_run_id = r.run_id AND u.org_id = r.org_id)"
    };
}

const CANDIDATES: &str = concat!(
    "SELECT r.org_id, r.run_id FROM run_snapshots AS s INDEXED BY run_snapshots_by_end
     CROSS JOIN runs AS r ON r.org_id = s.org_id AND r.run_id = s.run_id
     WHERE s.completed_at < ?1 AND ",
    removable!(),
    " ORDER BY s.completed_at LIMIT ?2"
);

/// Runs that may go, those that ended first before the others.
pub(super) fn candidates(conn: &Connection, ended_before: Timestamp, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
    all(conn, CANDIDATES, params![ended_before.0, limit], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.org()?, columns.run()?))
    })
}

/// How many runs went, and whether one of them was built upon another, which may go now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone {
    pub(super) runs: u64,
    pub(super) frees_others: bool,
}

/// Takes these runs away from all who read, if they still may go: one may have been opened again meanwhile.
pub(super) fn heads(tx: &Connection, runs: &[(OrgId, RunId)], ended_before: Timestamp) -> Result<Gone> {
    let sql = concat!(
        "DELETE FROM runs AS r WHERE r.org_id = ?2 AND r.run_id = ?3 AND ",
        removable!(),
        " RETURNING base_run_id IS NOT NULL, request_id, workflow"
    );
    let mut head = tx.prepare_cached(sql)?;
    let mut gone = Gone::default();
    for (org, run) in runs {
        let removed = head
            .query_row(params![ended_before.0, org.0, id(run)], |row| {
                Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, String>(2)?))
            })
            .optional()?;
        if let Some((updated, request_id, workflow)) = removed {
            gone.runs += 1;
            gone.frees_others |= updated;
            if let Some(request_id) = request_id {
                tx.prepare_cached(
                    "DELETE FROM run_requests WHERE org_id = ? AND request_id = ? AND workflow = ? AND run_id = ?",
                )?
                .execute(params![org.0, request_id, workflow, id(run)])?;
            }
            beside(tx, *org, *run)?;
        }
    }
    Ok(gone)
}

/// What there is one row of, or few; and the note that the rest has to go.
fn beside(tx: &Connection, org: OrgId, run: RunId) -> Result<()> {
    for table in ["run_snapshots", "run_checkpoints", "run_slots", "timers", "stale_runs", "run_suspects"] {
        tx.prepare_cached(&format!("DELETE FROM {table} WHERE org_id = ? AND run_id = ?"))?
            .execute(params![org.0, id(&run)])?;
    }
    super::cache::forget_run(tx, org, run)?;
    tx.prepare_cached("UPDATE run_blobs SET gone = 1 WHERE org_id = ? AND run_id = ?")?
        .execute(params![org.0, id(&run)])?;
    tx.prepare_cached("INSERT INTO forgotten_runs (org_id, run_id) VALUES (?, ?) ON CONFLICT DO NOTHING")?
        .execute(params![org.0, id(&run)])?;
    Ok(())
}

const EVENTS: &str = "DELETE FROM run_events WHERE rowid IN (
    SELECT rowid FROM run_events WHERE org_id = ?1 AND run_id = ?2 ORDER BY run_seq LIMIT ?3)";

const STEPS: &str = "DELETE FROM run_steps WHERE org_id = ?1 AND run_id = ?2 AND step_id IN (
    SELECT step_id FROM run_steps WHERE org_id = ?1 AND run_id = ?2 ORDER BY step_id LIMIT ?3)";

const LOGS: &str = "DELETE FROM step_logs WHERE rowid IN (
    SELECT rowid FROM step_logs WHERE org_id = ?1 AND run_id = ?2 LIMIT ?3)";

const ARTIFACTS: &str = "DELETE FROM artifacts WHERE org_id = ?1 AND run_id = ?2 AND (seq, place) IN (
    SELECT seq, place FROM artifacts WHERE org_id = ?1 AND run_id = ?2 ORDER BY seq, place LIMIT ?3)";

/// Removes some of what is left of runs that are gone. Answers whether there is more.
pub(super) fn leftovers(tx: &Connection) -> Result<bool> {
    let next = "SELECT org_id, run_id FROM forgotten_runs LIMIT 1";
    let mut room = ROWS;
    while let Some((org, run)) = one(tx, next, [], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.org()?, columns.run()?))
    })? {
        for (sql, rows) in [(EVENTS, 1), (STEPS, 1), (LOGS, CHUNK_ROWS), (ARTIFACTS, 1)] {
            let most = room.div_ceil(rows);
            let removed = remove(tx.prepare_cached(sql)?, org, run, most)?;
            room = room.saturating_sub(removed * rows);
            if removed == most {
                return Ok(true);
            }
        }
        tx.prepare_cached("DELETE FROM forgotten_runs WHERE org_id = ? AND run_id = ?")?
            .execute(params![org.0, id(&run)])?;
    }
    Ok(false)
}

fn remove(mut sql: CachedStatement, org: OrgId, run: RunId, most: usize) -> Result<usize> {
    Ok(sql.execute(params![org.0, id(&run), (most as u64).cast_signed()])?)
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{plan, schema};
    use super::*;

    #[test]
    fn runs_that_may_go_are_found_without_a_scan() {
        let plan = plan(&schema(), CANDIDATES);
        let steps = [
            "SEARCH s USING COVERING INDEX run_snapshots_by_end (completed_at<?)",
            "SEARCH r USING PRIMARY KEY (org_id=? AND run_id=?)",
            "SEARCH u USING COVERING INDEX runs_by_base (base_run_id=? AND org_id=?)",
        ];
        assert!(steps.iter().all(|step| plan.contains(step)) && !plan.contains("TEMP B-TREE"), "{plan}");
    }

    #[test]
    fn what_is_left_is_found_by_its_run() {
        for sql in [EVENTS, STEPS, LOGS, ARTIFACTS] {
            let plan = plan(&schema(), sql);
            assert!(!plan.contains("SCAN run_events") && !plan.contains("SCAN run_steps"), "{plan}");
            assert!(
                !plan.contains("SCAN step_logs")
                    && !plan.contains("SCAN artifacts")
                    && plan.contains("(org_id=? AND run_id=?"),
                "{plan}"
            );
        }
    }
}
