//! A stand-in for the engine: carries out effects in memory, keeps the log as rows, and after every command checks what
//! must hold of every run at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::invariants::Watcher;
use super::kept::SharedResults;
use crate::codec;
use crate::document;
use crate::event::{Body, ErrorInfo, Event, Lease, StepRef};
use crate::hash::Digest;
use crate::id::{NodeId, RunId, SignalId};
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::record::EventRow;
use crate::run::{
    CHECKPOINT_FORMAT, ChildOutcome, ChildStart, Command, Context, Decision, Effect, Rejection, RejectionKind,
    RunState, Signal, TaskRef, TimerChange, decide,
};
use crate::status::RunStatus;
use crate::time::Timestamp;

/// 2027-01-15T08:00:00Z.
pub(super) const START: Timestamp = Timestamp(1_800_000_000_000_000);

pub(super) fn load(yaml: &str) -> document::Loaded {
    let source = format!("kind: workflow\nname: t\nversion: 1.0.0\n{yaml}\n");
    document::load(&source, &Limits::default()).unwrap_or_else(|problems| panic!("{problems:?}\n{source}"))
}

pub(super) fn plan(yaml: &str) -> Arc<Plan> {
    Arc::new(load(yaml).plan)
}

pub(super) fn run_id(n: u128) -> RunId {
    RunId(uuid::Uuid::from_u128((0x0190_0000_0000_7000_8000_u128 << 48) + n))
}

pub(super) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(super) struct Run {
    pub(super) state: RunState,
    pub(super) plan: Arc<Plan>,
    /// All plans that the run has had, with their stored texts.
    pub(super) plans: Vec<(Arc<Plan>, String)>,
    pub(super) limits: Limits,
    pub(super) now: Timestamp,
    pub(super) node: NodeId,
    pub(super) entropy: u64,
    pub(super) rows: Vec<EventRow>,
    pub(super) events: Vec<Event>,
    pub(super) timers: BTreeMap<u64, Timestamp>,
    /// Ready, and nobody has taken it.
    pub(super) offered: BTreeSet<StepRef>,
    /// In the hands of an executor.
    pub(super) tasks: BTreeMap<StepRef, TaskRef>,
    /// Those of `tasks` that a worker has, and what its answers must carry.
    pub(super) leased: BTreeMap<StepRef, u64>,
    pub(super) asked_to_stop: BTreeSet<StepRef>,
    pub(super) children: BTreeMap<RunId, ChildStart>,
    pub(super) stopped_children: Vec<(RunId, bool)>,
    pub(super) told_parent: Vec<ChildOutcome>,
    pub(super) slots: Vec<&'static str>,
    pub(super) checkpoints: Vec<(u64, Vec<u8>)>,
    /// What each task was given last, by step name.
    pub(super) inputs: BTreeMap<String, Json>,
    pub(super) signals: u128,
    pub(super) results: SharedResults,
    /// Outputs that are too large for the log.
    pub(super) blobs: BTreeMap<Digest, Json>,
    /// How many decisions followed from commands without another one.
    pub(super) decisions: usize,
    pub(super) watcher: Watcher,
}

impl Run {
    /// Decides, answers what is asked, carries out the effects, and checks everything.
    pub(super) fn command(&mut self, command: Command) -> Result<(), Rejection> {
        let before = self.state.to_checkpoint();
        self.entropy += 1;
        let context = Context::new(self.now, self.entropy, &self.limits);
        match decide(&mut self.state, command.clone(), &context) {
            Ok(Decision { patch: Some(ops), events, .. }) => {
                assert!(events.is_empty() && before == self.state.to_checkpoint(), "it asks for a plan and goes on");
                self.patch_itself(command, &ops)
            }
            Ok(decision) => {
                self.follow(decision);
                Ok(())
            }
            Err(rejection) => {
                assert_ne!(rejection.kind, RejectionKind::Bug, "{command:?}: {rejection}\n{}", self.log());
                assert!(before == self.state.to_checkpoint(), "{command:?} was rejected and changed something");
                Err(rejection)
            }
        }
    }

