//! Writes a batch: one statement, one round trip.
//!
//! ```text
//! updated    heads whose last_seq is still as expected ─┐
//! requested  request ids that nobody has ─ inserted ────┼─ written ─┬─ events
//!                                    heads of new runs ─┘           ├─ timers, slots, checkpoints, … (only where there are any)
//!                                                                   └─ the answer
//! ```
//!
//! What follows from a head is written only where the head was. The statement is its own transaction; only a batch with
//! groups of several writes, with several writes to one run, or with results of steps, needs one around it.
//!
//! **Invariant:** every batch locks heads in the order of their ids, then request ids in their order, then inserts, then begins
//! flights in the order of their keys: two batches cannot wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use deadpool_postgres::{Object, Pool};
use milepost_core::id::RunId;
use milepost_core::request::idempotency_key;
use uuid::Uuid;

use super::artifacts;
use super::cache;
use super::columns::{col, int4, int8};
use super::flights;
use super::outbox_columns::Queued;
use super::task_columns::{Parameter, Tasks};
use super::transaction::Open;
use crate::rows::{Batch, HeadWrite, NewHead, RunWrite, SlotWrite, TimerWrite, WriteResult};
use crate::{Result, StoreError};

pub(super) async fn commit(pool: &Pool, batch: &Batch) -> Result<Vec<WriteResult>> {
    if batch.writes.is_empty() {
        return Ok(Vec::new());
    }
    if is_plain(&batch.writes) && !cache::is_changed_by(&batch.writes) && !artifacts::are_recorded_by(&batch.writes) {
        let connection = pool.get().await?;
        return write_plain(&connection, &batch.writes).await;
    }
    let open = Open::on(pool).await?;
    open.connection()?.batch_execute("BEGIN").await?;
    let results = commit_in(open.connection()?, batch).await?;
    open.commit().await?;
    Ok(results)
}

/// Writes a batch in a transaction that is open already, and leaves it open.
pub(super) async fn commit_in(connection: &Object, batch: &Batch) -> Result<Vec<WriteResult>> {
    let results = match flights::are_led_by(&batch.writes) {
        true => write_leading(connection, batch).await?,
        false => write_runs(connection, batch, BTreeSet::new()).await?,
    };
    cache::write(connection, &batch.writes, &results).await?;
    artifacts::write(connection, &batch.writes, &results).await?;
    Ok(results)
}

/// Writes runs and begins their flights. Of a group that loses one to somebody else nothing is written.
async fn write_leading(connection: &Object, batch: &Batch) -> Result<Vec<WriteResult>> {
    let mut dropped: BTreeSet<u32> = BTreeSet::new();
    loop {
        connection.batch_execute("SAVEPOINT flights").await?;
        let results = write_runs(connection, batch, dropped.clone()).await?;
        let lost = flights::lead(connection, &batch.writes, &results).await?;
        if lost.is_empty() {
            return Ok(results);
        }
        connection.batch_execute("ROLLBACK TO SAVEPOINT flights").await?;
        dropped.extend(lost);
    }
}

async fn write_runs(connection: &Object, batch: &Batch, mut dropped: BTreeSet<u32>) -> Result<Vec<WriteResult>> {
    if dropped.is_empty() && is_plain(&batch.writes) {
        return write_plain(connection, &batch.writes).await;
    }
    loop {
        connection.batch_execute("SAVEPOINT batch").await?;
        let (results, refused) = match write_waves(connection, &batch.writes, &dropped, Part::All).await {
            Ok(results) => (results, None),
            // Perhaps it was refused for the sake of a group that conflicts anyway: the heads alone tell.
            Err(StoreError::Refused(text)) => {
                connection.batch_execute("ROLLBACK TO SAVEPOINT batch").await?;
                (write_waves(connection, &batch.writes, &dropped, Part::Heads).await?, Some(text))
            }
            Err(error) => return Err(error),
        };
        let broken = broken_groups(&batch.writes, &results, &dropped);
        if broken.is_empty() {
            return refused.map_or(Ok(results), |text| Err(StoreError::Refused(text)));
        }
        // Part of these groups was written. Nothing of them may be, so all is undone and the rest written again.
        connection.batch_execute("ROLLBACK TO SAVEPOINT batch").await?;
        dropped.extend(broken);
    }
}

