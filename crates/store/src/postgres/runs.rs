//! Reads runs: heads, logs, checkpoints, timers, slots.

use std::collections::HashMap;

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{self, EVENT, EVENT_COLUMNS, HEAD, HEAD_COLUMNS, HEADS, SLOT, TIMER, col, int8};
use crate::Result;
use crate::rows::{CheckpointRow, HeadRow, LoadedRun, SlotRow, TimerRow, TransitionRow};

/// Prepared once per connection.
pub(super) async fn query(connection: &Object, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    let statement = connection.prepare_cached(sql).await?;
    Ok(connection.query(&statement, parameters).await?)
}

/// Heads and checkpoints in one query, what came after the checkpoints in another. The log only grows, so cutting the second
/// at the heads of the first shows one moment.
pub(super) async fn load(connection: &Object, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
    let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
    let sql = format!(
        "SELECT {HEAD}, c.seq, c.format, c.state
         FROM unnest($1::int4[], $2::uuid[]) WITH ORDINALITY AS q (org_id, run_id, n)
         JOIN runs AS r ON r.run_id = q.run_id AND r.org_id = q.org_id
         LEFT JOIN run_suspects AS u ON u.run_id = q.run_id AND u.org_id = q.org_id AND u.state <> 'suspected'
         LEFT JOIN run_checkpoints AS c ON c.run_id = q.run_id AND c.org_id = q.org_id AND u.run_id IS NULL
         ORDER BY q.n"
    );
    let mut loaded = Vec::with_capacity(runs.len());
    for row in query(connection, &sql, &[&orgs, &ids]).await? {
        loaded.push(LoadedRun {
            head: columns::head(&row, 0)?,
            checkpoint: checkpoint(&row, HEAD_COLUMNS)?,
            tail: Vec::new(),
        });
    }
    load_tails(connection, &mut loaded).await?;
    Ok(loaded)
}

fn checkpoint(row: &Row, at: usize) -> Result<Option<CheckpointRow>> {
    let Some(seq) = col::<Option<i64>>(row, at)? else { return Ok(None) };
    Ok(Some(CheckpointRow { seq: columns::seq(seq)?, format: col(row, at + 1)?, state: col(row, at + 2)? }))
}

async fn load_tails(connection: &Object, loaded: &mut [LoadedRun]) -> Result<()> {
    let (mut orgs, mut ids, mut after, mut until) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut places: HashMap<(i32, Uuid), Vec<usize>> = HashMap::with_capacity(loaded.len());
    for (place, run) in loaded.iter().enumerate() {
        let seq = run.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let asked = places.entry((run.head.org.0, run.head.run.0)).or_default();
        if seq < run.head.last_seq && run.head.stuck.is_none() && asked.is_empty() {
            orgs.push(run.head.org.0);
            ids.push(run.head.run.0);
            after.push(int8(seq));
            until.push(int8(run.head.last_seq));
        }
        asked.push(place);
    }
    if ids.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT {EVENT}, e.org_id, e.run_id
         FROM unnest($1::int4[], $2::uuid[], $3::int8[], $4::int8[]) AS q (org_id, run_id, after_seq, until_seq)
         JOIN run_events AS e ON e.run_id = q.run_id AND e.org_id = q.org_id
             AND e.run_seq > q.after_seq AND e.run_seq <= q.until_seq
         ORDER BY e.run_id, e.run_seq"
    );
    for row in query(connection, &sql, &[&orgs, &ids, &after, &until]).await? {
        let (org, run) = columns::org_run(&row, EVENT_COLUMNS)?;
        let event = columns::event(&row, 0)?;
        for place in places.get(&(org.0, run.0)).into_iter().flatten() {
            loaded[*place].tail.push(event.clone());
        }
    }
    Ok(())
}

pub(super) async fn head(connection: &Object, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
    let sql = format!("SELECT {HEAD} FROM {HEADS} WHERE r.run_id = $1 AND r.org_id = $2");
    query(connection, &sql, &[&run.0, &org.0]).await?.first().map(|row| columns::head(row, 0)).transpose()
}

pub(super) async fn last_seqs(connection: &Object, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
    let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
    let sql = "SELECT r.org_id, r.run_id, r.last_seq FROM unnest($1::int4[], $2::uuid[]) AS q (org_id, run_id)
               JOIN runs AS r ON r.run_id = q.run_id AND r.org_id = q.org_id";
    let rows = query(connection, sql, &[&orgs, &ids]).await?;
    rows.iter()
        .map(|row| {
            let (org, run) = columns::org_run(row, 0)?;
            Ok((org, run, columns::seq(col(row, 2)?)?))
        })
        .collect()
}

