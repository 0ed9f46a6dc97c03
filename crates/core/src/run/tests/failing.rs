//! `on_failure`, `RETRY_STEP` and `SKIP_STEP`.

use super::harness::{Run, code};
use crate::status::RunStatus::{Completed, Failed, Running};

const TWO: &str =
    "steps: {a: {skill: x}, a2: {skill: x, depends_on: [a]}, b: {skill: x}, b2: {skill: x, depends_on: [b]}}";
const JOIN: &str =
    "steps: {a: {skill: x}, b: {skill: x}, c: {skill: x, depends_on: [a, b]}, d: {skill: x, depends_on: [c]}}";

fn go_on(yaml: &str) -> String {
    format!("on_failure: continue\n{yaml}")
}

#[test]
fn with_stop_nothing_starts_after_a_failure_and_the_run_fails_when_nothing_runs() {
    let mut run = Run::start(TWO, "{}");
    run.dispatch_all().fail("a", "broke", false).is(Running);
    run.complete("b", "1");
    run.ends_with(&[
        "5 StepFailed a 1/1 broke",
        "6 StepSkipped a2 0/0 upstream_failed",
        "7 StepCompleted b 1/1",
        "8 StepSkipped b2 0/0 run_stopped",
        "9 RunFailed broke",
    ]);
}

#[test]
fn with_continue_independent_branches_go_on_and_then_the_run_fails() {
    let mut run = Run::start(&go_on(TWO), "{}");
    run.dispatch_all().fail("a", "broke", false).complete("b", "1").is(Running);
    run.run_steps(&["b2"]).is(Failed);
}

#[test]
fn retrying_the_failed_step_reopens_the_run_and_what_was_skipped_for_it() {
    let mut run = Run::start(TWO, "{}");
    run.dispatch_all().fail("a", "broke", false).complete("b", "1").is(Failed);
    run.signal_step("RETRY_STEP", "a");
    run.ends_with(&["10 SignalAccepted RETRY_STEP", "11 RunReopened", "12 StepRetryScheduled a 2/1 reset a2,b2"]);
    run.crash().dispatch_all();
    assert_eq!((run.task("a").logical_attempt, run.task("b2").logical_attempt), (2, 1));
    run.complete("a", "1").complete("b2", "1").run_steps(&["a2"]).is(Completed);
}

#[test]
fn a_failed_step_can_be_retried_while_the_run_goes_on() {
    let mut run = Run::start(&go_on(TWO), "{}");
    run.dispatch_all().fail("a", "broke", false).signal_step("RETRY_STEP", "a").run_steps(&["a", "a2", "b", "b2"]);
    run.is(Completed);
}

#[test]
fn a_step_that_another_failure_keeps_back_is_not_reset() {
    for yaml in [JOIN.to_owned(), go_on(JOIN)] {
        let mut run = Run::start(&yaml, "{}");
        run.dispatch_all().fail("a", "broke", false).fail("b", "broke", false).is(Failed);
        run.signal_step("RETRY_STEP", "a");
        run.ends_with(&["11 RunReopened", "12 StepRetryScheduled a 2/1"]);
        run.run_steps(&["a"]).is(Failed);
        run.signal_step("RETRY_STEP", "b");
        assert!(run.log().ends_with("StepRetryScheduled b 2/1 reset c,d"), "{}", run.log());
        run.run_steps(&["b", "c", "d"]).is(Completed);
    }
}

#[test]
fn a_run_that_ends_twice_for_the_same_failure_says_so_twice() {
    let mut run = Run::start(JOIN, "{}");
    run.dispatch_all().fail("a", "broke", false).fail("b", "other", false).is(Failed);
    // `a` was the first failure and still is one when `b` has been mended.
    run.signal_step("RETRY_STEP", "b").run_steps(&["b"]).is(Failed);
    run.ends_with(&["14 StepCompleted b 2/1", "15 RunFailed broke"]);
    run.signal_step("RETRY_STEP", "a").dispatch_all().fail("a", "again", false).is(Failed);
    run.ends_with(&["23 RunFailed again"]);
}

