//! Random documents and random commands, at any time and in any order, with crashes in between: whatever happens, every
//! invariant holds after every command, and every run can be brought to its end.

use proptest::prelude::*;
use serde_json::{Value, json as value};

use super::harness::{Run, START};
use crate::event::{ErrorInfo, StepRef};
use crate::id::{NodeId, RunId, SignalId};
use crate::json::Json;
use crate::run::state::{Phase, RunningKind};
use crate::run::{ChildOutcome, Command, Signal, TaskRef};
use crate::status::RunStatus;

#[derive(Clone, Debug)]
struct StepSpec {
    deps: u8,
    kind: u8,
    when: u8,
    foreach: u8,
    attempts: u8,
    backoff: bool,
    timeout: bool,
}

#[derive(Clone, Debug)]
struct Spec {
    steps: Vec<StepSpec>,
    go_on: bool,
    approval: bool,
    slots: bool,
    later: bool,
    child: bool,
    short: bool,
}

fn step_spec() -> impl Strategy<Value = StepSpec> {
    (any::<u8>(), 0..9_u8, 0..10_u8, 0..9_u8, 1..4_u8, any::<bool>(), any::<bool>()).prop_map(
        |(deps, kind, when, foreach, attempts, backoff, timeout)| StepSpec {
            deps,
            kind,
            when,
            foreach,
            attempts,
            backoff,
            timeout,
        },
    )
}

fn spec() -> impl Strategy<Value = Spec> {
    let flags = (any::<bool>(), 0..5_u8, 0..5_u8, 0..5_u8, any::<bool>(), any::<bool>());
    (prop::collection::vec(step_spec(), 1..=8), flags).prop_map(
        |(steps, (go_on, approval, slots, later, child, short))| Spec {
            steps,
            go_on,
            approval: approval == 0,
            slots: slots == 0,
            later: later == 0,
            child,
            short,
        },
    )
}

fn step_id(index: usize) -> String {
    format!("s{index}")
}

impl Spec {
    fn document(&self) -> String {
        let steps: serde_json::Map<String, Value> =
            self.steps.iter().enumerate().map(|(index, step)| (step_id(index), self.step(index, step))).collect();
        let mut document = value!({"on_failure": if self.go_on { "continue" } else { "stop" }, "steps": steps});
        if self.approval {
            document["approval"] = value!(true);
        }
        if self.slots {
            document["concurrency"] = value!({"key": "k", "limit": 1, "on_limit": "queue"});
        }
        document.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n")).collect()
    }

    fn step(&self, index: usize, spec: &StepSpec) -> Value {
        let deps: Vec<String> = (0..index).filter(|dep| spec.deps & (1 << dep) != 0).map(step_id).collect();
        let (skill, mut input) = match spec.kind {
            0 => ("sleep", value!({"ms": 1000})),
            1 => ("wait", value!({"signal": format!("sig{}", index % 2)})),
            2 => ("workflow", value!({"ref": "other"})),
            _ => ("x", value!({"n": index})),
        };
        if let Some(dep) = deps.last().filter(|_| spec.kind > 5) {
            input["of"] = value!(format!("${{{{ steps.{dep}.output }}}}"));
        }
        let mut step = value!({
            "skill": skill, "input": input, "depends_on": deps,
            "retry": {"max_attempts": spec.attempts, "backoff_ms": if spec.backoff { 500 } else { 0 }, "non_retryable": ["never"]},
        });
        match spec.when {
            0 => step["when"] = value!("${{ payload.yes }}"),
            1 => step["when"] = value!("${{ payload.no }}"),
            2 => step["when"] = value!("${{ payload.unknown }}"),
            _ => {}
        }
        match spec.foreach {
            0 => step["foreach"] = value!("${{ payload.none }}"),
            1 => step["foreach"] = value!("${{ payload.one }}"),
            2 => step["foreach"] = value!("${{ payload.three }}"),
            _ => {}
        }
        if spec.timeout {
            step["timeout_ms"] = value!(100_000);
        }
        step
    }

    /// No step of it fails by itself.
    fn can_succeed(&self) -> bool {
        self.steps.iter().all(|step| step.when != 2)
    }

