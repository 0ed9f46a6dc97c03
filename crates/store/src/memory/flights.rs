//! Results that are being made.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::cache::Flight;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;

use super::MemoryStore;
use super::tables::Tables;
use crate::rows::{FlightRow, ResultKey, RunWrite};
use crate::{FlightStore, Result};

/// Who makes which result, and since when.
pub(super) type Flights = BTreeMap<(OrgId, ResultKey), (RunId, StepRef, Timestamp)>;

impl Tables {
    pub(super) fn under_way(&self, org: OrgId, key: ResultKey) -> Option<Flight> {
        let (run, step, _) = *self.flights.get(&(org, key))?;
        let open = self.runs.get(&(org, run)).is_some_and(|head| !head.status.is_terminal());
        open.then_some(Flight { key: key.key, run, step })
    }

    /// Begins the flights of a write, or answers that it may not.
    pub(super) fn lead(&mut self, write: &RunWrite) -> bool {
        let Some(cache) = write.cache.as_deref() else { return true };
        cache.flights.led.iter().all(|led| {
            let other = self.under_way(write.org, led.key).filter(|one| (one.run, one.step) != (write.run, led.step));
            if other.is_some() || (!led.anyway && self.results.find(write.org, led.key, None).is_some()) {
                return false;
            }
            let flight = self.flights.entry((write.org, led.key)).or_insert((write.run, led.step, cache.at));
            if (flight.0, flight.1) != (write.run, led.step) {
                *flight = (write.run, led.step, cache.at);
            }
            true
        })
    }

    /// Ends what is over.
    pub(super) fn land(&mut self, write: &RunWrite) {
        let Some(flights) = write.cache.as_deref().map(|cache| &cache.flights) else { return };
        self.flights.retain(|(org, key), (run, step, _)| {
            let stays = flights.led.iter().any(|led| (led.key, led.step) == (*key, *step));
            (*org, *run) != (write.org, write.run) || stays || !flights.lands(*step)
        });
    }
}

#[async_trait]
impl FlightStore for MemoryStore {
    async fn under_way(&self, keys: &[(OrgId, ResultKey)]) -> Result<Vec<Option<Flight>>> {
        let tables = self.tables();
        Ok(keys.iter().map(|(org, key)| tables.under_way(*org, *key)).collect())
    }

    async fn left_behind(&self, limit: u32) -> Result<Vec<FlightRow>> {
        let tables = self.tables();
        let behind = tables.flights.iter().filter(|((org, key), _)| tables.under_way(*org, *key).is_none());
        let row = |((org, key), (run, step, since)): (&(OrgId, ResultKey), &(RunId, StepRef, Timestamp))| FlightRow {
            org: *org,
            key: *key,
            leader: (*run, *step),
            since: *since,
        };
        Ok(behind.map(row).take(limit as usize).collect())
    }
}
