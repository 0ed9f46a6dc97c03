//! The statements that read, and how rows become the values of [`crate::rows`].

use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;

use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use uuid::Uuid;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::time::Timestamp;

use crate::Result;
use crate::rows::{
    Answer, BlobRow, CheckpointRow, HeadRow, LoadedRun, LogGap, Question, RunFilter, SlotRow, SnapshotRow, StepRow,
    TimerRow, TransitionRow,
};

fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnMut(&Row) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params, map)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    Ok(conn.prepare_cached(sql)?.query_row(params, map).optional()?)
}

/// Reads a row column after column.
struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Columns<'r, 's> {
    fn of(row: &'r Row<'s>) -> Columns<'r, 's> {
        Columns { row, next: 0 }
    }

    fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let index = self.next;
        self.next += 1;
        self.row.get(index)
    }

    fn seq(&mut self) -> rusqlite::Result<u64> {
        Ok(self.get::<i64>()?.cast_unsigned())
    }

    fn opt_seq(&mut self) -> rusqlite::Result<Option<u64>> {
        Ok(self.get::<Option<i64>>()?.map(i64::cast_unsigned))
    }

    fn org(&mut self) -> rusqlite::Result<OrgId> {
        self.get().map(OrgId)
    }

    fn run(&mut self) -> rusqlite::Result<RunId> {
        self.get::<[u8; 16]>().map(|bytes| RunId(Uuid::from_bytes(bytes)))
    }

    fn opt_run(&mut self) -> rusqlite::Result<Option<RunId>> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(|bytes| RunId(Uuid::from_bytes(bytes))))
    }

    fn opt_signal(&mut self) -> rusqlite::Result<Option<SignalId>> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(|bytes| SignalId(Uuid::from_bytes(bytes))))
    }

    fn digest(&mut self) -> rusqlite::Result<Digest> {
        self.get().map(Digest)
    }

    fn opt_digest(&mut self) -> rusqlite::Result<Option<Digest>> {
        Ok(self.get::<Option<[u8; 32]>>()?.map(Digest))
    }

    fn time(&mut self) -> rusqlite::Result<Timestamp> {
        self.get().map(Timestamp)
    }

    fn opt_time(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp))
    }

    fn opt_json(&mut self) -> rusqlite::Result<Option<Json>> {
        Ok(self.get::<Option<Arc<str>>>()?.map(Json::trusted))
    }

    fn word<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> rusqlite::Result<T> {
        let word: String = self.get()?;
        word.parse().map_err(|error| conversion(self.next - 1, error))
    }

    fn opt_word<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> rusqlite::Result<Option<T>> {
        let word: Option<String> = self.get()?;
        word.map(|word| word.parse().map_err(|error| conversion(self.next - 1, error))).transpose()
    }
}

fn conversion(index: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}

fn id(run: &RunId) -> &[u8] {
    run.0.as_bytes()
}

const HEAD: &str =
    "SELECT org_id, run_id, workflow, workflow_version, plan_hash, request_id, base_run_id, parent_run_id,
    priority, status, last_seq, owner, created_at, started_at, completed_at FROM runs";

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
    })
}

pub(super) fn head(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
    one(conn, &format!("{HEAD} WHERE org_id = ? AND run_id = ?"), params![org.0, id(&run)], head_row)
}

const EVENT: &str = "SELECT run_seq, format, event_type, step_id, logical_attempt, engine_attempt, idempotency_key,
    caused_by_signal_id, parent_seq, emitted_at, persisted_at, data FROM run_events WHERE org_id = ? AND run_id = ?";