    fn start(&self) -> Run {
        let payload = r#"{"yes":true,"no":false,"none":[],"one":[null],"three":[1,"two",{}]}"#;
        let mut start = Run::of(&self.document()).payload(payload).held(1);
        if self.short {
            start = start.limits(|limits| limits.continue_steps = 3);
        }
        if self.child {
            start = start.child_of(RunId(uuid::Uuid::from_u128(99)));
        }
        let later = self.later;
        start.request(|request| request.start_at = later.then(|| START.plus_ms(5000))).begin()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Dispatch(u8),
    DispatchAny(u8, Option<u8>),
    DispatchAll,
    Complete(u8, bool),
    Fail(u8, u8),
    StaleComplete(u8, u8, u8),
    NextTimer,
    FireAny(u8),
    Advance(u16),
    Verb(u8, u8, bool),
    UserSignal(u8, Option<u8>),
    Repeat(u8),
    ChildEnded(u8, u8),
    StrangeChild,
    SlotsHeld(u8),
    Crash,
    AdoptNobody,
    AdoptStranger,
    Evict,
    Replay,
    Trim,
    Continue,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => any::<u8>().prop_map(Op::Dispatch),
        1 => (any::<u8>(), any::<Option<u8>>()).prop_map(|(step, item)| Op::DispatchAny(step, item)),
        4 => Just(Op::DispatchAll),
        8 => (any::<u8>(), any::<bool>()).prop_map(|(task, null)| Op::Complete(task, null)),
        5 => (any::<u8>(), 0..4_u8).prop_map(|(task, how)| Op::Fail(task, how)),
        2 => (any::<u8>(), 0..3_u8, 0..3_u8).prop_map(|(task, logical, engine)| Op::StaleComplete(task, logical, engine)),
        4 => Just(Op::NextTimer),
        1 => any::<u8>().prop_map(Op::FireAny),
        2 => any::<u16>().prop_map(Op::Advance),
        8 => (0..11_u8, any::<u8>(), any::<bool>()).prop_map(|(verb, step, item)| Op::Verb(verb, step, item)),
        2 => (0..2_u8, any::<Option<u8>>()).prop_map(|(name, step)| Op::UserSignal(name, step)),
        1 => any::<u8>().prop_map(Op::Repeat),
        3 => (any::<u8>(), 0..4_u8).prop_map(|(child, how)| Op::ChildEnded(child, how)),
        1 => Just(Op::StrangeChild),
        1 => (0..3_u8).prop_map(Op::SlotsHeld),
        2 => Just(Op::Crash),
        1 => Just(Op::AdoptNobody),
        1 => Just(Op::AdoptStranger),
        2 => Just(Op::Evict),
        1 => Just(Op::Replay),
        1 => Just(Op::Trim),
        1 => Just(Op::Continue),
    ]
}

fn pick<T: Copy>(from: impl IntoIterator<Item = T>, which: u8) -> Option<T> {
    let all: Vec<T> = from.into_iter().collect();
    (!all.is_empty()).then(|| all[usize::from(which) % all.len()])
}

fn error(how: u8) -> ErrorInfo {
    match how {
        0 => ErrorInfo::fatal("fatal", "no"),
        1 => ErrorInfo::retryable("never", "no"),
        2 => ErrorInfo::retryable("cancelled", "no"),
        _ => ErrorInfo::retryable("broke", "no"),
    }
}

