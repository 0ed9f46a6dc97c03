//! Retries by policy.

use super::harness::Run;
use crate::status::RunStatus::{Completed, Failed, Running};

const RETRY: &str =
    "steps: {a: {skill: x, retry: {max_attempts: 3, backoff_ms: 1000, max_backoff_ms: 1500, non_retryable: [bad]}}}";

fn delay_ms(run: &Run) -> u64 {
    run.timers.values().next().expect("a retry is scheduled").ms_since(run.now)
}

#[test]
fn a_failed_attempt_is_made_again_after_its_backoff() {
    let mut run = Run::start(RETRY, "{}");
    run.dispatch_all().fail("a", "broke", true);
    assert!((500..=1000).contains(&delay_ms(&run)), "{}", delay_ms(&run));
    run.next_timer().dispatch_all().fail("a", "broke", true);
    assert!((750..=1500).contains(&delay_ms(&run)), "{}", delay_ms(&run));
    run.next_timer().dispatch_all().complete("a", "1");
    run.ends_with(&[
        "3 StepStarted a 1/1",
        "4 StepFailed a 1/1 broke",
        "5 StepRetryScheduled a 2/1",
        "6 StepStarted a 2/1",
        "7 StepFailed a 2/1 broke",
        "8 StepRetryScheduled a 3/1",
        "9 StepStarted a 3/1",
        "10 StepCompleted a 3/1",
        "11 RunCompleted",
    ]);
}

#[test]
fn the_last_attempt_fails_the_step() {
    let mut run = Run::start(RETRY, "{}");
    for _ in 0..2 {
        run.dispatch_all().fail("a", "broke", true).next_timer();
    }
    run.dispatch_all().fail("a", "broke", true).is(Failed);
}

#[test]
fn what_is_not_retryable_is_not_retried() {
    let mut run = Run::start(RETRY, "{}");
    run.dispatch_all().fail("a", "bad", true).is(Failed);
    let mut run = Run::start(RETRY, "{}");
    run.dispatch_all().fail("a", "broke", false).is(Failed);
}

#[test]
fn a_step_in_backoff_is_not_handed_out_early_and_a_crash_does_not_shorten_the_wait() {
    let mut run = Run::start(RETRY, "{}");
    run.dispatch_all().fail("a", "broke", true);
    assert!(run.dispatch("a").is_err());
    run.crash();
    assert!(run.offered.is_empty());
    run.next_timer().crash().dispatch_all().complete("a", "1").is(Completed);
}

#[test]
fn without_a_backoff_the_retry_is_ready_at_once() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 0}}}", "{}");
    run.dispatch_all().fail("a", "broke", true).is(Running);
    assert!(run.timers.is_empty());
    run.run_steps(&["a"]).is(Completed);
}

#[test]
fn a_failure_elsewhere_ends_a_backoff_and_reopening_takes_it_up_again() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 9000}}, b: {skill: x}}", "{}");
    run.dispatch_all().fail("a", "broke", true).fail("b", "broke", true).is(Failed);
    run.signal_step("RETRY_STEP", "b").dispatch_all();
    assert_eq!(run.task("a").logical_attempt, 2);
    run.complete("a", "1").complete("b", "1").is(Completed);
}

#[test]
fn an_operator_gives_a_fresh_budget() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 0}}}", "{}");
    run.dispatch_all().fail("a", "broke", true).dispatch_all().fail("a", "broke", true).is(Failed);
    run.signal_step("RETRY_STEP", "a").dispatch_all().fail("a", "broke", true).is(Running);
    run.dispatch_all();
    assert_eq!(run.task("a").logical_attempt, 4);
    run.fail("a", "broke", true).is(Failed);
}
