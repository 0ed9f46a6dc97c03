//! Sleeping runs, with the clock in hand.

use std::sync::Arc;

use milepost_core::status::RunStatus;
use milepost_engine::{Config, ManualClock, NewRun};
use serde_json::json;

use crate::support::*;

on! {
    embedded: [
        a_thousand_sleeping_runs_all_wake,
        a_timer_far_beyond_the_horizon_rings,
        what_became_due_while_nobody_ran_rings_at_once,
        an_impatient_wait_fails,
    ],
    postgres: [a_thousand_sleeping_runs_all_wake]
}

const SLEEPS: &str = r#"{name: s, steps: {nap: {skill: sleep, input: {ms: "${{ payload.ms }}"}}, end: {skill: noop, depends_on: [nap]}}}"#;

async fn a_thousand_sleeping_runs_all_wake(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = Arc::new(home.open(Config { clock: clock.clone(), ..config() }).await);
    engine.deploy(SLEEPS).await.unwrap();
    let starts = (0..1000).map(|n| {
        let engine = engine.clone();
        async move { engine.start("s", payload(&json!({"ms": 1000 + n * 100}))).await.unwrap().run }
    });
    let runs = within(futures::future::join_all(starts)).await;
    engine.flush_projections().await;
    let owned = engine.store().owned_runs(engine.node(), None, 1).await.unwrap();
    assert_eq!(owned, [], "a sleeping run needs nobody");
    healthy(engine.store()).await;
    // Half of them are due within a minute and wait in memory, the others only in the database.
    for _ in 0..11 {
        clock.advance_ms(10_000);
    }
    for run in runs {
        assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    }
}

async fn a_timer_far_beyond_the_horizon_rings(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), ..config() }).await;
    let year = 365_u64 * 24 * 3600 * 1000;
    let id = start(&engine, SLEEPS, payload(&json!({ "ms": year }))).await;
    clock.advance_ms(year - 1);
    let early = start(&engine, SLEEPS, payload(&json!({"ms": 0}))).await;
    assert_eq!(ended(&engine, early).await, RunStatus::Completed);
    assert_eq!(engine.run(id).await.unwrap().summary.status, RunStatus::Running);
    clock.advance_ms(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    sound(&engine, id).await;
}

async fn what_became_due_while_nobody_ran_rings_at_once(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), ..config() }).await;
    let id = start(&engine, SLEEPS, payload(&json!({"ms": 500_000}))).await;
    event(&engine, id, "StepStarted").await;
    drop(engine);
    clock.advance_ms(1_000_000);
    let engine = home.open(Config { clock, ..config() }).await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    sound(&engine, id).await;
}

async fn an_impatient_wait_fails(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), ..config() }).await;
    let document = "{name: w, steps: {w: {skill: wait, timeout_ms: 60000, input: {signal: go}}}}";
    let id = start(&engine, document, NewRun::default()).await;
    event(&engine, id, "StepStarted").await;
    clock.advance_ms(60_000);
    assert_eq!(ended(&engine, id).await, RunStatus::Failed);
    assert_eq!(engine.run(id).await.unwrap().summary.error.unwrap().code, "timeout");
    sound(&engine, id).await;
}
