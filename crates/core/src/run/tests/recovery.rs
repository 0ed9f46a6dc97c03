//! Outcomes that come too late, nodes that die, histories that rotate.

use super::harness::{Run, code};
use crate::event::ErrorInfo;
use crate::id::NodeId;
use crate::json::Json;
use crate::run::{CHECKPOINT_FORMAT, Command, RunState, TaskRef};
use crate::status::RunStatus::{Cancelled, Completed, Failed, Paused, Running};

const ONE: &str = "steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 0}}}";

fn complete(task: TaskRef) -> Command {
    Command::Complete { task, output: Json::null() }
}

#[test]
fn outcomes_of_another_attempt_are_dropped() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all();
    let first = run.task("a");
    assert_eq!(code(run.command(complete(TaskRef { logical_attempt: 2, ..first }))), "stale_attempt");
    assert_eq!(code(run.command(complete(TaskRef { engine_attempt: 2, ..first }))), "stale_attempt");
    run.fail("a", "broke", true);
    assert_eq!(code(run.command(complete(first))), "stale_attempt");
    run.dispatch_all();
    assert_eq!(code(run.command(complete(first))), "stale_attempt");
    let second = run.task("a");
    run.complete("a", "1").is(Completed);
    assert_eq!(code(run.command(complete(second))), "stale_attempt");
    let error = ErrorInfo::fatal("broke", "late");
    assert_eq!(code(run.command(Command::Fail { task: second, error })), "stale_attempt");
}

#[test]
fn outcomes_after_a_run_was_stopped_are_dropped() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all();
    let task = run.task("a");
    run.signal("TERMINATE");
    assert_eq!(code(run.command(complete(task))), "stale_attempt");
}

#[test]
fn a_step_is_not_handed_out_twice_and_not_if_it_needs_no_executor() {
    let mut run = Run::start(
        "steps: {a: {skill: x}, s: {skill: sleep, input: {ms: 1}}, f: {skill: x, foreach: '${{ [1] }}'}}",
        "{}",
    );
    run.dispatch_all();
    for name in ["a", "s", "f", "f[0]"] {
        assert_eq!(code(run.dispatch(name)), "stale_attempt");
    }
}

#[test]
fn a_wait_whose_retry_is_due_is_begun_by_its_timer_alone() {
    let yaml =
        "steps: {a: {skill: wait, input: {signal: go}, timeout_ms: 10, retry: {max_attempts: 2, backoff_ms: 10}}}";
    let mut run = Run::start(yaml, "{}");
    run.next_timer().advance_ms(10);
    assert_eq!(code(run.dispatch("a")), "stale_attempt");
    run.fire_due_timers().signal("go").is(Completed);
}

#[test]
fn a_lost_task_is_handed_out_again_as_the_same_attempt() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all();
    let zombie = run.task("a");
    run.crash().dispatch_all();
    assert_eq!(code(run.command(complete(zombie))), "stale_attempt");
    run.complete("a", "1");
    run.ends_with(&[
        "3 StepStarted a 1/1",
        "4 StepRetryScheduled a 1/2",
        "5 StepStarted a 1/2",
        "6 StepCompleted a 1/2",
        "7 RunCompleted",
    ]);
}

#[test]
fn engine_attempts_are_counted_per_logical_attempt() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all()
        .crash()
        .dispatch_all()
        .fail("a", "broke", true)
        .dispatch_all()
        .crash()
        .dispatch_all()
        .complete("a", "1");
    run.ends_with(&["9 StepRetryScheduled a 2/2", "10 StepStarted a 2/2", "11 StepCompleted a 2/2", "12 RunCompleted"]);
}

#[test]
fn tasks_of_other_nodes_are_left_alone() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all().command(Command::Adopt { lost: Some(NodeId(77)) }).unwrap();
    run.command(Command::Adopt { lost: None }).unwrap();
    run.complete("a", "1").is(Completed);
}

#[test]
fn a_run_nobody_had_is_offered_by_who_takes_it() {
    let mut run = Run::start(ONE, "{}");
    run.offered.clear();
    run.command(Command::Adopt { lost: None }).unwrap();
    run.run_steps(&["a"]).is(Completed);
}

#[test]
fn a_step_that_brings_down_its_workers_fails_for_good() {
    let mut run = Run::of(ONE).limits(|limits| limits.engine_attempts = 2).begin();
    run.dispatch_all().crash().dispatch_all().crash();
    run.ends_with(&["6 StepFailed a 1/2 worker_lost", "7 RunFailed worker_lost"]);
    run.signal_step("RETRY_STEP", "a").run_steps(&["a"]).is(Completed);
}

#[test]
fn a_crash_in_a_pause_or_a_cancellation_loses_nothing() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all().signal("PAUSE").crash().is(Paused);
    assert!(run.offered.is_empty());
    run.signal("RESUME").run_steps(&["a"]).is(Completed);
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all().signal("CANCEL").crash().is(Cancelled);
}