/// How much of the writes.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    All,
    Heads,
}

/// Whether one statement does: no run twice, and no group that could be written in part.
fn is_plain(writes: &[RunWrite]) -> bool {
    let mut runs = HashSet::with_capacity(writes.len());
    let mut groups = HashSet::with_capacity(writes.len());
    writes.iter().all(|write| runs.insert(write.run) && groups.insert(write.group))
}

async fn write_plain(connection: &Object, writes: &[RunWrite]) -> Result<Vec<WriteResult>> {
    let written = write(connection, writes.iter().collect(), Part::All).await?;
    Ok(writes.iter().map(|write| result(written.contains(&write.run.0))).collect())
}

fn result(written: bool) -> WriteResult {
    if written { WriteResult::Written } else { WriteResult::Conflict }
}

/// Several writes to one run go one after the other: the n-th write of each run is in the n-th wave.
async fn write_waves(
    connection: &Object,
    writes: &[RunWrite],
    dropped: &BTreeSet<u32>,
    part: Part,
) -> Result<Vec<WriteResult>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut seen: HashMap<RunId, usize> = HashMap::with_capacity(writes.len());
    for (index, write) in writes.iter().enumerate().filter(|(_, write)| !dropped.contains(&write.group)) {
        let nth = seen.entry(write.run).or_default();
        if waves.len() == *nth {
            waves.push(Vec::new());
        }
        waves[*nth].push(index);
        *nth += 1;
    }
    let mut results = vec![WriteResult::Conflict; writes.len()];
    for wave in waves {
        let written = write(connection, wave.iter().map(|index| &writes[*index]).collect(), part).await?;
        for index in wave {
            results[index] = result(written.contains(&writes[index].run.0));
        }
    }
    Ok(results)
}

fn broken_groups(writes: &[RunWrite], results: &[WriteResult], dropped: &BTreeSet<u32>) -> Vec<u32> {
    let mut groups: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
    for (write, result) in writes.iter().zip(results).filter(|(write, _)| !dropped.contains(&write.group)) {
        let (written, conflict) = groups.entry(write.group).or_default();
        *written |= *result == WriteResult::Written;
        *conflict |= *result == WriteResult::Conflict;
    }
    groups.into_iter().filter(|(_, (written, conflict))| *written && *conflict).map(|(group, _)| group).collect()
}

/// One statement. No run may be in it twice. Answers the runs that were written.
async fn write(connection: &Object, mut writes: Vec<&RunWrite>, part: Part) -> Result<HashSet<Uuid>> {
    let requests = Requests::of(&writes);
    writes.sort_unstable_by_key(|write| (write.run, write.org));
    let mut columns = Columns::default();
    for write in &writes {
        columns.add(write, part);
    }
    let shape = columns.shape();
    let statement = connection.prepare_cached(&STATEMENTS[shape]).await?;
    let rows = connection.query(&statement, &columns.parameters(&requests, shape)).await?;
    rows.iter().map(|row| col(row, 0)).collect()
}

const INSERTS: usize = 1;
const TIMERS: usize = 2;
const SLOTS: usize = 4;
const CHECKPOINTS: usize = 8;
const TASKS: usize = 16;
const OUTBOX: usize = 32;
const PLANS: usize = 64;

/// A statement for each set of optional parts, by the sum of their numbers.
static STATEMENTS: LazyLock<Vec<String>> = LazyLock::new(|| (0..128).map(statement).collect());

