//! A run's state: what its log adds up to, and nothing else. Changed only by [`super::apply`].

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::TaskRef;
use super::cache::{Begun, Looking};
use super::facts::{Facts, List};
use super::items::Items;
use super::upstream::Upstream;
use crate::artifact::Artifact;
use crate::cache::{Flight, Surroundings, Trust};
use crate::event::{ErrorInfo, LeaseProof, ParentStep, Queued, StepRef};
use crate::hash::Digest;
use crate::id::{NodeId, OrgId, RunId, SignalId};
use crate::json::Json;
use crate::plan::{OnFailure, Plan, PlanStep, Rebuild, StepIndex};
use crate::status::{RunStatus, SkipReason, StepStatus};
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// How many ids of past signals a run remembers, to tell a repeated one.
pub(super) const REMEMBERED_SIGNALS: usize = 1000;

#[derive(Clone, Debug)]
pub struct RunState {
    pub org: OrgId,
    pub run: RunId,
    pub plan: Arc<Plan>,
    pub status: RunStatus,
    pub last_seq: u64,
    pub priority: i32,
    pub created_at: Timestamp,
    /// The evaluated concurrency key.
    pub slot_key: Option<String>,
    pub parent: Option<ParentStep>,
    /// The trace of whoever started the run.
    pub trace: Option<TraceContext>,

    pub(super) steps: Vec<StepState>,
    /// The items of `foreach` steps that have begun.
    pub(super) items: BTreeMap<StepIndex, Items>,
    /// Steps whose turn has come and that nobody has begun.
    pub(super) ready: BTreeSet<StepRef>,
    pub(super) running: BTreeMap<StepRef, Running>,
    /// How many of `running` are not whole `foreach` steps.
    pub(super) active: u32,
    /// How many of `running` an executor of a node has.
    pub(super) tasks: u32,
    /// How many of `running` a worker has.
    pub(super) leased: u32,
    /// How many of `running` wait for a signal.
    pub(super) waits: u32,
    /// Those of `running` that are runs of their own.
    pub(super) children: BTreeMap<RunId, StepRef>,
    /// By the sequence number of the event that armed them.
    pub(super) timers: BTreeMap<u64, Timer>,
    /// Steps that wait for a retry, with their timers.
    pub(super) backoff: BTreeMap<StepRef, u64>,
    /// Whole steps that have not ended.
    pub(super) unfinished: u32,
    /// Steps and items that stand failed.
    pub(super) failures: u32,
    /// Those of `failures` that stood when an operator last had a step retried: he knows them, they hold nothing back.
    pub(super) acknowledged: u32,
    pub(super) first_failure: Option<Failure>,
    pub(super) stopping: bool,
    /// What was given as the reason to cancel it.
    pub(super) stop_reason: Option<String>,
    /// Signals that no step has taken yet, by name, in the order they came.
    pub(super) inbox: BTreeMap<String, VecDeque<Buffered>>,
    pub(super) seen_signals: VecDeque<SignalId>,
    /// When the latest signals came, for the limit per minute.
    pub(super) signal_times: VecDeque<Timestamp>,
    /// Patches that may be taken back, the newest last.
    pub(super) patches: VecDeque<PatchRecord>,
    /// How many patches the run's own steps have returned.
    pub(super) self_patches: u32,
    /// Artifacts of steps of a training, by kind and step: what each is.
    pub(super) numbered: BTreeMap<(String, i64), [u8; 16]>,
    pub(super) upstream: Upstream,
    /// Whose results it was started to take.
    pub(super) trust: Trust,
    /// Steps that run whatever is kept.
    pub(super) rebuild: Option<Rebuild>,
    pub(super) continues: u32,
    pub(super) steps_since_continue: u32,
    pub(super) bytes_since_continue: u64,

    pub(super) scratch: Scratch,
}

