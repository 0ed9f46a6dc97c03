//! `sleep`, `wait` and `workflow`: steps without an executor.

use super::harness::{Run, code, json};
use crate::event::ErrorInfo;
use crate::run::{ChildOutcome, Command};
use crate::status::RunStatus::{Completed, Failed, Running};
use crate::time::Timestamp;

#[test]
fn a_sleep_ends_by_its_timer_and_not_earlier() {
    let mut run = Run::start("steps: {a: {skill: sleep, input: {ms: 1000}}}", "{}");
    assert!(!run.state.needs_node());
    run.advance_ms(999);
    assert_eq!(code(run.command(Command::FireTimer { seq: 3 })), "stale_attempt");
    run.advance_ms(1).crash().fire_due_timers().is(Completed);
    assert_eq!(code(run.command(Command::FireTimer { seq: 3 })), "stale_attempt");
}

#[test]
fn a_sleep_takes_whole_numbers_however_they_are_written() {
    for ms in ["1000", "1e3", "1000.0"] {
        let mut run =
            Run::start("steps: {a: {skill: sleep, input: {ms: '${{ payload.ms }}'}}}", &format!("{{\"ms\":{ms}}}"));
        run.advance_ms(1000).fire_due_timers().is(Completed);
    }
    for ms in ["-1", "1.5", "\"1\"", "null"] {
        let run =
            Run::start("steps: {a: {skill: sleep, input: {ms: '${{ payload.ms }}'}}}", &format!("{{\"ms\":{ms}}}"));
        run.ends_with(&["3 StepFailed a 1/0 bad_input", "4 RunFailed bad_input"]);
    }
}

#[test]
fn a_sleep_beyond_the_end_of_time_can_be_written_and_read() {
    let run = Run::start("steps: {a: {skill: sleep, input: {ms: 9007199254740991}}}", "{}");
    assert_eq!(run.timers.values().copied().collect::<Vec<_>>(), [Timestamp::MAX]);
}