fn event_row(row: &Row) -> rusqlite::Result<EventRow> {
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

/// The caller has a transaction open: a head and its tail must be of the same moment.
pub(super) fn load_runs(conn: &Connection, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
    let mut loaded = Vec::with_capacity(runs.len());
    for (org, run) in runs {
        let Some(head) = head(conn, *org, *run)? else { continue };
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

const OF_REQUEST: &str = "SELECT run_id FROM runs WHERE org_id = ? AND request_id = ?";

fn answer(conn: &Connection, question: &Question) -> Result<Answer> {
    Ok(match question {
        Question::SlotsHeld { org, key } => Answer::SlotsHeld(slots_held(conn, *org, key)?),
        Question::RunOfRequest { org, request_id } => {
            Answer::RunOfRequest(one(conn, OF_REQUEST, params![org.0, request_id], |row| Columns::of(row).run())?)
        }
        Question::Event { org, run, seq } => Answer::Event(event_at(conn, *org, *run, *seq)?),
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
    WHERE org_id = ? AND slot_key = ? AND holding = 0 ORDER BY priority DESC, run_id LIMIT ?";

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

/// A node's row: until when its lease runs, and whether it left.
pub(super) struct NodeRow {
    pub(super) node: NodeId,
    pub(super) lease_expires_at: Timestamp,
    pub(super) left: bool,
}

pub(super) fn nodes(conn: &Connection) -> Result<Vec<NodeRow>> {
    all(conn, "SELECT node_id, lease_expires_at, left FROM nodes", [], |row| {
        let mut columns = Columns::of(row);
        Ok(NodeRow { node: columns.get().map(NodeId)?, lease_expires_at: columns.time()?, left: columns.get()? })
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

pub(super) fn blob(conn: &Connection, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
    one(
        conn,
        "SELECT media_type, content FROM cas_blobs WHERE org_id = ? AND hash = ?",
        params![org.0, hash.0.as_slice()],
        |row| Ok(BlobRow { hash, media_type: row.get(0)?, content: row.get(1)? }),
    )
}

pub(super) fn tag(conn: &Connection, org: OrgId, tag: &str) -> Result<Option<Digest>> {
    one(conn, "SELECT target_hash FROM tags WHERE org_id = ? AND tag = ?", params![org.0, tag], |row| {
        Columns::of(row).digest()
    })
}

const TRANSITIONS: &str = "SELECT run_seq, from_status, to_status, caused_by_signal_id, emitted_at
    FROM run_state_transitions WHERE org_id = ? AND run_id = ? ORDER BY run_seq";

pub(super) fn transitions(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
    all(conn, TRANSITIONS, params![org.0, id(&run)], |row| {
        let mut columns = Columns::of(row);
        Ok(TransitionRow {
            seq: columns.seq()?,
            from: columns.opt_word()?,
            to: columns.word()?,
            signal: columns.opt_signal()?,
            at: columns.time()?,
        })
    })
}

const SNAPSHOT: &str = "SELECT org_id, run_id, workflow, workflow_version, status, last_event_seq, request_id,
    base_run_id, parent_run_id, priority, steps_total, steps_done, steps_failed, error, created_at, started_at,
    completed_at FROM run_snapshots";

fn snapshot_row(row: &Row) -> rusqlite::Result<SnapshotRow> {
    let mut columns = Columns::of(row);
    Ok(SnapshotRow {
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
    })
}

pub(super) fn snapshot(conn: &Connection, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
    one(conn, &format!("{SNAPSHOT} WHERE org_id = ? AND run_id = ?"), params![org.0, id(&run)], snapshot_row)
}

/// Names its index: left to itself, SQLite walks the primary key, which is the whole history when few runs match.
fn list_sql(filter: &RunFilter) -> String {
    let index = match (&filter.status, &filter.workflow) {
        (Some(_), _) => "INDEXED BY run_snapshots_by_status",
        (None, Some(_)) => "INDEXED BY run_snapshots_by_workflow",
        (None, None) => "",
    };
    let by_status = if filter.status.is_some() { "AND status = ?2" } else { "AND ?2 IS NULL" };
    let by_workflow = if filter.workflow.is_some() { "AND workflow = ?3" } else { "AND ?3 IS NULL" };
    format!(
        "{SNAPSHOT} {index} WHERE org_id = ?1 {by_status} {by_workflow} AND run_id < ?4 ORDER BY run_id DESC LIMIT ?5"
    )
}

pub(super) fn list_runs(conn: &Connection, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
    // Greater than every id: no cursor.
    const NEWEST: [u8; 17] = [0xff; 17];
    let before = filter.before.as_ref().map_or(&NEWEST[..], id);
    let status = filter.status.map(|status| status.as_str());
    let sql = list_sql(filter);
    all(conn, &sql, params![org.0, status, filter.workflow, before, filter.limit], snapshot_row)
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

pub(super) fn steps(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<StepRow>> {
    all(conn, &format!("{STEP} ORDER BY step_id"), params![org.0, id(&run)], step_row)
}

pub(super) fn steps_by_id(conn: &Connection, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
    let sql = format!("{STEP} AND step_id = ?");
    ids.iter().filter_map(|step| one(conn, &sql, params![org.0, id(&run), step], step_row).transpose()).collect()
}

pub(super) fn open_runs(conn: &Connection, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
    let sql = format!(
        "{HEAD} WHERE status NOT IN ('completed', 'failed', 'cancelled', 'terminated') AND run_id > ?
         ORDER BY run_id LIMIT ?"
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

pub(super) fn count_runs(conn: &Connection) -> Result<u64> {
    Ok(conn.prepare_cached("SELECT count(*) FROM runs")?.query_row([], |row| Columns::of(row).seq())?)
}

#[cfg(test)]
mod tests {
    use milepost_core::status::RunStatus;
    use rusqlite::types::Null;

    use super::*;

    fn plan(conn: &Connection, sql: &str) -> String {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let nulls = vec![Null; statement.parameter_count()];
        let rows = statement.query_map(rusqlite::params_from_iter(nulls), |row| row.get::<_, String>(3)).unwrap();
        rows.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    fn schema() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(crate::migrations::SQLITE[0].sql).unwrap();
        conn
    }

    /// What runs often, or over a database that only grows, must not walk through it nor sort what it finds.
    #[test]
    fn nothing_that_runs_often_scans() {
        let any = RunFilter::default();
        let of_status = RunFilter { status: Some(RunStatus::Running), ..any.clone() };
        let of_workflow = RunFilter { workflow: Some("render".to_owned()), ..any.clone() };
        for (sql, index) in [
            (DUE, "timers_by_due"),
            (NEXT_KEY, "run_slots_by_key"),
            (WAITING, "run_slots_by_key"),
            (HELD, "run_slots_by_key"),
            (NEXT_OWNER, "runs_by_owner"),
            (OWNED, "runs_by_owner"),
            (OF_REQUEST, "runs_by_request"),
            (list_sql(&any).as_str(), "PRIMARY KEY"),
            (list_sql(&of_status).as_str(), "run_snapshots_by_status"),
            (list_sql(&of_workflow).as_str(), "run_snapshots_by_workflow"),
        ] {
            let plan = plan(&schema(), sql);
            let searches = plan.contains("SEARCH") && plan.contains(index) && !plan.contains("TEMP B-TREE");
            assert!(searches, "{sql}\n{plan}");
        }
    }

    #[test]
    fn transitions_read_one_run_only() {
        let plan = plan(&schema(), TRANSITIONS);
        assert!(
            plan.contains("SEARCH run_events USING INDEX sqlite_autoindex_run_events_1 (org_id=? AND run_id=?)"),
            "{plan}"
        );
    }
}
