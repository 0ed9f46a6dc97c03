//! Random documents, and random things that may happen to their runs.

use proptest::prelude::*;
use serde_json::{Value, json as value};

use super::harness::{Run, START};
use crate::id::RunId;

#[derive(Clone, Debug)]
struct StepSpec {
    deps: u8,
    kind: u8,
    when: u8,
    foreach: u8,
    attempts: u8,
    backoff: bool,
    timeout: bool,
    cache: u8,
}

#[derive(Clone, Debug)]
pub(super) struct Spec {
    steps: Vec<StepSpec>,
    go_on: bool,
    approval: bool,
    slots: bool,
    later: bool,
    child: bool,
    short: bool,
    grows: bool,
}

fn step_spec() -> impl Strategy<Value = StepSpec> {
    (any::<u8>(), 0..9_u8, 0..10_u8, 0..9_u8, 1..4_u8, any::<bool>(), any::<bool>(), 0..4_u8).prop_map(
        |(deps, kind, when, foreach, attempts, backoff, timeout, cache)| StepSpec {
            deps,
            kind,
            when,
            foreach,
            attempts,
            backoff,
            timeout,
            cache,
        },
    )
}

pub(super) fn spec() -> impl Strategy<Value = Spec> {
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
            grows: false,
        },
    )
}

pub(super) fn step_id(index: usize) -> String {
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
        if self.grows {
            document["self_patch"] = value!({"max_patches": 3, "max_steps": 12});
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
        match spec.cache {
            0 => step["cache"] = value!({"enabled": true}),
            1 => step["cache"] = value!({"enabled": true, "scope": "run_only"}),
            _ => {}
        }
        if spec.timeout {
            step["timeout_ms"] = value!(100_000);
        }
        step
    }

    /// The same, whose steps may patch their runs.
    pub(super) fn growing(&self) -> Spec {
        Spec { grows: true, ..self.clone() }
    }

    /// No step of it fails by itself.
    pub(super) fn can_succeed(&self) -> bool {
        self.steps.iter().all(|step| step.when != 2)
    }

    pub(super) fn start(&self) -> Run {
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
pub(super) enum Op {
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

pub(super) fn op() -> impl Strategy<Value = Op> {
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

/// Much fails, much is retried, nodes die: the corners where steps fail together.
pub(super) fn rough_op() -> impl Strategy<Value = Op> {
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

pub(super) fn rough_spec() -> impl Strategy<Value = Spec> {
    let step = (any::<u8>(), 0..5_u8, 1..3_u8, any::<bool>(), 0..4_u8).prop_map(
        |(deps, foreach, attempts, backoff, cache)| StepSpec {
            // Few dependencies: more is under way at once.
            deps: deps & deps.rotate_left(3) & deps.rotate_left(5),
            kind: 4,
            when: 9,
            foreach: foreach + 1,
            attempts,
            backoff,
            timeout: false,
            cache,
        },
    );
    (prop::collection::vec(step, 1..=4), 0..4_u8, any::<bool>()).prop_map(|(steps, go_on, short)| Spec {
        steps,
        go_on: go_on == 0,
        approval: false,
        slots: false,
        later: false,
        child: false,
        short,
        grows: false,
    })
}
