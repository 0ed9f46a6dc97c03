//! `foreach`: none, one, many items; items that fail; trying again.

use super::harness::{Run, code};
use crate::run::Command;
use crate::status::RunStatus::{Cancelled, Completed, Failed, Running};

const EACH: &str = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: {x: '${{ item }}', n: '${{ index }}'}}, \
                    g: {skill: x, input: {all: '${{ steps.f.output }}'}}}";
/// One decision renders as much as it may, and the rest is rendered in those that follow: no item fails for the others' sake.
#[test]
fn what_is_much_is_begun_in_several_decisions() {
    let each = "steps: {f: {skill: workflow, foreach: '${{ payload.xs }}',                 input: {ref: r, payload: {x: '${{ item }}', s: '${{ payload.s }}'}}}}";
    let xs: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    let payload = format!(r#"{{"xs":[{}],"s":"{}"}}"#, xs.join(","), "s".repeat(900_000));
    let run = Run::start(each, &payload);
    assert_eq!(run.children.len(), 60);
    assert!(run.decisions >= 3 && run.decisions < 10, "{}", run.decisions);
}

const GO_ON: &str =
    "on_failure: continue\nsteps: {f: {skill: x, foreach: '${{ payload.xs }}'}, g: {skill: x, depends_on: [f]}}";

#[test]
fn no_items_yield_an_empty_list() {
    let mut run = Run::start(EACH, r#"{"xs":[]}"#);
    run.ends_with(&["3 StepStarted f 1/1 0 items", "4 StepCompleted f 1/1"]);
    run.dispatch_all();
    assert_eq!(run.input("g"), r#"{"all":[]}"#);
}

#[test]
fn the_output_is_the_list_of_outputs_in_the_order_of_the_items() {
    let mut run = Run::start(EACH, r#"{"xs":["a","b","c"]}"#);
    run.dispatch_all();
    assert_eq!(run.input("f[1]"), r#"{"n":1,"x":"b"}"#);
    run.complete("f[2]", "2").complete("f[0]", "null").complete("f[1]", "[1]").evict().dispatch_all();
    assert_eq!(run.input("g"), r#"{"all":[null,[1],2]}"#);
    run.complete("g", "{}").is(Completed);
}

#[test]
fn what_is_not_a_list_or_is_too_long_fails_the_step() {
    let run = Run::start(EACH, r#"{"xs":"text"}"#);
    run.ends_with(&["3 StepFailed f 1/0 not_a_list", "4 StepSkipped g 0/0 upstream_failed", "5 RunFailed not_a_list"]);
    let run = Run::of(EACH).payload(r#"{"xs":[1,2,3]}"#).limits(|limits| limits.foreach_items = 2).begin();
    run.ends_with(&[
        "3 StepFailed f 1/0 too_many_items",
        "4 StepSkipped g 0/0 upstream_failed",
        "5 RunFailed too_many_items",
    ]);
}

#[test]
fn with_stop_a_failed_item_keeps_back_those_that_have_not_begun() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1,2]}"#);
    run.dispatch("f[0]").unwrap();
    run.dispatch("f[1]").unwrap();
    run.fail("f[0]", "broke", false).is(Running);
    assert_eq!(code(run.dispatch("f[2]")), "stale_attempt");
    run.complete("f[1]", "1");
    run.ends_with(&[
        "7 StepCompleted f[1] 1/1",
        "8 StepFailed f 1/1 items_failed",
        "9 StepSkipped g 0/0 upstream_failed",
        "10 RunFailed broke",
    ]);
    assert_eq!(code(run.dispatch("f[2]")), "stale_attempt");
}

#[test]
fn with_continue_the_other_items_go_on() {
    let mut run = Run::start(GO_ON, r#"{"xs":[0,1,2]}"#);
    run.dispatch_all().fail("f[0]", "broke", false).complete("f[1]", "1").is(Running);
    run.complete("f[2]", "2").is(Failed);
}

#[test]
fn retrying_the_step_tries_only_the_items_that_did_not_end_well() {
    for yaml in [EACH, GO_ON] {
        let mut run = Run::start(yaml, r#"{"xs":[0,1,2,3]}"#);
        run.dispatch_all()
            .complete("f[3]", "3")
            .fail("f[0]", "broke", false)
            .fail("f[1]", "broke", false)
            .complete("f[2]", "2");
        run.is(Failed);
        run.signal_step("RETRY_STEP", "f").crash().dispatch_all();
        let under_way: Vec<String> = run.tasks.keys().map(|step| step.name(&run.plan)).collect();
        assert_eq!(under_way, ["f[0]", "f[1]"]);
        assert_eq!(run.task("f[1]").logical_attempt, 2);
        run.complete("f[0]", "0").complete("f[1]", "1").run_steps(&["g"]).is(Completed);
    }
}

#[test]
fn a_step_with_failed_items_is_not_skipped_as_a_whole() {
    let yaml = "on_failure: continue\nsteps: {b: {skill: x}, f: {skill: x, foreach: [1, 2]}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all().fail("f[0]", "broke", false).complete("f[1]", "1").signal("PAUSE");
    run.signal_step("RETRY_STEP", "f").crash().signal_step("SKIP_STEP", "f").signal("RESUME");
    assert_eq!(run.log().matches("SignalRejected SKIP_STEP").count(), 1, "{}", run.log());
    run.dispatch_all().signal_step("SKIP_STEP", "f[0]").complete("b", "1").is(Completed);
}

#[test]
fn items_that_had_not_begun_when_their_step_failed_wait_until_it_is_retried() {
    let yaml = "steps: {b: {skill: x}, f: {skill: x, foreach: '${{ payload.xs }}'}}";
    let mut run = Run::start(yaml, r#"{"xs":[0,1,2]}"#);
    run.dispatch("f[0]").unwrap();
    run.dispatch("b").unwrap();
    run.fail("f[0]", "broke", false).fail("b", "broke", false).is(Failed);
    // The other failed step is mended first: that does not hand out items of a step that stands failed.
    run.signal_step("RETRY_STEP", "b");
    assert_eq!(code(run.dispatch("f[1]")), "stale_attempt");
    run.run_steps(&["b"]).is(Failed);
    run.signal_step("RETRY_STEP", "f[0]").run_steps(&["f[0]", "f[1]", "f[2]"]).is(Completed);
}

#[test]
fn an_item_in_backoff_is_put_away_with_its_step_and_comes_back_with_it() {
    let yaml =
        "defaults: {retry: {max_attempts: 2, backoff_ms: 1000}}\nsteps: {f: {skill: x, foreach: '${{ payload.xs }}'}}";
    let mut run = Run::start(yaml, r#"{"xs":[0,1]}"#);
    run.dispatch_all().fail("f[1]", "broke", true).fail("f[0]", "broke", false).is(Failed);
    run.signal_step("RETRY_STEP", "f").dispatch_all();
    assert_eq!((run.task("f[0]").logical_attempt, run.task("f[1]").logical_attempt), (2, 2));
    run.complete("f[0]", "0").complete("f[1]", "1").is(Completed);
}

#[test]
fn a_lost_item_of_a_halted_step_does_not_leave_the_step_open() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1]}"#);
    run.dispatch_all().fail("f[0]", "broke", false).crash();
    run.ends_with(&[
        "7 StepRetryScheduled f[1] 1/2",
        "8 StepFailed f 1/1 items_failed",
        "9 StepSkipped g 0/0 upstream_failed",
        "10 RunFailed broke",
    ]);
    run.signal_step("RETRY_STEP", "f").run_steps(&["f[1]", "f[0]", "g"]).is(Completed);
}

#[test]
fn an_item_that_is_skipped_leaves_null_in_the_list() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1]}"#);
    run.dispatch_all();
    let late = run.task("f[0]");
    run.signal_step("SKIP_STEP", "f[0]").complete("f[1]", "1").dispatch_all();
    assert!(run.asked_to_stop.contains(&run.step("f[0]")));
    assert_eq!(run.input("g"), r#"{"all":[null,1]}"#);
    assert_eq!(code(run.command(Command::Complete { task: late, output: crate::json::Json::null() })), "stale_attempt");
}

#[test]
fn an_item_skipped_before_its_second_attempt_leaves_the_first_outcome_alone() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1]}"#);
    run.dispatch_all().fail("f[0]", "broke", false).complete("f[1]", "1").signal_step("RETRY_STEP", "f");
    run.signal_step("SKIP_STEP", "f[0]").run_steps(&["g"]);
    assert!(run.log().contains("StepSkipped f[0] 2/0 operator"), "{}", run.log());
    run.is(Completed);
}

#[test]
fn cancel_ends_the_step_with_its_items() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1,2]}"#);
    run.dispatch("f[0]").unwrap();
    run.signal("CANCEL").fail("f[0]", "cancelled", false).is(Cancelled);
    run.ends_with(&[
        "6 StepSkipped f[0] 1/1 cancelled",
        "7 StepSkipped f 1/1 cancelled",
        "8 StepSkipped g 0/0 run_stopped",
        "9 RunCancelled cancelled",
    ]);
}

