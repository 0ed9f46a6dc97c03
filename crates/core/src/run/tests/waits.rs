//! What steps wait for.

use super::harness::{Run, START};
use crate::run::WaitsFor;

/// What a step waits for, in short.
fn waits(run: &Run, step: &str) -> String {
    let step = run.state.find_step(step).unwrap();
    let shown = |waits: &WaitsFor| match waits {
        WaitsFor::Steps(steps) => {
            let names: Vec<&str> = steps.iter().map(|step| &*run.plan.step(*step).id).collect();
            format!("steps {}", names.join(" "))
        }
        WaitsFor::Failure(step) => format!("failure of {}", step.name(&run.plan)),
        WaitsFor::Slot { key, limit } => format!("slot {key} of {limit}"),
        WaitsFor::Start(at) | WaitsFor::Retry(at) => format!("{} ms", at.ms_since(run.now)),
        WaitsFor::Sleep(until) => format!("sleep {} ms", until.unwrap().ms_since(run.now)),
        WaitsFor::Signal { name, until } => format!("signal {name}, {}", until.is_some()),
        WaitsFor::Items(counts) => format!("{} of {} items", counts.pending + counts.running, counts.total),
        WaitsFor::Child(_) => "child".to_owned(),
        WaitsFor::Outcome(_) => "outcome".to_owned(),
        other => format!("{other:?}"),
    };
    run.state.waits_for(step, run.now).iter().map(shown).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_step_waits_for_others_for_its_turn_and_for_its_outcome() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}, c: {skill: x, depends_on: [a, b]}}", "{}");
    assert_eq!((waits(&run, "a"), waits(&run, "c")), ("Turn".to_owned(), "steps a b".to_owned()));
    run.dispatch_all();
    assert_eq!(waits(&run, "a"), "outcome");
    run.complete("a", "1");
    assert_eq!((waits(&run, "a"), waits(&run, "c")), (String::new(), "steps b".to_owned()));
    run.signal("PAUSE").complete("b", "1");
    assert_eq!(waits(&run, "c"), "Resume");
    run.signal("CANCEL");
    assert_eq!(waits(&run, "c"), "");
}

#[test]
fn a_failure_or_a_retry_keeps_a_step_back() {
    let yaml = "steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 500}}, b: {skill: x}, c: {skill: x, depends_on: [b]}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all().fail("a", "broke", true);
    assert!(waits(&run, "a").ends_with(" ms"), "{}", waits(&run, "a"));
    run.next_timer().dispatch_all().fail("a", "broke", true);
    assert_eq!(waits(&run, "c"), "failure of a, steps b");
    run.complete("b", "1");
    assert_eq!(waits(&run, "c"), "");
}

#[test]
fn what_keeps_a_run_back_keeps_its_steps_back() {
    let yaml = "approval: true\nsteps: {a: {skill: x}}";
    assert_eq!(waits(&Run::start(yaml, "{}"), "a"), "Approval");
    let later = Run::of("steps: {a: {skill: x}}").request(|request| request.start_at = Some(START.plus_ms(7000)));
    assert_eq!(waits(&later.begin(), "a"), "7000 ms");
    let slot = Run::of("concurrency: {key: k, limit: 2}\nsteps: {a: {skill: x}}").held(2).begin();
    assert_eq!(waits(&slot, "a"), "slot k of 2");
}

#[test]
fn steps_that_nobody_carries_out_say_what_ends_them() {
    let yaml = "steps: {s: {skill: sleep, input: {ms: 50}}, w: {skill: wait, input: {signal: go}, timeout_ms: 9}, \
                c: {skill: workflow, input: {ref: other}}, f: {skill: x, foreach: [1, 2]}}";
    let run = Run::start(yaml, "{}");
    let all = ["s", "w", "c", "f"].map(|step| waits(&run, step));
    assert_eq!(all, ["sleep 50 ms", "signal go, true", "child", "2 of 2 items"]);
    assert_eq!(waits(&run, "f[1]"), "Turn");
}
