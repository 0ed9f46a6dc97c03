//! Results that are being made.
//!
//! A flight is begun by the write of the run that leads it, after the heads and before all else: in the order of keys, and
//! without touching rows of others. So two batches that begin the same wait for each other at most once, and the second
//! one's run conflicts. What is over is removed last; nobody else touches those rows.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use deadpool_postgres::Object;
use milepost_core::cache::Flight;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::columns::{col, digest};
use super::runs::query;
use crate::rows::{CacheWrite, FlightRow, Led, ResultKey, RunWrite, WriteResult};
use crate::{FlightStore, Result, StoreError};

/// In the place of the run of a result that serves all.
const NO_RUN: Uuid = Uuid::nil();

fn served(key: &ResultKey) -> Uuid {
    key.run.map_or(NO_RUN, |run| run.0)
}

fn item(step: StepRef) -> i64 {
    step.item.map_or(-1, i64::from)
}

fn step(row: &Row, at: usize) -> Result<StepRef> {
    let (step, item): (i64, i64) = (col(row, at)?, col(row, at + 1)?);
    let step = u32::try_from(step).map_err(|_| StoreError::Corrupt(format!("a flight of step {step}")))?;
    Ok(StepRef { step, item: u32::try_from(item).ok() })
}

pub(super) fn are_led_by(writes: &[RunWrite]) -> bool {
    writes.iter().any(|write| write.cache.as_ref().is_some_and(|cache| !cache.flights.led.is_empty()))
}

/// What writes lead, column by column, in the order of keys and then of writes.
#[derive(Default)]
struct Columns<'a> {
    nth: Vec<i64>,
    org: Vec<i32>,
    key: Vec<&'a [u8]>,
    run: Vec<Uuid>,
    leader: Vec<Uuid>,
    step: Vec<i64>,
    item: Vec<i64>,
    since: Vec<i64>,
    anyway: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn of(changes: impl Iterator<Item = (usize, &'a RunWrite, &'a CacheWrite)>) -> Columns<'a> {
        let mut rows: Vec<(usize, &RunWrite, &Led, Timestamp)> = Vec::new();
        for (nth, write, cache) in changes {
            rows.extend(cache.flights.led.iter().map(|led| (nth, write, led, cache.at)));
        }
        rows.sort_by_key(|(nth, write, led, _)| (write.org, led.key.key, served(&led.key), *nth));
        let mut columns = Columns::default();
        for (nth, write, led, at) in rows {
            columns.nth.push(i64::try_from(nth).unwrap_or(i64::MAX));
            columns.org.push(write.org.0);
            columns.key.push(&led.key.key.0);
            columns.run.push(served(&led.key));
            columns.leader.push(write.run.0);
            columns.step.push(led.step.step.into());
            columns.item.push(item(led.step));
            columns.since.push(at.0);
            columns.anyway.push(led.anyway);
        }
        columns
    }
}

// One that somebody else is just taking over is his.
const CLEAR: &str = "WITH behind AS (
        SELECT f.org_id, f.key, f.run_id
        FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::uuid[], $5::int8[], $6::int8[])
            AS q (org_id, key, run_id, leader_run, step, item)
        JOIN cache_flights AS f ON f.org_id = q.org_id AND f.key = q.key AND f.run_id = q.run_id
        WHERE (f.leader_run, f.step, f.item) <> (q.leader_run, q.step, q.item) AND NOT EXISTS (
            SELECT FROM runs AS r WHERE r.run_id = f.leader_run AND r.org_id = f.org_id
                AND r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated'))
        FOR UPDATE OF f SKIP LOCKED
    )
    DELETE FROM cache_flights AS f USING behind AS b
    WHERE f.org_id = b.org_id AND f.key = b.key AND f.run_id = b.run_id";

const LEAD: &str = "INSERT INTO cache_flights (org_id, key, run_id, leader_run, step, item, since)
    SELECT * FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::uuid[], $5::int8[], $6::int8[], $7::int8[])
    ON CONFLICT DO NOTHING";

