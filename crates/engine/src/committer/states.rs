//! A bounded cache of run states. What is not here is loaded: checkpoint and tail.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use milepost_core::codec;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, RunId};
use milepost_core::plan::Plan;
use milepost_core::run::RunState;
use milepost_core::time::Timestamp;
use milepost_store::rows::{HeadRow, LoadedRun};
use std::sync::Arc;

use super::turns::Cost;
use crate::care::refuse_parked;
use crate::error::EngineError;
use crate::plans::Plans;

/// Plans that take less are not counted: how many there can be is bounded by what states take.
const SMALL_PLAN: usize = 16 * 1024;
/// What the plans of states at hand take of the memory together.
const MOST_PLANS: usize = 192 * 1024 * 1024;

/// A state and what the committer knows of its run's head row.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) state: RunState,
    /// The head row names this node as its owner, and nobody is about to clear that.
    pub(super) owned: bool,
    /// Who owned the run when it was read.
    pub(super) owner: Option<NodeId>,
    /// Another node has the run's work in hand: it goes on with it, this one only adds to the log.
    pub(super) elsewhere: bool,
    /// Some of what is ready is for an executor of a node.
    pub(super) inline: bool,
    /// Steps that are ready may be in line for workers.
    pub(super) in_line: bool,
    /// It is not known yet whether steps that are ready have to run: they are in no line.
    pub(super) asking: bool,
    /// Steps that are ready wait for what others make.
    pub(super) waits: bool,
    /// The same may be so of a run that was read: nobody has asked since.
    pub(super) may_wait: bool,
    /// Tells this reading of the run from later ones.
    pub(super) generation: u64,
    pub(super) started_at: Option<Timestamp>,
    /// It was read in a time after a crash: what is decided of it is noted.
    pub(super) with_care: bool,
    /// Batches, gathering or on their way, that this run is part of.
    pub(super) busy: u32,
    /// What deciding it has cost lately.
    pub(super) cost: Cost,
    /// The turn of its next step that gets ready for an executor.
    pub(super) turn: u64,
    weight: usize,
    /// As far as it is counted among those that are used.
    plan: Arc<Plan>,
    used: u64,
}

impl Entry {
    /// An executor of some node has, or should be given, work of this run.
    pub(super) fn needs_node(&self) -> bool {
        self.state.has_tasks() || (self.inline && self.state.needs_node())
    }

    /// Nobody is at work for the run, and nobody of this node should be. What is in line for workers has rows of its own.
    pub(super) fn at_rest(&self) -> bool {
        let waits = self.state.awaits_flights() || (self.may_wait && self.state.may_await_flights());
        !self.needs_node() && !self.state.has_leases() && !self.asking && !waits
    }
}

#[derive(Debug)]
pub(super) struct States {
    entries: HashMap<RunId, Entry, BuildHasherDefault<IdHasher>>,
    weight: usize,
    max_weight: usize,
    plans: UsedPlans,
    tick: u64,
}

/// Ids of runs are looked up more often than anything else. They are random already, and nobody outside chooses them.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = self.0.rotate_left(23) ^ u64::from_le_bytes(word);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The plans of states that are at hand. Many states share one, and each keeps it in memory.
#[derive(Debug, Default)]
struct UsedPlans {
    counts: HashMap<Digest, usize>,
    memory: usize,
}

impl UsedPlans {
    fn add(&mut self, plan: &Plan) {
        if plan.memory <= SMALL_PLAN {
            return;
        }
        let count = self.counts.entry(plan.hash).or_default();
        *count += 1;
        if *count == 1 {
            self.memory += plan.memory;
        }
    }

    fn remove(&mut self, plan: &Plan) {
        if plan.memory <= SMALL_PLAN {
            return;
        }
        let Some(count) = self.counts.get_mut(&plan.hash) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&plan.hash);
            self.memory -= plan.memory;
        }
    }
}

