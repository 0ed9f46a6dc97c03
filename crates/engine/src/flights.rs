//! Runs of this node that wait for results which others make: who waits for whom, and a watch that sees when a flight is over
//! though nobody here ended it.
//!
//! The committer wakes those whose flight ends with its own commit. What other nodes end, and what ends with them, is seen by a
//! look at the rows, once a second and only while somebody waits. Waiting is kept in memory alone: a run that waits has an
//! owner, and whoever takes it over has its steps ask again.
//!
//! **Invariant:** who is woken waits no more: it asks again, and if it still has to wait, it is here again. So what ends while
//! others look is seen by the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use milepost_core::cache::Flight;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_store::rows::{FlightWrite, ResultKey};
use milepost_store::{Result, Store};

use crate::committer::{Inbox, Request};
use crate::engine::Engine;
use crate::supervisor::Pulse;

/// How often the rows are looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many runs that wait are looked at, at most, to see whether another node has changed them.
const RUNS_AT_A_TIME: usize = 1000;

/// Who makes a result.
type Leader = (RunId, StepRef);

#[derive(Clone, Debug, Default)]
pub(crate) struct Flights(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    /// Who waits for whom, and what is made.
    by_leader: BTreeMap<Leader, Awaited>,
    by_run: BTreeMap<RunId, Waiter>,
    /// The run after which the next look begins.
    looked_up_to: Option<RunId>,
}

#[derive(Debug)]
struct Awaited {
    org: OrgId,
    key: ResultKey,
    runs: BTreeSet<RunId>,
}

#[derive(Debug)]
struct Waiter {
    org: OrgId,
    /// Whom its steps wait for.
    steps: BTreeMap<StepRef, Leader>,
    /// How far its log went when it was last looked at.
    seen: u64,
}

impl Flights {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().expect("no holder of this lock panics")
    }

    /// A step of a run, whose log goes up to here, waits.
    pub(crate) fn wait(&self, (org, run, seen): (OrgId, RunId, u64), step: StepRef, key: ResultKey, flight: Flight) {
        let mut waits = self.waits();
        let leader = (flight.run, flight.step);
        let awaited = waits.by_leader.entry(leader).or_insert_with(|| Awaited { org, key, runs: BTreeSet::new() });
        awaited.key = key;
        awaited.runs.insert(run);
        let waiter = waits.by_run.entry(run).or_insert_with(|| Waiter { org, steps: BTreeMap::new(), seen });
        waiter.steps.insert(step, leader);
    }

    /// The run waits for nothing any more.
    pub(crate) fn forget(&self, run: RunId) {
        self.waits().forget(run);
    }

    /// Who waited for what this write of a run ends. Nobody of them waits any more.
    pub(crate) fn landed(&self, run: RunId, flights: &FlightWrite) -> Vec<(OrgId, RunId)> {
        let mut waits = self.waits();
        let over: Vec<Leader> = match &flights.landed_but {
            _ if waits.by_leader.is_empty() => Vec::new(),
            Some(_) => waits.led_by(run).filter(|(_, step)| flights.lands(*step)).collect(),
            None => flights.landed.iter().map(|step| (run, *step)).collect(),
        };
        over.into_iter().flat_map(|leader| waits.wake(leader)).collect()
    }

    /// Who waits for anything that this run makes. Nobody of them waits any more.
    pub(crate) fn lost(&self, run: RunId) -> Vec<(OrgId, RunId)> {
        let mut waits = self.waits();
        let over: Vec<Leader> = waits.led_by(run).collect();
        over.into_iter().flat_map(|leader| waits.wake(leader)).collect()
    }

    /// Who makes what the steps of a run wait for, as far as they wait on this node.
    pub(crate) fn awaited_by(&self, run: RunId) -> Vec<(StepRef, Leader)> {
        let waits = self.waits();
        let steps = waits.by_run.get(&run).into_iter().flat_map(|waiter| &waiter.steps);
        steps.map(|(step, leader)| (*step, *leader)).collect()
    }

    fn all(&self) -> Vec<(Leader, OrgId, ResultKey)> {
        let waits = self.waits();
        waits.by_leader.iter().map(|(leader, awaited)| (*leader, awaited.org, awaited.key)).collect()
    }

    /// Some of the runs that wait: others the next time, if there are many.
    fn some_runs(&self) -> Vec<(OrgId, RunId)> {
        let mut waits = self.waits();
        let after = waits.looked_up_to.take();
        let later = waits.by_run.iter().filter(|(run, _)| after.is_none_or(|after| **run > after));
        let runs: Vec<(OrgId, RunId)> = later.map(|(run, waiter)| (waiter.org, *run)).take(RUNS_AT_A_TIME).collect();
        waits.looked_up_to = runs.last().filter(|_| runs.len() == RUNS_AT_A_TIME).map(|(_, run)| *run);
        runs
    }

    /// Whether a run that waits went on since it was last looked at.
    fn went_on(&self, run: RunId, last_seq: u64) -> bool {
        let mut waits = self.waits();
        let Some(waiter) = waits.by_run.get_mut(&run) else { return false };
        std::mem::replace(&mut waiter.seen, last_seq) != last_seq
    }
}

