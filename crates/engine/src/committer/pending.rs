//! The batch that is gathering: per run, what is to be written and what is to happen then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use milepost_core::codec;
use milepost_core::event::{Body, Event, Started};
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::json::Json;
use milepost_core::plan::{Plan, StepIndex};
use milepost_core::run::{CacheChange, CacheQuestions, SlotQuestion, Starting, Task, TaskRef};
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    Batch, CacheWrite, CheckpointRow, FlightWrite, HeadWrite, KeptWrite, MissedWrite, NewHead, OutboxWrite,
    PatchedHead, PreimageWrite, RateWrite, ResultKey, RunWrite, SlotWrite, StatusWrite, TaskWrite, TimerWrite,
};

use super::limits::LimitedTask;
use super::turns::Spent;
use super::{Accepted, Reply, Request, RequestKind};
use super::{artifacts, flights};
use crate::error::EngineError;
use crate::workers::Handed;

/// A request that was decided: its answer goes out when it is written; if it cannot be, it is decided again.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) kind: RequestKind,
    pub(super) reply: Option<Reply>,
    pub(super) answer: Result<Accepted, EngineError>,
}

impl Decided {
    pub(super) fn tell(self) {
        if let Some(reply) = self.reply {
            // A caller that no longer waits is no loss.
            let _ = reply.send(self.answer);
        }
    }

    /// All that its batch wrote of the run counts.
    pub(super) fn written(mut self, last_seq: u64) -> Decided {
        if let Ok(accepted) = &mut self.answer {
            accepted.last_seq = last_seq;
        }
        self
    }

    pub(super) fn fail(self, error: EngineError) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(error));
        }
    }

    pub(super) fn again(self) -> Request {
        Request { kind: self.kind, reply: self.reply, frees_slot: false, reread: false }
    }
}

/// What one batch does to one run.
#[derive(Debug)]
pub(super) struct RunPending {
    pub(super) org: OrgId,
    pub(super) run: RunId,
    pub(super) plan: Arc<Plan>,
    /// Of the state that this was decided on.
    pub(super) generation: u64,
    pub(super) group: u32,
    pub(super) expected_seq: u64,
    pub(super) insert: Option<Box<NewHead>>,
    pub(super) status: Option<StatusWrite>,
    pub(super) owner: Option<NodeId>,
    pub(super) events: Vec<Event>,
    pub(super) timers: Vec<TimerWrite>,
    /// The last word on each task.
    pub(super) tasks: BTreeMap<TaskId, TaskWrite>,
    pub(super) outbox: Vec<OutboxWrite>,
    pub(super) slot: Option<SlotWrite>,
    pub(super) checkpoint: Option<CheckpointRow>,
    /// What becomes of results.
    pub(super) cache: Option<Box<CacheWrite>>,
    /// Bytes of results that were taken.
    pub(super) reused_bytes: usize,
    pub(super) execute: Vec<Task>,
    /// What workers are given, by their offers.
    pub(super) hand_over: Vec<(u64, Handed)>,
    /// Since when those steps were ready, as far as that is known.
    pub(super) ready_since: Vec<Instant>,
    pub(super) cancel: Vec<TaskRef>,
    /// The concurrency key under which there is room now.
    pub(super) freed_key: Option<String>,
    pub(super) decided: Vec<Decided>,
    pub(super) at_rest: bool,
    /// From here on the run follows another plan: `plan`.
    pub(super) patched: bool,
}

impl RunPending {
    pub(super) fn last_seq(&self) -> u64 {
        self.expected_seq + self.events.len() as u64
    }

    /// A ready step was offered; if it was taken, it is known since when it waited.
    pub(super) fn handed_out(&mut self, ready_since: Instant) {
        if self.ready_since.len() < self.execute.len() + self.hand_over.len() {
            self.ready_since.push(ready_since);
        }
    }

    /// Answers the flights that are not begun after all.
    pub(super) fn change_results(&mut self, change: CacheChange, at: Timestamp) -> Vec<ResultKey> {
        let (run, plan) = (self.run, self.plan.clone());
        let place = |key, scope| flights::place(run, key, scope);
        let none = || CacheWrite {
            at,
            preimages: Vec::new(),
            kept: Vec::new(),
            used: Vec::new(),
            missed: Vec::new(),
            run_ended: false,
            flights: FlightWrite::default(),
        };
        let cache = self.cache.get_or_insert_with(|| Box::new(none()));
        match change {
            CacheChange::Preimage { key, step, preimage } => cache.preimages.push(PreimageWrite {
                key,
                workflow: plan.name.clone(),
                step_id: plan.step(step).id.clone(),
                preimage,
            }),
            CacheChange::Keep(kept) => cache.kept.push(KeptWrite {
                key: place(kept.key, kept.scope),
                workflow: plan.name.clone(),
                step_id: plan.step(kept.step).id.clone(),
                trust: kept.trust,
                output_hash: Digest::of(kept.output.as_str().as_bytes()),
                output: kept.output,
                beyond: kept.beyond,
                seq: kept.seq,
                duration_ms: kept.duration_ms,
            }),
            CacheChange::Used { key, scope } => cache.used.push(place(key, scope)),
            CacheChange::RunEnded => cache.run_ended = true,
            CacheChange::Lead { .. } | CacheChange::Land { .. } | CacheChange::LandAll { .. } => {
                return flights::change(&mut cache.flights, run, &change);
            }
        }
        Vec::new()
    }

