//! Results that are being made.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use milepost_core::cache::Flight;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;

use super::SqliteStore;
use super::columns::{Columns, all, id, one};
use crate::rows::{FlightRow, FlightWrite, ResultKey, RunWrite};
use crate::{FlightStore, Result};

/// In the place of the run of a result that serves all.
const NO_RUN: RunId = RunId(Uuid::nil());

fn served(key: &ResultKey) -> RunId {
    key.run.unwrap_or(NO_RUN)
}

fn item(step: StepRef) -> i64 {
    step.item.map_or(-1, i64::from)
}

fn step(columns: &mut Columns<'_, '_>) -> rusqlite::Result<StepRef> {
    let (step, item): (u32, i64) = (columns.get()?, columns.get()?);
    Ok(StepRef { step, item: u32::try_from(item).ok() })
}

fn of(write: &RunWrite) -> Option<&FlightWrite> {
    write.cache.as_deref().map(|cache| &cache.flights)
}

pub(super) fn are_led_by(write: &RunWrite) -> bool {
    of(write).is_some_and(|flights| !flights.led.is_empty())
}

const UNDER_WAY: &str = "SELECT f.leader_run, f.step, f.item FROM cache_flights AS f
     JOIN runs AS r ON r.org_id = f.org_id AND r.run_id = f.leader_run
     WHERE f.org_id = ? AND f.key = ? AND f.run_id = ?
         AND r.status NOT IN ('completed', 'failed', 'cancelled', 'terminated')";

const KEPT: &str = "SELECT 1 FROM step_cache WHERE org_id = ? AND key = ? AND run_id = ?";

const LEAD: &str = "INSERT INTO cache_flights (org_id, key, run_id, leader_run, step, item, since)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
     ON CONFLICT (org_id, key, run_id) DO UPDATE SET leader_run = ?4, step = ?5, item = ?6, since = ?7
     WHERE (leader_run, step, item) <> (?4, ?5, ?6)";

/// Begins the flights of a write, or answers that it may not.
pub(super) fn lead(tx: &Connection, write: &RunWrite) -> Result<bool> {
    let Some(cache) = write.cache.as_deref() else { return Ok(true) };
    for led in &cache.flights.led {
        let run = served(&led.key);
        let place = params![write.org.0, led.key.key.0, id(&run)];
        let other = under_way(tx, write.org, &led.key)?.filter(|one| (one.run, one.step) != (write.run, led.step));
        if other.is_some() || (!led.anyway && one(tx, KEPT, place, |_| Ok(()))?.is_some()) {
            return Ok(false);
        }
        let leader = id(&write.run);
        let (step, item) = (led.step.step, item(led.step));
        tx.prepare_cached(LEAD)?.execute(params![
            write.org.0,
            led.key.key.0,
            id(&run),
            leader,
            step,
            item,
            cache.at.0
        ])?;
    }
    Ok(true)
}

const LED: &str = "SELECT key, run_id, step, item FROM cache_flights WHERE org_id = ? AND leader_run = ?";
const LAND: &str = "DELETE FROM cache_flights WHERE org_id = ? AND key = ? AND run_id = ?";

/// Ends what is over.
pub(super) fn land(tx: &Connection, write: &RunWrite) -> Result<()> {
    let Some(flights) = of(write).filter(|flights| !flights.landed.is_empty() || flights.landed_but.is_some()) else {
        return Ok(());
    };
    let led = all(tx, LED, params![write.org.0, id(&write.run)], |row| {
        let mut columns = Columns::of(row);
        let (key, run) = (columns.digest()?, columns.run()?);
        Ok((ResultKey { key, run: (run != NO_RUN).then_some(run) }, step(&mut columns)?))
    })?;
    for (key, step) in led {
        let stays = flights.led.iter().any(|led| (led.key, led.step) == (key, step));
        if flights.lands(step) && !stays {
            tx.prepare_cached(LAND)?.execute(params![write.org.0, key.key.0, id(&served(&key))])?;
        }
    }
    Ok(())
}

fn under_way(conn: &Connection, org: OrgId, key: &ResultKey) -> Result<Option<Flight>> {
    one(conn, UNDER_WAY, params![org.0, key.key.0, id(&served(key))], |row| {
        let mut columns = Columns::of(row);
        Ok(Flight { key: key.key, run: columns.run()?, step: step(&mut columns)? })
    })
}

pub(super) fn find(conn: &Connection, org: OrgId, keys: &[ResultKey]) -> Result<Vec<Option<Flight>>> {
    keys.iter().map(|key| under_way(conn, org, key)).collect()
}

const LEFT_BEHIND: &str = "SELECT f.org_id, f.key, f.run_id, f.leader_run, f.step, f.item, f.since
     FROM cache_flights AS f LEFT JOIN runs AS r ON r.org_id = f.org_id AND r.run_id = f.leader_run
     WHERE r.status IS NULL OR r.status IN ('completed', 'failed', 'cancelled', 'terminated') LIMIT ?";

fn flight_row(row: &Row) -> rusqlite::Result<FlightRow> {
    let mut columns = Columns::of(row);
    let (org, key, run) = (columns.org()?, columns.digest()?, columns.run()?);
    let leader = (columns.run()?, step(&mut columns)?);
    let key = ResultKey { key, run: (run != NO_RUN).then_some(run) };
    Ok(FlightRow { org, key, leader, since: Timestamp(columns.get()?) })
}

#[async_trait]
impl FlightStore for SqliteStore {
    async fn under_way(&self, keys: &[(OrgId, ResultKey)]) -> Result<Vec<Option<Flight>>> {
        let keys = keys.to_vec();
        self.read(move |conn| keys.iter().map(|(org, key)| under_way(conn, *org, key)).collect()).await
    }

    async fn left_behind(&self, limit: u32) -> Result<Vec<FlightRow>> {
        self.read(move |conn| all(conn, LEFT_BEHIND, params![limit], flight_row)).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{plan, schema};
    use super::*;

    #[test]
    fn nothing_about_flights_scans_them() {
        let schema = schema();
        for sql in [UNDER_WAY, KEPT, LED, LAND] {
            let plan = plan(&schema, sql);
            assert!(!plan.contains("SCAN"), "{plan}");
        }
    }
}
