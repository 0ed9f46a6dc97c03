//! Continue-as-new: a run's state in few bytes, so that a long history need not be read to go on.
//!
//! Holds the plan by reference, a few bytes per step that has been touched, and where outputs are, not what they are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::{
    Buffered, Failure, Items, Phase, RunState, Running, RunningKind, Scratch, StepState, Timer, TimerPurpose,
};
use crate::event::{ErrorInfo, ParentStep, StepRef};
use crate::hash::Digest;
use crate::id::{NodeId, OrgId, RunId, SignalId};
use crate::plan::{Plan, StepIndex};
use crate::status::{RunStatus, SkipReason};
use crate::time::Timestamp;

/// The format in which this release writes checkpoints.
pub const CHECKPOINT_FORMAT: i16 = 1;

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
    failures: u32,
    acknowledged: u32,
    first_failure: Option<(u64, StepKey, ErrorInfo)>,
    stopping: bool,
    running: Vec<(StepKey, RunningHead, Option<u64>, u64)>,
    timers: Vec<(u64, i64, TimerHead)>,
    inbox: BTreeMap<String, Vec<(u64, Option<StepKey>)>>,
    seen_signals: VecDeque<SignalId>,
    signal_times: Vec<i64>,
    continues: u32,
    steps_since_continue: u32,
    bytes_since_continue: u64,
    foreach: Vec<StepIndex>,
}

type StepKey = (StepIndex, Option<u32>);