/// Puts the parts together and numbers the parameters, which each part writes as `?`.
fn statement(shape: usize) -> String {
    let mut parts = vec![if shape & PLANS == 0 { UPDATED } else { UPDATED_WITH_PLANS }];
    if shape & INSERTS != 0 {
        parts.extend([REQUESTED, INSERTED, WRITTEN_WITH_INSERTS]);
    } else {
        parts.push(WRITTEN);
    }
    parts.push(LOGGED);
    let optional = [(TIMERS, TIMED), (SLOTS, SLOTTED), (CHECKPOINTS, CHECKPOINTED), (TASKS, TASKED), (OUTBOX, QUEUED)];
    for (part, sql) in optional {
        if shape & part != 0 {
            parts.push(sql);
        }
    }
    let text = format!("WITH {} SELECT run_id FROM written", parts.join(", "));
    let mut numbered = String::with_capacity(text.len() + 64);
    for (index, piece) in text.split('?').enumerate() {
        if index > 0 {
            numbered.push_str(&format!("${index}"));
        }
        numbered.push_str(piece);
    }
    numbered
}

const UPDATED: &str = "updated AS (
    UPDATE runs AS r SET
        last_seq = u.last_seq,
        status = coalesce(u.status, r.status),
        started_at = CASE WHEN u.status IS NULL THEN r.started_at ELSE u.started_at END,
        completed_at = CASE WHEN u.status IS NULL THEN r.completed_at ELSE u.completed_at END,
        owner = coalesce(u.owner, r.owner)
    FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::int8[], ?::text[], ?::int8[], ?::int8[], ?::int8[])
        AS u (org_id, run_id, expected_seq, last_seq, status, started_at, completed_at, owner)
    WHERE r.run_id = u.run_id AND r.org_id = u.org_id AND r.last_seq = u.expected_seq
    RETURNING r.run_id
)";

/// Runs that were patched are few: the others are not made to carry a column for them.
const UPDATED_WITH_PLANS: &str = "updated AS (
    UPDATE runs AS r SET
        last_seq = u.last_seq,
        status = coalesce(u.status, r.status),
        started_at = CASE WHEN u.status IS NULL THEN r.started_at ELSE u.started_at END,
        completed_at = CASE WHEN u.status IS NULL THEN r.completed_at ELSE u.completed_at END,
        owner = coalesce(u.owner, r.owner),
        plan_hash = coalesce(u.plan_hash, r.plan_hash)
    FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::int8[], ?::text[], ?::int8[], ?::int8[], ?::int8[], ?::bytea[])
        AS u (org_id, run_id, expected_seq, last_seq, status, started_at, completed_at, owner, plan_hash)
    WHERE r.run_id = u.run_id AND r.org_id = u.org_id AND r.last_seq = u.expected_seq
    RETURNING r.run_id
)";

const REQUESTED: &str = "requested AS (
    INSERT INTO run_requests (org_id, request_id, workflow, run_id, plan_version, version_hash, idempotency_key, asked)
    SELECT q.*
    FROM unnest(?::int4[], ?::text[], ?::text[], ?::uuid[], ?::text[], ?::bytea[], ?::bytea[], ?::bytea[])
        AS q (org_id, request_id, workflow, run_id, plan_version, version_hash, idempotency_key, asked)
    WHERE NOT EXISTS (SELECT FROM runs AS r WHERE r.run_id = q.run_id AND r.org_id = q.org_id)
    ON CONFLICT DO NOTHING
    RETURNING run_id
)";

const INSERTED: &str = "inserted AS (
    INSERT INTO runs (org_id, run_id, last_seq, status, started_at, completed_at, owner, workflow, workflow_version,
                      plan_hash, request_id, base_run_id, parent_run_id, priority, created_at)
    SELECT n.*
    FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::text[], ?::int8[], ?::int8[], ?::int8[], ?::text[], ?::text[],
                ?::bytea[], ?::text[], ?::uuid[], ?::uuid[], ?::int4[], ?::int8[])
        AS n (org_id, run_id, last_seq, status, started_at, completed_at, owner, workflow, workflow_version,
              plan_hash, request_id, base_run_id, parent_run_id, priority, created_at)
    WHERE n.request_id IS NULL OR n.run_id IN (SELECT run_id FROM requested)
    ON CONFLICT DO NOTHING
    RETURNING run_id
)";