    fn to_write(&self, persisted_at: Timestamp) -> RunWrite {
        let head = match &self.insert {
            Some(head) => {
                let status = self.status.clone().unwrap_or_else(|| head.status.clone());
                let plan_hash = self.plan.hash;
                HeadWrite::Insert(Box::new(NewHead { status, owner: self.owner, plan_hash, ..(**head).clone() }))
            }
            None if self.patched => {
                let (plan_hash, status) = (self.plan.hash, self.status.clone());
                HeadWrite::Patch(Box::new(PatchedHead { plan_hash, status, owner: self.owner }))
            }
            None => HeadWrite::Update { status: self.status.clone(), owner: self.owner },
        };
        RunWrite {
            org: self.org,
            run: self.run,
            group: self.group,
            expected_seq: self.expected_seq,
            last_seq: self.last_seq(),
            head,
            events: codec::encode_all(&self.events, self.run, &self.plan, persisted_at),
            timers: net_timers(&self.timers),
            tasks: self.tasks.values().cloned().collect(),
            outbox: self.outbox.clone(),
            slot: self.slot.clone(),
            checkpoint: self.checkpoint.clone(),
            cache: self.cache_write(),
            artifacts: artifacts::rows(&self.events, self.run, &self.plan),
        }
    }

    /// A start with a key is a step that found no result. Counted with the events that say so, it is counted once.
    fn cache_write(&self) -> Option<Box<CacheWrite>> {
        let mut write = self.cache.clone()?;
        let mut missed: BTreeMap<StepIndex, u64> = BTreeMap::new();
        for event in &self.events {
            if let (Body::StepStarted(Started { cache_key: Some(_), .. }), Some(step)) = (&event.body, event.step) {
                *missed.entry(step.step).or_default() += 1;
            }
        }
        let of_step = |(step, times)| {
            let (workflow, step_id) = (self.plan.name.clone(), self.plan.step(step).id.clone());
            MissedWrite { workflow, step_id, times }
        };
        write.missed = missed.into_iter().map(of_step).collect();
        Some(write)
    }
}

/// Bytes of values that an event carries.
pub(super) fn carried_bytes(body: &Body) -> u64 {
    let bytes = match body {
        Body::RunQueued(queued) => queued.payload.len() + queued.definition.as_ref().map_or(0, Json::len),
        Body::StepCompleted { output, .. } => output.as_ref().map_or(0, Json::len),
        Body::StepReused(reused) => reused.output.as_ref().map_or(0, Json::len),
        Body::SignalAccepted { payload, .. } => payload.len(),
        Body::RunPatched(patched) => patched.ops.as_ref().map_or(0, Json::len),
        _ => 0,
    };
    bytes as u64
}

/// What a batch handed out of which nobody knows whether it was written: if the log says that it was, it is carried out.
#[derive(Debug)]
pub(super) struct Unsure {
    pub(super) plan: Arc<Plan>,
    /// Where the run stood before.
    pub(super) expected_seq: u64,
    pub(super) tasks: Vec<Task>,
}

/// A timer that is armed and disarmed in one batch need not be written at all.
fn net_timers(changes: &[TimerWrite]) -> Vec<TimerWrite> {
    let seq_of = |change: &TimerWrite| match change {
        TimerWrite::Arm { seq, .. } | TimerWrite::Disarm { seq } => *seq,
    };
    let (armed, disarmed): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| matches!(change, TimerWrite::Arm { .. }));
    let (armed, disarmed): (HashSet<u64>, HashSet<u64>) =
        (armed.into_iter().map(seq_of).collect(), disarmed.into_iter().map(seq_of).collect());
    let both = |change: &TimerWrite| armed.contains(&seq_of(change)) && disarmed.contains(&seq_of(change));
    changes.iter().copied().filter(|change| !both(change)).collect()
}

/// A decision in the gathering batch that something follows from. If it is dropped, what follows is dropped with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct With {
    pub(super) run: RunId,
    pub(super) generation: u64,
}

/// A request that depends on a fact of the database.
#[derive(Debug)]
pub(super) enum Asking {
    Start {
        start: Box<Starting>,
        slot: Option<SlotQuestion>,
        kind: RequestKind,
        reply: Option<Reply>,
        with: Option<With>,
    },
    Slot {
        org: OrgId,
        run: RunId,
    },
    /// Steps for workers under limits.
    Limited(Vec<LimitedTask>),
    /// Ready steps whose results may be there.
    Results {
        org: OrgId,
        run: RunId,
        questions: CacheQuestions,
    },
}