#[test]
fn a_wait_takes_the_payload_of_its_signal() {
    let mut run = Run::start(
        "steps: {a: {skill: wait, input: {signal: go}}, b: {skill: x, input: '${{ steps.a.output }}'}}",
        "{}",
    );
    run.send("stop", None, "1").unwrap();
    run.send("go", None, r#"{"v":2}"#).unwrap();
    run.ends_with(&["4 SignalAccepted stop", "5 SignalAccepted go", "6 StepCompleted a 1/1"]);
    run.dispatch_all();
    assert_eq!(run.input("b"), r#"{"v":2}"#);
}

#[test]
fn a_signal_that_came_before_the_wait_is_kept_for_it() {
    let yaml = "steps: {a: {skill: x}, b: {skill: wait, input: {signal: go}, depends_on: [a]}, \
                c: {skill: wait, input: {signal: go}, depends_on: [b]}}";
    let mut run = Run::start(yaml, "{}");
    run.send("go", None, "1").unwrap();
    run.send("go", None, "2").unwrap();
    run.evict().run_steps(&["a"]);
    run.is(Completed);
    assert_eq!(run.output(), serde_json::json!({"c": 2}));
}

#[test]
fn a_signal_for_one_step_is_not_taken_by_another() {
    let yaml = "steps: {a: {skill: wait, input: {signal: go}}, s: {skill: x}, b: {skill: wait, input: {signal: go}, depends_on: [s]}}";
    let mut run = Run::start(yaml, "{}");
    run.send("go", Some("b"), r#""for b""#).unwrap();
    run.is(Running);
    run.send("go", None, r#""for anyone""#).unwrap();
    run.run_steps(&["s"]).is(Completed);
    assert_eq!(run.output(), serde_json::json!({"a": "for anyone", "b": "for b"}));
}

#[test]
fn the_step_that_has_waited_longest_is_answered_first() {
    let yaml = "steps: {a: {skill: wait, input: {signal: go}, depends_on: [s]}, b: {skill: wait, input: {signal: go}}, s: {skill: x}}";
    let mut run = Run::start(yaml, "{}");
    run.run_steps(&["s"]).signal("go");
    run.ends_with(&["7 SignalAccepted go", "8 StepCompleted b 1/1"]);
}

#[test]
fn a_wait_has_a_time_limit_and_is_retried() {
    let yaml =
        "steps: {a: {skill: wait, input: {signal: go}, timeout_ms: 500, retry: {max_attempts: 2, backoff_ms: 0}}}";
    let mut run = Run::start(yaml, "{}");
    run.next_timer().is(Running);
    run.next_timer();
    run.ends_with(&[
        "3 StepStarted a 1/1",
        "4 StepFailed a 1/1 timeout",
        "5 StepRetryScheduled a 2/1",
        "6 StepStarted a 2/1",
        "7 StepFailed a 2/1 timeout",
        "8 RunFailed timeout",
    ]);
}

#[test]
fn a_wait_or_a_child_without_its_input_fails() {
    for skill in ["wait", "workflow"] {
        let yaml = format!("steps: {{a: {{skill: {skill}, input: '${{{{ payload }}}}'}}}}");
        Run::start(&yaml, "{}").ends_with(&["3 StepFailed a 1/0 bad_input", "4 RunFailed bad_input"]);
    }
}

const CALL: &str = "steps: {call: {skill: workflow, input: {ref: other, payload: {n: 1}}, timeout_ms: 1000, \
                    retry: {max_attempts: 2, backoff_ms: 0}}}";

#[test]
fn a_child_is_started_and_its_output_is_the_steps() {
    let mut run = Run::of(CALL).request(|request| request.priority = 7).begin();
    let child = run.only_child();
    let start = &run.children[&child];
    assert_eq!((&*start.reference, start.payload.as_str(), start.priority), ("other", r#"{"n":1}"#, 7));
    assert_eq!((start.parent.run, &*start.parent.step, start.parent.depth), (run.state.run, "call", 1));
    run.crash().child_ended(child, ChildOutcome::Completed { output: json("5") }).is(Completed);
    assert_eq!(run.output(), serde_json::json!({"call": 5}));
    assert_eq!(code(run.command(Command::ChildEnded { child, outcome: ChildOutcome::Stopped })), "stale_attempt");
}

#[test]
fn a_failed_child_is_tried_again_if_its_error_allows() {
    let mut run = Run::start(CALL, "{}");
    let first = run.only_child();
    run.child_ended(first, ChildOutcome::Failed { error: ErrorInfo::retryable("broke", "no") }).is(Running);
    let second = run.only_child();
    assert_ne!(first, second);
    run.child_ended(second, ChildOutcome::Failed { error: ErrorInfo::fatal("unknown_workflow", "no such workflow") })
        .is(Failed);
}

#[test]
fn a_child_that_takes_too_long_is_stopped_and_tried_again() {
    let mut run = Run::start(CALL, "{}");
    let first = run.only_child();
    run.next_timer();
    assert_eq!(run.stopped_children, [(first, false)]);
    assert_ne!(run.only_child(), first);
}

#[test]
fn a_child_that_somebody_stopped_fails_the_step_for_good() {
    let mut run = Run::start(CALL, "{}");
    let child = run.only_child();
    run.child_ended(child, ChildOutcome::Stopped);
    run.ends_with(&["4 StepFailed call 1/1 child_stopped", "5 RunFailed child_stopped"]);
}

#[test]
fn a_child_whose_output_does_not_fit_fails_the_step() {
    let mut run = Run::of(CALL).limits(|limits| limits.output_bytes = 4).begin();
    let child = run.only_child();
    run.child_ended(child, ChildOutcome::Completed { output: json("[1,2,3]") });
    run.ends_with(&["4 StepFailed call 1/1 output_too_large", "5 RunFailed output_too_large"]);
}
