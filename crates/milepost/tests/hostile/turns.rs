//! Runs that have much to decide: many steps that are ready at once, each with a large input, or with conditions that cost as
//! much as they may. Others have their turn all the same.

use serde_json::{Value, json};

use super::victim::Victim;

/// So many steps are ready at once.
const STEPS: usize = 300;
/// Just below `input_bytes`.
const INPUT: usize = 1_000_000;

fn payload() -> Value {
    json!({"text": "x".repeat(INPUT), "list": (0..STEPS).collect::<Vec<usize>>()})
}

fn large_input() -> Value {
    json!({"text": "${{ payload.text }}", "n": "${{ item }}"})
}

fn foreach(step: Value) -> Value {
    let mut step = step;
    step["foreach"] = json!("${{ payload.list }}");
    json!({"name": "hostile.turns", "steps": {"a": step}})
}

#[test]
fn many_steps_with_large_inputs() {
    let victim = Victim::serve(&[]);
    let document = foreach(json!({"skill": "noop", "input": large_input()}));
    let run = victim.run(&document, &payload());
    victim.is_well("while many steps begin");
    let run = victim.ended(&run);
    assert_eq!(run["status"], "completed", "{run}");
    assert!(victim.peak_mib() < 300, "{} MiB", victim.peak_mib());
    // Those that wait in the executor have their inputs, too.
    let document = foreach(json!({"skill": "shell", "input": {"command": "sleep 0.2", "env": large_input()}}));
    victim.post("/api/v1/runs", &json!({"document": document, "payload": payload()}));
    victim.is_well("while many steps wait");
    victim.ends_well();
}

#[test]
fn many_large_inputs_for_one_worker() {
    let victim = Victim::serve(&[]);
    let document = foreach(json!({"skill": "hostile.work", "queue": "turns", "input": large_input()}));
    let run = victim.run(&document, &payload());
    let mut given = 0;
    while given < 60 {
        let claim = json!({"worker_id": "w", "queues": ["turns"], "capacity": STEPS, "wait_ms": 1_000});
        let told = victim.post("/api/v1/worker/exchange", &claim).json();
        let tasks = told["tasks"].as_array().unwrap();
        assert!(!tasks.is_empty(), "after {given}: {told}");
        assert!(tasks.len() <= 80, "{} at once", tasks.len());
        given += tasks.len();
        victim.is_well("while a worker takes many steps");
    }
    victim.post(&format!("/api/v1/runs/{run}/terminate"), &json!({}));
    victim.ends_well();
}

/// Each decision of such a run costs what one may.
#[test]
fn a_run_that_is_never_done_deciding() {
    let victim = Victim::serve(&[]);
    let dear = "${{ payload.list | map('string') | join('') | length > 0 and payload.list | sum >= 0 }}";
    let steps: serde_json::Map<String, Value> = (0..1_500)
        .map(|n| (format!("s{n}"), json!({"skill": "noop", "when": dear, "input": {"text": "${{ payload.text }}"}})))
        .collect();
    let document = json!({"name": "hostile.turns", "steps": steps});
    let runs: Vec<String> = (0..3).map(|_| victim.run(&document, &payload())).collect();
    victim.is_well("while runs have much to decide");
    for run in &runs {
        victim.post(&format!("/api/v1/runs/{run}/pause"), &json!({}));
        victim.post(&format!("/api/v1/runs/{run}/resume"), &json!({}));
    }
    victim.is_well("while they decide all of it again");
    victim.ends_well();
}
