//! The projections: in step with the log, never ahead of a gap, made anew at will.

use std::sync::Arc;

use milepost_core::status::{RunStatus, StepStatus};
use milepost_engine::skills::SkillError;
use milepost_engine::{NewRun, list_runs, transitions};
use milepost_store::rows::RunFilter;
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        lists_show_what_the_log_says,
        a_step_that_failed_and_is_tried_again_counts_once,
        a_run_belongs_to_nobody_once_it_is_at_rest_and_projected,
        a_caller_sees_its_own_write_before_it_is_projected,
    ],
    postgres: [lists_show_what_the_log_says]
}

async fn lists_show_what_the_log_says(home: Home) {
    let engine = home.open(config()).await;
    let (good, _) = run(&engine, "{name: good, steps: {a: {skill: noop}, b: {skill: noop}}}", NewRun::default()).await;
    let (bad, _) = run(&engine, "{name: bad, steps: {a: {skill: fail, input: {code: no}}}}", NewRun::default()).await;
    let waits = start(&engine, "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    engine.flush_projections().await;
    let all = list_runs(engine.store(), ORG, &RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
    let seen: Vec<_> = all.iter().map(|run| (run.run_id, run.status, run.steps_done, run.steps_failed)).collect();
    assert_eq!(
        seen,
        [(waits, RunStatus::Running, 0, 0), (bad, RunStatus::Failed, 1, 1), (good, RunStatus::Completed, 2, 0)]
    );
    let failed = RunFilter { limit: 10, statuses: vec![RunStatus::Failed], ..RunFilter::default() };
    assert_eq!(list_runs(engine.store(), ORG, &failed).await.unwrap().len(), 1);
    let changes: Vec<_> = transitions(engine.store(), ORG, good).await.unwrap().iter().map(|row| row.to).collect();
    assert_eq!(changes, [RunStatus::Queued, RunStatus::Running, RunStatus::Completed]);
    for run in [good, bad, waits] {
        sound(&engine, run).await;
    }
}

/// Projected while the failure stands, then tried again by the operator while another step holds the run open.
async fn a_step_that_failed_and_is_tried_again_counts_once(home: Home) {
    let gate = Gate::new();
    let config = config().gate(&gate).skill(
        "second_time",
        |context: milepost_engine::skills::SkillContext, _: Value| async move {
            if context.logical_attempt > 1 { Ok(json!(1)) } else { Err(SkillError::fatal("no", "not yet")) }
        },
    );
    let engine = home.open(config).await;
    let document = r#"
name: again
on_failure: continue
steps:
  open: {skill: gate, input: {}}
  try: {skill: second_time, input: {}}
  after: {skill: noop, depends_on: [try]}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    event(&engine, id, "StepFailed").await;
    engine.flush_projections().await;
    let counts = async || {
        engine.flush_projections().await;
        let row = engine.store().snapshot(ORG, id).await.unwrap().unwrap();
        (row.steps_done, row.steps_failed)
    };
    assert_eq!(counts().await, (2, 1));
    send_to(&engine, id, "RETRY_STEP", "try").await;
    within(async {
        while counts().await != (2, 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    sound(&engine, id).await;
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(counts().await, (3, 0));
    sound(&engine, id).await;
}

async fn a_run_belongs_to_nobody_once_it_is_at_rest_and_projected(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document =
        "{name: r, steps: {g: {skill: gate, input: {}}, w: {skill: wait, depends_on: [g], input: {signal: go}}}}";
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    engine.flush_projections().await;
    let owner = async || engine.store().head(ORG, id).await.unwrap().unwrap().owner;
    assert_eq!(owner().await, Some(engine.node()));
    gate.let_through(1);
    within(async {
        while owner().await.is_some() {
            engine.flush_projections().await;
        }
    })
    .await;
    send(&engine, id, "go").await;
    ended(&engine, id).await;
    engine.flush_projections().await;
    assert_eq!(owner().await, None);
}

async fn a_caller_sees_its_own_write_before_it_is_projected(home: Home) {
    let engine = home.open(config()).await;
    let id = start(&engine, "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    send(&engine, id, "PAUSE").await;
    let view = engine.run(id).await.unwrap();
    assert_eq!((view.summary.status, view.steps[0].status), (RunStatus::Paused, StepStatus::Running));
}

/// A gap stops the projection of its run, not of others; it goes on by itself when the gap is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_halts_one_run_until_it_is_closed() {
    let home = Home::sqlite();
    let engine = Arc::new(home.open(config()).await);
    let waits = "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}";
    let (holed, whole) =
        (start(&engine, waits, NewRun::default()).await, start(&engine, waits, NewRun::default()).await);
    engine.flush_projections().await;
    engine.store().drop_projection(ORG, holed).await.unwrap();
    let of_it = format!("FROM run_events WHERE run_seq = 2 AND run_id = {}", sql_id(holed));
    tamper(&home, &format!("CREATE TABLE kept AS SELECT * {of_it}; DELETE {of_it};"));
    for run in [holed, whole] {
        send(&engine, run, "something").await;
    }
    engine.flush_projections().await;
    assert_eq!(engine.store().snapshot(ORG, holed).await.unwrap().unwrap().last_event_seq, 1, "not past the gap");
    let unprojected = engine.store().unprojected(10).await.unwrap();
    assert_eq!(unprojected.iter().map(|(_, run, _)| *run).collect::<Vec<_>>(), [holed]);
    assert!(engine.rebuild_projection(holed).await.is_err());
    tamper(&home, "INSERT INTO run_events SELECT * FROM kept; DROP TABLE kept;");
    within(async {
        while !engine.store().unprojected(1).await.unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    sound(&engine, holed).await;
    sound(&engine, whole).await;
}
