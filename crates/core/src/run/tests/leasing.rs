//! Steps in the hands of workers.

use super::harness::{Run, code, json};
use crate::codec;
use crate::event::{Body, ErrorInfo, Event, LeaseHolder, LeaseProof, StepRef};
use crate::id::TaskId;
use crate::limits::Limits;
use crate::record::EventRow;
use crate::run::{CHECKPOINT_FORMAT, Command, Context, Outcome, Rejection, RunState, TaskRef, decide};
use crate::status::RunStatus::{Cancelled, Completed, Failed, Paused, Running};
use crate::time::Timestamp;

const TWO: &str = "steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 0}}, b: {skill: x, depends_on: [a]}}";

fn completed() -> Outcome {
    Outcome::Completed(json("{}"))
}

fn failed() -> Outcome {
    Outcome::Failed(ErrorInfo::retryable("broke", "it broke"))
}

fn report(run: &mut Run, task: TaskRef, nonce: u64, outcome: Outcome) -> Result<(), Rejection> {
    run.command(Command::Report { task, nonce, outcome })
}

/// Gives a step to a worker: what it has in hand then.
fn lease(run: &mut Run, name: &str) -> (TaskRef, u64) {
    let step = run.step(name);
    run.lease(step).unwrap();
    (run.task(name), run.leased[&step])
}

#[test]
fn a_worker_answers_and_what_depends_on_its_step_is_in_line() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    assert!(run.state.has_leases() && !run.state.needs_node(), "a worker needs no node");
    report(&mut run, task, nonce, completed()).unwrap();
    assert_eq!(run.offered, [run.step("b")].into());
    let (task, nonce) = lease(&mut run, "b");
    report(&mut run, task, nonce, completed()).unwrap();
    run.is(Completed);
}

#[test]
fn an_answer_that_comes_again_is_taken_and_changes_nothing() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    report(&mut run, task, nonce, completed()).unwrap();
    let length = run.events.len();
    report(&mut run, task, nonce, completed()).unwrap();
    assert_eq!(run.events.len(), length);
    assert_eq!(code(report(&mut run, task, nonce, failed())), "stale_attempt", "it ended otherwise");
}

#[test]
fn an_answer_without_the_nonce_of_the_lease_is_refused() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    assert_eq!(code(report(&mut run, task, nonce + 1, completed())), "stale_attempt");
    run.is(Running);
}

#[test]
fn a_lost_lease_is_another_engine_attempt_of_the_same_logical_one() {
    let mut run = Run::start(TWO, "{}");
    let (first, old) = lease(&mut run, "a");
    run.command(Command::LoseLease { task: first }).unwrap();
    let (second, new) = lease(&mut run, "a");
    assert_eq!((second.logical_attempt, second.engine_attempt), (1, 2));
    assert_eq!(code(report(&mut run, first, old, completed())), "stale_attempt");
    assert_eq!(code(run.command(Command::LoseLease { task: first })), "stale_attempt");
    report(&mut run, second, new, completed()).unwrap();
}

#[test]
fn a_lease_lost_too_often_fails_the_step() {
    let mut run = Run::start(TWO, "{}");
    for _ in 0..run.limits.engine_attempts {
        let (task, _) = lease(&mut run, "a");
        run.command(Command::LoseLease { task }).unwrap();
    }
    run.is(Failed);
    run.ends_with(&[
        "22 StepFailed a 1/10 worker_lost",
        "23 StepSkipped b 0/0 upstream_failed",
        "24 RunFailed worker_lost",
    ]);
}

#[test]
fn a_node_that_dies_takes_no_lease_along() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    run.crash();
    report(&mut run, task, nonce, completed()).unwrap();
}

#[test]
fn a_pause_and_an_answer_in_either_order_lose_nothing_and_begin_nothing() {
    for pause_first in [true, false] {
        let mut run = Run::start(TWO, "{}");
        let (task, nonce) = lease(&mut run, "a");
        if pause_first {
            run.signal("PAUSE");
        }
        report(&mut run, task, nonce, completed()).unwrap();
        if !pause_first {
            run.signal("PAUSE");
        }
        run.is(Paused);
        let b = run.step("b");
        assert_eq!(code(run.lease(b)), "stale_attempt");
        run.offered.clear();
        run.signal("RESUME");
        assert_eq!(run.offered, [b].into());
    }
}

#[test]
fn a_cancelled_run_asks_the_worker_and_ends_with_its_answer_or_with_its_lease() {
    for answers in [true, false] {
        let mut run = Run::start(TWO, "{}");
        let (task, nonce) = lease(&mut run, "a");
        run.signal("CANCEL");
        run.is(Running);
        assert!(run.asked_to_stop.contains(&task.step));
        if answers {
            let stopped = Outcome::Failed(ErrorInfo::fatal("cancelled", "stopped"));
            report(&mut run, task, nonce, stopped).unwrap();
        } else {
            run.command(Command::LoseLease { task }).unwrap();
        }
        run.is(Cancelled);
    }
}