    pub(super) fn follow(&mut self, mut decision: Decision) {
        let mut effects = std::mem::take(&mut decision.effects);
        let (mut rounds, mut known) = (0, self.events.len());
        loop {
            self.plan = self.state.plan.clone();
            let rows = codec::encode_all(&decision.events, self.state.run, &self.plan, self.now);
            for (event, row) in decision.events.into_iter().zip(rows) {
                self.watcher.see(&event, &row, &self.plan);
                self.forget_ended(&event);
                self.rows.push(row);
                self.events.push(event);
            }
            if decision.missing.is_empty() && decision.cache.is_empty() && !decision.more {
                break;
            }
            rounds = if self.events.len() > known || decision.more { 0 } else { rounds + 1 };
            known = self.events.len();
            assert!(rounds < 10, "asks for {:?} and {:?} again and again", decision.missing, decision.cache);
            self.answer(decision.cache);
            for seq in decision.missing {
                let row = &self.rows[usize::try_from(seq).unwrap() - 1];
                if let Some(beyond) = codec::carried_beyond(row) {
                    self.state.learn_artifacts(seq, beyond.result());
                }
                match (codec::carried_value(row).unwrap(), codec::carried_blob(row)) {
                    (Some(carried), _) => self.state.learn(seq, carried),
                    (None, Some(blob)) => match self.blobs.get(&blob.sha256) {
                        Some(json) => self.state.learn(seq, json.clone()),
                        None => self.state.learn_lost(seq, "it is gone".to_owned()),
                    },
                    (None, None) => panic!("event {seq} carries nothing"),
                }
            }
            self.entropy += 1;
            let context = Context::new(self.now, self.entropy, &self.limits);
            decision = decide(&mut self.state, Command::Continue, &context).unwrap();
            self.decisions += 1;
            effects.append(&mut decision.effects);
        }
        for effect in effects {
            self.carry_out(effect);
        }
        self.watcher.check(self);
        self.check_results();
        self.check_flights();
        self.wake();
    }

    fn forget_ended(&mut self, event: &Event) {
        let ended =
            matches!(event.body.event_type(), "StepCompleted" | "StepFailed" | "StepSkipped" | "StepRetryScheduled");
        if let Some(step) = event.step.filter(|_| ended) {
            self.tasks.remove(&step);
            self.offered.remove(&step);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Ready { step, .. } => {
                self.offered.insert(step);
            }
            Effect::Execute(task) => {
                self.offered.remove(&task.task.step);
                self.tasks.insert(task.task.step, task.task);
                self.inputs.insert(task.step_id, task.input);
            }
            Effect::HandOver { task, lease } => {
                self.offered.remove(&task.task.step);
                self.leased.insert(task.task.step, lease.nonce);
                self.tasks.insert(task.task.step, task.task);
                self.inputs.insert(task.step_id, task.input);
            }
            Effect::Gone { step, .. } => {
                self.offered.remove(&step);
                self.leased.remove(&step);
            }
            Effect::CancelTask { task } => {
                self.asked_to_stop.insert(task.step);
            }
            Effect::Timer(TimerChange::Arm { seq, due_at }) => {
                assert!(self.timers.insert(seq, due_at).is_none(), "timer {seq} is armed twice");
            }
            Effect::Timer(TimerChange::Disarm { seq }) => {
                assert!(self.timers.remove(&seq).is_some(), "timer {seq} is not armed");
            }
            Effect::Cache(change) => self.change_results(change),
            Effect::Await { step, flight, .. } => {
                assert_ne!((flight.run, flight.step), (self.state.run, step), "it waits for itself");
                let mut results = self.results.borrow_mut();
                results.awaiting.entry((flight.run, flight.step)).or_default().insert(self.state.run);
            }
            Effect::StartChild(child) => {
                assert!(self.children.insert(child.run, *child).is_none(), "a child is started twice");
            }
            Effect::StopChild { child, terminate } => self.stopped_children.push((child, terminate)),
            Effect::NotifyParent { outcome, .. } => self.told_parent.push(outcome),
            Effect::HoldSlot => self.slots.push("hold"),
            Effect::WaitForSlot { .. } => self.slots.push("wait"),
            Effect::ReleaseSlot => self.slots.push("release"),
            Effect::Checkpoint { seq, state } => self.checkpoints.push((seq, state)),
        }
    }

