//! Continue-as-new: a run's state in few bytes, so that a long history need not be read to go on.
//!
//! Holds the plan by reference, a few bytes per step that has been touched, and where outputs are, not what they are.

mod bytes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::bytes::{Reader, checksum, cut, put_number, put_steps};

use super::cache::Begun;
use super::items::{ItemSteps, Items};
use super::state::{
    Buffered, Failure, PatchRecord, Phase, RunState, Running, RunningKind, Scratch, StepState, Timer, TimerPurpose,
};
use super::upstream::Upstream;
use crate::artifact::Artifact;
use crate::cache::Trust;
use crate::event::{ErrorInfo, LeaseProof, ParentStep, StepRef};
use crate::hash::Digest;
use crate::id::{NodeId, OrgId, RunId, SignalId};
use crate::plan::{Plan, Rebuild, StepIndex};
use crate::status::RunStatus;
use crate::time::Timestamp;

/// The format in which this release writes checkpoints.
pub const CHECKPOINT_FORMAT: i16 = 1;

/// Fewer items are read at once.
const WORTH_PACKING: usize = 256;

/// A checkpoint that this release cannot read. The log can still be read from its beginning.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint cannot be read: {0}")]
pub struct UnreadableCheckpoint(String);

/// All but the steps, as JSON: small, and easy to look at.
#[derive(Serialize, Deserialize)]
struct Head {
    plan: Digest,
    org: OrgId,
    status: RunStatus,
    last_seq: u64,
    priority: i32,
    created_at: i64,
    slot_key: Option<String>,
    parent: Option<(RunId, String, u32, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    failures: u32,
    acknowledged: u32,
    first_failure: Option<(u64, StepKey, ErrorInfo)>,
    stopping: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
    /// The nodes that have tasks of this run.
    workers: Vec<NodeId>,
    /// All that runs but those tasks: they can be many and are kept with the steps.
    running: Vec<(StepKey, RunningHead, Option<u64>)>,
    timers: Vec<(u64, i64, TimerHead)>,
    inbox: BTreeMap<String, Vec<(u64, Option<StepKey>)>>,
    seen_signals: VecDeque<SignalId>,
    signal_times: Vec<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patches: Vec<PatchHead>,
    #[serde(default, skip_serializing_if = "is_zero")]
    self_patches: u32,
    /// Kind, step of a training, and what it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    numbered: Vec<(String, i64, uuid::Uuid)>,
    /// Steps that left artifacts, and the hash of those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<(StepKey, Digest)>,
    /// What was recorded for steps that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<(StepKey, VecDeque<Artifact>)>,
    #[serde(default, skip_serializing_if = "is_open")]
    trust: Trust,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rebuild: Option<RebuildHead>,
    /// Those under way whose results are to be kept: the key, and when they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begun: Vec<(StepKey, Digest, i64)>,
    continues: u32,
    steps_since_continue: u32,
    bytes_since_continue: u64,
    foreach: Vec<StepIndex>,
    /// Those of `foreach` that have many items and none open: they are read when somebody looks at them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    over: BTreeMap<StepIndex, Over>,
}

/// The items of a `foreach` step, all of which have ended.
#[derive(Serialize, Deserialize)]
struct Over {
    bytes: usize,
    items: usize,
    failed: u32,
    checksum: u64,
}

/// A patch that may be taken back: its id, the plan before it, and the steps that it touched with their attempts.
type PatchHead = (SignalId, Digest, Vec<(StepIndex, u32, u32)>);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_open(trust: &Trust) -> bool {
    *trust == Trust::Open
}

type StepKey = (StepIndex, Option<u32>);

#[derive(Serialize, Deserialize)]
enum RebuildHead {
    All,
    Steps(Vec<StepIndex>),
}

#[derive(Serialize, Deserialize)]
enum RunningHead {
    Task(Option<NodeId>),
    /// By the nonce, as checkpoints had it before.
    Leased(u64),
    /// By a hash.
    Held(u64),
    Sleep,
    Wait(String, u64),
    Child(RunId),
    Items,
}

#[derive(Serialize, Deserialize)]
enum TimerHead {
    StartAt,
    Retry(StepKey),
    End(StepKey),
}

fn key(step: StepRef) -> StepKey {
    (step.step, step.item)
}

fn unkey((step, item): StepKey) -> StepRef {
    StepRef { step, item }
}

impl RunState {
    /// The state as bytes. Two states are the same if their bytes are.
    #[must_use]
    pub fn to_checkpoint(&self) -> Vec<u8> {
        let workers: BTreeSet<NodeId> = self.running.values().filter_map(Running::plain_task).collect();
        let workers: Vec<NodeId> = workers.into_iter().collect();
        let held = |step: StepRef| {
            let worker = self.running.get(&step)?.plain_task()?;
            workers.binary_search(&worker).ok()
        };
        let mut states = Vec::with_capacity(self.steps.len() * 3 + 16);
        put_steps(&mut states, &self.steps, |index| held(StepRef::whole(index)));
        let mut over = BTreeMap::new();
        for (step, items) in &self.items {
            let begin = states.len();
            match items.steps.as_packed() {
                Some(packed) => states.extend_from_slice(packed),
                None => put_steps(&mut states, &items.steps, |item| held(StepRef::item(*step, item))),
            }
            if items.unfinished == 0 && items.steps.count() >= WORTH_PACKING {
                let bytes = &states[begin..];
                let (items, failed) = (items.steps.count(), items.failed);
                over.insert(*step, Over { bytes: bytes.len(), items, failed, checksum: checksum(bytes) });
            }
        }
        let head = self.head(workers.clone(), over);
        let head = serde_json::to_vec(&head).expect("a head has string keys and no failing serializer");
        let mut bytes = Vec::with_capacity(head.len() + states.len() + 4);
        put_number(&mut bytes, head.len() as u64);
        bytes.extend_from_slice(&head);
        bytes.append(&mut states);
        bytes
    }

