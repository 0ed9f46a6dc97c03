//! Corners in which the committer could lose something. Each was found by reading and is kept shut by its test.

use std::sync::Arc;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, EngineError, NewRun};
use milepost_store::Store;
use serde_json::json;

use crate::faults::{Fault, Faulty, Plan};
use crate::support::*;

on! {
    embedded: [
        requests_that_write_nothing_do_not_fill_a_batch,
        a_refused_signal_is_answered_when_its_batch_is_lost_to_another_node,
        a_step_is_not_forgotten_when_its_start_is_lost_to_another_node,
    ],
    postgres: []
}

async fn requests_that_write_nothing_do_not_fill_a_batch(home: Home) {
    let engine = home.open(config()).await;
    for _ in 0..3000 {
        let nobody = RunId(uuid::Uuid::now_v7());
        let refused = within(engine.signal(nobody, Engine::new_signal("PAUSE"))).await;
        assert!(matches!(refused, Err(EngineError::NoSuchRun(_))), "{refused:?}");
    }
    let (_, status) = run(&engine, "{name: n, steps: {a: {skill: noop}}}", NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
}

/// Two nodes refuse signals to the same run, again and again: all callers are answered what the record says.
async fn a_refused_signal_is_answered_when_its_batch_is_lost_to_another_node(home: Home) {
    let limits = milepost_core::limits::Limits { signals_per_minute: 10_000, ..Default::default() };
    let open = async || Arc::new(home.open(Config { limits: limits.clone(), ..config() }).await);
    let (a, b) = (open().await, open().await);
    let id = start(&a, "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    let mut senders = Vec::new();
    for n in 0..100 {
        let engine = if n % 2 == 0 { a.clone() } else { b.clone() };
        senders.push(tokio::spawn(async move { within(engine.signal(id, Engine::new_signal("RESUME"))).await }));
    }
    for sender in senders {
        let refused = sender.await.unwrap();
        assert!(matches!(&refused, Err(EngineError::Rejected(why)) if why.code == "signal_rejected"), "{refused:?}");
    }
    let on_record = types(a.store(), id).await.iter().filter(|name| *name == "SignalRejected").count();
    assert_eq!(on_record, 100);
    one_history(a.store(), id).await;
}

/// One node hands steps out while the other adds to the log: what loses the race is handed out again.
async fn a_step_is_not_forgotten_when_its_start_is_lost_to_another_node(home: Home) {
    let limits = milepost_core::limits::Limits { signals_per_minute: 10_000, ..Default::default() };
    let open = async || Arc::new(home.open(Config { limits: limits.clone(), ..config() }).await);
    let (a, b) = (open().await, open().await);
    let document =
        r#"{name: wide, steps: {a: {skill: echo, foreach: "${{ range(400) }}", input: {n: "${{ item }}"}}}}"#;
    let id = start(&a, document, NewRun::default()).await;
    let noise = tokio::spawn(async move {
        // Until the run takes no more.
        let mut sent = 0;
        while b.signal(id, Engine::new_signal("noise")).await.is_ok() {
            sent += 1;
        }
        (b, sent)
    });
    assert_eq!(ended(&a, id).await, RunStatus::Completed);
    let (b, sent) = within(noise).await.unwrap();
    let heard = types(a.store(), id).await.iter().filter(|name| *name == "SignalAccepted").count();
    assert_eq!(heard, sent);
    b.flush_projections().await;
    sound(&a, id).await;
    healthy(a.store()).await;
}

/// The parent cannot be read at the moment its child ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_child_is_not_lost_when_its_parent_cannot_be_read() {
    for first in 0..12 {
        let faulty = Faulty::new(Plan { fault: Fault::Unavailable, first, count: 3 });
        let store: Arc<dyn Store> = faulty.clone();
        let gate = Gate::new();
        // Without a cache the parent is read when it is told.
        let engine =
            Engine::open_with(store.clone(), Config { cached_bytes: 0, ..config() }.gate(&gate)).await.unwrap();
        engine.deploy("{name: child, steps: {g: {skill: gate, input: {}}}}").await.unwrap();
        let id =
            start(&engine, "{name: p, steps: {c: {skill: workflow, input: {ref: child}}}}", NewRun::default()).await;
        gate.arrival().await;
        engine.flush_projections().await;
        faulty.arm();
        gate.let_through(1);
        assert_eq!(ended(&engine, id).await, RunStatus::Completed, "call {first}");
        faulty.disarm();
        sound(&engine, id).await;
        healthy(&store).await;
    }
}

/// The workflow of a child cannot be looked up for a moment: that is no failure of the step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_workflow_cannot_be_read_now_starts_later() {
    let faulty = Faulty::new(Plan { fault: Fault::Unavailable, first: 0, count: 2 });
    let store: Arc<dyn Store> = faulty.clone();
    let gate = Gate::new();
    let engine = Engine::open_with(store.clone(), config().gate(&gate)).await.unwrap();
    engine.deploy("{name: child, steps: {a: {skill: noop}}}").await.unwrap();
    let document =
        "{name: p, steps: {g: {skill: gate, input: {}}, c: {skill: workflow, depends_on: [g], input: {ref: child}}}}";
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    faulty.arm();
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    faulty.disarm();
    let all = store.count_runs().await.unwrap();
    assert_eq!(all, 2, "one child, not two");
    sound(&engine, id).await;
}

/// Room in the executor is given back on every path: with one place, a leak would stop everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_with_one_place_never_loses_it() {
    for fault in [Fault::Unavailable, Fault::AnswerLost] {
        for first in 0..10 {
            let faulty = Faulty::new(Plan { fault, first, count: 1 });
            let store: Arc<dyn Store> = faulty.clone();
            let engine = Engine::open_with(store.clone(), Config { inline_concurrency: 1, ..config() }).await.unwrap();
            let plan = engine
                .deploy(
                    r#"{name: f, steps: {a: {skill: echo, foreach: "${{ range(5) }}", input: {n: "${{ item }}"}}}}"#,
                )
                .await
                .unwrap();
            faulty.arm();
            let mut ended_runs = 0;
            while ended_runs < 3 {
                if let Ok((_, status)) = within(engine.run_plan(&plan, payload(&json!({})))).await {
                    assert_eq!(status, RunStatus::Completed);
                    ended_runs += 1;
                }
            }
            within(async {
                while !store.open_runs(None, 1).await.unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
}