impl States {
    pub(super) fn new(max_weight: usize) -> States {
        States { entries: HashMap::default(), weight: 0, max_weight, plans: UsedPlans::default(), tick: 0 }
    }

    pub(super) fn has(&self, run: RunId) -> bool {
        self.entries.contains_key(&run)
    }

    pub(super) fn get(&mut self, run: RunId) -> Option<&mut Entry> {
        self.tick += 1;
        let entry = self.entries.get_mut(&run)?;
        entry.used = self.tick;
        Some(entry)
    }

    /// Looks without touching.
    pub(super) fn peek(&self, run: RunId) -> Option<&Entry> {
        self.entries.get(&run)
    }

    /// Runs that were loaded in a time after a crash and of which something is under way.
    pub(super) fn with_care(&self) -> impl Iterator<Item = RunId> {
        let entries = self.entries.iter().filter(|(_, entry)| entry.with_care && !entry.at_rest());
        entries.map(|(run, _)| *run)
    }

    pub(super) fn insert_new(&mut self, state: RunState) {
        self.insert(state, None, false, false, None);
    }

    /// Even if the head row names this node, the projector may be about to clear that: the next write says it again.
    /// `inline` says whether some of what is ready is for an executor of a node.
    pub(super) fn insert_loaded(
        &mut self,
        state: RunState,
        head: &HeadRow,
        node: NodeId,
        inline: bool,
        with_care: bool,
    ) {
        let needs_node = state.has_tasks() || (inline && state.needs_node());
        let elsewhere = head.owner.is_some_and(|owner| owner != node) && needs_node;
        let (run, may_wait) = (state.run, state.may_await_flights());
        self.insert(state, head.owner, elsewhere, inline, head.started_at);
        if let Some(entry) = self.entries.get_mut(&run) {
            entry.may_wait = may_wait;
            entry.with_care = with_care;
        }
    }

    fn insert(
        &mut self,
        state: RunState,
        owner: Option<NodeId>,
        elsewhere: bool,
        inline: bool,
        started_at: Option<Timestamp>,
    ) {
        self.tick += 1;
        let weight = state.weight();
        self.weight += weight;
        self.plans.add(&state.plan);
        let (generation, used) = (self.tick, self.tick);
        let in_line = state.moves() && state.ready_steps().next().is_some();
        let entry = Entry {
            owned: false,
            owner,
            elsewhere,
            inline,
            in_line,
            asking: false,
            waits: false,
            may_wait: false,
            generation,
            started_at,
            with_care: false,
            busy: 0,
            cost: Cost::default(),
            turn: 0,
            weight,
            plan: state.plan.clone(),
            used,
            state,
        };
        if let Some(old) = self.entries.insert(entry.state.run, entry) {
            self.count_no_more(&old);
        }
    }

    pub(super) fn forget(&mut self, run: RunId) {
        if let Some(forgotten) = self.entries.remove(&run) {
            self.count_no_more(&forgotten);
        }
    }

    fn count_no_more(&mut self, entry: &Entry) {
        self.weight -= entry.weight;
        self.plans.remove(&entry.plan);
    }

    /// A run that has ended and that nothing is on its way for is not kept at hand: it may be forgotten at any time, and
    /// then it is no run any more.
    pub(super) fn forget_ended(&mut self, run: RunId) {
        if self.has_ended(run) {
            self.forget(run);
        }
    }

    /// A run that is at hand, has ended, and is part of no batch.
    pub(super) fn has_ended(&self, run: RunId) -> bool {
        self.peek(run).is_some_and(|entry| entry.busy == 0 && entry.state.status.is_terminal())
    }

    /// A batch that the run was part of is written. Ended runs leave the cache.
    pub(super) fn written(&mut self, run: RunId, generation: u64) {
        let Some(entry) = self.entries.get_mut(&run).filter(|entry| entry.generation == generation) else { return };
        entry.busy = entry.busy.saturating_sub(1);
        if entry.busy > 0 {
            return;
        }
        if entry.state.status.is_terminal() {
            return self.forget(run);
        }
        entry.state.trim();
        let weight = entry.state.weight();
        self.weight = self.weight - entry.weight + weight;
        entry.weight = weight;
        if entry.plan.hash != entry.state.plan.hash {
            self.plans.remove(&entry.plan);
            self.plans.add(&entry.state.plan);
            entry.plan = entry.state.plan.clone();
        }
    }

