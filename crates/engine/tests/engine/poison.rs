//! Runs that take their process down are parked; all others go on.

use std::time::Duration;

use milepost_core::id::{NodeId, RunId};
use milepost_core::json::Json;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_engine::{Clock as _, Config, Engine, NewRun, SystemClock, diagnose};
use milepost_store::rows::{Note, RunFilter, SuspectState};

use crate::support::*;

on! {
    embedded: [
        a_run_that_took_two_processes_down_is_parked_until_somebody_says_so,
        a_parked_run_is_ended_without_being_loaded,
        those_that_were_merely_there_are_let_go,
        a_process_that_follows_a_crash_says_so_when_it_dies,
    ],
    postgres: [
        a_run_that_took_two_processes_down_is_parked_until_somebody_says_so,
        a_parked_run_is_ended_without_being_loaded,
        a_process_that_follows_a_crash_says_so_when_it_dies,
    ]
}

const WAITS: &str = r#"
name: waits
steps:
  go: {skill: wait, input: {signal: GO}}
  then: {skill: echo, depends_on: [go], input: {n: 1}}
"#;
const PARENT: &str = r#"
name: parent
steps: {child: {skill: workflow, input: {ref: waits}}}
"#;

fn short_lease() -> Config {
    Config { node_lease_ms: 60, ..config() }
}

/// A process dies while it decides these.
async fn dies_deciding(home: &Home, runs: &[RunId]) {
    let store = home.store().await;
    let node = NodeId(uuid::Uuid::now_v7().as_u64_pair().1.cast_signed());
    store.heartbeat(node, Timestamp(0), 1).await.unwrap();
    let note = |run: &RunId| Note { org: ORG, run: *run, deed: "take GO".to_owned() };
    store.suspects().note(node, &runs.iter().map(note).collect::<Vec<_>>()).await.unwrap();
}

async fn waiting(engine: &Engine) -> RunId {
    engine.start("waits", NewRun::default()).await.unwrap().run
}

fn signal(name: &str) -> Signal {
    Engine::new_signal(name)
}

/// Twice, with a node in between that knows of the first time.
async fn park(home: &Home, run: RunId) -> Engine {
    dies_deciding(home, &[run]).await;
    let engine = home.open(short_lease()).await;
    assert!(engine.run(run).await.unwrap().summary.stuck.is_none(), "once may be chance");
    engine.shutdown().await;
    drop(engine);
    dies_deciding(home, &[run]).await;
    home.open(short_lease()).await
}

async fn diagnose_now(engine: &Engine) -> Vec<(&'static str, Option<RunId>)> {
    engine.flush_projections().await;
    let diagnosis = diagnose(engine.store(), None, SystemClock.now()).await.unwrap();
    diagnosis.findings.iter().map(|finding| (finding.code, finding.run_id)).collect()
}