const WRITTEN: &str = "written AS MATERIALIZED (SELECT run_id FROM updated)";

const WRITTEN_WITH_INSERTS: &str =
    "written AS MATERIALIZED (SELECT run_id FROM updated UNION ALL SELECT run_id FROM inserted)";

// `(… IN (SELECT …)) IS TRUE` is looked up in a hash table; a bare IN would become a join, and hash joins are off.
const LOGGED: &str = "logged AS (
    INSERT INTO run_events (org_id, run_id, run_seq, format, event_type, step_id, logical_attempt, engine_attempt,
                            data, idempotency_key, caused_by_signal_id, parent_seq, emitted_at, persisted_at)
    SELECT e.*
    FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::int2[], ?::text[], ?::text[], ?::int4[], ?::int4[], ?::text[],
                ?::bytea[], ?::uuid[], ?::int8[], ?::int8[], ?::int8[])
        AS e (org_id, run_id, run_seq, format, event_type, step_id, logical_attempt, engine_attempt,
              data, idempotency_key, caused_by_signal_id, parent_seq, emitted_at, persisted_at)
    WHERE (e.run_id IN (SELECT run_id FROM written)) IS TRUE
)";

const TIMED: &str = "armed AS (
    INSERT INTO timers (org_id, run_id, seq, due_at)
    SELECT a.* FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::int8[]) AS a (org_id, run_id, seq, due_at)
    WHERE (a.run_id IN (SELECT run_id FROM written)) IS TRUE
    ON CONFLICT (run_id, seq, org_id) DO UPDATE SET due_at = excluded.due_at
), disarmed AS (
    DELETE FROM timers AS t
    USING unnest(?::int4[], ?::uuid[], ?::int8[]) AS d (org_id, run_id, seq)
    WHERE t.run_id = d.run_id AND t.seq = d.seq AND t.org_id = d.org_id
      AND (d.run_id IN (SELECT run_id FROM written)) IS TRUE
)";

const SLOTTED: &str = "placed AS (
    INSERT INTO run_slots (org_id, run_id, slot_key, holding, slot_limit, priority)
    SELECT s.* FROM unnest(?::int4[], ?::uuid[], ?::text[], ?::bool[], ?::int8[], ?::int4[])
        AS s (org_id, run_id, slot_key, holding, slot_limit, priority)
    WHERE (s.run_id IN (SELECT run_id FROM written)) IS TRUE
    ON CONFLICT (run_id, org_id) DO UPDATE
    SET slot_key = excluded.slot_key, holding = excluded.holding, slot_limit = excluded.slot_limit,
        priority = excluded.priority
), released AS (
    DELETE FROM run_slots AS s
    USING unnest(?::int4[], ?::uuid[]) AS d (org_id, run_id)
    WHERE s.run_id = d.run_id AND s.org_id = d.org_id AND (d.run_id IN (SELECT run_id FROM written)) IS TRUE
)";

const CHECKPOINTED: &str = "checkpointed AS (
    INSERT INTO run_checkpoints (org_id, run_id, seq, format, state)
    SELECT c.* FROM unnest(?::int4[], ?::uuid[], ?::int8[], ?::int2[], ?::bytea[])
        AS c (org_id, run_id, seq, format, state)
    WHERE (c.run_id IN (SELECT run_id FROM written)) IS TRUE
    ON CONFLICT (run_id, org_id) DO UPDATE
    SET seq = excluded.seq, format = excluded.format, state = excluded.state
)";