// A statement of its own: it sees what those committed whom the one before waited for, and with it what came of their flights.
const LOST: &str = "SELECT q.nth, f.leader_run
    FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::uuid[], $5::int8[], $6::int8[], $7::bool[], $8::int8[])
        AS q (org_id, key, run_id, leader_run, step, item, anyway, nth)
    LEFT JOIN cache_flights AS f ON f.org_id = q.org_id AND f.key = q.key AND f.run_id = q.run_id
    WHERE (f.leader_run = q.leader_run AND f.step = q.step AND f.item = q.item) IS NOT TRUE
       OR (NOT q.anyway AND EXISTS (SELECT FROM step_cache AS c
               WHERE c.org_id = q.org_id AND c.key = q.key AND c.run_id = q.run_id))";

/// Begins the flights of the runs that were written. Answers the groups whose flights others lead: nothing of them may be
/// written. Where two of one batch want the same, the first of them has it, if it has all that it wants.
pub(super) async fn lead(connection: &Object, writes: &[RunWrite], results: &[WriteResult]) -> Result<BTreeSet<u32>> {
    let written = writes.iter().zip(results).enumerate().filter(|(_, (_, result))| **result == WriteResult::Written);
    let columns = Columns::of(written.filter_map(|(nth, (write, _))| Some((nth, write, write.cache.as_deref()?))));
    if columns.nth.is_empty() {
        return Ok(BTreeSet::new());
    }
    let Columns { nth, org, key, run, leader, step, item, since, anyway } = &columns;
    let clear: [&(dyn ToSql + Sync); 6] = [org, key, run, leader, step, item];
    let lead: [&(dyn ToSql + Sync); 7] = [org, key, run, leader, step, item, since];
    let lost: [&(dyn ToSql + Sync); 8] = [org, key, run, leader, step, item, anyway, nth];
    let [clearing, leading, losing] = [
        connection.prepare_cached(CLEAR).await?,
        connection.prepare_cached(LEAD).await?,
        connection.prepare_cached(LOST).await?,
    ];
    // Prepared before, so that they arrive in this order.
    let (cleared, led, lost) = tokio::join!(
        connection.execute(&clearing, &clear),
        connection.execute(&leading, &lead),
        connection.query(&losing, &lost)
    );
    cleared?;
    led?;
    let ours: BTreeSet<Uuid> = leader.iter().copied().collect();
    let mut to_others = BTreeSet::new();
    let mut among_us = BTreeMap::new();
    for row in lost? {
        let nth = usize::try_from(col::<i64>(&row, 0)?).unwrap_or(usize::MAX);
        let Some(group) = writes.get(nth).map(|write| write.group) else { continue };
        let is_ours = |leader: &Uuid| ours.contains(leader) && *leader != writes[nth].run.0;
        match col::<Option<Uuid>>(&row, 1)?.filter(is_ours) {
            Some(_) => drop(among_us.insert(nth, group)),
            None => drop(to_others.insert(group)),
        }
    }
    if to_others.is_empty() {
        to_others.extend(among_us.into_values().next());
    }
    Ok(to_others)
}

const LAND: &str = "DELETE FROM cache_flights AS f
    USING unnest($1::int4[], $2::uuid[], $3::int8[], $4::int8[]) AS l (org_id, leader_run, step, item)
    WHERE f.leader_run = l.leader_run AND f.step = l.step AND f.item = l.item AND f.org_id = l.org_id
      AND NOT EXISTS (SELECT FROM unnest($5::int4[], $6::bytea[], $7::uuid[], $8::uuid[], $9::int8[], $10::int8[])
              AS d (org_id, key, run_id, leader_run, step, item)
          WHERE d.key = f.key AND d.run_id = f.run_id AND d.org_id = f.org_id
            AND d.leader_run = f.leader_run AND d.step = f.step AND d.item = f.item)";

const LAND_BUT: &str = "DELETE FROM cache_flights AS f WHERE f.leader_run = $2 AND f.org_id = $1
    AND NOT EXISTS (SELECT FROM unnest($3::int8[], $4::int8[]) AS b (step, item)
        WHERE b.step = f.step AND b.item = f.item)
    AND NOT EXISTS (SELECT FROM unnest($5::bytea[], $6::uuid[], $7::int8[], $8::int8[]) AS d (key, run_id, step, item)
        WHERE d.key = f.key AND d.run_id = f.run_id AND d.step = f.step AND d.item = f.item)";

