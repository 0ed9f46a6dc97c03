//! What a run shows of itself.

use super::harness::{Run, code};
use crate::codec;
use crate::run::{Attempt, ItemCounts, attempts};
use crate::status::RunStatus::Terminated;

const EACH: &str = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: {x: '${{ item }}', n: '${{ index }}'}}, \
                    g: {skill: x, input: {all: '${{ steps.f.output }}', by: '${{ payload.by }}'}}}";

impl Run {
    /// `1/1 failed broke`: the attempts of a step.
    fn attempts(&self, name: &str) -> Vec<String> {
        let step = self.step(name);
        let line = |attempt: &Attempt| {
            let code = attempt.error.as_ref().map(|error| format!(" {}", error.code)).unwrap_or_default();
            let begun = if attempt.started_at.is_none() { " not begun" } else { "" };
            let (logical, engine) = (attempt.logical_attempt, attempt.engine_attempt);
            format!("{logical}/{engine} {}{code}{begun}", attempt.status.as_str())
        };
        attempts(self.events.iter().filter(|event| event.step == Some(step))).iter().map(line).collect()
    }

    /// The input of a step, evaluated by somebody who has only the log.
    fn looked_up(&self, name: &str) -> Option<String> {
        let mut state = self.restored();
        state.scratch.facts.clear();
        for _ in 0..3 {
            match state.resolved_input(self.step(name), &self.limits) {
                Ok(input) => return input.map(|input| input.json.as_str().to_owned()),
                Err(missing) => missing.into_iter().for_each(|seq| {
                    let row = &self.rows[usize::try_from(seq).unwrap() - 1];
                    state.learn(seq, codec::carried_value(row).unwrap().unwrap());
                }),
            }
        }
        panic!("it asks for the same again and again")
    }
}

#[test]
fn an_attempt_has_failed_was_lost_or_is_under_way() {
    let yaml = "defaults: {retry: {max_attempts: 2, backoff_ms: 1000}}\nsteps: {a: {skill: x}}";
    let mut run = Run::start(yaml, "{}");
    assert_eq!(run.attempts("a"), [""; 0]);
    run.dispatch_all().fail("a", "broke", true).next_timer().dispatch_all();
    assert_eq!(run.attempts("a"), ["1/1 failed broke", "2/1 running"]);
    run.crash().dispatch_all().complete("a", "1");
    assert_eq!(run.attempts("a"), ["1/1 failed broke", "2/1 lost worker_lost", "2/2 completed"]);
}

#[test]
fn an_attempt_that_is_stopped_has_no_outcome_of_its_own() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: wait, input: {signal: go}}}", "{}");
    run.dispatch_all().signal("TERMINATE").is(Terminated);
    assert_eq!(run.attempts("a"), ["1/1 lost stopped"]);
    assert_eq!(run.attempts("b"), ["1/1 lost stopped"]);
}

#[test]
fn what_fails_before_it_begins_is_an_attempt_and_what_is_skipped_is_none() {
    let run = Run::start("steps: {a: {skill: x, when: '${{ payload.no }}'}, b: {skill: x, depends_on: [a]}}", "{}");
    assert_eq!(run.attempts("a"), ["1/0 failed expression_failed not begun"]);
    assert_eq!(run.attempts("b"), [""; 0]);
}

#[test]
fn the_input_of_a_step_can_be_worked_out_again() {
    let mut run = Run::start(EACH, r#"{"xs":["a","b"],"by":7}"#);
    run.dispatch_all().complete("f[1]", "1").complete("f[0]", "0").dispatch_all();
    for name in ["f[0]", "f[1]", "g"] {
        assert_eq!(run.looked_up(name).as_deref(), Some(run.input(name)), "{name}");
    }
    assert_eq!(run.looked_up("f"), None);
    run.complete("g", "{}");
    assert_eq!(run.looked_up("g").as_deref(), Some(r#"{"all":[0,1],"by":7}"#));
}

#[test]
fn a_step_whose_turn_has_not_come_has_no_input() {
    let mut run = Run::start(EACH, r#"{"xs":["a"],"by":7}"#);
    assert_eq!(run.dispatch_all().looked_up("g"), None);
}

#[test]
fn items_are_counted_by_how_they_stand() {
    let mut run = Run::start(EACH, r#"{"xs":[0,1,2,3],"by":7}"#);
    for name in ["f[0]", "f[1]", "f[2]"] {
        run.dispatch(name).unwrap();
    }
    run.complete("f[0]", "0").signal_step("SKIP_STEP", "f[1]");
    let counts = |run: &Run, name| run.state.item_counts(run.step(name));
    let open = ItemCounts { total: 4, pending: 1, running: 1, completed: 1, skipped: 1, failed: 0 };
    assert_eq!(counts(&run, "f"), Some(open));
    assert_eq!((counts(&run, "g"), counts(&run, "f[0]")), (None, None));
    run.fail("f[2]", "broke", false);
    let over = ItemCounts { pending: 0, running: 0, failed: 1, skipped: 2, ..open };
    assert_eq!(counts(&run, "f"), Some(over));
    let early = Run::of(EACH).request(|request| request.start_at = Some(super::harness::START.plus_ms(1))).begin();
    assert_eq!(counts(&early, "f"), Some(ItemCounts::default()));
}

#[test]
fn an_unknown_step_is_told_what_there_is() {
    let steps = "steps: {shots: {skill: x, foreach: '${{ payload.xs }}'}, brief: {skill: x}, \
                 later: {skill: x, foreach: '${{ steps.brief.output }}'}, none: {skill: x, foreach: []}}";
    let run = Run::start(steps, r#"{"xs":[1,2]}"#);
    for (name, told) in [
        ("shost", "did you mean `shots`?"),
        ("shost[1]", "did you mean `shots`?"),
        ("shots[2]", "2 items, from `shots[0]` to `shots[1]`"),
        ("later[0]", "known when it begins"),
        ("none[0]", "is empty"),
        ("brief[0]", "has no `foreach`"),
        ("completely else", "no step `completely else`"),
    ] {
        let refused = run.state.find_step(name).unwrap_err();
        assert!(refused.message.contains(told), "{name}: {refused}");
        assert_eq!(code(run.state.find_step(name)), "unknown_step");
    }
    assert_eq!(run.state.find_step("shots[1]").unwrap().name(&run.plan), "shots[1]");
}