    fn head(&self, workers: Vec<NodeId>, over: BTreeMap<StepIndex, Over>) -> Head {
        let other = |(_, running): &(&StepRef, &Running)| running.plain_task().is_none();
        let running = |(step, running): (&StepRef, &Running)| (key(*step), running.kind.to_head(), running.timer);
        let buffered =
            |line: &VecDeque<Buffered>| line.iter().map(|signal| (signal.seq, signal.step.map(key))).collect();
        let begun = |(step, running): (&StepRef, &Running)| {
            let Begun { key: cache_key, at } = running.begun?;
            Some((key(*step), cache_key, at.0))
        };
        Head {
            plan: self.plan.hash,
            org: self.org,
            status: self.status,
            last_seq: self.last_seq,
            priority: self.priority,
            created_at: self.created_at.0,
            slot_key: self.slot_key.clone(),
            parent: self.parent.as_ref().map(|p| (p.run, p.step.clone(), p.logical_attempt, p.depth)),
            traceparent: self.trace.as_ref().map(ToString::to_string),
            failures: self.failures,
            acknowledged: self.acknowledged,
            first_failure: self.first_failure.as_ref().map(|f| (f.seq, key(f.step), f.error.clone())),
            stopping: self.stopping,
            stop_reason: self.stop_reason.clone(),
            workers,
            running: self.running.iter().filter(other).map(running).collect(),
            timers: self.timers.iter().map(|(seq, timer)| (*seq, timer.due_at.0, timer.purpose.to_head())).collect(),
            inbox: self.inbox.iter().map(|(name, line)| (name.clone(), buffered(line))).collect(),
            seen_signals: self.seen_signals.clone(),
            signal_times: self.signal_times.iter().map(|at| at.0).collect(),
            patches: self.patches.iter().map(|patch| (patch.id, patch.before, patch.touched.clone())).collect(),
            self_patches: self.self_patches,
            numbered: self
                .numbered
                .iter()
                .map(|((kind, step), identity)| (kind.clone(), *step, uuid::Uuid::from_bytes(*identity)))
                .collect(),
            left: self.upstream.left.iter().map(|(step, digest)| (key(*step), *digest)).collect(),
            recorded: self.upstream.recorded.iter().map(|(step, early)| (key(*step), early.clone())).collect(),
            trust: self.trust,
            rebuild: self.rebuild.as_ref().map(|rebuild| match rebuild {
                Rebuild::All => RebuildHead::All,
                Rebuild::Steps(steps) => RebuildHead::Steps(steps.clone()),
            }),
            begun: self.running.iter().filter_map(begun).collect(),
            continues: self.continues,
            steps_since_continue: self.steps_since_continue,
            bytes_since_continue: self.bytes_since_continue,
            foreach: self.items.keys().copied().collect(),
            over,
        }
    }