/// Carries an operation out, whether it fits or not.
fn act(run: &mut Run, op: &Op) {
    let _ = match *op {
        Op::Dispatch(which) => {
            let Some(step) = pick(run.offered.iter().copied(), which) else { return };
            run.command(Command::Dispatch { step, worker: run.node })
        }
        Op::DispatchAny(step, item) => {
            let step = u32::from(step) % run.plan.steps.len() as u32;
            let step = StepRef { step, item: item.map(|item| u32::from(item % 4)) };
            run.command(Command::Dispatch { step, worker: run.node })
        }
        Op::DispatchAll => {
            run.dispatch_all();
            Ok(())
        }
        Op::Complete(which, null) => {
            let Some(task) = pick(run.tasks.values().copied(), which) else { return };
            let output = if null { Json::null() } else { Json::trusted(r#"{"v":[1]}"#) };
            run.command(Command::Complete { task, output })
        }
        Op::Fail(which, how) => {
            let Some(task) = pick(run.tasks.values().copied(), which) else { return };
            run.command(Command::Fail { task, error: error(how) })
        }
        Op::StaleComplete(which, logical_attempt, engine_attempt) => {
            let step = StepRef::whole(u32::from(which) % run.plan.steps.len() as u32);
            let task = TaskRef { step, logical_attempt: logical_attempt.into(), engine_attempt: engine_attempt.into() };
            if run.tasks.get(&step) == Some(&task) {
                return;
            }
            let answer = run.command(Command::Complete { task, output: Json::null() });
            assert!(answer.is_err(), "a stale outcome was taken\n{}", run.log());
            answer
        }
        Op::NextTimer => {
            if !run.timers.is_empty() {
                run.next_timer();
            }
            Ok(())
        }
        Op::FireAny(seq) => run.command(Command::FireTimer { seq: seq.into() }),
        Op::Advance(ms) => {
            run.advance_ms(ms.into());
            Ok(())
        }
        Op::Verb(verb, step, item) => {
            let names = [
                "PAUSE",
                "PAUSE",
                "RESUME",
                "RESUME",
                "CANCEL",
                "TERMINATE",
                "APPROVE",
                "REJECT",
                "RETRY_STEP",
                "RETRY_STEP",
                "SKIP_STEP",
            ];
            let name = names[usize::from(verb)];
            // Stopping often would leave little to see.
            if matches!(name, "CANCEL" | "TERMINATE" | "REJECT") && step > 60 {
                return;
            }
            let mut id = step_id(usize::from(step) % (run.plan.steps.len() + 1));
            if item {
                id += "[0]";
            }
            run.send(name, Some(&id), "{}")
        }
        Op::UserSignal(name, step) => {
            let step = step.map(|step| step_id(usize::from(step) % run.plan.steps.len()));
            run.send(&format!("sig{name}"), step.as_deref(), "[]")
        }
        Op::Repeat(which) => {
            let id = SignalId(uuid::Uuid::from_u128(u128::from(which % 8)));
            if !run.state.seen_signals.contains(&id) {
                return;
            }
            let length = run.events.len();
            let signal = Signal { id, name: "sig0".to_owned(), step: None, payload: Json::null() };
            let answer = run.command(Command::Signal(signal));
            assert_eq!((run.events.len(), answer.is_ok()), (length, true));
            answer
        }
        Op::ChildEnded(which, how) => {
            let Some(child) = pick(run.state.awaited_children(), which) else { return };
            let outcome = match how {
                0 => ChildOutcome::Stopped,
                1 => ChildOutcome::Failed { error: error(3) },
                _ => ChildOutcome::Completed { output: Json::null() },
            };
            run.command(Command::ChildEnded { child, outcome })
        }
        Op::StrangeChild => {
            run.command(Command::ChildEnded { child: RunId(uuid::Uuid::nil()), outcome: ChildOutcome::Stopped })
        }
        Op::SlotsHeld(held) => run.command(Command::SlotsHeld { held: held.into() }),
        Op::Crash => {
            run.crash();
            Ok(())
        }
        Op::AdoptNobody => run.command(Command::Adopt { lost: None }),
        Op::AdoptStranger => run.command(Command::Adopt { lost: Some(NodeId(-1)) }),
        Op::Evict => {
            run.evict();
            Ok(())
        }
        Op::Replay => {
            run.state = run.replayed();
            Ok(())
        }
        Op::Trim => {
            run.state.scratch.facts.clear();
            run.state.scratch.items.clear();
            Ok(())
        }
        Op::Continue => run.command(Command::Continue),
    };
}

fn waited_for(run: &Run) -> Vec<String> {
    let name = |kind: &RunningKind| match kind {
        RunningKind::Wait { signal } => Some(signal.clone()),
        _ => None,
    };
    run.state.running.values().filter_map(|running| name(&running.kind)).collect()
}

/// Does what is there to do, as a patient engine and a patient operator would, until the run has ended.
fn drive(run: &mut Run) {
    for _ in 0..300 {
        if run.status().is_terminal() {
            return;
        }
        // The limit of signals per minute is not what this is about.
        run.advance_ms(20_000).fire_due_timers();
        match run.status() {
            RunStatus::Paused => drop(run.send("RESUME", None, "{}")),
            RunStatus::Pending if run.plan.approval => drop(run.send("APPROVE", None, "{}")),
            _ if run.state.waits_for_slot(run.now) => run.command(Command::SlotsHeld { held: 0 }).unwrap(),
            _ => {}
        }
        run.dispatch_all();
        assert!(!run.state.needs_node() || !run.tasks.is_empty(), "nobody was told of what is ready\n{}", run.log());
        while let Some((step, task)) = run.tasks.pop_first() {
            let command = match run.asked_to_stop.contains(&step) && run.state.stopping {
                true => Command::Fail { task, error: error(2) },
                false => Command::Complete { task, output: Json::trusted("{}") },
            };
            run.command(command).unwrap();
        }
        let children: Vec<RunId> = run.state.awaited_children().collect();
        for child in children {
            run.command(Command::ChildEnded { child, outcome: ChildOutcome::Completed { output: Json::null() } })
                .unwrap();
        }
        for signal in waited_for(run) {
            let _ = run.send(&signal, None, "{}");
        }
    }
    panic!("the run does not end\n{}", run.log());
}

/// Much fails, much is retried, nodes die: the corners where steps fail together.
fn rough_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<u8>().prop_map(Op::Dispatch),
        3 => Just(Op::DispatchAll),
        4 => any::<u8>().prop_map(|task| Op::Complete(task, false)),
        6 => (any::<u8>(), 0..4_u8).prop_map(|(task, how)| Op::Fail(task, how)),
        5 => any::<u8>().prop_map(|step| Op::Verb(8, step, false)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(step, item)| Op::Verb(10, step, item)),
        1 => Just(Op::NextTimer),
        2 => Just(Op::Crash),
    ]
}