// A task that is put where it was before keeps its place in the table; one statement touches a row once.
const TASKED: &str = "put AS (
    INSERT INTO tasks (task_id, org_id, run_id, step, item, step_id, queue, skill, workflow, priority, ready_at, node, since,
                       slot_key, slot_limit, worker_id, nonce, logical_attempt, engine_attempt, lease_ms,
                       lease_expires_at, progress)
    SELECT p.* FROM unnest(?::uuid[], ?::int4[], ?::uuid[], ?::int8[], ?::int8[], ?::text[], ?::text[], ?::text[],
                           ?::text[], ?::int4[], ?::int8[], ?::int8[], ?::int8[], ?::text[], ?::int8[], ?::text[],
                           ?::int8[], ?::int4[], ?::int4[], ?::int8[], ?::int8[], ?::text[])
        AS p (task_id, org_id, run_id, step, item, step_id, queue, skill, workflow, priority, ready_at, node, since,
              slot_key, slot_limit, worker_id, nonce, logical_attempt, engine_attempt, lease_ms, lease_expires_at,
              progress)
    WHERE (p.run_id IN (SELECT run_id FROM written)) IS TRUE
    ON CONFLICT (task_id) DO UPDATE
    SET queue = excluded.queue, skill = excluded.skill, priority = excluded.priority, ready_at = excluded.ready_at, node = excluded.node, since = excluded.since,
        slot_key = excluded.slot_key, slot_limit = excluded.slot_limit, worker_id = excluded.worker_id,
        nonce = excluded.nonce, logical_attempt = excluded.logical_attempt, engine_attempt = excluded.engine_attempt,
        lease_ms = excluded.lease_ms, lease_expires_at = excluded.lease_expires_at, progress = excluded.progress
), ended AS (
    DELETE FROM tasks AS t
    USING unnest(?::uuid[], ?::uuid[], ?::bool[]) AS d (task_id, run_id, waiting)
    WHERE t.task_id = d.task_id AND (t.worker_id IS NULL OR NOT d.waiting)
      AND (d.run_id IN (SELECT run_id FROM written)) IS TRUE
)";

const QUEUED: &str = "queued AS (
    INSERT INTO outbox (id, org_id, run_id, kind, payload, created_at, claimed_by, claimed_until, available_at, attempts,
                        status)
    SELECT o.id, o.org_id, o.run_id, o.kind, o.payload, o.created_at, o.claimed_by, o.claimed_until, o.claimed_until, 1,
           'processing'
    FROM unnest(?::uuid[], ?::int4[], ?::uuid[], ?::text[], ?::text[], ?::int8[], ?::int8[], ?::int8[])
        AS o (id, org_id, run_id, kind, payload, created_at, claimed_by, claimed_until)
    WHERE (o.run_id IN (SELECT run_id FROM written)) IS TRUE
)";

/// Request ids in their own order, and in the batch's where two new runs have the same: the first of them wins.
#[derive(Default)]
struct Requests<'a> {
    org: Vec<i32>,
    request_id: Vec<&'a str>,
    workflow: Vec<&'a str>,
    run: Vec<Uuid>,
    plan_version: Vec<&'a str>,
    version_hash: Vec<Option<&'a [u8]>>,
    idempotency_key: Vec<Vec<u8>>,
    asked: Vec<Option<&'a [u8]>>,
}

impl<'a> Requests<'a> {
    fn of(writes: &[&'a RunWrite]) -> Requests<'a> {
        let mut rows: Vec<(&RunWrite, &NewHead, &str)> = Vec::new();
        for write in writes {
            if let HeadWrite::Insert(head) = &write.head
                && let Some(request_id) = &head.request_id
            {
                rows.push((write, head, request_id));
            }
        }
        rows.sort_by_key(|(write, head, request_id)| (write.org, *request_id, &head.workflow));
        let mut requests = Requests::default();
        for (write, head, request_id) in rows {
            let (workflow, version) = (&*head.workflow, &*head.workflow_version);
            requests.org.push(write.org.0);
            requests.request_id.push(request_id);
            requests.workflow.push(workflow);
            requests.run.push(write.run.0);
            requests.plan_version.push(version);
            requests.version_hash.push(head.asked.as_ref().map(|asked| asked.version_hash.0.as_slice()));
            requests.idempotency_key.push(idempotency_key(write.org, workflow, version, request_id).0.to_vec());
            requests.asked.push(head.asked.as_ref().map(|asked| asked.digest.as_bytes()));
        }
        requests
    }
}

/// The rows of a batch, column by column.
#[derive(Default)]
struct Columns<'a> {
    updates: Updates<'a>,
    inserts: Inserts<'a>,
    events: Events<'a>,
    armed: Armed,
    disarmed: Disarmed,
    slots: Slots<'a>,
    released: Released,
    checkpoints: Checkpoints<'a>,
    tasks: Tasks<'a>,
    outbox: Queued<'a>,
}

#[derive(Default)]
struct Updates<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    expected_seq: Vec<i64>,
    last_seq: Vec<i64>,
    status: Vec<Option<&'static str>>,
    started_at: Vec<Option<i64>>,
    completed_at: Vec<Option<i64>>,
    owner: Vec<Option<i64>>,
    plan_hash: Vec<Option<&'a [u8]>>,
    /// Some of them follow another plan.
    patched: bool,
}

