//! The statements that read runs: heads, logs, timers, slots, and what is kept beside them.

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id, one};
use crate::Result;
use crate::rows::{
    Answer, CheckpointRow, HeadRow, LoadedRun, LogGap, Question, RequestedRun, SlotRow, Stuck, TimerRow, TransitionRow,
};

const HEAD: &str =
    "SELECT r.org_id, r.run_id, r.workflow, r.workflow_version, r.plan_hash, r.request_id, r.base_run_id, r.parent_run_id,
    r.priority, r.status, r.last_seq, r.owner, r.created_at, r.started_at, r.completed_at, u.changed_at, u.crashes, u.deed
    FROM runs AS r
    LEFT JOIN run_suspects AS u ON u.org_id = r.org_id AND u.run_id = r.run_id AND u.state <> 'suspected'";

fn head_row(row: &Row) -> rusqlite::Result<HeadRow> {
    let mut columns = Columns::of(row);
    Ok(HeadRow {
        org: columns.org()?,
        run: columns.run()?,
        workflow: columns.get()?,
        workflow_version: columns.get()?,
        plan_hash: columns.digest()?,
        request_id: columns.get()?,
        base_run: columns.opt_run()?,
        parent_run: columns.opt_run()?,
        priority: columns.get()?,
        status: columns.word()?,
        last_seq: columns.seq()?,
        owner: columns.get::<Option<i64>>()?.map(NodeId),
        created_at: columns.time()?,
        started_at: columns.opt_time()?,
        completed_at: columns.opt_time()?,
        stuck: match columns.opt_time()? {
            None => None,
            Some(since) => Some(Stuck { since, crashes: columns.get()?, deed: columns.get()? }),
        },
    })
}

pub(super) fn head(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
    one(conn, &format!("{HEAD} WHERE r.org_id = ? AND r.run_id = ?"), params![org.0, id(&run)], head_row)
}

pub(super) fn last_seqs(conn: &Connection, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
    let sql = "SELECT last_seq FROM runs WHERE org_id = ? AND run_id = ?";
    let last_seq = |(org, run): &(OrgId, RunId)| {
        let found = one(conn, sql, params![org.0, id(run)], |row| Columns::of(row).seq()).transpose()?;
        Some(found.map(|seq| (*org, *run, seq)))
    };
    runs.iter().filter_map(last_seq).collect()
}

pub(super) const EVENT: &str =
    "SELECT run_seq, format, event_type, step_id, logical_attempt, engine_attempt, idempotency_key,
    caused_by_signal_id, parent_seq, emitted_at, persisted_at, data FROM run_events WHERE org_id = ? AND run_id = ?";

pub(super) fn event_row(row: &Row) -> rusqlite::Result<EventRow> {
    let mut columns = Columns::of(row);
    Ok(EventRow {
        seq: columns.seq()?,
        format: columns.get()?,
        event_type: Cow::Owned(columns.get()?),
        step_id: columns.get()?,
        logical_attempt: columns.get()?,
        engine_attempt: columns.get()?,
        idempotency_key: columns.digest()?,
        signal: columns.opt_signal()?,
        parent_seq: columns.opt_seq()?,
        emitted_at: columns.time()?,
        persisted_at: columns.time()?,
        data: Json::trusted(columns.get::<Arc<str>>()?),
    })
}

