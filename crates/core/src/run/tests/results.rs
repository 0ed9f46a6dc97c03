//! Results that are kept: what is taken, what runs, what is kept of it.

use super::begin::Start;
use super::harness::{Run, run_id};
use super::kept::SharedResults;
use crate::cache::{StepSurroundings, Trust};
use crate::event::Body;
use crate::hash::Digest;
use crate::plan::Rebuild;
use crate::status::RunStatus;

const CHAIN: &str = "
defaults: {cache: {enabled: true}}
steps:
  a: {skill: x, input: {n: '${{ payload.a }}'}}
  b: {skill: x, input: {of: '${{ steps.a.output }}'}}
  c: {skill: x, input: {of: '${{ steps.b.output }}'}}
";

/// The n-th run of a document, which shares results with others.
fn nth(n: u128, yaml: &str, payload: &str, results: &SharedResults) -> Start {
    Run::of(yaml).payload(payload).results(results).request(|request| request.run = run_id(n))
}

fn done(yaml: &str, payload: &str, outputs: &[(&str, &str)]) -> SharedResults {
    let results = SharedResults::default();
    let mut run = nth(1, yaml, payload, &results).begin();
    for (step, output) in outputs {
        run.dispatch_all().complete(step, output);
    }
    run.is(RunStatus::Completed);
    results
}