    pub(super) fn step(&self, name: &str) -> StepRef {
        StepRef::parse(name, &self.plan).unwrap()
    }

    pub(super) fn task(&self, name: &str) -> TaskRef {
        *self.tasks.get(&self.step(name)).unwrap_or_else(|| panic!("`{name}` is not under way\n{}", self.log()))
    }

    pub(super) fn dispatch(&mut self, name: &str) -> Result<(), Rejection> {
        self.command(Command::Dispatch { step: self.step(name), worker: self.node })
    }

    /// Gives a ready step to a worker.
    pub(super) fn lease(&mut self, step: StepRef) -> Result<(), Rejection> {
        let nonce = self.entropy;
        self.command(Command::Lease { step, lease: Lease { worker: "w".into(), nonce } })
    }

    /// Hands out all that is ready.
    pub(super) fn dispatch_all(&mut self) -> &mut Run {
        while let Some(step) = self.offered.pop_first() {
            // What is stale is dropped, as an executor would.
            let _ = self.command(Command::Dispatch { step, worker: self.node });
        }
        self
    }

    pub(super) fn complete(&mut self, name: &str, output: &str) -> &mut Run {
        let task = self.task(name);
        self.command(Command::Complete { task, output: json(output) }).unwrap();
        self
    }

    pub(super) fn fail(&mut self, name: &str, code: &str, retryable: bool) -> &mut Run {
        let task = self.task(name);
        let error = ErrorInfo { code: code.to_owned(), message: "it broke".to_owned(), retryable };
        self.command(Command::Fail { task, error }).unwrap();
        self
    }

    /// Dispatches, then completes the named steps in this order with `{}`.
    pub(super) fn run_steps(&mut self, names: &[&str]) -> &mut Run {
        for name in names {
            self.dispatch_all().complete(name, "{}");
        }
        self
    }

    pub(super) fn next_signal(&mut self) -> SignalId {
        self.signals += 1;
        SignalId(uuid::Uuid::from_u128(self.signals))
    }

    pub(super) fn send(&mut self, name: &str, step: Option<&str>, payload: &str) -> Result<(), Rejection> {
        let id = self.next_signal();
        let signal =
            Signal { id, name: name.to_owned(), step: step.map(str::to_owned), payload: json(payload), actor: None };
        self.command(Command::Signal(signal))
    }

    pub(super) fn signal(&mut self, name: &str) -> &mut Run {
        self.send(name, None, "{}").unwrap();
        self
    }

    pub(super) fn signal_step(&mut self, name: &str, step: &str) -> &mut Run {
        self.send(name, Some(step), "{}").unwrap();
        self
    }

    pub(super) fn advance_ms(&mut self, ms: u64) -> &mut Run {
        self.now = self.now.plus_ms(ms);
        self
    }

    pub(super) fn fire_due_timers(&mut self) -> &mut Run {
        let due: Vec<u64> =
            self.timers.iter().filter(|(_, due_at)| **due_at <= self.now).map(|(seq, _)| *seq).collect();
        for seq in due {
            // One may have disarmed another.
            if self.timers.contains_key(&seq) {
                self.command(Command::FireTimer { seq }).unwrap();
            }
        }
        self
    }

    /// To the moment when the next timer rings, and lets it.
    pub(super) fn next_timer(&mut self) -> &mut Run {
        let next = self.timers.values().min().copied().expect("a timer is armed");
        self.now = self.now.max(next);
        self.fire_due_timers()
    }

    pub(super) fn only_child(&self) -> RunId {
        let children: Vec<RunId> = self.state.awaited_children().collect();
        assert_eq!(children.len(), 1);
        children[0]
    }