/// Ends what is over. No run may be among them twice.
pub(super) async fn land(connection: &Object, changes: &[(&RunWrite, &CacheWrite)]) -> Result<()> {
    let (mut org, mut leader, mut step, mut number) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (write, cache) in changes {
        for landed in &cache.flights.landed {
            org.push(write.org.0);
            leader.push(write.run.0);
            step.push(i64::from(landed.step));
            number.push(item(*landed));
        }
    }
    if !org.is_empty() {
        let led = Columns::of(changes.iter().enumerate().map(|(nth, (write, cache))| (nth, *write, *cache)));
        let parameters: [&(dyn ToSql + Sync); 10] =
            [&org, &leader, &step, &number, &led.org, &led.key, &led.run, &led.leader, &led.step, &led.item];
        query(connection, LAND, &parameters).await?;
    }
    for (write, cache) in changes {
        let Some(but) = &cache.flights.landed_but else { continue };
        let (steps, items): (Vec<i64>, Vec<i64>) = but.iter().map(|step| (i64::from(step.step), item(*step))).unzip();
        let led = Columns::of([(0, *write, *cache)].into_iter());
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&write.org.0, &write.run.0, &steps, &items, &led.key, &led.run, &led.step, &led.item];
        query(connection, LAND_BUT, &parameters).await?;
    }
    Ok(())
}

const UNDER_WAY: &str = "SELECT q.n, f.leader_run, f.step, f.item
    FROM unnest($1::int4[], $2::bytea[], $3::uuid[]) WITH ORDINALITY AS q (org_id, key, run_id, n)
    JOIN cache_flights AS f ON f.org_id = q.org_id AND f.key = q.key AND f.run_id = q.run_id
    JOIN runs AS r ON r.run_id = f.leader_run AND r.org_id = f.org_id
    WHERE r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated')";

/// One statement, however many keys there are. Answers are in the order of the keys.
pub(super) async fn find(connection: &Object, keys: &[(OrgId, ResultKey)]) -> Result<Vec<Option<Flight>>> {
    let orgs: Vec<i32> = keys.iter().map(|(org, _)| org.0).collect();
    let digests: Vec<&[u8]> = keys.iter().map(|(_, key)| key.key.0.as_slice()).collect();
    let runs: Vec<Uuid> = keys.iter().map(|(_, key)| served(key)).collect();
    let mut found = vec![None; keys.len()];
    for row in query(connection, UNDER_WAY, &[&orgs, &digests, &runs]).await? {
        let place = usize::try_from(col::<i64>(&row, 0)? - 1).unwrap_or(usize::MAX);
        if let Some((answer, (_, key))) = found.get_mut(place).zip(keys.get(place)) {
            *answer = Some(Flight { key: key.key, run: RunId(col(&row, 1)?), step: step(&row, 2)? });
        }
    }
    Ok(found)
}

const LEFT_BEHIND: &str = "SELECT f.org_id, f.key, f.run_id, f.leader_run, f.step, f.item, f.since
    FROM cache_flights AS f WHERE NOT EXISTS (
        SELECT FROM runs AS r WHERE r.run_id = f.leader_run AND r.org_id = f.org_id
            AND r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated')) LIMIT $1";

fn flight_row(row: &Row) -> Result<FlightRow> {
    let run: Uuid = col(row, 2)?;
    Ok(FlightRow {
        org: OrgId(col(row, 0)?),
        key: ResultKey { key: digest(col(row, 1)?)?, run: (run != NO_RUN).then_some(RunId(run)) },
        leader: (RunId(col(row, 3)?), step(row, 4)?),
        since: Timestamp(col(row, 6)?),
    })
}

#[async_trait]
impl FlightStore for PostgresStore {
    async fn under_way(&self, keys: &[(OrgId, ResultKey)]) -> Result<Vec<Option<Flight>>> {
        find(&self.reading().await?, keys).await
    }

    async fn left_behind(&self, limit: u32) -> Result<Vec<FlightRow>> {
        let rows = query(&self.reading().await?, LEFT_BEHIND, &[&i64::from(limit)]).await?;
        rows.iter().map(flight_row).collect()
    }
}
