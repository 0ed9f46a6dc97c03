//! `doctor` finds what should never be, and nothing else.

use milepost_core::id::RunId;
use milepost_engine::{NewRun, diagnose};
use serde_json::json;

use crate::support::*;

async fn findings(home: &Home) -> Vec<(&'static str, Option<RunId>)> {
    let diagnosis = diagnose(&home.store().await, None, now()).await.unwrap();
    diagnosis.findings.iter().map(|finding| (finding.code, finding.run_id)).collect()
}

/// A run that sleeps and one that has ended, at rest and projected.
async fn two_runs(home: &Home) -> (RunId, RunId) {
    let engine = home.open(config()).await;
    let sleeps =
        start(&engine, "{name: s, steps: {a: {skill: sleep, input: {ms: 100000000}}}}", NewRun::default()).await;
    let (ends, _) = run(&engine, "{name: e, steps: {a: {skill: noop}}}", payload(&json!({}))).await;
    engine.flush_projections().await;
    engine.shutdown().await;
    (sleeps, ends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_database_gives_no_cause_for_concern() {
    for home in [Home::memory(), Home::sqlite()] {
        two_runs(&home).await;
        assert_eq!(findings(&home).await, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_timer_is_found() {
    let home = Home::sqlite();
    let (sleeps, _) = two_runs(&home).await;
    tamper(&home, "DELETE FROM timers");
    assert_eq!(findings(&home).await, [("timers", Some(sleeps))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_that_nobody_fires_is_found() {
    let home = Home::sqlite();
    let (sleeps, _) = two_runs(&home).await;
    let later = now().plus_ms(100_000_000 + 60_000);
    let diagnosis = diagnose(&home.store().await, None, later).await.unwrap();
    let found: Vec<_> = diagnosis.findings.iter().map(|finding| (finding.code, finding.run_id)).collect();
    assert_eq!(found, [("overdue_timer", Some(sleeps))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_found() {
    let home = Home::sqlite();
    let (_, ends) = two_runs(&home).await;
    tamper(&home, &format!("DELETE FROM run_events WHERE run_seq = 2 AND run_id = {}", sql_id(ends)));
    assert_eq!(findings(&home).await, [("log_gap", Some(ends))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_run_is_found() {
    let home = Home::sqlite();
    let (sleeps, _) = two_runs(&home).await;
    tamper(&home, &format!("UPDATE run_events SET data = '[' WHERE run_seq = 1 AND run_id = {}", sql_id(sleeps)));
    assert_eq!(findings(&home).await, [("unreadable", Some(sleeps))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projection_that_nobody_writes_is_found() {
    for home in [Home::memory(), Home::sqlite()] {
        let (_, ends) = two_runs(&home).await;
        home.store().await.drop_projection(ORG, ends).await.unwrap();
        assert_eq!(findings(&home).await, [("projection_lag", Some(ends))]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_nothing_will_wake_is_found() {
    let home = Home::sqlite();
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let id = start(&engine, "{name: g, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    engine.flush_projections().await;
    healthy(engine.store()).await;
    tamper(&home, "UPDATE runs SET owner = NULL");
    assert_eq!(findings(&home).await, [("no_wake_up", Some(id))]);
    gate.let_through(1);
    ended(&engine, id).await;
    engine.flush_projections().await;
    assert_eq!(findings(&home).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_whose_child_is_gone_is_found() {
    let home = Home::sqlite();
    let engine = home.open(config()).await;
    engine.deploy("{name: child, steps: {w: {skill: wait, input: {signal: go}}}}").await.unwrap();
    let id = start(&engine, "{name: p, steps: {c: {skill: workflow, input: {ref: child}}}}", NewRun::default()).await;
    engine.flush_projections().await;
    healthy(engine.store()).await;
    engine.shutdown().await;
    tamper(&home, &format!("DELETE FROM runs WHERE run_id <> {}", sql_id(id)));
    assert!(findings(&home).await.contains(&("no_wake_up", Some(id))));
}