#[test]
fn with_both_steps_retried_the_join_runs_once() {
    let mut run = Run::start(JOIN, "{}");
    run.dispatch_all().fail("a", "broke", false).fail("b", "broke", false);
    run.signal_step("RETRY_STEP", "a").signal_step("RETRY_STEP", "b").run_steps(&["a", "b", "c", "d"]).is(Completed);
}

#[test]
fn a_retry_that_fails_again_skips_again() {
    let mut run = Run::start(TWO, "{}");
    run.dispatch_all().fail("a", "broke", false).complete("b", "1");
    for _ in 0..3 {
        run.is(Failed);
        run.signal_step("RETRY_STEP", "a").dispatch("a").unwrap();
        run.fail("a", "broke", false);
    }
    assert_eq!(run.log().matches("StepSkipped a2 0/0 upstream_failed").count(), 4);
}

#[test]
fn a_reopened_run_is_counted_under_its_key_again() {
    let mut run = Run::start("concurrency: {key: k, limit: 1}\nsteps: {a: {skill: x}}", "{}");
    run.dispatch_all().fail("a", "broke", false).signal_step("RETRY_STEP", "a").run_steps(&["a"]).is(Completed);
    assert_eq!(run.slots, ["hold", "release", "hold", "release"]);
}

#[test]
fn only_failed_steps_are_retried() {
    let mut run = Run::start(TWO, "{}");
    run.dispatch_all()
        .signal_step("RETRY_STEP", "a")
        .signal_step("RETRY_STEP", "a2")
        .complete("a", "1")
        .signal_step("RETRY_STEP", "a");
    assert_eq!(run.log().matches("SignalRejected RETRY_STEP").count(), 3);
    assert_eq!(code(run.send("RETRY_STEP", None, "{}")), "missing_step");
    assert_eq!(code(run.send("RETRY_STEP", Some("zz"), "{}")), "unknown_step");
    assert_eq!(code(run.send("RETRY_STEP", Some("a[0]"), "{}")), "unknown_step");
}

#[test]
fn a_skipped_step_takes_its_dependents_with_it_and_the_run_completes() {
    let mut run = Run::start(TWO, "{}");
    run.signal_step("SKIP_STEP", "a");
    run.ends_with(&["4 StepSkipped a 1/0 operator", "5 StepSkipped a2 0/0 operator"]);
    run.signal_step("SKIP_STEP", "a").run_steps(&["b", "b2"]).is(Completed);
}

#[test]
fn a_step_under_way_can_be_skipped() {
    let mut run = Run::start(
        "steps: {a: {skill: x}, b: {skill: workflow, input: {ref: o}}, c: {skill: sleep, input: {ms: 9}}}",
        "{}",
    );
    let child = run.only_child();
    run.dispatch_all()
        .signal_step("SKIP_STEP", "a")
        .signal_step("SKIP_STEP", "b")
        .signal_step("SKIP_STEP", "c")
        .is(Completed);
    assert!(run.asked_to_stop.contains(&run.step("a")));
    assert_eq!(run.stopped_children, [(child, false)]);
}

#[test]
fn a_step_in_backoff_can_be_skipped() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 2}}}", "{}");
    run.dispatch_all().fail("a", "broke", true).signal_step("SKIP_STEP", "a");
    run.ends_with(&["7 StepSkipped a 2/0 operator", "8 RunCompleted"]);
}

#[test]
fn steps_skipped_before_the_start_stay_skipped() {
    let mut run = Run::start("approval: true\nsteps: {a: {skill: x}, b: {skill: x}}", "{}");
    run.signal_step("SKIP_STEP", "a").signal("APPROVE").run_steps(&["b"]).is(Completed);
    let mut run = Run::start("approval: true\nsteps: {a: {skill: x}}", "{}");
    run.signal_step("SKIP_STEP", "a").signal("APPROVE").is(Completed);
}

#[test]
fn a_foreach_step_that_has_begun_is_not_skipped_as_a_whole() {
    let mut run = Run::start("steps: {f: {skill: x, foreach: '${{ [1] }}'}}", "{}");
    run.signal_step("SKIP_STEP", "f");
    run.ends_with(&["4 SignalRejected SKIP_STEP"]);
    run.signal_step("SKIP_STEP", "f[0]").is(Completed);
}
