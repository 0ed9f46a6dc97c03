//! Concurrency keys and request ids: facts that must hold at commit.

use std::collections::HashSet;
use std::sync::Arc;

use milepost_core::status::RunStatus;
use milepost_engine::skills::SkillError;
use milepost_engine::{Config, EngineError, NewRun};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_key_is_never_held_by_more_than_its_limit,
        fifty_of_the_same_request_are_one_run,
        those_who_wait_go_on_by_priority_then_age,
        a_key_without_room_may_refuse,
        a_request_that_was_refused_is_no_run,
        a_queue_works_with_no_cache_at_all,
    ],
    postgres: [a_key_is_never_held_by_more_than_its_limit, fifty_of_the_same_request_are_one_run]
}

const KEYED: &str = r#"
name: keyed
concurrency: {key: "${{ payload.key }}", limit: 3}
steps: {a: {skill: gate, input: {}}}
"#;

async fn a_key_is_never_held_by_more_than_its_limit(home: Home) {
    let gate = Gate::new();
    let engine = Arc::new(home.open(config().gate(&gate)).await);
    let mut starts = Vec::new();
    for _ in 0..30 {
        let engine = engine.clone();
        starts.push(tokio::spawn(async move { start(&engine, KEYED, payload(&json!({"key": "k"}))).await }));
    }
    let mut runs = Vec::new();
    for start in starts {
        runs.push(start.await.unwrap());
    }
    // Each one that ends lets exactly one other in.
    for _ in 0..30 {
        gate.arrival().await;
        assert!(gate.inside() <= 3);
        gate.let_through(1);
    }
    for run in &runs {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed);
        sound(&engine, *run).await;
    }
    assert!(gate.most() <= 3);
    healthy(engine.store()).await;
}

async fn those_who_wait_go_on_by_priority_then_age(home: Home) {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = order.clone();
    let gate = Gate::new();
    let config = config().gate(&gate).skill("note", move |_, input: Value| {
        note.lock().unwrap().push(input["n"].as_i64().unwrap());
        async { Ok::<_, SkillError>(()) }
    });
    let engine = home.open(config).await;
    let document = r#"
name: line
concurrency: {key: one, limit: 1}
steps:
  note: {skill: note, input: {n: "${{ payload.n }}"}}
  gate: {skill: gate, when: "${{ payload.n == 0 }}", depends_on: [note], input: {}}
"#;
    let mut runs = Vec::new();
    for (n, priority) in [(0, 0), (1, 0), (2, 7), (3, 0), (4, 7), (5, 9)] {
        runs.push(start(&engine, document, NewRun { priority, ..payload(&json!({ "n": n })) }).await);
    }
    gate.arrival().await;
    gate.let_through(1);
    for run in runs {
        ended(&engine, run).await;
    }
    assert_eq!(*order.lock().unwrap(), [0, 5, 2, 4, 1, 3]);
}

async fn a_key_without_room_may_refuse(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = KEYED.replace("limit: 3", "limit: 1, on_limit: reject");
    let key = || payload(&json!({"key": "k"}));
    let first = start(&engine, &document, key()).await;
    let refused = engine.start_document(&document, key()).await;
    assert!(matches!(&refused, Err(EngineError::Rejected(why)) if why.code == "concurrency_limit"), "{refused:?}");
    let other = start(&engine, &document, payload(&json!({"key": "other"}))).await;
    gate.let_through(2);
    ended(&engine, first).await;
    ended(&engine, other).await;
    gate.let_through(1);
    let (_, status) = run(&engine, &document, key()).await;
    assert_eq!(status, RunStatus::Completed);
}

/// A refused start must not be what later ones with its request id are told of.
async fn a_request_that_was_refused_is_no_run(home: Home) {
    let gate = Gate::new();
    let engine = Arc::new(home.open(config().gate(&gate)).await);
    let document = KEYED.replace("limit: 3", "limit: 1, on_limit: reject");
    let first = start(&engine, &document, payload(&json!({"key": "k"}))).await;
    let mut starts = Vec::new();
    for _ in 0..20 {
        let (engine, document) = (engine.clone(), document.clone());
        starts.push(tokio::spawn(async move {
            let new = NewRun { request_id: Some("same".to_owned()), ..payload(&json!({"key": "k"})) };
            engine.start_document(&document, new).await
        }));
    }
    for start in starts {
        let refused = start.await.unwrap();
        assert!(matches!(&refused, Err(EngineError::Rejected(why)) if why.code == "concurrency_limit"), "{refused:?}");
    }
    gate.let_through(1);
    ended(&engine, first).await;
}

async fn fifty_of_the_same_request_are_one_run(home: Home) {
    let engine = Arc::new(home.open(config()).await);
    for round in 0..4 {
        let mut starts = Vec::new();
        for _ in 0..50 {
            let engine = engine.clone();
            starts.push(tokio::spawn(async move {
                let new = NewRun { request_id: Some(format!("order {round}")), ..NewRun::default() };
                engine.start_document("{name: once, steps: {a: {skill: noop}}}", new).await.unwrap()
            }));
        }
        let mut runs = HashSet::new();
        let mut new = 0;
        for start in starts {
            let accepted = start.await.unwrap();
            assert!(engine.store().head(ORG, accepted.run).await.unwrap().is_some(), "acknowledged, so it is there");
            runs.insert(accepted.run);
            new += u32::from(!accepted.existing);
        }
        assert_eq!((runs.len(), new), (1, 1));
        for run in runs {
            assert_eq!(ended(&engine, run).await, RunStatus::Completed);
            sound(&engine, run).await;
        }
    }
}

async fn a_queue_works_with_no_cache_at_all(home: Home) {
    let engine = home.open(Config { cached_bytes: 0, ..config() }).await;
    let document = KEYED.replace("gate", "noop");
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(start(&engine, &document, payload(&json!({"key": "k"}))).await);
    }
    for run in runs {
        assert_eq!(ended(&engine, run).await, RunStatus::Completed);
        sound(&engine, run).await;
    }
}
