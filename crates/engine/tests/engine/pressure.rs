//! More than fits: a slow store, a cache for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::limits::Limits;
use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::Store;
use serde_json::json;

use crate::faults::Faulty;
use crate::support::*;

on! {
    embedded: [
        ten_thousand_starts_at_once_all_succeed,
        everything_works_with_no_cache_at_all,
        outputs_beyond_the_cache_are_read_back,
    ],
    postgres: [everything_works_with_no_cache_at_all]
}

/// Starts pile up faster than they are written; they wait in line, and all are written.
async fn ten_thousand_starts_at_once_all_succeed(home: Home) {
    let engine = Arc::new(home.open(Config { cached_bytes: 1 << 20, ..config() }).await);
    ten_thousand(&engine).await;
    within(engine.flush_projections()).await;
    assert_eq!(engine.store().unprojected(1).await.unwrap(), []);
}

/// What waits for a slow disk waits at its caller's; a batch does not grow beyond its bounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_store_makes_callers_wait_and_batches_no_larger() {
    let slow = Faulty::slow(Duration::from_millis(20));
    let store: Arc<dyn Store> = slow.clone();
    let engine = Arc::new(Engine::open_with(store, Config { cached_bytes: 1 << 20, ..config() }).await.unwrap());
    ten_thousand(&engine).await;
    assert!((100..=4096).contains(&slow.largest_batch()), "{}", slow.largest_batch());
}

async fn ten_thousand(engine: &Arc<Engine>) {
    let plan = engine.deploy("{name: many, steps: {a: {skill: noop}}}").await.unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let mut starts = Vec::new();
    for _ in 0..10_000 {
        let (engine, plan, done) = (engine.clone(), plan.clone(), done.clone());
        starts.push(tokio::spawn(async move {
            let (_, status) = engine.run_plan(&plan, NewRun::default()).await.unwrap();
            assert_eq!(status, RunStatus::Completed);
            done.fetch_add(1, Ordering::SeqCst);
        }));
    }
    for start in starts {
        within(start).await.unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), 10_000);
    assert_eq!(engine.store().count_runs().await.unwrap(), 10_000);
}

/// Every command reads its run anew: checkpoints, tails, and outputs from the log.
async fn everything_works_with_no_cache_at_all(home: Home) {
    let limits = Limits { continue_steps: 5, ..Limits::default() };
    let engine = home.open(Config { cached_bytes: 0, limits, ..config() }).await;
    engine.deploy(r#"{name: child, steps: {a: {skill: echo, input: {n: "${{ payload.n }}"}}}}"#).await.unwrap();
    let document = r#"
name: tight
steps:
  many: {skill: echo, foreach: "${{ range(200) }}", input: {n: "${{ item + payload.add }}"}}
  child: {skill: workflow, input: {ref: child, payload: {n: "${{ steps.many.output[199].n }}"}}}
  wait: {skill: wait, depends_on: [child], input: {signal: go}}
  end: {skill: echo, input: {first: "${{ steps.many.output[0].n }}", child: "${{ steps.child.output.a.n }}"}, depends_on: [wait]}
"#;
    let id = start(&engine, document, payload(&json!({"add": 1000}))).await;
    send(&engine, id, "go").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "end"), json!({"first": 1000, "child": 1199}));
    assert!(types(engine.store(), id).await.contains(&"RunContinued".to_owned()));
    sound(&engine, id).await;
    healthy(engine.store()).await;
}

async fn outputs_beyond_the_cache_are_read_back(home: Home) {
    let config = config().skill("large", |_, n: u64| async move { Ok(json!({"n": n, "text": "x".repeat(200_000)})) });
    let engine = home.open(Config { cached_bytes: 10_000, ..config }).await;
    let document = r#"
name: large
steps:
  many: {skill: large, foreach: "${{ range(12) }}", input: "${{ item }}"}
  wait: {skill: wait, depends_on: [many], input: {signal: go}}
  end: {skill: echo, depends_on: [wait], input: {n: "${{ steps.many.output[11].n }}", size: "${{ steps.many.output[3].text | length }}"}}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    send(&engine, id, "go").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "end"), json!({"n": 11, "size": 200_000}));
    sound(&engine, id).await;
}