    pub(super) fn child_ended(&mut self, child: RunId, outcome: ChildOutcome) -> &mut Run {
        self.command(Command::ChildEnded { child, outcome }).unwrap();
        self
    }

    /// The state that the log adds up to. (Each event was seen to survive its row when it was written.)
    pub(super) fn replayed(&self) -> RunState {
        let state = RunState::begin(self.state.run, self.plans[0].0.clone(), &self.events[0]).unwrap();
        self.knowing(state).replay(&self.events[1..]).unwrap()
    }

    fn knowing(&self, mut state: RunState) -> RunState {
        self.plans.iter().for_each(|(plan, _)| state.learn_plan(plan.clone()));
        state
    }

    /// The state after the newest checkpoint and what came later.
    pub(super) fn restored(&self) -> RunState {
        let Some((seq, bytes)) = self.checkpoints.last() else { return self.replayed() };
        let later = &self.events[usize::try_from(*seq).unwrap()..];
        self.knowing(self.read_under(bytes, &self.plan_before(later))).replay(later).unwrap()
    }

    /// The plan that was in force before these events, which are the last ones.
    pub(super) fn plan_before(&self, events: &[Event]) -> Arc<Plan> {
        let before = events.iter().find_map(|event| match &event.body {
            Body::RunPatched(patched) => Some(patched.before),
            _ => None,
        });
        let before = before.unwrap_or(self.plan.hash);
        self.plans.iter().find(|(plan, _)| plan.hash == before).unwrap().0.clone()
    }

    /// The state that a checkpoint holds. However few the items of a step that is over, they are packed, so that every
    /// test is a test of that.
    pub(super) fn read(&self, bytes: &[u8]) -> RunState {
        self.read_under(bytes, &self.plan)
    }

    fn read_under(&self, bytes: &[u8], plan: &Arc<Plan>) -> RunState {
        let state = RunState::from_checkpoint(self.state.run, plan.clone(), CHECKPOINT_FORMAT, bytes);
        let mut state = state.unwrap();
        state.items.values_mut().filter(|items| items.unfinished == 0).for_each(|items| items.steps.pack());
        state
    }

    /// The state is dropped from memory and read again; executors know nothing of it.
    pub(super) fn evict(&mut self) -> &mut Run {
        let bytes = self.state.to_checkpoint();
        self.state = self.read(&bytes);
        self
    }

    /// The node dies with all it had in hand, and another takes the run over.
    pub(super) fn crash(&mut self) -> &mut Run {
        let lost = self.node;
        self.node = NodeId(lost.0 + 1);
        self.state = self.restored();
        self.offered.clear();
        // Workers live on.
        self.tasks.retain(|step, _| self.leased.contains_key(step));
        self.command(Command::Adopt { lost: Some(lost) }).unwrap();
        self
    }

    pub(super) fn status(&self) -> RunStatus {
        self.state.status
    }

    pub(super) fn output(&mut self) -> Value {
        match self.state.output() {
            Ok(output) => output.to_value(),
            Err(missing) => panic!("the output lacks {missing:?}"),
        }
    }

    pub(super) fn input(&self, name: &str) -> &str {
        self.inputs[name].as_str()
    }

    /// One line per event: `3 StepStarted a 1/1`.
    pub(super) fn log(&self) -> String {
        let lines: Vec<String> = self.events.iter().map(|event| super::invariants::line(event, &self.plan)).collect();
        lines.join("\n")
    }

    /// The last events are these.
    #[track_caller]
    pub(super) fn ends_with(&self, expected: &[&str]) {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(expected.len());
        assert_eq!(lines[from..], *expected, "\n{log}");
    }

    #[track_caller]
    pub(super) fn is(&self, status: RunStatus) {
        assert_eq!(self.status(), status, "\n{}", self.log());
    }
}

/// The rejection's code.
#[track_caller]
pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Rejection>) -> &'static str {
    result.expect_err("it should have been rejected").code
}