    /// The state that `to_checkpoint` wrote.
    ///
    /// # Errors
    /// The bytes are of another format or another plan.
    pub fn from_checkpoint(
        run: RunId,
        plan: Arc<Plan>,
        format: i16,
        bytes: &[u8],
    ) -> Result<RunState, UnreadableCheckpoint> {
        if format != CHECKPOINT_FORMAT {
            return Err(UnreadableCheckpoint(format!(
                "it has format {format}, this release reads {CHECKPOINT_FORMAT}"
            )));
        }
        let mut reader = Reader { bytes };
        let length = usize::try_from(reader.number()?).map_err(|_| cut())?;
        let head: Head =
            serde_json::from_slice(reader.take(length)?).map_err(|error| UnreadableCheckpoint(error.to_string()))?;
        if head.plan != plan.hash {
            return Err(UnreadableCheckpoint(format!("it is of the plan {}, this is {}", head.plan, plan.hash)));
        }
        let mut tasks = BTreeMap::new();
        let mut steps = reader.steps(|index, worker| head.task(StepRef::whole(index), worker, &mut tasks))?;
        if steps.len() != plan.steps.len() {
            return Err(UnreadableCheckpoint(format!(
                "it has {} steps, the plan has {}",
                steps.len(),
                plan.steps.len()
            )));
        }
        count_open(&mut steps, &plan);
        let mut items = BTreeMap::new();
        for step in &head.foreach {
            if let Some(over) = head.over.get(step) {
                items.insert(*step, over.read(&mut reader)?);
                continue;
            }
            let steps = reader.steps(|item, worker| head.task(StepRef::item(*step, item), worker, &mut tasks))?;
            items.insert(*step, Items { steps: steps.into(), ..Items::default() });
        }
        if !reader.bytes.is_empty() {
            return Err(UnreadableCheckpoint("it goes on after its end".to_owned()));
        }
        let state = head.into_state(run, plan, steps, items, tasks);
        state.check_references()?;
        Ok(state)
    }

    /// Everything that is named exists, so that nothing has to be asked for twice later on.
    fn check_references(&self) -> Result<(), UnreadableCheckpoint> {
        let of_timers = self.timers.values().filter_map(|timer| match timer.purpose {
            TimerPurpose::StartAt => None,
            TimerPurpose::Retry(step) | TimerPurpose::End(step) => Some(step),
        });
        let of_items = self.items.keys().map(|step| StepRef::whole(*step));
        let of_failure = self.first_failure.iter().map(|failure| failure.step);
        let mut named = self.running.keys().copied().chain(of_timers).chain(of_items).chain(of_failure);
        match named.find(|step| self.step(*step).is_none()) {
            None => Ok(()),
            Some(step) => Err(UnreadableCheckpoint(format!(
                "it names step {} item {:?}, which does not exist",
                step.step, step.item
            ))),
        }
    }
}

/// Dependencies that are not satisfied: known from the steps' phases.
pub(super) fn count_open(steps: &mut [StepState], plan: &Plan) {
    let satisfied: Vec<bool> = steps
        .iter()
        .map(|step| match step.phase {
            Phase::Completed => true,
            Phase::Skipped(reason) => reason.satisfies(),
            _ => false,
        })
        .collect();
    for (state, planned) in steps.iter_mut().zip(&plan.steps) {
        let open = planned.depends_on.iter().filter(|before| !satisfied[**before as usize]).count();
        state.open = u32::try_from(open).unwrap_or(u32::MAX);
    }
}

impl Running {
    /// Whose task it is, if that is all there is to say of it.
    fn plain_task(&self) -> Option<NodeId> {
        match (&self.kind, self.timer) {
            (RunningKind::Task { worker }, None) => *worker,
            _ => None,
        }
    }
}

impl Over {
    fn read(&self, reader: &mut Reader<'_>) -> Result<Items, UnreadableCheckpoint> {
        let bytes = reader.take(self.bytes)?;
        if checksum(bytes) != self.checksum {
            return Err(UnreadableCheckpoint("the items of a step are damaged".to_owned()));
        }
        Ok(Items { steps: ItemSteps::packed(bytes, self.items), failed: self.failed, ..Items::default() })
    }
}

#[cfg(test)]
pub(super) fn pack(steps: &[StepState]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_steps(&mut bytes, steps, |_| None);
    bytes
}

/// The steps that `put_steps` packed, none of them under way.
pub(super) fn unpack(bytes: &[u8]) -> Vec<StepState> {
    let mut reader = Reader { bytes };
    reader.steps(|_, _| Ok(())).expect("these bytes were checked to be as they were written")
}

impl Head {
    fn task(
        &self,
        step: StepRef,
        worker: usize,
        tasks: &mut BTreeMap<StepRef, Running>,
    ) -> Result<(), UnreadableCheckpoint> {
        let worker = self.workers.get(worker).copied();
        let worker = worker.ok_or_else(|| UnreadableCheckpoint("it names a node it does not list".to_owned()))?;
        tasks.insert(step, Running { kind: RunningKind::Task { worker: Some(worker) }, timer: None, begun: None });
        Ok(())
    }

