//! Several runs that make the same things, and all that may happen to them: each thing is made by one at a time, and nobody
//! waits for ever.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::harness::{Run, run_id};
use super::kept::SharedResults;
use super::properties::{act, drive};
use super::random::{Op, op, rough_op};
use crate::hash::Digest;
use crate::id::RunId;
use crate::plan::Rebuild;

/// Steps that many runs have in common, alone and in lists, and some that follow from them.
const DOCUMENT: &str = "
on_failure: continue
defaults: {cache: {enabled: true}, retry: {max_attempts: 2, backoff_ms: 500}}
steps:
  s0: {skill: x, input: 1}
  s1: {skill: x, foreach: [1, 1, 2], input: '${{ item }}', depends_on: [s0]}
  s2: {skill: x, input: '${{ steps.s0.output }}', retry: {max_attempts: 1}}
  s3: {skill: x, input: 3, cache: {enabled: true, scope: run_only}, foreach: [0, 0]}
  s4: {skill: x, depends_on: [s1], cache: {enabled: false}}
";

fn begin(count: usize, results: &SharedResults, rebuilt: usize) -> Vec<Run> {
    let start = |n: usize| {
        let start = Run::of(DOCUMENT).results(results).limits(|limits| limits.continue_steps = 3);
        let rebuild = (n == rebuilt).then(|| Rebuild::Steps(vec![0]));
        start.request(|request| (request.run, request.rebuild) = (run_id(n as u128 + 1), rebuild)).begin()
    };
    (0..count).map(start).collect()
}

/// Tells those who waited, until nobody is left to be told.
fn wake(runs: &mut [Run]) {
    while !runs[0].results.borrow().woken.is_empty() {
        runs.iter_mut().for_each(Run::wake);
    }
}

/// Of what is to be shared, nothing is made by two at once.
fn check(runs: &[Run]) {
    let mut makers: BTreeMap<(Digest, Option<RunId>), RunId> = BTreeMap::new();
    for run in runs {
        for (step, running) in &run.state.running {
            let Some(begun) = running.begun.filter(|_| !run.state.is_rebuilt(step.step)) else { continue };
            let own = (step.step == 3).then_some(run.state.run);
            let other = makers.insert((begun.key, own), run.state.run);
            assert_eq!(other, None, "two make the same\n{}", run.log());
        }
    }
}

/// Brings all to their ends, one after the other and again: what one ends, others wait for.
fn finish(runs: &mut [Run]) {
    for _ in 0..20 {
        for at in 0..runs.len() {
            let waits = runs[at].state.awaits_flights() && runs[at].state.moves();
            let busy = !runs[at].tasks.is_empty() || !runs[at].offered.is_empty() || !runs[at].timers.is_empty();
            if !waits || busy {
                step(&mut runs[at]);
            }
            wake(runs);
            check(runs);
        }
        if runs.iter().all(|run| run.status().is_terminal()) {
            return;
        }
    }
    let open = runs.iter().find(|run| !run.status().is_terminal()).unwrap();
    panic!("a run waits for ever: {:?}\n{}", open.state.awaited_flights().collect::<Vec<_>>(), open.log());
}

/// One round of what a patient engine and a patient operator do.
fn step(run: &mut Run) {
    run.advance_ms(20_000).fire_due_timers();
    act(run, &Op::Verb(2, 0, false));
    run.dispatch_all();
    while !run.tasks.is_empty() {
        act(run, &Op::Complete(0, false));
        run.dispatch_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_thing_is_made_by_one_at_a_time_and_nobody_waits_for_ever(
        count in 2..5_usize,
        rebuilt in 0..8_usize,
        ops in prop::collection::vec((0..4_usize, prop_oneof![op(), rough_op()]), 0..60),
    ) {
        let results = SharedResults::default();
        let mut runs = begin(count, &results, rebuilt);
        for (which, op) in &ops {
            let run = &mut runs[which % count];
            run.advance_ms(700);
            act(run, op);
            wake(&mut runs);
            check(&runs);
        }
        finish(&mut runs);
        prop_assert!(results.borrow().flights.is_empty(), "a flight is left");
        // Whatever was disturbed before, who comes now is not.
        let mut after = Run::of(DOCUMENT).results(&results).request(|request| request.run = run_id(99)).begin();
        drive(&mut after);
    }
}
