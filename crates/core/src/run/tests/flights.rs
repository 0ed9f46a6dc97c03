//! Single flight: who makes a result, who waits, and when a flight is over.

use super::begin::Start;
use super::harness::{Run, run_id};
use super::kept::SharedResults;
use crate::cache::Trust;
use crate::event::StepRef;
use crate::plan::Rebuild;
use crate::run::Command;
use crate::status::RunStatus;

const ONE: &str = "steps: {a: {skill: x, cache: {enabled: true}}}";
const A: StepRef = StepRef { step: 0, item: None };

/// The n-th run of a document, which shares results with others.
fn nth(n: u128, yaml: &str, results: &SharedResults) -> Start {
    Run::of(yaml).results(results).request(|request| request.run = run_id(n))
}

/// Runs that begin one after the other: the first leads.
fn runs<const N: usize>(yaml: &str) -> ([Run; N], SharedResults) {
    let results = SharedResults::default();
    (std::array::from_fn(|n| nth(n as u128 + 1, yaml, &results).begin()), results)
}

/// The run that this one waits for.
fn awaited(run: &Run) -> Option<u128> {
    let flight = run.state.awaited_flights().next().map(|(_, flight)| flight.run);
    flight.map(|leader| (1..10).find(|n| run_id(*n) == leader).unwrap())
}

#[test]
fn the_first_makes_it_and_the_others_take_it() {
    let ([mut first, mut second, mut third], results) = runs(ONE);
    assert_eq!([awaited(&first), awaited(&second), awaited(&third)], [None, Some(1), Some(1)]);
    assert_eq!([first.offered.len(), second.offered.len(), third.offered.len()], [1, 0, 0]);
    second.ends_with(&["1 RunQueued queued", "2 RunStarted"]);
    first.run_steps(&["a"]).is(RunStatus::Completed);
    for run in [&mut second, &mut third] {
        run.wake();
        run.ends_with(&["3 StepSkipped a 1/0 cache_hit {}", "4 RunCompleted"]);
    }
    assert!(results.borrow().flights.is_empty());
}

#[test]
fn equal_items_of_one_run_are_made_once() {
    let (mut run, results) = {
        let results = SharedResults::default();
        let yaml = "steps: {f: {skill: x, foreach: '${{ range(300) }}', input: 0, cache: {enabled: true}}}";
        (nth(1, yaml, &results).begin(), results)
    };
    assert_eq!((run.offered.len(), run.state.awaited_flights().count()), (1, 299));
    run.run_steps(&["f[0]"]).is(RunStatus::Completed);
    assert_eq!(results.borrow().hits, 299);
}

#[test]
fn a_failure_hands_over_to_one_of_those_who_wait() {
    let ([mut first, mut second, mut third], _) = runs(ONE);
    first.dispatch_all().fail("a", "broke", false).is(RunStatus::Failed);
    second.wake();
    third.wake();
    assert_eq!([awaited(&second), awaited(&third)], [None, Some(2)]);
    second.run_steps(&["a"]).is(RunStatus::Completed);
    third.wake();
    third.is(RunStatus::Completed);
}

#[test]
fn one_that_is_tried_again_later_leads_no_more_and_asks_when_it_is_due() {
    let yaml = "steps: {a: {skill: x, cache: {enabled: true}, retry: {max_attempts: 3, backoff_ms: 500}}}";
    let ([mut first, mut second], _) = runs(yaml);
    first.dispatch_all().fail("a", "broke", true);
    second.wake();
    second.dispatch_all();
    first.next_timer();
    assert_eq!((awaited(&first), second.tasks.len()), (Some(2), 1));
    second.fail("a", "broke", true);
    first.wake();
    assert_eq!((awaited(&first), first.offered.len()), (None, 1));
}

#[test]
fn whoever_loses_its_worker_leads_on() {
    let ([mut first, second], results) = runs(ONE);
    first.lease(A).unwrap();
    let task = first.task("a");
    first.command(Command::LoseLease { task }).unwrap();
    assert!(first.offered.contains(&A) && results.borrow().woken.is_empty());
    first.dispatch_all().crash().dispatch_all();
    assert_eq!((first.tasks.len(), awaited(&second)), (1, Some(1)));
    assert!(results.borrow().woken.is_empty());
}

#[test]
fn a_run_that_is_held_up_makes_nothing_that_has_not_begun() {
    for signal in ["PAUSE", "CANCEL", "TERMINATE"] {
        let ([mut first, mut second], _) = runs(ONE);
        first.signal(signal);
        second.wake();
        assert_eq!((awaited(&second), second.offered.len()), (None, 1), "{signal}");
    }
    let yaml = "steps: {a: {skill: x, cache: {enabled: true}}, b: {skill: x}}";
    let ([mut first, mut second], _) = runs(yaml);
    first.dispatch("b").unwrap();
    first.fail("b", "broke", false).is(RunStatus::Failed);
    second.wake();
    assert_eq!(awaited(&second), None);
}

#[test]
fn what_has_begun_is_made_while_its_run_is_paused() {
    let ([mut first, mut second], results) = runs(ONE);
    first.dispatch_all().signal("PAUSE");
    assert!(results.borrow().woken.is_empty());
    first.complete("a", "5").is(RunStatus::Paused);
    second.wake();
    second.ends_with(&["3 StepSkipped a 1/0 cache_hit 5", "4 RunCompleted"]);
}