impl Asking {
    /// It need not be written together with what has been decided.
    pub(super) fn can_wait(&self) -> bool {
        !matches!(self, Asking::Start { with: Some(_), .. })
    }
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) runs: Vec<RunPending>,
    at: HashMap<RunId, usize>,
    pub(super) asking: Vec<Asking>,
    pub(super) rates: Vec<RateWrite>,
    groups: u32,
    requests: usize,
    /// What it has cost.
    pub(super) spent: Spent,
    /// Beyond that, of steps that wait for an executor or for workers some have had their turn.
    pub(super) dispatched: bool,
    pub(super) handed_over: bool,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.asking.is_empty()
    }

    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    pub(super) fn count_request(&mut self) {
        self.requests += 1;
    }

    /// It has cost enough: the rest goes with the next.
    pub(super) fn is_full(&self) -> bool {
        self.spent.is_over()
    }

    /// What is decided from here on is counted from here on.
    pub(super) fn count_anew(&mut self) {
        (self.requests, self.spent) = Default::default();
        (self.dispatched, self.handed_over) = Default::default();
    }

    /// Whether the decision still stands.
    pub(super) fn stands(&mut self, with: With) -> bool {
        self.get(with.run).is_some_and(|run| run.generation == with.generation)
    }

    pub(super) fn get(&mut self, run: RunId) -> Option<&mut RunPending> {
        self.at.get(&run).map(|at| &mut self.runs[*at])
    }

    /// The run's place in the batch, made if it has none. Answers whether it is new.
    pub(super) fn place(
        &mut self,
        org: OrgId,
        run: RunId,
        plan: &Arc<Plan>,
        generation: u64,
        expected_seq: u64,
    ) -> (&mut RunPending, bool) {
        let new = !self.at.contains_key(&run);
        if new {
            self.groups += 1;
            self.at.insert(run, self.runs.len());
            self.runs.push(RunPending {
                org,
                run,
                plan: plan.clone(),
                generation,
                group: self.groups,
                expected_seq,
                insert: None,
                status: None,
                owner: None,
                events: Vec::new(),
                timers: Vec::new(),
                tasks: BTreeMap::new(),
                outbox: Vec::new(),
                slot: None,
                checkpoint: None,
                cache: None,
                reused_bytes: 0,
                execute: Vec::new(),
                hand_over: Vec::new(),
                ready_since: Vec::new(),
                cancel: Vec::new(),
                freed_key: None,
                decided: Vec::new(),
                at_rest: false,
                patched: false,
            });
        }
        let at = self.at[&run];
        (&mut self.runs[at], new)
    }

    /// From now on these two runs are written together or not at all.
    pub(super) fn join(&mut self, run: RunId, other: RunId) {
        let (Some(a), Some(b)) = (self.get(run).map(|run| run.group), self.get(other).map(|run| run.group)) else {
            return;
        };
        if a != b {
            for run in self.runs.iter_mut().filter(|run| run.group == b) {
                run.group = a;
            }
        }
    }

    /// Takes a run out of the batch, with all that was to be written together with it and all that was to follow.
    pub(super) fn remove_group(&mut self, run: RunId) -> Vec<RunPending> {
        let Some(group) = self.get(run).map(|run| run.group) else { return Vec::new() };
        let members: Vec<RunId> = self.runs.iter().filter(|run| run.group == group).map(|run| run.run).collect();
        self.asking.retain(|ask| !matches!(ask, Asking::Start { with: Some(with), .. } if members.contains(&with.run)));
        members.into_iter().filter_map(|run| self.remove(run)).collect()
    }

    fn remove(&mut self, run: RunId) -> Option<RunPending> {
        let at = self.at.remove(&run)?;
        let removed = self.runs.swap_remove(at);
        if let Some(moved) = self.runs.get(at) {
            self.at.insert(moved.run, at);
        }
        Some(removed)
    }

    /// Closes the batch: what to write, and what to do then.
    pub(super) fn close(&mut self, persisted_at: Timestamp) -> (Batch, Vec<RunPending>) {
        let pending = std::mem::take(self);
        let writes = pending.runs.iter().map(|run| run.to_write(persisted_at)).collect();
        let batch = Batch { writes, rates: pending.rates };
        (batch, pending.runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_armed_and_disarmed_in_one_batch_is_not_written() {
        let arm = |seq| TimerWrite::Arm { seq, due_at: Timestamp(1) };
        let disarm = |seq| TimerWrite::Disarm { seq };
        assert_eq!(net_timers(&[arm(3), disarm(1), disarm(3), arm(4)]), [disarm(1), arm(4)]);
    }
}