impl Waits {
    fn led_by(&self, run: RunId) -> impl Iterator<Item = Leader> {
        let (first, last) = (StepRef { step: 0, item: None }, StepRef { step: u32::MAX, item: Some(u32::MAX) });
        self.by_leader.range((run, first)..=(run, last)).map(|(leader, _)| *leader)
    }

    fn wake(&mut self, leader: Leader) -> Vec<(OrgId, RunId)> {
        let Some(Awaited { org, runs, .. }) = self.by_leader.remove(&leader) else { return Vec::new() };
        for run in &runs {
            let Some(waiter) = self.by_run.get_mut(run) else { continue };
            waiter.steps.retain(|_, other| *other != leader);
            if waiter.steps.is_empty() {
                self.by_run.remove(run);
            }
        }
        runs.into_iter().map(|run| (org, run)).collect()
    }

    fn forget(&mut self, run: RunId) {
        let Some(waiter) = self.by_run.remove(&run) else { return };
        for leader in waiter.steps.into_values() {
            if let Some(awaited) = self.by_leader.get_mut(&leader) {
                awaited.runs.remove(&run);
                if awaited.runs.is_empty() {
                    self.by_leader.remove(&leader);
                }
            }
        }
    }
}

impl Engine {
    /// The steps of a run that wait for what others make, and the runs that make it. Known on the node that has the run.
    #[must_use]
    pub fn awaited(&self, run: RunId) -> Vec<(StepRef, RunId)> {
        self.flights.awaited_by(run).into_iter().map(|(step, (leader, _))| (step, leader)).collect()
    }
}

/// Sees what ended elsewhere.
pub(crate) struct FlightWatch {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) flights: Flights,
    pub(crate) inbox: Inbox,
}

impl FlightWatch {
    pub(crate) async fn run_once(&self) -> Result<()> {
        let awaited = self.flights.all();
        if awaited.is_empty() {
            return Ok(());
        }
        let keys: Vec<(OrgId, ResultKey)> = awaited.iter().map(|(_, org, key)| (*org, *key)).collect();
        let under_way = self.store.flights().under_way(&keys).await?;
        for ((leader, _, _), flight) in awaited.into_iter().zip(under_way) {
            if flight.is_none_or(|flight| (flight.run, flight.step) != leader) {
                let woken = self.flights.waits().wake(leader);
                wake(&self.inbox, woken).await;
            }
        }
        self.look_at_runs().await
    }

    /// Any node may change a run that waits here; what that made ready is for this one.
    async fn look_at_runs(&self) -> Result<()> {
        let runs = self.flights.some_runs();
        for (org, run, last_seq) in self.store.last_seqs(&runs).await? {
            if self.flights.went_on(run, last_seq) {
                self.inbox.report(Request::look(org, run, last_seq)).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            pulse.rest(tokio::time::sleep(INTERVAL)).await;
            if let Err(error) = self.run_once().await {
                tracing::warn!(%error, "what runs of this node wait for cannot be looked at");
            }
        }
    }
}

/// Has runs ask again. They stand in line like all others, so that many are not decided at once.
pub(crate) async fn wake(inbox: &Inbox, runs: Vec<(OrgId, RunId)>) {
    for (org, run) in runs {
        inbox.report(Request::revive(org, run)).await;
    }
}