pub(super) fn events(conn: &Connection, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>> {
    let sql = format!("{EVENT} AND run_seq > ? ORDER BY run_seq LIMIT ?");
    all(conn, &sql, params![org.0, id(&run), after_seq.cast_signed(), limit], event_row)
}

fn event_at(conn: &Connection, org: OrgId, run: RunId, seq: u64) -> Result<Option<EventRow>> {
    one(conn, &format!("{EVENT} AND run_seq = ?"), params![org.0, id(&run), seq.cast_signed()], event_row)
}

pub(super) fn events_at(conn: &Connection, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
    seqs.iter().filter_map(|seq| event_at(conn, org, run, *seq).transpose()).collect()
}

pub(super) fn events_by_key(conn: &Connection, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>> {
    let sql = format!("{EVENT} AND idempotency_key = ?");
    let found = keys.iter().map(|key| one(conn, &sql, params![org.0, id(&run), key.0], event_row));
    found.filter_map(Result::transpose).collect()
}

/// The caller has a transaction open: a head and its tail must be of the same moment.
pub(super) fn load_runs(conn: &Connection, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
    let mut loaded = Vec::with_capacity(runs.len());
    for (org, run) in runs {
        let Some(head) = head(conn, *org, *run)? else { continue };
        if head.stuck.is_some() {
            loaded.push(LoadedRun { head, checkpoint: None, tail: Vec::new() });
            continue;
        }
        let checkpoint = one(
            conn,
            "SELECT seq, format, state FROM run_checkpoints WHERE org_id = ? AND run_id = ?",
            params![org.0, id(run)],
            |row| {
                let mut columns = Columns::of(row);
                Ok(CheckpointRow { seq: columns.seq()?, format: columns.get()?, state: columns.get()? })
            },
        )?;
        let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let tail = events(conn, *org, *run, after, u32::MAX)?;
        loaded.push(LoadedRun { head, checkpoint, tail });
    }
    Ok(loaded)
}

pub(super) fn answers(conn: &Connection, questions: &[Question]) -> Result<Vec<Answer>> {
    questions.iter().map(|question| answer(conn, question)).collect()
}

const OF_REQUEST: &str = "SELECT run_id, version_hash, asked FROM run_requests
    WHERE org_id = ? AND request_id = ? AND workflow = ? AND project_id = 1 AND environment_id = 1";

fn answer(conn: &Connection, question: &Question) -> Result<Answer> {
    Ok(match question {
        Question::SlotsHeld { org, key } => Answer::SlotsHeld(slots_held(conn, *org, key)?),
        Question::RunOfRequest { org, workflow, request_id } => {
            Answer::RunOfRequest(one(conn, OF_REQUEST, params![org.0, request_id, workflow], |row| {
                let mut columns = Columns::of(row);
                let (run, version_hash) = (columns.run()?, columns.opt_digest()?);
                Ok(RequestedRun::read(run, version_hash, columns.get::<Option<Vec<u8>>>()?.as_deref()))
            })?)
        }
        Question::Event { org, run, seq } => Answer::Event(event_at(conn, *org, *run, *seq)?),
        Question::Limits { org, queue, key } => {
            Answer::Limits(super::queues::limits(conn, *org, queue, key.as_deref())?)
        }
        Question::Results { org, keys, held } => Answer::Results(super::cache::find(conn, *org, keys, held)?),
        Question::Flights { org, keys } => Answer::Flights(super::flights::find(conn, *org, keys)?),
        Question::Epochs { org, workflow } => Answer::Epochs(super::cache::epochs(conn, *org, workflow)?),
    })
}

fn timer_row(row: &Row) -> rusqlite::Result<TimerRow> {
    let mut columns = Columns::of(row);
    Ok(TimerRow { org: columns.org()?, run: columns.run()?, seq: columns.seq()?, due_at: columns.time()? })
}

// The index on `due_at` ends with the primary key, so the page's order is the index's.
const DUE: &str = "SELECT org_id, run_id, seq, due_at FROM timers
     WHERE due_at <= ? AND (due_at, org_id, run_id, seq) > (?, ?, ?, ?)
     ORDER BY due_at, org_id, run_id, seq LIMIT ?";

pub(super) fn timers_until(
    conn: &Connection,
    after: Option<TimerRow>,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<TimerRow>> {
    let from =
        after.unwrap_or(TimerRow { org: OrgId(0), run: RunId(Uuid::nil()), seq: 0, due_at: Timestamp(i64::MIN) });
    let seq = i64::try_from(from.seq).unwrap_or(i64::MAX);
    all(conn, DUE, params![until.0, from.due_at.0, from.org.0, id(&from.run), seq, limit], timer_row)
}

pub(super) fn timers_of(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
    all(
        conn,
        "SELECT org_id, run_id, seq, due_at FROM timers WHERE org_id = ? AND run_id = ? ORDER BY seq",
        params![org.0, id(&run)],
        timer_row,
    )
}

const NEXT_KEY: &str =
    "SELECT org_id, slot_key FROM run_slots WHERE (org_id, slot_key) > (?, ?) ORDER BY org_id, slot_key LIMIT 1";

const WAITING: &str = "SELECT org_id, run_id, slot_key, holding, slot_limit, priority FROM run_slots
    WHERE org_id = ? AND slot_key = ? AND holding = 0 AND NOT EXISTS (
        SELECT 1 FROM run_suspects AS u
        WHERE u.org_id = run_slots.org_id AND u.run_id = run_slots.run_id AND u.state <> 'suspected')
    ORDER BY priority DESC, run_id LIMIT ?";

const HELD: &str = "SELECT count(*) FROM run_slots WHERE org_id = ? AND slot_key = ? AND holding = 1";

const SLOT: &str = "SELECT org_id, run_id, slot_key, holding, slot_limit, priority FROM run_slots";

fn slot_row(row: &Row) -> rusqlite::Result<SlotRow> {
    let mut columns = Columns::of(row);
    Ok(SlotRow {
        org: columns.org()?,
        run: columns.run()?,
        key: columns.get()?,
        holding: columns.get()?,
        limit: columns.get()?,
        priority: columns.get()?,
    })
}

fn slots_held(conn: &Connection, org: OrgId, key: &str) -> Result<u32> {
    Ok(conn.prepare_cached(HELD)?.query_row(params![org.0, key], |row| row.get(0))?)
}

pub(super) fn slot_of(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
    one(conn, &format!("{SLOT} WHERE org_id = ? AND run_id = ?"), params![org.0, id(&run)], slot_row)
}

/// Goes from key to key, so that it costs what can be woken, not what waits.
pub(super) fn slots_to_wake(conn: &Connection, limit: u32) -> Result<Vec<SlotRow>> {
    let mut woken = Vec::new();
    let mut after = (i32::MIN, String::new());
    while let Some((org, key)) =
        one(conn, NEXT_KEY, params![after.0, after.1], |row| Ok((row.get::<_, i32>(0)?, row.get::<_, String>(1)?)))?
    {
        let room = limit.saturating_sub(u32::try_from(woken.len()).unwrap_or(u32::MAX));
        if room == 0 {
            break;
        }
        woken.extend(slots_to_wake_of(conn, OrgId(org), &key, room)?);
        after = (org, key);
    }
    Ok(woken)
}

/// Stops at the first that has no room: nobody overtakes under one key.
pub(super) fn slots_to_wake_of(conn: &Connection, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
    let mut used = slots_held(conn, org, key)?;
    let mut statement = conn.prepare_cached(WAITING)?;
    let mut rows = statement.query(params![org.0, key, limit])?;
    let mut woken = Vec::new();
    while let Some(row) = rows.next()? {
        let slot = slot_row(row)?;
        if slot.limit.is_some_and(|limit| used >= limit) {
            break;
        }
        used += 1;
        woken.push(slot);
    }
    Ok(woken)
}

const NEXT_OWNER: &str =
    "SELECT owner FROM runs WHERE owner >= coalesce(?, -9223372036854775808) ORDER BY owner LIMIT 1";

/// Nodes that own runs. Hops from owner to owner in the index instead of reading all of it.
pub(super) fn owners(conn: &Connection) -> Result<Vec<NodeId>> {
    let mut found = Vec::new();
    let mut after = None;
    while let Some(node) = one(conn, NEXT_OWNER, [after], |row| row.get::<_, i64>(0))? {
        found.push(NodeId(node));
        after = node.checked_add(1);
        if after.is_none() {
            break;
        }
    }
    Ok(found)
}

/// A node's row: until when its lease runs, whether it left, what it is about to decide, and when it was found dead.
pub(super) struct NodeRow {
    pub(super) node: NodeId,
    pub(super) lease_expires_at: Timestamp,
    pub(super) left: bool,
    pub(super) deciding: Option<String>,
    pub(super) crashed_at: Option<Timestamp>,
}

pub(super) fn nodes(conn: &Connection) -> Result<Vec<NodeRow>> {
    all(conn, "SELECT node_id, lease_expires_at, left, deciding, crashed_at FROM nodes", [], |row| {
        let mut columns = Columns::of(row);
        Ok(NodeRow {
            node: columns.get().map(NodeId)?,
            lease_expires_at: columns.time()?,
            left: columns.get()?,
            deciding: columns.get()?,
            crashed_at: columns.opt_time()?,
        })
    })
}

const OWNED: &str = "SELECT org_id, run_id FROM runs WHERE owner = ? AND run_id > ? ORDER BY run_id LIMIT ?";

pub(super) fn owned_runs(
    conn: &Connection,
    node: NodeId,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<(OrgId, RunId)>> {
    all(conn, OWNED, params![node.0, after.as_ref().map_or(&[][..], id), limit], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.org()?, columns.run()?))
    })
}

const TRANSITIONS: &str = "SELECT run_seq, from_status, to_status, caused_by_signal_id, changed_by, emitted_at
    FROM run_state_transitions WHERE org_id = ? AND run_id = ? ORDER BY run_seq";

pub(super) fn transitions(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
    all(conn, TRANSITIONS, params![org.0, id(&run)], |row| {
        let mut columns = Columns::of(row);
        Ok(TransitionRow {
            seq: columns.seq()?,
            from: columns.opt_word()?,
            to: columns.word()?,
            signal: columns.opt_signal()?,
            changed_by: columns.get()?,
            at: columns.time()?,
        })
    })
}

pub(super) fn open_runs(conn: &Connection, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
    let sql = format!(
        "{HEAD} WHERE r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated') AND r.run_id > ?
         ORDER BY r.run_id LIMIT ?"
    );
    all(conn, &sql, params![after.as_ref().map_or(&[][..], id), limit], head_row)
}

pub(super) fn unprojected(conn: &Connection, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
    all(
        conn,
        "SELECT r.org_id, r.run_id, r.last_seq - coalesce(s.last_event_seq, 0) AS behind
         FROM runs r LEFT JOIN run_snapshots s ON s.org_id = r.org_id AND s.run_id = r.run_id
         WHERE behind > 0 ORDER BY r.org_id, r.run_id LIMIT ?",
        [limit],
        |row| {
            let mut columns = Columns::of(row);
            Ok((columns.org()?, columns.run()?, columns.seq()?))
        },
    )
}

pub(super) fn log_gaps(conn: &Connection, limit: u32) -> Result<Vec<LogGap>> {
    all(
        conn,
        "SELECT r.org_id, r.run_id, r.last_seq, count(e.run_seq), coalesce(min(e.run_seq), 0), coalesce(max(e.run_seq), 0)
         FROM runs r LEFT JOIN run_events e ON e.org_id = r.org_id AND e.run_id = r.run_id
         GROUP BY r.org_id, r.run_id
         HAVING count(e.run_seq) <> r.last_seq OR coalesce(max(e.run_seq), 0) <> r.last_seq
             OR (r.last_seq > 0 AND min(e.run_seq) <> 1)
         UNION ALL
         SELECT e.org_id, e.run_id, 0, count(*), min(e.run_seq), max(e.run_seq)
         FROM run_events e LEFT JOIN runs r ON r.org_id = e.org_id AND r.run_id = e.run_id
         WHERE r.run_id IS NULL
           AND NOT EXISTS (SELECT 1 FROM forgotten_runs f WHERE f.org_id = e.org_id AND f.run_id = e.run_id)
         GROUP BY e.org_id, e.run_id
         LIMIT ?",
        [limit],
        |row| {
            let mut columns = Columns::of(row);
            let (org, run) = (columns.org()?, columns.run()?);
            let (last, count, min, max) = (columns.seq()?, columns.seq()?, columns.seq()?, columns.seq()?);
            Ok(LogGap { org, run, message: format!("its last event is {last}, but {count} are stored, from {min} to {max}") })
        },
    )
}

/// A number is missing if the one before it is there, or if it is the first, and it is not.
pub(super) fn first_missing(conn: &Connection, org: OrgId, run: RunId) -> Result<u64> {
    let sql = "SELECT min(q.seq) FROM (
             SELECT 1 AS seq UNION ALL SELECT run_seq + 1 FROM run_events WHERE org_id = ?1 AND run_id = ?2
         ) AS q
         WHERE NOT EXISTS (SELECT 1 FROM run_events AS e WHERE e.org_id = ?1 AND e.run_id = ?2 AND e.run_seq = q.seq)";
    Ok(conn.prepare_cached(sql)?.query_row(params![org.0, id(&run)], |row| Columns::of(row).seq())?)
}

