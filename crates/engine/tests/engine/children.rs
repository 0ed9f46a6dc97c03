//! Runs inside runs.

use std::time::Duration;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::rows::RunFilter;
use serde_json::json;

use crate::support::*;

on! {
    embedded: [
        a_child_gives_its_output_to_its_parent,
        a_failing_child_fails_its_step,
        a_child_that_does_not_exist_fails_its_step,
        cancelling_a_parent_cancels_its_child,
        terminating_a_parent_terminates_its_child,
        a_workflow_that_starts_itself_ends,
        many_children_end_at_once,
        a_child_with_a_concurrency_key_starts_with_its_parent,
        a_child_whose_payload_takes_too_long_to_check_fails_its_step,
        a_child_whose_payload_does_not_fit_fails_its_step,
    ],
    postgres: [
        cancelling_a_parent_cancels_its_child,
        many_children_end_at_once,
        a_child_whose_payload_takes_too_long_to_check_fails_its_step,
    ]
}

const CHILD: &str = r#"{name: child, steps: {a: {skill: echo, input: {n: "${{ payload.n * 2 }}"}}}}"#;
const PARENT: &str = r#"
name: parent
steps:
  child: {skill: workflow, input: {ref: child, payload: {n: "${{ payload.n }}"}}}
  after: {skill: echo, input: {n: "${{ steps.child.output.a.n }}"}}
"#;

async fn children_of(engine: &Engine, parent: RunId) -> Vec<(RunId, RunStatus)> {
    engine.flush_projections().await;
    let all = engine.store().list_runs(ORG, &RunFilter { limit: 10_000, ..RunFilter::default() }).await.unwrap();
    all.into_iter().filter(|run| run.parent_run == Some(parent)).map(|run| (run.run, run.status)).collect()
}

async fn all_sound(engine: &Engine, parent: RunId) {
    sound(engine, parent).await;
    for (child, _) in children_of(engine, parent).await {
        sound(engine, child).await;
    }
    healthy(engine.store()).await;
}

async fn a_child_gives_its_output_to_its_parent(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(CHILD).await.unwrap();
    let (id, status) = run(&engine, PARENT, payload(&json!({"n": 21}))).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "after"), json!({"n": 42}));
    assert_eq!(children_of(&engine, id).await.len(), 1);
    all_sound(&engine, id).await;
}

async fn a_failing_child_fails_its_step(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy("{name: child, steps: {a: {skill: fail, input: {code: broken}}}}").await.unwrap();
    let (id, status) = run(&engine, PARENT, payload(&json!({"n": 1}))).await;
    assert_eq!(status, RunStatus::Failed);
    let error = engine.run(id).await.unwrap().summary.error.unwrap();
    assert!(error.message.contains("step `a` failed"), "{error:?}");
    all_sound(&engine, id).await;
}

async fn a_child_that_does_not_exist_fails_its_step(home: Home) {
    let engine = home.open(config()).await;
    let (id, status) = run(&engine, PARENT, payload(&json!({"n": 1}))).await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(engine.run(id).await.unwrap().summary.error.unwrap().code, "child_not_started");
    assert_eq!(children_of(&engine, id).await, []);
    all_sound(&engine, id).await;
}

async fn stopped(home: Home, signal: &str, expected: RunStatus) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    engine.deploy("{name: grandchild, steps: {a: {skill: gate, input: {}}}}").await.unwrap();
    engine.deploy("{name: child, steps: {a: {skill: workflow, input: {ref: grandchild}}}}").await.unwrap();
    let id = start(&engine, PARENT, payload(&json!({"n": 1}))).await;
    gate.arrival().await;
    send(&engine, id, signal).await;
    assert_eq!(ended(&engine, id).await, expected);
    let children = children_of(&engine, id).await;
    assert_eq!(children.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [expected]);
    let grandchildren = children_of(&engine, children[0].0).await;
    assert_eq!(grandchildren.iter().map(|(_, status)| *status).collect::<Vec<_>>(), [expected]);
    gate.emptied().await;
    sound(&engine, grandchildren[0].0).await;
    all_sound(&engine, id).await;
}