/// Not part of the state: what is in reach at the moment, and what the last events led to.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Values that events carry, by sequence number. May be forgotten at any time and is asked for when needed.
    pub(super) facts: Facts,
    /// The artifacts of results, by the sequence numbers of the events that carry them; the same goes for these.
    pub(super) artifacts: HashMap<u64, Arc<Value>>,
    pub(super) artifact_bytes: usize,
    /// What the items of `foreach` steps left, in one hash.
    pub(super) digests: BTreeMap<StepIndex, Option<Digest>>,
    /// Became ready by the events applied since the last look.
    pub(super) fresh: Vec<StepRef>,
    /// Could not be looked at because a fact was missing.
    pub(super) blocked: Vec<StepRef>,
    pub(super) timer_changes: Vec<TimerChange>,
    /// Left the line, or (true) a worker's hands, by the events applied since the last look.
    pub(super) gone: Vec<(StepRef, bool)>,
    pub(super) run_value: OnceLock<Arc<Value>>,
    /// The lists of the `foreach` steps whose items are being handed out.
    pub(super) items: BTreeMap<StepIndex, List>,
    /// What evaluating has cost in the decision under way, in bytes and work.
    pub(super) spent: u64,
    /// Ready steps that are looked at in the next decision, as this one has done enough.
    pub(super) postponed: Vec<StepRef>,
    /// Plans that the run is about to follow.
    pub(super) plans: BTreeMap<Digest, Arc<Plan>>,
    /// What keys are made of beyond the run.
    pub(super) surroundings: Option<Arc<Surroundings>>,
    /// Ready steps about whose results something was asked.
    pub(super) cache: BTreeMap<StepRef, Looking>,
    /// Who of this run makes which result, as far as that was decided here; what is over may be among them.
    pub(super) led: BTreeMap<Digest, StepRef>,
    /// Ready steps that wait for what others make.
    pub(super) awaited: BTreeMap<StepRef, Flight>,
    /// Ready steps whose turn to ask comes when those before them have their answers.
    pub(super) unasked: VecDeque<StepRef>,
    /// Nothing of this happens; so no failure keeps the rest from being looked at.
    pub(super) preview: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerChange {
    Arm { seq: u64, due_at: Timestamp },
    Disarm { seq: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) seq: u64,
    pub(super) step: StepRef,
    pub(super) error: ErrorInfo,
}

/// A patch of the run's definition, as far as taking it back needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PatchRecord {
    pub(super) id: SignalId,
    /// The plan before it.
    pub(super) before: Digest,
    /// The steps that it made what they are, with their attempts at that time.
    pub(super) touched: Vec<(StepIndex, u32, u32)>,
}

/// A signal that waits for a step that wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffered {
    /// The event that carries it.
    pub(super) seq: u64,
    /// The step it is meant for; `None` is any.
    pub(super) step: Option<StepRef>,
}