#[derive(Default)]
struct Inserts<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    last_seq: Vec<i64>,
    status: Vec<&'static str>,
    started_at: Vec<Option<i64>>,
    completed_at: Vec<Option<i64>>,
    owner: Vec<Option<i64>>,
    workflow: Vec<&'a str>,
    workflow_version: Vec<&'a str>,
    plan_hash: Vec<&'a [u8]>,
    request_id: Vec<Option<&'a str>>,
    base_run: Vec<Option<Uuid>>,
    parent_run: Vec<Option<Uuid>>,
    priority: Vec<i32>,
    created_at: Vec<i64>,
}

#[derive(Default)]
struct Events<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    seq: Vec<i64>,
    format: Vec<i16>,
    event_type: Vec<&'a str>,
    step_id: Vec<Option<&'a str>>,
    logical_attempt: Vec<Option<i32>>,
    engine_attempt: Vec<Option<i32>>,
    data: Vec<&'a str>,
    idempotency_key: Vec<&'a [u8]>,
    signal: Vec<Option<Uuid>>,
    parent_seq: Vec<Option<i64>>,
    emitted_at: Vec<i64>,
    persisted_at: Vec<i64>,
}

#[derive(Default)]
struct Armed {
    org: Vec<i32>,
    run: Vec<Uuid>,
    seq: Vec<i64>,
    due_at: Vec<i64>,
}

#[derive(Default)]
struct Disarmed {
    org: Vec<i32>,
    run: Vec<Uuid>,
    seq: Vec<i64>,
}

#[derive(Default)]
struct Slots<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    key: Vec<&'a str>,
    holding: Vec<bool>,
    limit: Vec<Option<i64>>,
    priority: Vec<i32>,
}

#[derive(Default)]
struct Released {
    org: Vec<i32>,
    run: Vec<Uuid>,
}