pub(super) async fn events(
    connection: &Object,
    org: OrgId,
    run: RunId,
    after_seq: u64,
    limit: u32,
) -> Result<Vec<EventRow>> {
    let sql = format!(
        "SELECT {EVENT} FROM run_events AS e
         WHERE e.run_id = $1 AND e.org_id = $2 AND e.run_seq > $3 ORDER BY e.run_seq LIMIT $4"
    );
    let rows = query(connection, &sql, &[&run.0, &org.0, &int8(after_seq), &i64::from(limit)]).await?;
    rows.iter().map(|row| columns::event(row, 0)).collect()
}

pub(super) async fn events_at(connection: &Object, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
    let mut seqs: Vec<i64> = seqs.iter().copied().map(int8).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let sql = format!(
        "SELECT {EVENT} FROM unnest($3::int8[]) AS q (seq)
         JOIN run_events AS e ON e.run_id = $1 AND e.org_id = $2 AND e.run_seq = q.seq ORDER BY e.run_seq"
    );
    let rows = query(connection, &sql, &[&run.0, &org.0, &seqs]).await?;
    rows.iter().map(|row| columns::event(row, 0)).collect()
}

pub(super) async fn events_by_key(
    connection: &Object,
    org: OrgId,
    run: RunId,
    keys: &[Digest],
) -> Result<Vec<EventRow>> {
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.0.as_slice()).collect();
    let sql = format!(
        "SELECT {EVENT} FROM run_events AS e
         WHERE e.run_id = $1 AND e.org_id = $2 AND e.idempotency_key = ANY($3::bytea[])"
    );
    let rows = query(connection, &sql, &[&run.0, &org.0, &keys]).await?;
    rows.iter().map(|row| columns::event(row, 0)).collect()
}

pub(super) async fn transitions(connection: &Object, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
    let sql = "SELECT run_seq, from_status, to_status, caused_by_signal_id, emitted_at, changed_by
               FROM run_state_transitions WHERE org_id = $1 AND run_id = $2 ORDER BY run_seq";
    let rows = query(connection, sql, &[&org.0, &run.0]).await?;
    rows.iter()
        .map(|row| {
            Ok(TransitionRow {
                seq: columns::seq(col(row, 0)?)?,
                from: col::<Option<&str>>(row, 1)?.map(columns::word).transpose()?,
                to: columns::word(col(row, 2)?)?,
                signal: col::<Option<Uuid>>(row, 3)?.map(milepost_core::id::SignalId),
                at: Timestamp(col(row, 4)?),
                changed_by: col(row, 5)?,
            })
        })
        .collect()
}

pub(super) async fn timers_until(
    connection: &Object,
    after: Option<TimerRow>,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<TimerRow>> {
    let sql = format!(
        "SELECT {TIMER} FROM timers WHERE due_at <= $1 AND (due_at, run_id, seq) > ($3, $4, $5)
         ORDER BY due_at, run_id, seq LIMIT $2"
    );
    let (due_at, run, seq) = after.map_or((i64::MIN, Uuid::nil(), 0), |timer| (timer.due_at.0, timer.run.0, timer.seq));
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let rows = query(connection, &sql, &[&until.0, &i64::from(limit), &due_at, &run, &seq]).await?;
    rows.iter().map(columns::timer).collect()
}

pub(super) async fn timers_of(connection: &Object, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
    let sql = format!("SELECT {TIMER} FROM timers WHERE run_id = $1 AND org_id = $2 ORDER BY due_at, seq");
    let rows = query(connection, &sql, &[&run.0, &org.0]).await?;
    rows.iter().map(columns::timer).collect()
}

/// Jumps from key to key along the index, so that many waiting under one key cost no more than the few that are looked at.
pub(super) async fn slots_to_wake(connection: &Object, limit: u32) -> Result<Vec<SlotRow>> {
    let sql = format!(
        "WITH RECURSIVE keys AS (
             (SELECT org_id, slot_key FROM run_slots WHERE NOT holding ORDER BY org_id, slot_key LIMIT 1)
             UNION ALL
             SELECT next.org_id, next.slot_key FROM keys AS k CROSS JOIN LATERAL (
                 SELECT s.org_id, s.slot_key FROM run_slots AS s
                 WHERE NOT s.holding AND (s.org_id, s.slot_key) > (k.org_id, k.slot_key)
                 ORDER BY s.org_id, s.slot_key LIMIT 1
             ) AS next
         )
         SELECT w.* FROM keys AS k CROSS JOIN LATERAL ({}) AS w LIMIT $1",
        to_wake("k.org_id", "k.slot_key", "$1")
    );
    let rows = query(connection, &sql, &[&i64::from(limit)]).await?;
    rows.iter().map(columns::slot).collect()
}