impl Buffered {
    /// A signal to a `foreach` step is for any of its items.
    pub(super) fn is_for(&self, step: StepRef) -> bool {
        self.step.is_none_or(|named| named == step || named == StepRef::whole(step.step))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepState {
    pub(super) phase: Phase,
    /// Dependencies that are not satisfied yet.
    pub(super) open: u32,
    /// Of the current attempt or the last one; 0 before the first.
    pub(super) logical_attempt: u32,
    pub(super) engine_attempt: u32,
    /// Attempts before the operator asked for more; they do not count against `max_attempts`.
    pub(super) spent: u32,
    /// The event that carries the output, or ended a `foreach` step.
    pub(super) output_seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Ready,
    Running,
    /// Waits for its retry's timer.
    Backoff,
    Completed,
    Failed,
    Skipped(SkipReason),
}

impl Phase {
    pub(super) fn status(self) -> StepStatus {
        match self {
            Phase::Pending | Phase::Ready | Phase::Backoff => StepStatus::Pending,
            Phase::Running => StepStatus::Running,
            Phase::Completed => StepStatus::Completed,
            Phase::Failed => StepStatus::Failed,
            Phase::Skipped(_) => StepStatus::Skipped,
        }
    }
}

impl StepState {
    pub(super) fn new(open: u32) -> StepState {
        StepState { phase: Phase::Pending, open, logical_attempt: 0, engine_attempt: 0, spent: 0, output_seq: 0 }
    }

    /// Of a number whose step is gone.
    pub(super) fn removed() -> StepState {
        StepState { phase: Phase::Skipped(SkipReason::Removed), ..StepState::new(0) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) kind: RunningKind,
    /// Ends a sleep, or the patience with a wait or a child.
    pub(super) timer: Option<u64>,
    /// Its result is to be kept.
    pub(super) begun: Option<Begun>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunningKind {
    Task {
        worker: Option<NodeId>,
    },
    /// In the hands of a worker, whose answer is compared with this.
    Leased {
        proof: LeaseProof,
    },
    Sleep,
    /// `since` is the event that says it began.
    Wait {
        signal: String,
        since: u64,
    },
    Child {
        run: RunId,
    },
    Items,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) due_at: Timestamp,
    pub(super) purpose: TimerPurpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerPurpose {
    StartAt,
    Retry(StepRef),
    /// The end of a sleep, or of the patience with a wait or a child.
    End(StepRef),
}

impl RunState {
    pub(super) fn new(run: RunId, plan: Arc<Plan>, queued: &Queued, at: Timestamp) -> RunState {
        let step_state = |step: &PlanStep| match step.removed {
            false => StepState::new(u32::try_from(step.depends_on.len()).unwrap_or(u32::MAX)),
            true => StepState::removed(),
        };
        let steps: Vec<StepState> = plan.steps.iter().map(step_state).collect();
        RunState {
            org: queued.org,
            run,
            status: queued.status,
            last_seq: 1,
            priority: queued.priority,
            created_at: at,
            slot_key: queued.slot_key.clone(),
            parent: queued.parent.clone(),
            trace: queued.trace,
            unfinished: plan.steps_total(),
            plan,
            steps,
            items: BTreeMap::new(),
            ready: BTreeSet::new(),
            running: BTreeMap::new(),
            active: 0,
            tasks: 0,
            leased: 0,
            waits: 0,
            children: BTreeMap::new(),
            timers: BTreeMap::new(),
            backoff: BTreeMap::new(),
            failures: 0,
            acknowledged: 0,
            first_failure: None,
            stopping: false,
            stop_reason: None,
            inbox: BTreeMap::new(),
            seen_signals: VecDeque::new(),
            signal_times: VecDeque::new(),
            patches: VecDeque::new(),
            self_patches: 0,
            numbered: BTreeMap::new(),
            upstream: Upstream::default(),
            trust: queued.trust,
            rebuild: queued.rebuild.clone(),
            continues: 0,
            steps_since_continue: 0,
            bytes_since_continue: 0,
            scratch: Scratch::default(),
        }
    }

    pub(super) fn step(&self, step: StepRef) -> Option<&StepState> {
        match step.item {
            None => self.steps.get(step.step as usize),
            Some(item) => self.items.get(&step.step)?.steps.get(item as usize),
        }
    }

    pub(super) fn step_mut(&mut self, step: StepRef) -> Option<&mut StepState> {
        match step.item {
            None => self.steps.get_mut(step.step as usize),
            Some(item) => self.items.get_mut(&step.step)?.steps.get_mut(item as usize),
        }
    }

    /// No new steps start: the run is being stopped, or a step failed and the document says `stop`. Failures that an
    /// operator saw when he had a step retried do not count, else that step could not run while another stands failed.
    pub(super) fn halted(&self) -> bool {
        let failed = self.failures > self.acknowledged && self.plan.on_failure == OnFailure::Stop;
        self.stopping || (failed && !self.scratch.preview)
    }

    /// New steps may start.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.status == RunStatus::Running && !self.halted()
    }

    /// Nothing but room under its concurrency key keeps the run from starting.
    #[must_use]
    pub fn waits_for_slot(&self, now: Timestamp) -> bool {
        self.slot_key.is_some() && self.may_start(now)
    }

    /// Approved where that is asked for, and its time has come.
    pub(super) fn may_start(&self, now: Timestamp) -> bool {
        let allowed = match self.status {
            RunStatus::Pending => !self.plan.approval,
            RunStatus::Approved | RunStatus::Queued => true,
            _ => false,
        };
        allowed && self.timers.values().all(|timer| timer.due_at <= now)
    }

    pub(super) fn is_startable(&self, step: StepRef, now: Timestamp) -> bool {
        let due = |seq: &u64| self.timers.get(seq).is_some_and(|timer| timer.due_at <= now);
        self.ready.contains(&step) || self.backoff.get(&step).is_some_and(due)
    }

    /// Ready steps, and those whose retry is due.
    pub(super) fn startable(&self, now: Timestamp) -> Vec<StepRef> {
        let due = self.backoff.iter().filter(|(_, seq)| self.timers.get(seq).is_some_and(|timer| timer.due_at <= now));
        self.ready.iter().copied().chain(due.map(|(step, _)| *step)).collect()
    }

    /// The attempt is under way in the hands of an executor.
    pub(super) fn has_task(&self, task: TaskRef) -> bool {
        let is_attempt = self.step(task.step).is_some_and(|step| {
            step.phase == Phase::Running
                && step.logical_attempt == task.logical_attempt
                && step.engine_attempt == task.engine_attempt
        });
        let is_task = |running: &Running| matches!(running.kind, RunningKind::Task { .. } | RunningKind::Leased { .. });
        is_attempt && self.running.get(&task.step).is_some_and(is_task)
    }

    /// An executor that has the attempt in hand should go on with it.
    #[must_use]
    pub fn wants(&self, task: TaskRef) -> bool {
        !self.stopping && self.has_task(task)
    }

    /// An executor of some node has, or somebody should be given, work of this run.
    #[must_use]
    pub fn needs_node(&self) -> bool {
        self.has_tasks() || (self.moves() && !self.ready.is_empty())
    }

    /// Executors of nodes have work of this run.
    #[must_use]
    pub fn has_tasks(&self) -> bool {
        self.tasks > 0
    }

    /// Workers have work of this run.
    #[must_use]
    pub fn has_leases(&self) -> bool {
        self.leased > 0
    }

    /// Steps that somebody could begin if the run moves.
    pub fn ready_steps(&self) -> impl Iterator<Item = StepRef> {
        self.ready.iter().copied()
    }

    pub(super) fn insert_running(&mut self, step: StepRef, running: Running) {
        match &running.kind {
            RunningKind::Task { .. } => self.tasks += 1,
            RunningKind::Leased { .. } => self.leased += 1,
            RunningKind::Wait { .. } => self.waits += 1,
            RunningKind::Child { run } => {
                self.children.insert(*run, step);
            }
            RunningKind::Sleep | RunningKind::Items => {}
        }
        self.active += u32::from(running.kind != RunningKind::Items);
        self.running.insert(step, running);
    }

    pub(super) fn remove_running(&mut self, step: StepRef) -> Option<Running> {
        let running = self.running.remove(&step)?;
        match &running.kind {
            RunningKind::Task { .. } => self.tasks -= 1,
            RunningKind::Leased { .. } => {
                self.leased -= 1;
                self.scratch.gone.push((step, true));
            }
            RunningKind::Wait { .. } => self.waits -= 1,
            RunningKind::Child { run } => {
                self.children.remove(run);
            }
            RunningKind::Sleep | RunningKind::Items => {}
        }
        self.active -= u32::from(running.kind != RunningKind::Items);
        Some(running)
    }

    /// The timers that must be armed for this run.
    pub fn armed_timers(&self) -> impl Iterator<Item = (u64, Timestamp)> {
        self.timers.iter().map(|(seq, timer)| (*seq, timer.due_at))
    }

    /// When an armed timer is due.
    #[must_use]
    pub fn timer_due(&self, seq: u64) -> Option<Timestamp> {
        self.timers.get(&seq).map(|timer| timer.due_at)
    }

    /// Child runs that this run waits for.
    pub fn awaited_children(&self) -> impl Iterator<Item = RunId> {
        self.children.keys().copied()
    }

    /// Whether somebody outside has to act: a signal, an approval, a resume.
    #[must_use]
    pub fn waits_for_people(&self) -> bool {
        self.waits > 0 || self.status == RunStatus::Paused || (self.status == RunStatus::Pending && self.plan.approval)
    }

    /// Tells the state what an event carries: its output, payload or signal. Facts never change.
    pub fn learn(&mut self, seq: u64, json: Json) {
        self.scratch.facts.learn(seq, json);
    }

    /// Tells the state that what an event carries was somewhere else and is gone. Whoever needs it fails.
    pub fn learn_lost(&mut self, seq: u64, reason: String) {
        self.scratch.facts.learn_lost(seq, reason);
    }

    /// Tells the state of a plan that its log goes on with.
    pub fn learn_plan(&mut self, plan: Arc<Plan>) {
        self.scratch.plans.insert(plan.hash, plan);
    }

    /// Roughly how many bytes this state takes in memory.
    #[must_use]
    pub fn weight(&self) -> usize {
        let items: usize = self.items.values().map(|items| items.steps.weight()).sum();
        items
            + self.steps.len() * size_of::<StepState>()
            + (self.ready.len() + self.running.len() + self.timers.len() + self.numbered.len()) * 64
            + self.upstream.left.len() * 64
            + self.upstream.recorded.values().flatten().map(Artifact::weight).sum::<usize>()
            + 2 * self.scratch.cache.len() * 64
            + (self.scratch.led.len() + self.scratch.awaited.len()) * 96
            + self.scratch.artifact_bytes
            + self.scratch.facts.weight()
            + self.scratch.items.values().map(List::weight).sum::<usize>()
            + 4096
    }
}

impl RunState {
    /// The state after a log that begins with its first event, or after a checkpoint and what came later.
    ///
    /// # Errors
    /// The events do not follow each other.
    pub fn replay<'e>(
        mut self,
        events: impl IntoIterator<Item = &'e crate::event::Event>,
    ) -> Result<RunState, super::Illegal> {
        for event in events {
            self.apply(event)?;
        }
        self.settle_scratch();
        Ok(self)
    }
}