fn chain() -> SharedResults {
    done(CHAIN, r#"{"a":1}"#, &[("a", "1"), ("b", "[2]"), ("c", r#"{"d":3}"#)])
}

#[test]
fn a_chain_of_results_is_taken_in_one_decision() {
    let results = chain();
    let mut run = nth(2, CHAIN, r#"{"a":1}"#, &results).begin();
    run.ends_with(&[
        "1 RunQueued queued",
        "2 RunStarted",
        "3 StepSkipped a 1/0 cache_hit 1",
        "4 StepSkipped b 1/0 cache_hit [2]",
        r#"5 StepSkipped c 1/0 cache_hit {"d":3}"#,
        "6 RunCompleted",
    ]);
    assert_eq!(run.output(), serde_json::json!({"c": {"d": 3}}));
    assert_eq!((results.borrow().hits, results.borrow().kept.len()), (3, 3));
}

#[test]
fn a_reused_step_says_whose_result_it_is() {
    let results = chain();
    let run = nth(2, CHAIN, r#"{"a":1}"#, &results).begin();
    let Body::StepReused(reused) = &run.events[2].body else { panic!("{}", run.log()) };
    let made = results.borrow();
    let preimage = made.preimages[&reused.key].to_value();
    assert_eq!((reused.run, reused.seq), (run_id(1), 4));
    assert_eq!(preimage["input"], serde_json::json!({"n": 1}));
    assert_eq!(reused.input_hash, Digest::of(br#"{"n":1}"#));
}

#[test]
fn what_depends_on_the_change_runs_and_equal_bytes_cut_it_off() {
    let results = chain();
    let mut run = nth(2, CHAIN, r#"{"a":2}"#, &results).begin();
    run.dispatch_all().complete("a", "7").dispatch_all().complete("b", "[2]");
    run.ends_with(&["6 StepCompleted b 1/1", r#"7 StepSkipped c 1/0 cache_hit {"d":3}"#, "8 RunCompleted"]);
}

#[test]
fn a_step_without_cache_asks_nothing_and_keeps_nothing() {
    let results = SharedResults::default();
    let yaml = "steps: {a: {skill: x}, b: {skill: x, cache: {enabled: false}}, c: {skill: sleep, input: {ms: 1}, cache: {enabled: true}}}";
    let mut run = nth(1, yaml, "{}", &results).begin();
    run.run_steps(&["a", "b"]).next_timer().is(RunStatus::Completed);
    let results = results.borrow();
    assert_eq!((results.lookups, results.kept.len(), results.preimages.len()), (0, 0, 0));
}

#[test]
fn only_success_is_kept() {
    let results = SharedResults::default();
    let yaml = "defaults: {cache: {enabled: true}, retry: {max_attempts: 2, backoff_ms: 0}}\nsteps: {a: {skill: x}}";
    let mut run = nth(1, yaml, "{}", &results).begin();
    run.dispatch_all().fail("a", "broke", true);
    assert!(results.borrow().kept.is_empty());
    run.fire_due_timers().dispatch_all().fail("a", "broke", true).is(RunStatus::Failed);
    assert!(results.borrow().kept.is_empty());
    let mut again = nth(2, yaml, "{}", &results).begin();
    again.run_steps(&["a"]).is(RunStatus::Completed);
    assert_eq!(results.borrow().kept.len(), 1);
}

#[test]
fn a_result_that_somebody_else_made_meanwhile_ends_the_retries() {
    let results = SharedResults::default();
    let yaml = "defaults: {cache: {enabled: true}, retry: {max_attempts: 3, backoff_ms: 500}}\nsteps: {a: {skill: x}}";
    let mut first = nth(1, yaml, "{}", &results).begin();
    first.dispatch_all().fail("a", "broke", true);
    nth(2, yaml, "{}", &results).begin().dispatch_all().complete("a", "5");
    first.next_timer().ends_with(&["6 StepSkipped a 2/0 cache_hit 5", "7 RunCompleted"]);
}

#[test]
fn what_waits_in_line_takes_the_result_when_its_state_was_read_anew() {
    let results = SharedResults::default();
    let yaml = "steps: {a: {skill: x, cache: {enabled: true}}}";
    let mut first = nth(1, yaml, "{}", &results).begin();
    let forced = nth(2, yaml, "{}", &results).request(|request| request.rebuild = Some(Rebuild::All));
    forced.begin().dispatch_all().complete("a", "5");
    first.evict().dispatch_all();
    first.ends_with(&["3 StepSkipped a 1/0 cache_hit 5", "4 RunCompleted"]);
}

#[test]
fn steps_that_are_rebuilt_run_and_their_results_are_kept() {
    let results = chain();
    let rebuild =
        |steps: Rebuild| nth(2, CHAIN, r#"{"a":1}"#, &results).request(|request| request.rebuild = Some(steps)).begin();
    let mut one = rebuild(Rebuild::Steps(vec![1]));
    one.evict().dispatch_all().complete("b", "[9]");
    assert_eq!(one.log().matches("cache_hit").count(), 1);
    one.dispatch_all().complete("c", "0").is(RunStatus::Completed);
    let mut all = rebuild(Rebuild::All);
    all.run_steps(&["a", "b", "c"]).is(RunStatus::Completed);
    assert!(!all.log().contains("cache_hit"));
    let after = nth(3, CHAIN, r#"{"a":1}"#, &results).begin();
    after.ends_with(&[
        "3 StepSkipped a 1/0 cache_hit {}",
        "4 StepSkipped b 1/0 cache_hit {}",
        "5 StepSkipped c 1/0 cache_hit {}",
        "6 RunCompleted",
    ]);
}

#[test]
fn an_item_has_a_key_of_its_own_wherever_it_stands() {
    let yaml = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: '${{ item }}', cache: {enabled: true}}, \
                g: {skill: x, input: '${{ steps.f.output }}'}}";
    let results = done(yaml, r#"{"xs":[1,2]}"#, &[("f[0]", "10"), ("f[1]", "20"), ("g", "0")]);
    let mut run = nth(2, yaml, r#"{"xs":[2,3,1]}"#, &results).begin();
    run.ends_with(&[
        "3 StepStarted f 1/1 3 items",
        "4 StepSkipped f[0] 1/0 cache_hit 20",
        "5 StepSkipped f[2] 1/0 cache_hit 10",
    ]);
    run.dispatch_all().complete("f[1]", "30").evict().dispatch_all();
    assert_eq!(run.input("g"), "[20,30,10]");
}

#[test]
fn all_items_may_be_there_already() {
    let yaml = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: '${{ item }}', cache: {enabled: true}}}";
    let results = done(yaml, r#"{"xs":[1,2]}"#, &[("f[0]", "10"), ("f[1]", "20")]);
    let mut run = nth(2, yaml, r#"{"xs":[2,2,1]}"#, &results).begin();
    run.is(RunStatus::Completed);
    assert_eq!(run.output(), serde_json::json!({"f": [20, 20, 10]}));
}

#[test]
fn a_long_list_asks_a_few_at_a_time() {
    let yaml =
        "steps: {f: {skill: x, foreach: '${{ range(payload.n) }}', input: '${{ item }}', cache: {enabled: true}}}";
    let results = SharedResults::default();
    let mut run = nth(1, yaml, r#"{"n":300}"#, &results).begin();
    assert_eq!((run.offered.len(), results.borrow().lookups, results.borrow().most_at_once), (300, 300, 256));
    run.dispatch_all();
    for item in 0..300 {
        run.complete(&format!("f[{item}]"), &item.to_string());
    }
    run.is(RunStatus::Completed);
    let mut again = nth(2, yaml, r#"{"n":301}"#, &results).begin();
    assert_eq!((again.offered.len(), results.borrow().hits), (1, 300));
    again.run_steps(&["f[300]"]).is(RunStatus::Completed);
}

#[test]
fn what_is_kept_for_one_run_serves_no_other_and_goes_with_it() {
    let yaml = "steps: {f: {skill: x, foreach: [1, 1], input: 0, cache: {enabled: true, scope: run_only}, retry: {max_attempts: 2, backoff_ms: 9}}, \
                g: {skill: x, depends_on: [f]}}";
    let results = SharedResults::default();
    let mut run = nth(1, yaml, "{}", &results).begin();
    run.dispatch_all().fail("f[0]", "broke", true).dispatch_all().complete("f[1]", "1").next_timer().dispatch_all();
    run.ends_with(&["9 StepSkipped f[0] 2/0 cache_hit 1", "10 StepCompleted f 1/1", "11 StepStarted g 1/1"]);
    let mut other = nth(2, yaml, "{}", &results).begin();
    other.dispatch_all();
    assert_eq!((other.tasks.len(), results.borrow().kept.len()), (1, 1));
    run.complete("g", "1").is(RunStatus::Completed);
    assert!(results.borrow().kept.is_empty());
}

#[test]
fn what_is_kept_for_one_run_goes_with_it_though_a_patch_took_its_step_away() {
    let yaml = "steps: {f: {skill: x, cache: {enabled: true, scope: run_only}}, g: {skill: x}, h: {skill: x, depends_on: [g]}}";
    let results = SharedResults::default();
    let mut run = nth(1, yaml, "{}", &results).begin();
    run.dispatch_all().complete("f", "1");
    run.try_patch(r#"[{"op":"remove","path":"/steps/f"}]"#, true).unwrap();
    assert_eq!(results.borrow().kept.len(), 1);
    run.complete("g", "1").run_steps(&["h"]).is(RunStatus::Completed);
    assert!(results.borrow().kept.is_empty());
}

#[test]
fn disowned_results_are_not_taken_and_what_began_before_does_not_come_back() {
    let results = chain();
    let begun_before = &mut nth(2, CHAIN, r#"{"a":5}"#, &results).begin();
    begun_before.dispatch_all();
    let around = StepSurroundings { epoch: 1, ..StepSurroundings::default() };
    results.borrow_mut().surroundings.steps.insert("a".into(), around);
    begun_before.complete("a", "1");
    let mut run = nth(3, CHAIN, r#"{"a":5}"#, &results).begin();
    assert_eq!(run.offered.len(), 1, "{}", run.log());
    run.dispatch_all().complete("a", "1").is(RunStatus::Completed);
    results.borrow_mut().surroundings.epoch = 1;
    assert_eq!(nth(4, CHAIN, r#"{"a":5}"#, &results).begin().offered.len(), 1);
}

#[test]
fn a_protected_run_takes_no_result_of_an_open_one() {
    let results = chain();
    let protected =
        |n| nth(n, CHAIN, r#"{"a":1}"#, &results).request(|request| request.trust = Trust::Protected).begin();
    let mut run = protected(2);
    run.run_steps(&["a", "b", "c"]).is(RunStatus::Completed);
    protected(3).is(RunStatus::Completed);
    results.borrow_mut().kept.retain(|_, kept| kept.run == run_id(2));
    nth(4, CHAIN, r#"{"a":1}"#, &results).begin().is(RunStatus::Completed);
}

#[test]
fn a_pause_that_comes_first_keeps_results_back() {
    let results = chain();
    let mut run = nth(2, CHAIN, r#"{"a":2}"#, &results).begin();
    run.dispatch_all().signal("PAUSE").complete("a", "1").is(RunStatus::Paused);
    run.signal("RESUME").is(RunStatus::Completed);
}

#[test]
fn a_step_that_a_patch_changes_has_another_key() {
    let results = chain();
    let mut run = nth(2, CHAIN, r#"{"a":2}"#, &results).begin();
    run.try_patch(r#"[{"op":"add","path":"/steps/a/input/n","value":1}]"#, false).unwrap();
    assert_eq!(run.offered.len(), 1, "the input is that of a result, the definition is not");
    run.dispatch_all().complete("a", "1").is(RunStatus::Completed);
}

#[test]
fn a_run_whose_definition_was_changed_is_no_longer_trusted() {
    let results = SharedResults::default();
    let start = |n, trust| nth(n, CHAIN, r#"{"a":1}"#, &results).request(|request| request.trust = trust).begin();
    let mut run = start(1, Trust::Protected);
    run.try_patch(r#"[{"op":"add","path":"/steps/c/timeout_ms","value":9}]"#, false).unwrap();
    run.run_steps(&["a", "b", "c"]).is(RunStatus::Completed);
    start(2, Trust::Open).is(RunStatus::Completed);
    start(3, Trust::Protected).is(RunStatus::Running);
}

#[test]
fn an_output_that_patches_its_run_is_not_kept() {
    let yaml =
        "self_patch: {max_patches: 2, max_steps: 3}\ndefaults: {cache: {enabled: true}}\nsteps: {plan: {skill: x}}";
    let results = SharedResults::default();
    let mut run = nth(1, yaml, "{}", &results).begin();
    let grown = r#"{"patch":[{"op":"add","path":"/steps/act","value":{"skill":"x"}}]}"#;
    run.dispatch_all().complete("plan", grown);
    assert!(results.borrow().kept.is_empty());
    run.run_steps(&["act"]).is(RunStatus::Completed);
    assert_eq!(results.borrow().kept.len(), 1);
}

#[test]
fn a_result_that_would_patch_its_run_is_not_taken() {
    let yaml = "defaults: {cache: {enabled: true}}\nsteps: {plan: {skill: x}}";
    let output = r#"{"patch":[{"op":"add","path":"/steps/act","value":{"skill":"x"}}]}"#;
    let results = done(yaml, "{}", &[("plan", output)]);
    nth(2, yaml, "{}", &results).begin().is(RunStatus::Completed);
    let growing = format!("self_patch: {{max_patches: 1, max_steps: 3}}\n{yaml}");
    let mut run = nth(3, &growing, "{}", &results).begin();
    run.dispatch_all().complete("plan", output).run_steps(&["act"]).is(RunStatus::Completed);
}

#[test]
fn an_input_that_cannot_be_had_fails_the_step_before_anything_is_asked() {
    let results = SharedResults::default();
    let yaml = "steps: {a: {skill: x, input: '${{ payload.none }}', cache: {enabled: true}}}";
    let run = nth(1, yaml, "{}", &results).begin();
    run.ends_with(&["3 StepFailed a 1/0 expression_failed", "4 RunFailed expression_failed"]);
    assert_eq!(results.borrow().lookups, 0);
}