    fn into_state(
        self,
        run: RunId,
        plan: Arc<Plan>,
        steps: Vec<StepState>,
        mut items: BTreeMap<StepIndex, Items>,
        tasks: BTreeMap<StepRef, Running>,
    ) -> RunState {
        let mut running: BTreeMap<StepRef, Running> = self
            .running
            .into_iter()
            .map(|(step, kind, timer)| (unkey(step), Running { kind: kind.into_kind(), timer, begun: None }))
            .chain(tasks)
            .collect();
        for (step, key, at) in self.begun {
            if let Some(running) = running.get_mut(&unkey(step)) {
                running.begun = Some(Begun { key, at: Timestamp(at) });
            }
        }
        let timers: BTreeMap<u64, Timer> = self
            .timers
            .into_iter()
            .map(|(seq, due_at, purpose)| (seq, Timer { due_at: Timestamp(due_at), purpose: purpose.into_purpose() }))
            .collect();
        let backoff = timers
            .iter()
            .filter_map(|(seq, timer)| match timer.purpose {
                TimerPurpose::Retry(step) => Some((step, *seq)),
                _ => None,
            })
            .collect();
        let mut ready: BTreeSet<StepRef> = BTreeSet::new();
        collect_ready(&mut ready, &steps, StepRef::whole);
        for (step, list) in items.iter_mut().filter(|(step, _)| !self.over.contains_key(step)) {
            collect_ready(&mut ready, &list.steps, |item| StepRef::item(*step, item));
            count_items(list, *step, &running);
        }
        // Nothing is in line in a run that was stopped.
        if matches!(self.status, RunStatus::Cancelled | RunStatus::Terminated) {
            ready.clear();
        }
        let buffered = |(seq, step): (u64, Option<StepKey>)| Buffered { seq, step: step.map(unkey) };
        let mut state = RunState {
            org: self.org,
            run,
            status: self.status,
            last_seq: self.last_seq,
            priority: self.priority,
            created_at: Timestamp(self.created_at),
            slot_key: self.slot_key,
            parent: self.parent.map(|(run, step, logical_attempt, depth)| ParentStep {
                run,
                step,
                logical_attempt,
                depth,
            }),
            trace: self.traceparent.and_then(|text| text.parse().ok()),
            unfinished: count(&steps, |step| !step.phase.status().is_terminal()),
            active: 0,
            tasks: 0,
            leased: 0,
            waits: 0,
            children: BTreeMap::new(),
            plan,
            steps,
            items,
            ready,
            running: BTreeMap::new(),
            timers,
            backoff,
            failures: self.failures,
            acknowledged: self.acknowledged,
            first_failure: self.first_failure.map(|(seq, step, error)| Failure { seq, step: unkey(step), error }),
            stopping: self.stopping,
            stop_reason: self.stop_reason,
            inbox: self
                .inbox
                .into_iter()
                .map(|(name, line)| (name, line.into_iter().map(buffered).collect()))
                .collect(),
            seen_signals: self.seen_signals,
            signal_times: self.signal_times.into_iter().map(Timestamp).collect(),
            patches: self
                .patches
                .into_iter()
                .map(|(id, before, touched)| PatchRecord { id, before, touched })
                .collect(),
            self_patches: self.self_patches,
            numbered: self
                .numbered
                .into_iter()
                .map(|(kind, step, identity)| ((kind, step), *identity.as_bytes()))
                .collect(),
            upstream: Upstream {
                left: self.left.into_iter().map(|(step, digest)| (unkey(step), digest)).collect(),
                recorded: self.recorded.into_iter().map(|(step, early)| (unkey(step), early)).collect(),
            },
            trust: self.trust,
            rebuild: self.rebuild.map(|rebuild| match rebuild {
                RebuildHead::All => Rebuild::All,
                RebuildHead::Steps(steps) => Rebuild::Steps(steps),
            }),
            continues: self.continues,
            steps_since_continue: self.steps_since_continue,
            bytes_since_continue: self.bytes_since_continue,
            scratch: Scratch::default(),
        };
        for (step, running) in running {
            state.insert_running(step, running);
        }
        state
    }
}

fn collect_ready(ready: &mut BTreeSet<StepRef>, steps: &[StepState], name: impl Fn(u32) -> StepRef) {
    let mut found = steps.iter().enumerate().filter(|(_, step)| step.phase == Phase::Ready);
    ready.extend(found.by_ref().map(|(index, _)| name(index as u32)));
}

fn count_items(items: &mut Items, step: StepIndex, running: &BTreeMap<StepRef, Running>) {
    items.unfinished = count(&items.steps, |item| !item.phase.status().is_terminal());
    items.failed = count(&items.steps, |item| item.phase == Phase::Failed);
    let of_step = StepRef::item(step, 0)..=StepRef::item(step, u32::MAX);
    items.running = u32::try_from(running.range(of_step).count()).unwrap_or(u32::MAX);
}

pub(super) fn count(steps: &[StepState], fits: impl Fn(&StepState) -> bool) -> u32 {
    u32::try_from(steps.iter().filter(|step| fits(step)).count()).unwrap_or(u32::MAX)
}

impl RunningKind {
    fn to_head(&self) -> RunningHead {
        match self {
            RunningKind::Task { worker } => RunningHead::Task(*worker),
            RunningKind::Leased { proof: LeaseProof::Nonce(nonce) } => RunningHead::Leased(*nonce),
            RunningKind::Leased { proof: LeaseProof::Hash(hash) } => RunningHead::Held(*hash),
            RunningKind::Sleep => RunningHead::Sleep,
            RunningKind::Wait { signal, since } => RunningHead::Wait(signal.clone(), *since),
            RunningKind::Child { run } => RunningHead::Child(*run),
            RunningKind::Items => RunningHead::Items,
        }
    }
}

impl RunningHead {
    fn into_kind(self) -> RunningKind {
        match self {
            RunningHead::Task(worker) => RunningKind::Task { worker },
            RunningHead::Leased(nonce) => RunningKind::Leased { proof: LeaseProof::Nonce(nonce) },
            RunningHead::Held(hash) => RunningKind::Leased { proof: LeaseProof::Hash(hash) },
            RunningHead::Sleep => RunningKind::Sleep,
            RunningHead::Wait(signal, since) => RunningKind::Wait { signal, since },
            RunningHead::Child(run) => RunningKind::Child { run },
            RunningHead::Items => RunningKind::Items,
        }
    }
}

impl TimerPurpose {
    fn to_head(self) -> TimerHead {
        match self {
            TimerPurpose::StartAt => TimerHead::StartAt,
            TimerPurpose::Retry(step) => TimerHead::Retry(key(step)),
            TimerPurpose::End(step) => TimerHead::End(key(step)),
        }
    }
}

impl TimerHead {
    fn into_purpose(self) -> TimerPurpose {
        match self {
            TimerHead::StartAt => TimerPurpose::StartAt,
            TimerHead::Retry(step) => TimerPurpose::Retry(unkey(step)),
            TimerHead::End(step) => TimerPurpose::End(unkey(step)),
        }
    }
}
