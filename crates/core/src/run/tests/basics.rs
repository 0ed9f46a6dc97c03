//! Starting, chains, diamonds, conditions.

use super::harness::{Run, code, json};
use crate::run::Command;
use crate::status::RunStatus::{Completed, Failed};

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
