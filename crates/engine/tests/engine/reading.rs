//! What one run looks like to somebody who asks: now, before, and step by step.

use milepost_core::id::RunId;
use milepost_core::status::{RunStatus, StepStatus};
use milepost_engine::{Engine, EngineError, NewRun};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_run_looks_as_it_did_after_each_of_its_events,
        events_that_a_run_does_not_have_are_refused,
        a_summary_says_what_the_whole_run_says,
    ],
    postgres: [a_run_looks_as_it_did_after_each_of_its_events, a_summary_says_what_the_whole_run_says]
}

const STORY: &str = r#"
name: story
steps:
  many: {skill: echo, foreach: "${{ payload.xs }}", input: {x: "${{ item }}"}}
  wait: {skill: wait, depends_on: [many], input: {signal: go}}
  after: {skill: echo, input: {all: "${{ steps.many.output }}", go: "${{ steps.wait.output }}"}}
"#;

async fn seen(engine: &Engine, run: RunId) -> (u64, Value) {
    let view = within(engine.run(run)).await.unwrap();
    (view.summary.last_event_seq, json!(view))
}

async fn a_run_looks_as_it_did_after_each_of_its_events(home: Home) {
    let engine = home.open(config()).await;
    let id = start(&engine, STORY, payload(&json!({"xs": [1, 2]}))).await;
    let waiting = async || {
        let view = engine.run(id).await.unwrap();
        view.steps.iter().any(|step| step.step_id == "wait" && step.status == StepStatus::Running)
    };
    within(async {
        while !waiting().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut moments = vec![seen(&engine, id).await];
    for name in ["PAUSE", "RESUME"] {
        send(&engine, id, name).await;
        moments.push(seen(&engine, id).await);
    }
    send(&engine, id, "go").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    moments.push(seen(&engine, id).await);
    engine.flush_projections().await;
    moments.push(seen(&engine, id).await);
    for (seq, then) in moments {
        assert_eq!(json!(within(engine.run_at(id, seq)).await.unwrap()), then, "after event {seq}");
    }
    let first = within(engine.run_at(id, 1)).await.unwrap();
    assert_eq!((first.summary.status, first.payload.to_value()), (RunStatus::Queued, json!({"xs": [1, 2]})));
    assert!(first.steps.iter().all(|step| step.status == StepStatus::Pending));
    let last = log(engine.store(), id).await.last().unwrap().seq;
    let before = within(engine.run_at(id, last - 1)).await.unwrap();
    assert_eq!((before.summary.status, before.output.is_some()), (RunStatus::Running, false));
    assert_eq!(output(&before, "after"), json!({"all": [{"x": 1}, {"x": 2}], "go": {}}));
}

async fn events_that_a_run_does_not_have_are_refused(home: Home) {
    let engine = home.open(config()).await;
    let (id, _) = run(&engine, "{name: r, steps: {a: {skill: noop}}}", NewRun::default()).await;
    let last = engine.summary(id).await.unwrap().last_event_seq;
    for seq in [0, last + 1, u64::MAX] {
        let refused = within(engine.run_at(id, seq)).await.unwrap_err();
        assert_eq!(refused.code(), "unknown_event");
        assert!(refused.to_string().contains(&format!("1 to {last}")), "{refused}");
    }
    let nobody = RunId(uuid::Uuid::nil());
    for refused in [engine.run_at(nobody, 1).await.err(), engine.summary(nobody).await.err()] {
        assert!(matches!(refused, Some(EngineError::NoSuchRun(run)) if run == nobody), "{refused:?}");
    }
}

async fn a_summary_says_what_the_whole_run_says(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = "{name: s, steps: {a: {skill: noop}, b: {skill: gate, depends_on: [a], input: {}}}}";
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    let agree = async || {
        let (whole, summary) = (engine.run(id).await.unwrap().summary, engine.summary(id).await.unwrap());
        assert_eq!(json!(whole), json!(summary));
        summary
    };
    assert_eq!(agree().await.steps_done, 1);
    engine.flush_projections().await;
    agree().await;
    gate.let_through(1);
    ended(&engine, id).await;
    assert_eq!(agree().await.steps_done, 2);
}