#[test]
fn one_that_loses_its_worker_while_its_run_is_paused_leads_no_more() {
    let ([mut first, mut second], _) = runs(ONE);
    first.dispatch_all().signal("PAUSE").crash();
    second.wake();
    second.dispatch_all();
    first.signal("RESUME");
    assert_eq!((awaited(&first), second.tasks.len()), (Some(2), 1));
}

#[test]
fn a_cancelled_run_makes_it_until_its_attempt_has_ended() {
    let ([mut first, mut second], results) = runs(ONE);
    first.dispatch_all().signal("CANCEL");
    assert!(results.borrow().woken.is_empty(), "two would make it at once");
    first.fail("a", "cancelled", false).is(RunStatus::Cancelled);
    second.wake();
    assert_eq!(second.offered.len(), 1);
}

#[test]
fn a_step_that_an_operator_skips_makes_nothing() {
    let ([mut first, mut second], _) = runs(ONE);
    first.signal_step("SKIP_STEP", "a");
    second.wake();
    assert_eq!(second.offered.len(), 1);
}

#[test]
fn a_run_that_waits_can_be_paused_and_asks_again() {
    let ([mut first, mut second], _) = runs(ONE);
    second.signal("PAUSE");
    assert_eq!(awaited(&second), None);
    first.run_steps(&["a"]);
    second.wake();
    second.is(RunStatus::Paused);
    second.signal("RESUME").is(RunStatus::Completed);
}

#[test]
fn a_patched_step_makes_something_else() {
    let ([mut first, mut second], _) = runs(ONE);
    let ops = r#"[{"op":"add","path":"/steps/a/input","value":1}]"#;
    first.try_patch(ops, false).unwrap();
    second.wake();
    assert_eq!([awaited(&first), awaited(&second)], [None, None]);
    let mut third = nth(3, ONE, &second.results).begin();
    assert_eq!(awaited(&third), Some(2));
    third.try_patch(ops, false).unwrap();
    assert_eq!(awaited(&third), Some(1), "it would make what the other patched one does");
    first.run_steps(&["a"]);
    third.wake();
    third.is(RunStatus::Completed);
}

#[test]
fn a_patch_of_another_step_has_what_waits_ask_again() {
    let yaml = "steps: {a: {skill: x, cache: {enabled: true}}, b: {skill: x, depends_on: [a]}}";
    let ([mut first, mut second], _) = runs(yaml);
    second.try_patch(r#"[{"op":"add","path":"/steps/b/input","value":1}]"#, false).unwrap();
    assert_eq!(awaited(&second), Some(1));
    first.dispatch_all().complete("a", "1");
    second.wake();
    assert!(second.log().contains("cache_hit"), "{}", second.log());
}

#[test]
fn steps_that_are_rebuilt_neither_wait_nor_lead() {
    let results = SharedResults::default();
    let forced = |n| nth(n, ONE, &results).request(|request| request.rebuild = Some(Rebuild::All)).begin();
    let mut first = forced(1);
    let mut second = nth(2, ONE, &results).begin();
    let mut third = forced(3);
    assert_eq!([awaited(&first), awaited(&second), awaited(&third)], [None; 3]);
    for run in [&mut first, &mut second, &mut third] {
        run.dispatch_all();
    }
    third.complete("a", "3");
    assert_eq!(results.borrow().flights.len(), 1, "the second makes it");
    second.complete("a", "2");
    first.complete("a", "1").is(RunStatus::Completed);
    assert!(results.borrow().flights.is_empty());
}

#[test]
fn open_runs_wait_for_protected_ones_and_not_the_other_way_round() {
    let start =
        |n, trust, results: &SharedResults| nth(n, ONE, results).request(|request| request.trust = trust).begin();
    let results = SharedResults::default();
    let mut protected = start(1, Trust::Protected, &results);
    let mut open = start(2, Trust::Open, &results);
    assert_eq!(awaited(&open), Some(1));
    protected.run_steps(&["a"]);
    open.wake();
    open.is(RunStatus::Completed);
    let results = SharedResults::default();
    let _open = start(1, Trust::Open, &results);
    assert_eq!(awaited(&start(2, Trust::Protected, &results)), None);
}

#[test]
fn what_serves_one_run_keeps_no_other_waiting() {
    let yaml = "steps: {f: {skill: x, foreach: [1, 1], input: 0, cache: {enabled: true, scope: run_only}}}";
    let ([first, second], _) = runs(yaml);
    assert_eq!([first.offered.len(), second.offered.len()], [1, 1]);
    assert_eq!([awaited(&first), awaited(&second)], [Some(1), Some(2)]);
}

#[test]
fn one_in_line_that_was_read_anew_still_leads() {
    let ([mut first, second], results) = runs(ONE);
    first.evict().dispatch_all();
    assert_eq!((first.tasks.len(), awaited(&second)), (1, Some(1)));
    assert_eq!(results.borrow().flights.len(), 1);
}

#[test]
fn a_result_of_no_use_is_made_again_by_one() {
    let yaml = "defaults: {cache: {enabled: true}}\nsteps: {plan: {skill: x}}";
    let growing = format!("self_patch: {{max_patches: 1, max_steps: 3}}\n{yaml}");
    let results = SharedResults::default();
    let output = r#"{"patch":[{"op":"add","path":"/steps/act","value":{"skill":"x"}}]}"#;
    nth(1, yaml, &results).begin().dispatch_all().complete("plan", output);
    let first = nth(2, &growing, &results).begin();
    let second = nth(3, &growing, &results).begin();
    assert_eq!([awaited(&first), awaited(&second)], [None, Some(2)]);
}