fn rough_spec() -> impl Strategy<Value = Spec> {
    let step = (any::<u8>(), 0..5_u8, 1..3_u8, any::<bool>()).prop_map(|(deps, foreach, attempts, backoff)| StepSpec {
        // Few dependencies: more is under way at once.
        deps: deps & deps.rotate_left(3) & deps.rotate_left(5),
        kind: 4,
        when: 9,
        foreach: foreach + 1,
        attempts,
        backoff,
        timeout: false,
    });
    (prop::collection::vec(step, 1..=4), 0..4_u8, any::<bool>()).prop_map(|(steps, go_on, short)| Spec {
        steps,
        go_on: go_on == 0,
        approval: false,
        slots: false,
        later: false,
        child: false,
        short,
    })
}

/// A failed run can be mended, one failed step after the other.
fn mend(run: &mut Run) {
    for _ in 0..run.plan.steps.len() * 4 {
        let failed = run.state.steps.iter().position(|step| step.phase == Phase::Failed);
        let (RunStatus::Failed, Some(step)) = (run.status(), failed) else { break };
        run.advance_ms(60_000).signal_step("RETRY_STEP", &step_id(step));
        drive(run);
    }
    assert_ne!(run.status(), RunStatus::Failed, "{}", run.log());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_run_keeps_the_rules_and_can_be_brought_to_its_end(
        spec in spec(),
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let mut run = spec.start();
        for op in &ops {
            act(&mut run, op);
        }
        drive(&mut run);
        if spec.can_succeed() {
            mend(&mut run);
        }
    }

    #[test]
    fn whatever_fails_together_can_be_mended(spec in rough_spec(), ops in prop::collection::vec(rough_op(), 0..80)) {
        let mut run = spec.start();
        for op in &ops {
            run.advance_ms(2000);
            act(&mut run, op);
        }
        drive(&mut run);
        mend(&mut run);
    }
}
