//! Chains, diamonds, conditions, inputs, and the end of a run.

use super::harness::{Run, code, json};
use crate::event::{Body, ErrorInfo};
use crate::run::{ChildOutcome, Command};
use crate::status::RunStatus::{Completed, Failed, Running};

const CHAIN: &str = "steps: {a: {skill: x}, b: {skill: x, input: {from: '${{ steps.a.output.n }}'}}}";

#[test]
fn a_chain_runs_in_order_and_passes_outputs_on() {
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().complete("a", r#"{"n":41}"#).dispatch_all();
    assert_eq!(run.input("b"), r#"{"from":41}"#);
    run.complete("b", r#"{"done":true}"#);
    run.ends_with(&[
        "1 RunQueued queued",
        "2 RunStarted",
        "3 StepStarted a 1/1",
        "4 StepCompleted a 1/1",
        "5 StepStarted b 1/1",
        "6 StepCompleted b 1/1",
        "7 RunCompleted",
    ]);
    assert_eq!(run.output(), serde_json::json!({"b": {"done": true}}));
}

#[test]
fn a_diamond_joins_when_both_sides_are_done() {
    let mut run = Run::start(
        "steps: {a: {skill: x}, b: {skill: x, depends_on: [a]}, c: {skill: x, depends_on: [a]}, d: {skill: x, depends_on: [b, c]}}",
        "{}",
    );
    run.run_steps(&["a", "c"]);
    assert_eq!(code(run.dispatch("d")), "stale_attempt");
    run.run_steps(&["b", "d"]).is(Completed);
}

#[test]
fn an_output_of_null_is_an_output() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x, input: {v: '${{ steps.a.output }}'}}}", "{}");
    run.dispatch_all().complete("a", "null").evict().dispatch_all();
    assert_eq!(run.input("b"), r#"{"v":null}"#);
}

#[test]
fn a_true_condition_runs_the_step() {
    let mut run = Run::start("steps: {a: {skill: x, when: '${{ payload.go }}'}}", r#"{"go":true}"#);
    run.run_steps(&["a"]).is(Completed);
}

#[test]
fn a_false_condition_skips_the_step_and_lets_its_dependents_run_with_null() {
    let yaml = "steps: {a: {skill: x, when: '${{ payload.go }}'}, b: {skill: x, input: {v: '${{ steps.a.output }}'}}}";
    let mut run = Run::start(yaml, r#"{"go":false}"#);
    run.ends_with(&["3 StepSkipped a 1/0 condition"]);
    run.dispatch_all();
    assert_eq!(run.input("b"), r#"{"v":null}"#);
    run.complete("b", "1").is(Completed);
}

#[test]
fn a_condition_that_cannot_be_evaluated_fails_the_step() {
    let run =
        Run::start("steps: {a: {skill: x, when: '${{ payload.nothing }}'}, b: {skill: x, depends_on: [a]}}", "{}");
    run.ends_with(&[
        "3 StepFailed a 1/0 expression_failed",
        "4 StepSkipped b 0/0 upstream_failed",
        "5 RunFailed expression_failed",
    ]);
}

#[test]
fn an_input_that_cannot_be_evaluated_fails_the_step_when_it_is_handed_out() {
    let mut run = Run::start("steps: {a: {skill: x, input: {v: '${{ payload.nothing }}'}}}", "{}");
    run.is(Running);
    run.dispatch_all();
    run.ends_with(&["3 StepFailed a 1/0 expression_failed", "4 RunFailed expression_failed"]);
}

#[test]
fn an_output_that_is_too_large_fails_the_step() {
    let mut run = Run::of("steps: {a: {skill: x}}").limits(|limits| limits.output_bytes = 10).begin();
    run.dispatch_all().complete("a", r#""0123456789""#);
    run.ends_with(&["4 StepFailed a 1/1 output_too_large", "5 RunFailed output_too_large"]);
}

#[test]
fn an_input_that_is_too_large_fails_the_step() {
    let mut run = Run::of(CHAIN).limits(|limits| limits.input_bytes = 20).begin();
    run.dispatch_all().complete("a", r#"{"n":"a text that is longer"}"#).dispatch_all();
    run.ends_with(&["5 StepFailed b 1/0 input_too_large", "6 RunFailed input_too_large"]);
}

#[test]
fn an_output_nested_too_deep_fails_the_step() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
    run.dispatch_all().complete("a", &deep);
    run.ends_with(&["4 StepFailed a 1/1 bad_output", "5 RunFailed bad_output"]);
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().complete("a", &format!("\"{}\\\"[\"", "[".repeat(100))).is(Completed);
}

#[test]
fn an_output_that_no_expression_can_read_fails_its_step() {
    for output in [r#""\ud800""#, "1e999"] {
        let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x, input: {v: '${{ steps.a.output }}'}}}", "{}");
        run.dispatch_all().complete("a", output);
        run.ends_with(&[
            "4 StepFailed a 1/1 bad_output",
            "5 StepSkipped b 0/0 upstream_failed",
            "6 RunFailed bad_output",
        ]);
    }
}

#[test]
fn the_error_of_a_run_names_the_step_and_quotes_it() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().fail("a", "bad_input", false);
    let Body::RunFailed { error } = &run.events.last().unwrap().body else { panic!("{}", run.log()) };
    assert_eq!((&*error.code, &*error.message), ("bad_input", "step `a` failed: it broke"));
}

#[test]
fn an_error_keeps_its_head_in_the_log_and_less_of_it_in_the_state() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all();
    let error = ErrorInfo { code: "c".repeat(1000), message: "é".repeat(100_000), retryable: false };
    run.command(Command::Fail { task: run.task("a"), error }).unwrap();
    let [.., failed, ended] = &run.events[..] else { panic!("{}", run.log()) };
    let (Body::StepFailed { error: kept }, Body::RunFailed { error: quoted }) = (&failed.body, &ended.body) else {
        panic!("{}", run.log())
    };
    assert_eq!((kept.code.len(), kept.message.chars().count()), (255, 8192 + 8));
    assert_eq!(quoted.message.chars().count(), "step `a` failed: ".len() + 1000);
    assert!(run.state.to_checkpoint().len() < 4000);
}

#[test]
fn a_child_tells_its_parent_how_it_ended() {
    let parent = super::harness::run_id(2);
    let mut run = Run::of("steps: {a: {skill: x}}").child_of(parent).begin();
    run.dispatch_all().complete("a", "7");
    assert_eq!(run.told_parent, [ChildOutcome::Completed { output: json(r#"{"a":7}"#) }]);
    let mut run = Run::of("steps: {a: {skill: x}}").child_of(parent).begin();
    run.dispatch_all().fail("a", "broke", true).is(Failed);
    let [ChildOutcome::Failed { error }] = &run.told_parent[..] else { panic!("{:?}", run.told_parent) };
    assert!(error.retryable, "the parent's own policy decides whether to try again");
    let mut run = Run::of("steps: {a: {skill: x}}").child_of(parent).begin();
    run.signal("TERMINATE");
    assert_eq!(run.told_parent, [ChildOutcome::Stopped]);
}

#[test]
fn facts_that_are_gone_are_asked_for_and_the_decision_goes_on() {
    let yaml =
        "steps: {a: {skill: x}, b: {skill: x}, c: {skill: x, depends_on: [b], when: '${{ steps.a.output.go }}'}}";
    let mut run = Run::start(yaml, "{}");
    run.run_steps(&["b"]).complete("a", r#"{"go":false}"#).is(Completed);
    let mut run = Run::of(yaml).child_of(super::harness::run_id(2)).begin();
    run.dispatch_all().complete("a", r#"{"go":true}"#).evict().complete("b", "2");
    run.evict().dispatch_all().evict().complete("c", "3");
    assert_eq!(run.told_parent, [ChildOutcome::Completed { output: json(r#"{"c":3}"#) }]);
}

#[test]
fn a_decision_that_lacks_a_fact_says_which_and_emits_nothing_of_what_depends_on_it() {
    let mut run = Run::start(CHAIN, r#"{"p":1}"#);
    run.dispatch_all().complete("a", r#"{"n":1}"#).evict();
    let context = crate::run::Context::new(run.now, 1, &run.limits);
    let dispatch = Command::Dispatch { step: run.step("b"), worker: run.node };
    let decision = crate::run::decide(&mut run.state, dispatch, &context).unwrap();
    assert_eq!((decision.missing, decision.events.len()), (vec![1, 4], 0));
}