    /// Lets go of the states that were used longest ago, down to three quarters of the limits.
    pub(super) fn shrink(&mut self) {
        if self.weight <= self.max_weight && self.plans.memory <= MOST_PLANS {
            return;
        }
        let idle = self.entries.values().filter(|entry| entry.busy == 0 && !entry.asking);
        let mut idle: Vec<(u64, RunId)> = idle.map(|entry| (entry.used, entry.state.run)).collect();
        idle.sort_unstable();
        for (_, run) in idle {
            if self.weight <= self.max_weight / 4 * 3 && self.plans.memory <= MOST_PLANS / 4 * 3 {
                break;
            }
            self.forget(run);
        }
    }
}

/// The state of a run as the database has it. A log that a patch is part of is read with the plans before and after it.
pub(crate) async fn restore(loaded: &LoadedRun, plans: &Plans) -> Result<RunState, EngineError> {
    let head = &loaded.head;
    refuse_parked(head)?;
    let mut patched = Vec::new();
    for row in &loaded.tail {
        let corrupt = |error: codec::Unreadable| EngineError::Corrupt { run: head.run, reason: error.to_string() };
        let Some((before, after)) = codec::patched_plans(row).map_err(corrupt)? else { continue };
        if patched.is_empty() {
            patched.push(plans.by_hash(head.org, before).await?);
        }
        patched.push(plans.by_hash(head.org, after).await?);
    }
    restore_with(loaded, &plans.by_hash(head.org, head.plan_hash).await?, patched)
}

/// `plan` is the one that the run has now; it knows the names of all steps that the run has had. `patched` are those that
/// it had from the beginning of what was loaded, in order, if it had more than one.
pub(crate) fn restore_with(
    loaded: &LoadedRun,
    plan: &Arc<Plan>,
    patched: Vec<Arc<Plan>>,
) -> Result<RunState, EngineError> {
    let run = loaded.head.run;
    let corrupt = |reason: String| EngineError::Corrupt { run, reason };
    if let Some(seq) = gap_of(loaded) {
        return Err(EngineError::LogGap { run, seq });
    }
    let first = patched.first().unwrap_or(plan).clone();
    let mut tail = Vec::with_capacity(loaded.tail.len());
    for row in &loaded.tail {
        tail.push(codec::decode(row, plan).map_err(|error| corrupt(error.to_string()))?);
    }
    let (mut start, rest) = match &loaded.checkpoint {
        Some(checkpoint) => {
            let state = RunState::from_checkpoint(run, first, checkpoint.format, &checkpoint.state);
            (state.map_err(|error| corrupt(error.to_string()))?, tail.as_slice())
        }
        None => {
            let (event, rest) = tail.split_first().ok_or_else(|| corrupt("its log is empty".to_owned()))?;
            (RunState::begin(run, first, event).map_err(|error| corrupt(error.to_string()))?, rest)
        }
    };
    patched.into_iter().for_each(|plan| start.learn_plan(plan));
    let state = start.replay(rest).map_err(|error| corrupt(error.to_string()))?;
    if state.last_seq != loaded.head.last_seq {
        return Err(corrupt(format!("its log ends at {}, its head says {}", state.last_seq, loaded.head.last_seq)));
    }
    Ok(state)
}

/// The first number that is missing between a checkpoint and where the head says that the log ends.
fn gap_of(loaded: &LoadedRun) -> Option<u64> {
    let after = loaded.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
    let there = loaded.tail.iter().zip(after + 1..).take_while(|(row, seq)| row.seq == *seq).count() as u64;
    Some(after + there + 1).filter(|missing| *missing <= loaded.head.last_seq)
}