pub(super) fn count_events(conn: &Connection, org: OrgId, run: RunId) -> Result<u64> {
    let sql = "SELECT count(*) FROM run_events WHERE org_id = ? AND run_id = ?";
    Ok(conn.prepare_cached(sql)?.query_row(params![org.0, id(&run)], |row| Columns::of(row).seq())?)
}

pub(super) fn stale_runs(conn: &Connection, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
    let mut found = Vec::new();
    for run in runs {
        found.extend(stale_from(conn, org, *run)?.map(|seq| (*run, seq)));
    }
    Ok(found)
}

pub(super) fn stale_from(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<u64>> {
    let sql = "SELECT from_seq FROM stale_runs WHERE org_id = ? AND run_id = ?";
    one(conn, sql, params![org.0, id(&run)], |row| Columns::of(row).seq())
}

pub(super) fn count_runs(conn: &Connection) -> Result<u64> {
    Ok(conn.prepare_cached("SELECT count(*) FROM runs")?.query_row([], |row| Columns::of(row).seq())?)
}

#[cfg(test)]
pub(super) mod tests {
    use rusqlite::types::Null;

    use super::*;

    pub(in crate::sqlite) fn plan(conn: &Connection, sql: &str) -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let nulls = vec![Null; statement.parameter_count()];
        let rows = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    pub(in crate::sqlite) fn schema() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        super::super::open::keep_plans(&conn).unwrap();
        for migration in crate::migrations::SQLITE {
            conn.execute_batch(migration.sql).unwrap();
        }
        conn
    }

    /// What runs often, or over a database that only grows, must not walk through it nor sort what it finds.
    #[test]
    fn nothing_that_runs_often_scans() {
        for (sql, index) in [
            (DUE, "timers_by_due"),
            (NEXT_KEY, "run_slots_by_key"),
            (WAITING, "run_slots_by_key"),
            (HELD, "run_slots_by_key"),
            (NEXT_OWNER, "runs_by_owner"),
            (OWNED, "runs_by_owner"),
            (
                OF_REQUEST,
                "PRIMARY KEY (org_id=? AND request_id=? AND workflow=? AND project_id=? AND environment_id=?)",
            ),
        ] {
            let plan = plan(&schema(), sql);
            let searches = plan.contains("SEARCH") && plan.contains(index) && !plan.contains("TEMP B-TREE");
            assert!(searches, "{sql}\n{plan}");
        }
    }

    #[test]
    fn transitions_read_one_run_only() {
        let plan = plan(&schema(), TRANSITIONS);
        for read in ["SEARCH e USING INDEX", "SEARCH s USING INDEX"] {
            let of_run = format!("{read} sqlite_autoindex_run_events_1 (org_id=? AND run_id=?");
            assert!(plan.contains(&of_run), "{plan}");
        }
        assert!(!plan.contains("SCAN e") && !plan.contains("SCAN s"), "{plan}");
    }
}