async fn a_run_that_took_two_processes_down_is_parked_until_somebody_says_so(home: Home) {
    let engine = home.open(short_lease()).await;
    engine.deploy(WAITS).await.unwrap();
    let (run, innocent) = (waiting(&engine).await, waiting(&engine).await);
    engine.flush_projections().await;
    engine.shutdown().await;
    drop(engine);

    let engine = park(&home, run).await;
    let stuck = engine.run(run).await.unwrap().summary.stuck.unwrap();
    assert_eq!(stuck.crashes, 2);
    assert!(stuck.reason.contains("twice") && stuck.reason.contains("take GO"), "{}", stuck.reason);
    assert!(engine.summary(run).await.unwrap().stuck.is_some());
    let listed = engine.list(&RunFilter { stuck: true, limit: 10, ..RunFilter::default() }).await.unwrap();
    assert_eq!(listed.iter().map(|one| (one.run_id, one.stuck.is_some())).collect::<Vec<_>>(), [(run, true)]);
    let all = engine.list(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
    assert_eq!(all.iter().filter(|one| one.stuck.is_some()).count(), 1);
    for name in ["GO", "PAUSE", "CANCEL"] {
        let refused = engine.signal(run, signal(name)).await.unwrap_err();
        assert_eq!(refused.code(), "run_stuck");
        assert!(refused.to_string().contains("milepost runs resume") && refused.to_string().contains("terminate"));
    }
    let found = diagnose_now(&engine).await;
    assert!(found.contains(&("run_stuck", Some(run))), "{found:?}");

    engine.signal(innocent, signal("GO")).await.unwrap();
    assert_eq!(within(engine.wait(innocent)).await.unwrap(), RunStatus::Completed);

    engine.signal(run, signal("RESUME")).await.unwrap();
    assert!(engine.run(run).await.unwrap().summary.stuck.is_none());
    engine.signal(run, signal("GO")).await.unwrap();
    assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    within(async {
        while !diagnose_now(&engine).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    engine.shutdown().await;
}

async fn a_parked_run_is_ended_without_being_loaded(home: Home) {
    let engine = home.open(short_lease()).await;
    engine.deploy(WAITS).await.unwrap();
    engine.deploy(PARENT).await.unwrap();
    let parent = engine.start("parent", NewRun::default()).await.unwrap().run;
    let of_parent = RunFilter { parent_run: Some(parent), limit: 1, ..RunFilter::default() };
    let child = within(async {
        loop {
            if let Some(child) = engine.list(&of_parent).await.unwrap().first() {
                break child.run_id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    engine.flush_projections().await;
    engine.shutdown().await;
    drop(engine);

    let engine = park(&home, child).await;
    let waits = engine.explain(parent, "child").await.unwrap();
    assert!(waits.message.contains("is parked") && waits.message.contains(&child.to_string()), "{}", waits.message);
    let reason = Signal { payload: Json::trusted(r#"{"reason":"it is poison"}"#), ..signal("TERMINATE") };
    let ended = within(engine.signal(child, reason)).await.unwrap();
    assert_eq!(ended.status, RunStatus::Terminated);
    assert_eq!(within(engine.wait(parent)).await.unwrap(), RunStatus::Failed, "its parent hears of it");
    engine.flush_projections().await;
    let view = engine.run(child).await.unwrap();
    assert_eq!((view.summary.status, view.summary.stuck.is_none()), (RunStatus::Terminated, true));
    assert!(!view.steps.is_empty() && view.steps.iter().all(|step| step.status.is_terminal()), "{:?}", view.steps);
    let store = engine.store();
    let left = (store.timers_of(ORG, child).await.unwrap().len(), store.tasks_of(ORG, child).await.unwrap().len());
    assert_eq!(left, (0, 0));
    let row = store.suspects().suspects().await.unwrap().into_iter().find(|row| row.run == child).unwrap();
    assert_eq!(row.state, SuspectState::Ended);
    for name in ["RESUME", "TERMINATE", "GO"] {
        assert_eq!(engine.signal(child, signal(name)).await.unwrap_err().code(), "run_ended");
    }
    assert_eq!(diagnose_now(&engine).await, []);
    engine.shutdown().await;
}

async fn those_that_were_merely_there_are_let_go(home: Home) {
    let engine = home.open(short_lease()).await;
    engine.deploy(WAITS).await.unwrap();
    let (one, other) = (waiting(&engine).await, waiting(&engine).await);
    engine.shutdown().await;
    drop(engine);
    for _ in 0..4 {
        dies_deciding(&home, &[one, other]).await;
        let engine = home.open(short_lease()).await;
        let suspects = engine.store().suspects().suspects().await.unwrap();
        assert_eq!(suspects.iter().map(|row| (row.run, row.crashes)).collect::<Vec<_>>(), [(one, 0), (other, 0)]);
        engine.shutdown().await;
    }
    let engine = home.open(short_lease()).await;
    for run in [one, other] {
        engine.signal(run, signal("GO")).await.unwrap();
        assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    }
    assert_eq!(engine.store().suspects().suspects().await.unwrap(), [], "they did no harm");
    engine.shutdown().await;
}

async fn a_process_that_follows_a_crash_says_so_when_it_dies(home: Home) {
    dies_deciding(&home, &[]).await;
    let store = home.store().await;
    let died_again = || async { store.suspects().watch(NodeId(1), SystemClock.now()).await.unwrap().again };
    drop(home.open(short_lease()).await);
    within(async {
        while !died_again().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    home.open(short_lease()).await.shutdown().await;
    assert!(!died_again().await, "this one ended well");
}
