//! Nodes die at any moment; whatever was acknowledged goes on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, NewRun};
use serde_json::json;
use tokio::sync::mpsc;

use crate::support::*;

on! {
    embedded: [
        acknowledged_runs_end_however_often_the_node_dies,
        a_step_under_way_is_handed_out_again_as_the_same_attempt,
        what_was_not_projected_is_projected_by_the_next_node,
        a_node_that_leaves_hands_its_runs_over_at_once,
        a_run_reopened_just_before_the_crash_is_not_lost,
    ],
    postgres: [acknowledged_runs_end_however_often_the_node_dies]
}

const MIXED: &str = r#"
name: mixed
steps:
  a: {skill: echo, input: {n: "${{ payload.n }}"}}
  many: {skill: echo, foreach: "${{ range(5) }}", depends_on: [a], input: {n: "${{ item }}"}}
  nap: {skill: sleep, depends_on: [a], input: {ms: 5}}
  child: {skill: workflow, depends_on: [nap], input: {ref: leaf, payload: {n: "${{ payload.n }}"}}}
  retry: {skill: fail, depends_on: [a], input: {times: 1}, retry: {max_attempts: 3, backoff_ms: 5}}
  end: {skill: echo, depends_on: [many, child, retry], input: {n: "${{ steps.child.output.leaf.n }}"}}
"#;
const LEAF: &str = r#"
name: leaf
concurrency: {key: leaf, limit: 4}
steps: {leaf: {skill: echo, input: {n: "${{ payload.n }}"}}}
"#;

/// A lease so short that dead nodes are seen at once.
fn short_lease() -> Config {
    Config { node_lease_ms: 60, ..config() }
}

/// Opens the store again and a new node on it; what held the old store is gone first.
async fn reopen(home: &Home, config: Config) -> Engine {
    home.open(config).await
}

async fn acknowledged_runs_end_however_often_the_node_dies(home: Home) {
    let rounds: u64 = if matches!(home, Home::Postgres(_)) { 8 } else { 20 };
    let mut acknowledged: HashSet<RunId> = HashSet::new();
    let mut engine = home.open(short_lease()).await;
    engine.deploy(LEAF).await.unwrap();
    engine.deploy(MIXED).await.unwrap();
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
        // The node dies when so many events have been written.
        let fuse = (random >> 40) % 40;
        let shared = Arc::new(engine);
        let (sender, mut acks) = mpsc::unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut starters = Vec::new();
        for n in 0..3 {
            let (engine, sender, stop) = (shared.clone(), sender.clone(), stop.clone());
            starters.push(tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    if let Ok(accepted) = engine.start("mixed", payload(&json!({ "n": n }))).await {
                        let _ = sender.send(accepted.run);
                    }
                }
            }));
        }
        drop(sender);
        for _ in 0..=fuse {
            acknowledged.extend(within(acks.recv()).await);
        }
        stop.store(true, Ordering::SeqCst);
        for starter in starters {
            within(starter).await.unwrap();
        }
        while let Some(run) = acks.recv().await {
            acknowledged.insert(run);
        }
        drop(Arc::into_inner(shared).expect("nobody else has it"));
        engine = reopen(&home, short_lease()).await;
    }
    for run in &acknowledged {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed, "{run}");
        let end = engine.run(*run).await.unwrap();
        assert_eq!(output(&end, "end"), json!({"n": end.payload.to_value()["n"]}));
    }
    let all_done = async {
        // Nodes that died a moment ago may still own runs that have ended.
        while engine.store().dead_nodes(now()).await.unwrap().len() + engine.store().unprojected(1).await.unwrap().len()
            > 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), all_done).await.is_err() {
        panic!("{}", open_ends(engine.store()).await);
    }
    for run in &acknowledged {
        one_history(engine.store(), *run).await;
    }
    for run in acknowledged.iter().take(10) {
        sound(&engine, *run).await;
    }
    healthy(engine.store()).await;
}

async fn a_step_under_way_is_handed_out_again_as_the_same_attempt(home: Home) {
    let gate = Gate::new();
    let engine = home.open(short_lease().gate(&gate)).await;
    let id = start(&engine, "{name: g, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    drop(engine);
    gate.emptied().await;
    let engine = reopen(&home, short_lease().gate(&gate)).await;
    gate.arrival().await;
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    let view = engine.run(id).await.unwrap();
    assert_eq!(view.steps[0].logical_attempt, 1);
    assert!(view.steps[0].engine_attempt >= 2);
    sound(&engine, id).await;
}

async fn what_was_not_projected_is_projected_by_the_next_node(home: Home) {
    let engine = home.open(short_lease()).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(run(&engine, "{name: q, steps: {a: {skill: noop}}}", NewRun::default()).await.0);
    }
    drop(engine);
    let engine = reopen(&home, short_lease()).await;
    within(async {
        while !engine.store().unprojected(1).await.unwrap().is_empty() {
            engine.flush_projections().await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    for run in runs {
        sound(&engine, run).await;
    }
}

async fn a_node_that_leaves_hands_its_runs_over_at_once(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let id = start(&engine, "{name: g, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    within(engine.shutdown()).await;
    let engine = home.open(config().gate(&gate)).await;
    gate.arrival().await;
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    sound(&engine, id).await;
}

/// Between the end of a run and its projection the owner is about to be cleared. A step that is begun then is owned again.
async fn a_run_reopened_just_before_the_crash_is_not_lost(home: Home) {
    for _ in 0..10 {
        let gate = Gate::new();
        let engine = home.open(short_lease().gate(&gate)).await;
        let document =
            r#"{name: r, steps: {f: {skill: fail, input: {times: 1}}, g: {skill: gate, depends_on: [f], input: {}}}}"#;
        let (id, _) = run(&engine, document, NewRun::default()).await;
        send_to(&engine, id, "RETRY_STEP", "f").await;
        gate.arrival().await;
        engine.flush_projections().await;
        let owner = engine.store().head(ORG, id).await.unwrap().unwrap().owner;
        assert_eq!(owner, Some(engine.node()));
        drop(engine);
        let engine = reopen(&home, short_lease().gate(&gate)).await;
        gate.arrival().await;
        gate.let_through(1);
        assert_eq!(ended(&engine, id).await, RunStatus::Completed);
        sound(&engine, id).await;
    }
}