#[test]
fn history_rotates_after_so_many_steps() {
    let steps: Vec<String> = (0..10).map(|n| format!("s{n}: {{skill: x}}")).collect();
    let yaml = format!("steps: {{{}}}", steps.join(", "));
    let mut run = Run::of(&yaml).limits(|limits| limits.continue_steps = 3).begin();
    for n in 0..10 {
        run.dispatch_all().complete(&format!("s{n}"), "1");
        if n % 4 == 1 {
            run.crash();
        }
    }
    run.is(Completed);
    assert_eq!(run.checkpoints.len(), 3);
    assert!(run.log().contains("RunContinued 3"));
}

#[test]
fn history_rotates_after_so_many_bytes() {
    let mut run =
        Run::of("steps: {a: {skill: x}, b: {skill: x}}").limits(|limits| limits.continue_bytes = 1000).begin();
    run.dispatch_all().complete("a", &format!("\"{}\"", "x".repeat(1000)));
    run.ends_with(&["6 RunContinued 1"]);
    run.crash().is(Running);
}

#[test]
fn a_checkpoint_of_another_plan_format_or_cut_short_is_refused() {
    let mut run = Run::start(
        "steps: {a: {skill: x}, f: {skill: x, foreach: '${{ [1, 2] }}'}, w: {skill: wait, input: {signal: go}}}",
        "{}",
    );
    run.dispatch_all().fail("a", "broke", false).signal("other");
    let (id, bytes) = (run.state.run, run.state.to_checkpoint());
    let other = super::harness::plan("steps: {a: {skill: y}, f: {skill: x}, w: {skill: x}}");
    assert!(RunState::from_checkpoint(id, other, CHECKPOINT_FORMAT, &bytes).is_err());
    assert!(RunState::from_checkpoint(id, run.plan.clone(), CHECKPOINT_FORMAT + 1, &bytes).is_err());
    for length in 0..bytes.len() {
        assert!(RunState::from_checkpoint(id, run.plan.clone(), CHECKPOINT_FORMAT, &bytes[..length]).is_err());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(RunState::from_checkpoint(id, run.plan.clone(), CHECKPOINT_FORMAT, &longer).is_err());
    // Damage may go unnoticed, but never brings the process down.
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let _ = RunState::from_checkpoint(id, run.plan.clone(), CHECKPOINT_FORMAT, &damaged);
        }
    }
    run.fail("f[0]", "broke", false).complete("f[1]", "1").signal("go").is(Failed);
}

/// Items of a step that is over are not looked at when a run is loaded, and are all there when somebody needs them.
#[test]
fn items_that_have_ended_stay_packed_until_they_are_needed() {
    let yaml = "steps: {f: {skill: x, foreach: '${{ range(300) }}', retry: {max_attempts: 1}},
        w: {skill: wait, input: {signal: go}, depends_on: [f]},
        last: {skill: x, input: '${{ steps.f.output[299] }}', depends_on: [w]}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all();
    for item in 0..300 {
        run.complete(&format!("f[{item}]"), &item.to_string());
    }
    let bytes = run.state.to_checkpoint();
    let load = |bytes: &[u8]| RunState::from_checkpoint(run.state.run, run.plan.clone(), CHECKPOINT_FORMAT, bytes);
    let state = load(&bytes).unwrap();
    let light = state.weight();
    assert!(state.items[&0].steps.as_packed().is_some());
    assert_eq!(state.to_checkpoint(), bytes);
    assert_eq!(state.weight(), light, "writing a checkpoint unpacks nothing");
    assert_eq!(state.items, run.state.items);
    assert!(state.weight() > light, "comparing did");
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(load(&damaged).unwrap_err().to_string().contains("damaged"));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        // What is not noticed does not bring the process down when it is looked at, either.
        if let Ok(state) = load(&damaged) {
            let _ = state.items.values().map(|items| items.steps.len()).sum::<usize>();
        }
    }
    run.crash().signal("go").run_steps(&["last"]).is(Completed);
}

#[test]
fn events_that_cannot_follow_are_refused() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all().complete("a", "1");
    let replay = |order: &[usize]| {
        let state = RunState::begin(run.state.run, run.plan.clone(), &run.events[order[0]])?;
        let events: Vec<_> = order[1..].iter().map(|at| run.events[*at].clone()).collect();
        state.replay(&events)
    };
    assert!(replay(&[0, 1, 2, 3, 4]).is_ok());
    assert!(replay(&[1]).is_err());
    assert!(replay(&[0, 2]).is_err());
    assert!(replay(&[0, 1, 1]).is_err());
    // A start that arrives after the outcome does not take it back.
    let mut late = run.events[2].clone();
    late.seq = 6;
    assert!(run.state.clone().apply(&late).is_err());
}