pub(super) async fn slots_to_wake_of(connection: &Object, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
    let sql = to_wake("$1::int4", "$2::text", "$3::int8");
    let rows = query(connection, &sql, &[&org.0, &key, &i64::from(limit)]).await?;
    rows.iter().map(columns::slot).collect()
}

/// Those under one key that may go on. Each counts the holders and those before it against its own limit; nobody overtakes.
fn to_wake(org: &str, key: &str, limit: &str) -> String {
    format!(
        "SELECT {SLOT} FROM (
             SELECT w.*,
                    bool_and(w.place + h.held <= w.slot_limit) OVER (ORDER BY w.place) AS goes_on
             FROM (SELECT count(*) AS held FROM run_slots
                   WHERE org_id = {org} AND slot_key = {key} AND holding) AS h,
                  (SELECT s.*, row_number() OVER (ORDER BY s.priority DESC, s.run_id) AS place FROM (
                       SELECT * FROM run_slots AS w WHERE org_id = {org} AND slot_key = {key} AND NOT holding
                           AND NOT EXISTS (SELECT FROM run_suspects AS u WHERE u.run_id = w.run_id
                               AND u.org_id = w.org_id AND u.state <> 'suspected')
                       ORDER BY priority DESC, run_id LIMIT {limit}
                   ) AS s) AS w
         ) AS waiting
         WHERE goes_on ORDER BY place"
    )
}

pub(super) async fn slot_of(connection: &Object, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
    let sql = format!("SELECT {SLOT} FROM run_slots WHERE run_id = $1 AND org_id = $2");
    query(connection, &sql, &[&run.0, &org.0]).await?.first().map(columns::slot).transpose()
}

/// Jumps from owner to owner along the index; how many runs each owns does not matter.
pub(super) async fn dead_nodes(connection: &Object, now: Timestamp) -> Result<Vec<NodeId>> {
    let sql = "WITH RECURSIVE holders AS (
                   (SELECT node FROM tasks ORDER BY node LIMIT 1)
                   UNION ALL
                   SELECT next.node FROM holders AS h CROSS JOIN LATERAL (
                       SELECT t.node FROM tasks AS t WHERE t.node > h.node ORDER BY t.node LIMIT 1
                   ) AS next
               ), owners AS (
                   (SELECT owner FROM runs WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
                   UNION ALL
                   SELECT next.owner FROM owners AS o CROSS JOIN LATERAL (
                       SELECT r.owner FROM runs AS r WHERE r.owner IS NOT NULL AND r.owner > o.owner
                       ORDER BY r.owner LIMIT 1
                   ) AS next
               )
               SELECT o.owner FROM (SELECT owner FROM owners UNION SELECT node FROM holders) AS o
               LEFT JOIN nodes AS n ON n.node_id = o.owner
               WHERE n.node_id IS NULL OR n.\"left\" OR n.lease_expires_at <= $1
               ORDER BY o.owner";
    let rows = query(connection, sql, &[&now.0]).await?;
    rows.iter().map(|row| Ok(NodeId(col(row, 0)?))).collect()
}

pub(super) async fn owned(
    connection: &Object,
    node: NodeId,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<(OrgId, RunId)>> {
    let sql = "SELECT org_id, run_id FROM runs WHERE owner = $1 AND run_id > $2 ORDER BY run_id LIMIT $3";
    let after = after.map_or(Uuid::nil(), |run| run.0);
    let rows = query(connection, sql, &[&node.0, &after, &i64::from(limit)]).await?;
    rows.iter().map(|row| columns::org_run(row, 0)).collect()
}

pub(super) async fn open(connection: &Object, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
    let sql = format!(
        "SELECT {HEAD} FROM {HEADS}
         WHERE r.run_id > $1 AND r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated')
         ORDER BY r.run_id LIMIT $2"
    );
    let after = after.map_or(Uuid::nil(), |run| run.0);
    let rows = query(connection, &sql, &[&after, &i64::from(limit)]).await?;
    rows.iter().map(|row| columns::head(row, 0)).collect()
}

/// A node that said nothing for so long, and owns nothing, need not be remembered.
const NODE_MEMORY_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) async fn forget_nodes(connection: &Object, now: Timestamp) -> Result<()> {
    let sql = "DELETE FROM nodes WHERE lease_expires_at < $1
               AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.owner = nodes.node_id)";
    let before = now.0.saturating_sub(Timestamp(0).plus_ms(NODE_MEMORY_MS).0);
    query(connection, sql, &[&before]).await?;
    Ok(())
}
