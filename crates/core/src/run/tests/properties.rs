//! Random documents and random commands, at any time and in any order, with crashes in between: whatever happens, every
//! invariant holds after every command, and every run can be brought to its end.

use proptest::prelude::*;

use super::harness::Run;
use super::random::{Op, op, rough_op, rough_spec, spec, step_id};
use crate::event::{ErrorInfo, StepRef};
use crate::id::{NodeId, RunId, SignalId};
use crate::json::Json;
use crate::run::state::{Phase, RunningKind};
use crate::run::{ChildOutcome, Command, Signal, TaskRef};
use crate::status::RunStatus;

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
pub(super) fn act(run: &mut Run, op: &Op) {
    let _ = match *op {
        Op::Dispatch(which) => {
            let Some(step) = pick(run.offered.iter().copied(), which) else { return };
            // Some to an executor, some to a worker.
            match which % 2 {
                0 => run.lease(step),
                _ => run.command(Command::Dispatch { step, worker: run.node }),
            }
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
            let signal = Signal { id, name: "sig0".to_owned(), step: None, payload: Json::null(), actor: None };
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
        RunningKind::Wait { signal, .. } => Some(signal.clone()),
        _ => None,
    };
    run.state.running.values().filter_map(|running| name(&running.kind)).collect()
}

/// Does what is there to do, as a patient engine and a patient operator would, until the run has ended.
pub(super) fn drive(run: &mut Run) {
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

/// A failed run can be mended, one failed step after the other.
pub(super) fn mend(run: &mut Run) {
    for _ in 0..run.plan.steps.len() * 4 {
        let failed = run.state.steps.iter().position(|step| step.phase == Phase::Failed);
        let (RunStatus::Failed, Some(step)) = (run.status(), failed) else { break };
        let id = run.plan.steps[step].id.to_string();
        run.advance_ms(60_000).signal_step("RETRY_STEP", &id);
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