#[derive(Default)]
struct Checkpoints<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    seq: Vec<i64>,
    format: Vec<i16>,
    state: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, write: &'a RunWrite, part: Part) {
        match &write.head {
            HeadWrite::Update { .. } | HeadWrite::Patch(_) => self.updates.add(write),
            HeadWrite::Insert(_) => self.inserts.add(write),
        }
        if part == Part::Heads {
            return;
        }
        self.events.add(write);
        self.add_timers(write);
        self.add_slot(write);
        self.checkpoints.add(write);
        self.tasks.add(write);
        self.outbox.add(write);
    }

    fn add_timers(&mut self, write: &RunWrite) {
        let (org, run) = (write.org.0, write.run.0);
        // The last word on each timer counts; one statement must not touch a row twice.
        let mut last: BTreeMap<u64, Option<i64>> = BTreeMap::new();
        for timer in &write.timers {
            match *timer {
                TimerWrite::Arm { seq, due_at } => last.insert(seq, Some(due_at.0)),
                TimerWrite::Disarm { seq } => last.insert(seq, None),
            };
        }
        for (seq, due_at) in last {
            if let Some(due_at) = due_at {
                self.armed.org.push(org);
                self.armed.run.push(run);
                self.armed.seq.push(int8(seq));
                self.armed.due_at.push(due_at);
            } else {
                self.disarmed.org.push(org);
                self.disarmed.run.push(run);
                self.disarmed.seq.push(int8(seq));
            }
        }
    }

    fn add_slot(&mut self, write: &'a RunWrite) {
        let (key, limit, priority) = match &write.slot {
            None => return,
            Some(SlotWrite::Release) => {
                self.released.org.push(write.org.0);
                self.released.run.push(write.run.0);
                return;
            }
            Some(SlotWrite::Hold { key }) => (key, None, 0),
            Some(SlotWrite::Wait { key, limit, priority }) => (key, Some(i64::from(*limit)), *priority),
        };
        self.slots.org.push(write.org.0);
        self.slots.run.push(write.run.0);
        self.slots.key.push(key);
        self.slots.holding.push(limit.is_none());
        self.slots.limit.push(limit);
        self.slots.priority.push(priority);
    }

    fn shape(&self) -> usize {
        let part = |present: bool, number: usize| if present { number } else { 0 };
        part(!self.inserts.run.is_empty(), INSERTS)
            | part(!self.armed.run.is_empty() || !self.disarmed.run.is_empty(), TIMERS)
            | part(!self.slots.run.is_empty() || !self.released.run.is_empty(), SLOTS)
            | part(!self.checkpoints.run.is_empty(), CHECKPOINTS)
            | part(!self.tasks.is_empty(), TASKS)
            | part(!self.outbox.is_empty(), OUTBOX)
            | part(self.updates.patched, PLANS)
    }

    /// In the order in which [`statement`] puts the parts together.
    fn parameters<'b>(&'b self, requests: &'b Requests<'_>, shape: usize) -> Vec<Parameter<'b>> {
        let Columns {
            updates: u,
            inserts: n,
            events: e,
            armed: a,
            disarmed: d,
            slots: s,
            released: r,
            checkpoints: c,
            tasks: t,
            outbox: o,
        } = self;
        let mut list: Vec<Parameter<'b>> =
            vec![&u.org, &u.run, &u.expected_seq, &u.last_seq, &u.status, &u.started_at, &u.completed_at, &u.owner];
        if shape & PLANS != 0 {
            list.push(&u.plan_hash);
        }
        if shape & INSERTS != 0 {
            let requests: [Parameter<'b>; 8] = [
                &requests.org,
                &requests.request_id,
                &requests.workflow,
                &requests.run,
                &requests.plan_version,
                &requests.version_hash,
                &requests.idempotency_key,
                &requests.asked,
            ];
            let inserts: [Parameter<'b>; 15] = [
                &n.org,
                &n.run,
                &n.last_seq,
                &n.status,
                &n.started_at,
                &n.completed_at,
                &n.owner,
                &n.workflow,
                &n.workflow_version,
                &n.plan_hash,
                &n.request_id,
                &n.base_run,
                &n.parent_run,
                &n.priority,
                &n.created_at,
            ];
            list.extend(requests);
            list.extend(inserts);
        }
        let events: [Parameter<'b>; 14] = [
            &e.org,
            &e.run,
            &e.seq,
            &e.format,
            &e.event_type,
            &e.step_id,
            &e.logical_attempt,
            &e.engine_attempt,
            &e.data,
            &e.idempotency_key,
            &e.signal,
            &e.parent_seq,
            &e.emitted_at,
            &e.persisted_at,
        ];
        list.extend(events);
        if shape & TIMERS != 0 {
            let timers: [Parameter<'b>; 7] = [&a.org, &a.run, &a.seq, &a.due_at, &d.org, &d.run, &d.seq];
            list.extend(timers);
        }
        if shape & SLOTS != 0 {
            let slots: [Parameter<'b>; 8] = [&s.org, &s.run, &s.key, &s.holding, &s.limit, &s.priority, &r.org, &r.run];
            list.extend(slots);
        }
        if shape & CHECKPOINTS != 0 {
            let checkpoints: [Parameter<'b>; 5] = [&c.org, &c.run, &c.seq, &c.format, &c.state];
            list.extend(checkpoints);
        }
        if shape & TASKS != 0 {
            list.extend(t.parameters());
        }
        if shape & OUTBOX != 0 {
            list.extend(o.parameters());
        }
        list
    }
}

impl<'a> Updates<'a> {
    fn add(&mut self, write: &'a RunWrite) {
        let (status, owner, plan) = match &write.head {
            HeadWrite::Insert(_) => return,
            HeadWrite::Update { status, owner } => (status, owner, None),
            HeadWrite::Patch(to) => (&to.status, &to.owner, Some(to.plan_hash.0.as_slice())),
        };
        self.plan_hash.push(plan);
        self.patched |= plan.is_some();
        self.org.push(write.org.0);
        self.run.push(write.run.0);
        self.expected_seq.push(int8(write.expected_seq));
        self.last_seq.push(int8(write.last_seq));
        self.status.push(status.as_ref().map(|status| status.status.as_str()));
        self.started_at.push(status.as_ref().and_then(|status| status.started_at).map(|at| at.0));
        self.completed_at.push(status.as_ref().and_then(|status| status.completed_at).map(|at| at.0));
        self.owner.push(owner.map(|node| node.0));
    }
}

impl<'a> Inserts<'a> {
    fn add(&mut self, write: &'a RunWrite) {
        let HeadWrite::Insert(head) = &write.head else { return };
        self.org.push(write.org.0);
        self.run.push(write.run.0);
        self.last_seq.push(int8(write.last_seq));
        self.status.push(head.status.status.as_str());
        self.started_at.push(head.status.started_at.map(|at| at.0));
        self.completed_at.push(head.status.completed_at.map(|at| at.0));
        self.owner.push(head.owner.map(|node| node.0));
        self.workflow.push(&head.workflow);
        self.workflow_version.push(&head.workflow_version);
        self.plan_hash.push(&head.plan_hash.0);
        self.request_id.push(head.request_id.as_deref());
        self.base_run.push(head.base_run.map(|run| run.0));
        self.parent_run.push(head.parent_run.map(|run| run.0));
        self.priority.push(head.priority);
        self.created_at.push(head.created_at.0);
    }
}

impl<'a> Events<'a> {
    fn add(&mut self, write: &'a RunWrite) {
        for event in &write.events {
            self.org.push(write.org.0);
            self.run.push(write.run.0);
            self.seq.push(int8(event.seq));
            self.format.push(event.format);
            self.event_type.push(&event.event_type);
            self.step_id.push(event.step_id.as_deref());
            self.logical_attempt.push(event.logical_attempt.map(int4));
            self.engine_attempt.push(event.engine_attempt.map(int4));
            self.data.push(event.data.as_str());
            self.idempotency_key.push(&event.idempotency_key.0);
            self.signal.push(event.signal.map(|signal| signal.0));
            self.parent_seq.push(event.parent_seq.map(int8));
            self.emitted_at.push(event.emitted_at.0);
            self.persisted_at.push(event.persisted_at.0);
        }
    }
}

impl<'a> Checkpoints<'a> {
    fn add(&mut self, write: &'a RunWrite) {
        let Some(checkpoint) = &write.checkpoint else { return };
        self.org.push(write.org.0);
        self.run.push(write.run.0);
        self.seq.push(int8(checkpoint.seq));
        self.format.push(checkpoint.format);
        self.state.push(&checkpoint.state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_its_place() {
        for shape in 0..64 {
            let columns = Columns::default();
            let parameters = columns.parameters(&Requests::default(), shape).len();
            let text = statement(shape);
            assert!(text.contains(&format!("${parameters}::")), "{shape}: {text}");
            assert!(!text.contains(&format!("${}::", parameters + 1)), "{shape}: {text}");
        }
    }
}
