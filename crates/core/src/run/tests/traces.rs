//! The trace that a run is part of: kept in its log and its checkpoints, and passed on to its children.

use super::harness::{Run, run_id};
use crate::trace::{SpanId, TraceContext};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn with_caller(yaml: &str) -> Run {
    let start = Run::of(yaml).request(|request| request.trace = Some(CALLER.parse().unwrap()));
    start.limits(|limits| limits.continue_steps = 1).begin()
}

#[test]
fn the_callers_trace_is_kept_through_crashes_and_checkpoints() {
    let mut run = with_caller("steps: {a: {skill: x}, b: {skill: x, depends_on: [a]}}");
    run.dispatch_all().crash().dispatch_all().complete("a", "1").crash();
    assert!(!run.checkpoints.is_empty());
    assert_eq!(run.state.trace.unwrap().to_string(), CALLER);
    assert!(run.rows[0].data.as_str().contains(CALLER));
}

#[test]
fn a_run_that_nobody_gave_a_trace_says_nothing_of_it() {
    let run = Run::start("steps: {a: {skill: x}}", "{}");
    assert_eq!(run.state.trace, None);
    assert!(!run.rows[0].data.as_str().contains("trace"));
    assert!(!String::from_utf8_lossy(&run.state.to_checkpoint()).contains("trace"));
}

#[test]
fn a_child_goes_on_with_its_parents_trace_below_the_step_that_starts_it() {
    let yaml = "steps: {each: {skill: workflow, foreach: [1], input: {ref: other}}}";
    let span = SpanId::of_attempt(run_id(1), "each[0]", 1, 1);
    let trace_of_child = |run: &Run| run.children.values().next().unwrap().trace;
    let caller: TraceContext = CALLER.parse().unwrap();
    assert_eq!(trace_of_child(&with_caller(yaml)), TraceContext { parent_id: span, ..caller });
    let own = trace_of_child(&Run::start(yaml, "{}"));
    assert_eq!(own, TraceContext::of_span(run_id(1), None, span));
}