#[derive(Serialize, Deserialize)]
enum RunningHead {
    Task(Option<NodeId>),
    Sleep,
    Wait(String),
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
        let head = serde_json::to_vec(&self.head()).expect("a head has string keys and no failing serializer");
        let mut bytes = Vec::with_capacity(head.len() + self.steps.len() * 3 + 16);
        put_number(&mut bytes, head.len() as u64);
        bytes.extend_from_slice(&head);
        put_steps(&mut bytes, &self.steps);
        for items in self.items.values() {
            put_steps(&mut bytes, &items.steps);
        }
        bytes
    }

    fn head(&self) -> Head {
        let running =
            |(step, running): (&StepRef, &Running)| (key(*step), running.kind.to_head(), running.timer, running.since);
        let buffered =
            |line: &VecDeque<Buffered>| line.iter().map(|signal| (signal.seq, signal.step.map(key))).collect();
        Head {
            plan: self.plan.hash,
            org: self.org,
            status: self.status,
            last_seq: self.last_seq,
            priority: self.priority,
            created_at: self.created_at.0,
            slot_key: self.slot_key.clone(),
            parent: self.parent.as_ref().map(|p| (p.run, p.step.clone(), p.logical_attempt, p.depth)),
            failures: self.failures,
            acknowledged: self.acknowledged,
            first_failure: self.first_failure.as_ref().map(|f| (f.seq, key(f.step), f.error.clone())),
            stopping: self.stopping,
            running: self.running.iter().map(running).collect(),
            timers: self.timers.iter().map(|(seq, timer)| (*seq, timer.due_at.0, timer.purpose.to_head())).collect(),
            inbox: self.inbox.iter().map(|(name, line)| (name.clone(), buffered(line))).collect(),
            seen_signals: self.seen_signals.clone(),
            signal_times: self.signal_times.iter().map(|at| at.0).collect(),
            continues: self.continues,
            steps_since_continue: self.steps_since_continue,
            bytes_since_continue: self.bytes_since_continue,
            foreach: self.items.keys().copied().collect(),
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
        let mut steps = reader.steps()?;
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
            items.insert(*step, Items { steps: reader.steps()?, ..Items::default() });
        }
        if !reader.bytes.is_empty() {
            return Err(UnreadableCheckpoint("it goes on after its end".to_owned()));
        }
        let state = head.into_state(run, plan, steps, items);
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
fn count_open(steps: &mut [StepState], plan: &Plan) {
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

impl Head {
    fn into_state(
        self,
        run: RunId,
        plan: Arc<Plan>,
        steps: Vec<StepState>,
        mut items: BTreeMap<StepIndex, Items>,
    ) -> RunState {
        let running: BTreeMap<StepRef, Running> = self
            .running
            .into_iter()
            .map(|(step, kind, timer, since)| (unkey(step), Running { kind: kind.into_kind(), timer, since }))
            .collect();
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
        for (step, list) in &mut items {
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
            unfinished: count(&steps, |step| !step.phase.status().is_terminal()),
            active: 0,
            tasks: 0,
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
            inbox: self
                .inbox
                .into_iter()
                .map(|(name, line)| (name, line.into_iter().map(buffered).collect()))
                .collect(),
            seen_signals: self.seen_signals,
            signal_times: self.signal_times.into_iter().map(Timestamp).collect(),
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

fn count(steps: &[StepState], fits: impl Fn(&StepState) -> bool) -> u32 {
    u32::try_from(steps.iter().filter(|step| fits(step)).count()).unwrap_or(u32::MAX)
}

impl RunningKind {
    fn to_head(&self) -> RunningHead {
        match self {
            RunningKind::Task { worker } => RunningHead::Task(*worker),
            RunningKind::Sleep => RunningHead::Sleep,
            RunningKind::Wait { signal } => RunningHead::Wait(signal.clone()),
            RunningKind::Child { run } => RunningHead::Child(*run),
            RunningKind::Items => RunningHead::Items,
        }
    }
}

impl RunningHead {
    fn into_kind(self) -> RunningKind {
        match self {
            RunningHead::Task(worker) => RunningKind::Task { worker },
            RunningHead::Sleep => RunningKind::Sleep,
            RunningHead::Wait(signal) => RunningKind::Wait { signal },
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

/// Set in a step's first byte when its attempts are the usual ones: none before it begins, one after.
const USUAL: u8 = 0x10;

fn put_steps(bytes: &mut Vec<u8>, steps: &[StepState]) {
    put_number(bytes, steps.len() as u64);
    let mut last_output = 0_u64;
    for step in steps {
        let usual = is_usual(step);
        bytes.push(phase_code(step.phase) | if usual { USUAL } else { 0 });
        if !usual {
            put_number(bytes, u64::from(step.logical_attempt));
            put_number(bytes, u64::from(step.engine_attempt));
            put_number(bytes, u64::from(step.spent));
        }
        if step.phase == Phase::Completed {
            // Outputs mostly lie near each other in the log.
            put_number(bytes, zigzag(step.output_seq.cast_signed().wrapping_sub(last_output.cast_signed())));
            last_output = step.output_seq;
        }
    }
}

fn is_usual(step: &StepState) -> bool {
    let attempts = u32::from(!matches!(step.phase, Phase::Pending | Phase::Ready));
    (step.logical_attempt, step.engine_attempt, step.spent) == (attempts, attempts, 0)
}

fn phase_code(phase: Phase) -> u8 {
    match phase {
        Phase::Pending => 0,
        Phase::Ready => 1,
        Phase::Running => 2,
        Phase::Backoff => 3,
        Phase::Completed => 4,
        Phase::Failed => 5,
        Phase::Skipped(SkipReason::CacheHit) => 6,
        Phase::Skipped(SkipReason::Condition) => 7,
        Phase::Skipped(SkipReason::UpstreamFailed) => 8,
        Phase::Skipped(SkipReason::Cancelled) => 9,
        Phase::Skipped(SkipReason::Operator) => 10,
    }
}

fn phase_of(code: u8) -> Result<Phase, UnreadableCheckpoint> {
    Ok(match code {
        0 => Phase::Pending,
        1 => Phase::Ready,
        2 => Phase::Running,
        3 => Phase::Backoff,
        4 => Phase::Completed,
        5 => Phase::Failed,
        6 => Phase::Skipped(SkipReason::CacheHit),
        7 => Phase::Skipped(SkipReason::Condition),
        8 => Phase::Skipped(SkipReason::UpstreamFailed),
        9 => Phase::Skipped(SkipReason::Cancelled),
        10 => Phase::Skipped(SkipReason::Operator),
        _ => return Err(UnreadableCheckpoint(format!("a step has the phase {code}"))),
    })
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number as u8) | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn cut() -> UnreadableCheckpoint {
    UnreadableCheckpoint("it ends too early".to_owned())
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], UnreadableCheckpoint> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(cut)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, UnreadableCheckpoint> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, UnreadableCheckpoint> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(UnreadableCheckpoint("a number is too long".to_owned()))
    }

    fn small(&mut self) -> Result<u32, UnreadableCheckpoint> {
        u32::try_from(self.number()?).map_err(|_| UnreadableCheckpoint("a number is too large".to_owned()))
    }

    fn steps(&mut self) -> Result<Vec<StepState>, UnreadableCheckpoint> {
        let length = usize::try_from(self.number()?).map_err(|_| cut())?;
        let mut steps = Vec::with_capacity(length.min(self.bytes.len()));
        let mut last_output = 0_u64;
        for _ in 0..length {
            let code = self.byte()?;
            let mut step = StepState { phase: phase_of(code & !USUAL)?, ..StepState::new(0) };
            if code & USUAL == 0 {
                (step.logical_attempt, step.engine_attempt, step.spent) = (self.small()?, self.small()?, self.small()?);
            } else {
                let attempts = u32::from(!matches!(step.phase, Phase::Pending | Phase::Ready));
                (step.logical_attempt, step.engine_attempt) = (attempts, attempts);
            }
            if step.phase == Phase::Completed {
                last_output = last_output.cast_signed().wrapping_add(unzigzag(self.number()?)).cast_unsigned();
                step.output_seq = last_output;
            }
            steps.push(step);
        }
        Ok(steps)
    }
}