#[test]
fn a_terminated_run_waits_for_no_worker_and_takes_no_answer() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    run.signal("TERMINATE");
    assert!(run.leased.is_empty());
    assert_eq!(code(report(&mut run, task, nonce, completed())), "stale_attempt");
}

#[test]
fn a_worker_that_takes_longer_than_the_time_limit_is_asked_to_stop() {
    let mut run = Run::start("steps: {a: {skill: x, timeout_ms: 50}}", "{}");
    let (task, nonce) = lease(&mut run, "a");
    run.next_timer();
    run.is(Failed);
    assert!(run.asked_to_stop.contains(&task.step));
    assert_eq!(code(report(&mut run, task, nonce, completed())), "stale_attempt");
}

#[test]
fn a_task_has_one_id_for_all_its_attempts_and_no_other_task_has_it() {
    let mut run = Run::start("steps: {a: {skill: x, foreach: '${{ [1, 2] }}'}}", "{}");
    let ids = [StepRef::whole(0), StepRef::item(0, 0), StepRef::item(0, 1)].map(|step| TaskId::of(run.state.run, step));
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    assert_eq!(ids[0].0.get_version_num(), 7);
    let (task, _) = lease(&mut run, "a[0]");
    assert_eq!(TaskId::of(run.state.run, task.step), ids[1]);
}

/// Its retry is due, so it is in line, and its timer stays armed until it begins.
#[test]
fn a_retry_that_is_in_line_leaves_it_when_the_step_or_the_run_ends() {
    let yaml = "steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 1000}}, b: {skill: x}}";
    for end in ["SKIP_STEP", "CANCEL", "TERMINATE"] {
        let mut run = Run::start(yaml, "{}");
        let (task, nonce) = lease(&mut run, "a");
        report(&mut run, task, nonce, failed()).unwrap();
        run.next_timer();
        assert!(run.offered.contains(&run.step("a")), "{end}");
        run.send(end, (end == "SKIP_STEP").then_some("a"), "{}").unwrap();
        assert!(!run.offered.contains(&run.step("a")), "{end}");
        assert!(run.timers.is_empty(), "{end}");
    }
}

/// The rows of a run's log.
fn rows(run: &Run) -> Vec<EventRow> {
    codec::encode_all(&run.events, run.state.run, &run.plan, Timestamp(0))
}

#[test]
fn the_log_does_not_tell_what_an_answer_must_carry() {
    let mut run = Run::start(TWO, "{}");
    run.entropy = 0xFACE_0FF0_0000_0000;
    let (task, nonce) = lease(&mut run, "a");
    let told = |nonce: u64| rows(&run).iter().any(|row| row.data.as_str().contains(&format!("{nonce:x}")));
    assert!(nonce > 1 << 60 && !told(nonce), "{}", run.log());
    // What it does tell is good for nothing.
    let Some(Body::StepStarted(started)) = run.events.last().map(|event| event.body.clone()) else {
        panic!("no start")
    };
    let Some(LeaseHolder { proof: LeaseProof::Hash(hash), .. }) = started.lease else { panic!("no hash") };
    assert!(told(hash));
    assert_eq!(code(report(&mut run, task, hash, completed())), "stale_attempt");
    report(&mut run, task, nonce, completed()).unwrap();
}

#[test]
fn a_lease_that_an_older_log_has_with_its_nonce_goes_on() {
    let mut run = Run::start(TWO, "{}");
    let (task, nonce) = lease(&mut run, "a");
    let older = rows(&run).into_iter().map(|row| match &*row.event_type {
        "StepStarted" => EventRow { data: json(&format!(r#"{{"worker_id":"w","lease":"{nonce:016x}"}}"#)), ..row },
        _ => row,
    });
    let events: Vec<Event> = older.map(|row| codec::decode(&row, &run.plan).unwrap()).collect();
    let state = RunState::begin(run.state.run, run.plan.clone(), &events[0]).unwrap().replay(&events[1..]).unwrap();
    let bytes = state.to_checkpoint();
    let mut state = RunState::from_checkpoint(run.state.run, run.plan.clone(), CHECKPOINT_FORMAT, &bytes).unwrap();
    let limits = Limits::default();
    let context = Context::new(run.now, 1, &limits);
    let report = |nonce| Command::Report { task, nonce, outcome: completed() };
    assert_eq!(code(decide(&mut state, report(nonce + 1), &context).map(drop)), "stale_attempt");
    assert!(!decide(&mut state, report(nonce), &context).unwrap().events.is_empty());
}