async fn cancelling_a_parent_cancels_its_child(home: Home) {
    stopped(home, "CANCEL", RunStatus::Cancelled).await;
}

async fn terminating_a_parent_terminates_its_child(home: Home) {
    stopped(home, "TERMINATE", RunStatus::Terminated).await;
}

async fn a_workflow_that_starts_itself_ends(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy("{name: snake, steps: {tail: {skill: workflow, input: {ref: snake}}}}").await.unwrap();
    let id = engine.start("snake", NewRun::default()).await.unwrap().run;
    assert_eq!(ended(&engine, id).await, RunStatus::Failed);
    engine.flush_projections().await;
    let all = engine.store().list_runs(ORG, &RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    assert_eq!(all.len(), 1 + engine.limits().child_depth as usize);
    all_sound(&engine, id).await;
}

async fn many_children_end_at_once(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(CHILD).await.unwrap();
    let document = r#"
name: many
steps:
  each: {skill: workflow, foreach: "${{ range(100) }}", input: {ref: child, payload: {n: "${{ item }}"}}}
  last: {skill: echo, input: {n: "${{ steps.each.output[99].a.n }}"}}
"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "last"), json!({"n": 198}));
    assert_eq!(children_of(&engine, id).await.len(), 100);
    sound(&engine, id).await;
    healthy(engine.store()).await;
}

/// A parent that itself came through the questions of a batch (a request id) starts a child that has a question, too.
async fn a_child_with_a_concurrency_key_starts_with_its_parent(home: Home) {
    let engine = home.open(config()).await;
    let child = CHILD.replace("steps:", "concurrency: {key: one, limit: 1}, steps:");
    engine.deploy(&child).await.unwrap();
    let mut runs = Vec::new();
    for n in 0..5 {
        let new = NewRun { request_id: Some(format!("request {n}")), ..payload(&json!({ "n": n })) };
        runs.push(start(&engine, PARENT, new).await);
    }
    for id in &runs {
        assert_eq!(ended(&engine, *id).await, RunStatus::Completed);
        assert_eq!(children_of(&engine, *id).await.len(), 1);
    }
    all_sound(&engine, runs[0]).await;
}

const CHECKED: &str =
    "{name: child, params: {type: object, properties: {l: {items: {maximum: 10}}}}, steps: {a: {skill: noop}}}";

async fn a_child_whose_payload_takes_too_long_to_check_fails_its_step(home: Home) {
    let large = |_, _: serde_json::Value| async { Ok(json!({ "l": vec![7; 40_000] })) };
    let config = Config { check_deadline: Duration::from_millis(1), ..config() };
    let engine = home.open(config.skill("large", large)).await;
    engine.deploy(CHECKED).await.unwrap();
    let parent = "{name: parent, steps: {large: {skill: large, input: {}}, \
                  child: {skill: workflow, input: {ref: child, payload: '${{ steps.large.output }}'}}}}";
    let slow = start(&engine, parent, NewRun::default()).await;
    let (_, status) = run(&engine, "{name: other, steps: {a: {skill: noop}}}", NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(ended(&engine, slow).await, RunStatus::Failed);
    let view = engine.run(slow).await.unwrap();
    let error = view.steps.iter().find_map(|step| step.error.as_ref()).unwrap();
    assert_eq!(error.code, "child_not_started");
    assert!(error.message.contains("takes longer than"), "{}", error.message);
    assert_eq!(children_of(&engine, slow).await, []);
    all_sound(&engine, slow).await;
}

async fn a_child_whose_payload_does_not_fit_fails_its_step(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(CHECKED).await.unwrap();
    let parent = "{name: parent, steps: {each: {skill: workflow, foreach: [[1], [500], [2, 10]], \
                  input: {ref: child, payload: {l: '${{ item }}'}}}}}";
    let (id, status) = run(&engine, parent, NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    let view = engine.run(id).await.unwrap();
    let codes: Vec<_> = view.steps.iter().map(|step| step.error.as_ref().map(|error| error.code.as_str())).collect();
    assert_eq!(codes.iter().filter(|code| **code == Some("child_not_started")).count(), 1, "{codes:?}");
    assert_eq!(children_of(&engine, id).await.len(), 2);
    all_sound(&engine, id).await;
}