#[test]
fn a_list_whose_items_wait_when_the_run_fails_goes_on_when_it_is_reopened() {
    let yaml = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: '${{ item }}'}, z: {skill: x}}";
    let mut run = Run::start(yaml, r#"{"xs":[0,1,2]}"#);
    run.dispatch("f[0]").unwrap();
    run.complete("f[0]", "0").dispatch("z").unwrap();
    run.fail("z", "broke", false).is(Failed);
    run.ends_with(&["7 StepFailed z 1/1 broke", "8 StepSkipped f 1/1 run_stopped", "9 RunFailed broke"]);
    run.crash().signal_step("RETRY_STEP", "z").run_steps(&["z"]);
    assert!(run.log().contains("StepStarted f 1/2 3 items"), "{}", run.log());
    run.run_steps(&["f[1]", "f[2]"]).is(Completed);
}

#[test]
fn sleeps_waits_and_children_can_be_items() {
    let yaml = "steps: {f: {skill: sleep, foreach: '${{ payload.xs }}', input: {ms: '${{ item }}'}}, \
                h: {skill: wait, foreach: '${{ payload.xs }}', input: {signal: go}, depends_on: [f]}}";
    let mut run = Run::start(yaml, r#"{"xs":[100,200]}"#);
    run.next_timer().next_timer().signal("go").is(Running);
    run.signal("go").is(Completed);
}
