//! Request ids: unique within a workflow, and compared with all that was asked.

use milepost_core::change::{ChangeRequest, RebuildRequest};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use milepost_engine::{Engine, EngineError, NewRun};
use serde_json::{Value, json};

use crate::support::{Home, config, on, payload, within};

const ORDER: &str = "{name: order, version: 1.0.0, params: {type: object}, changes: {set: {merge: ''}},
    steps: {a: {skill: echo, input: '${{ payload }}'}, b: {skill: noop}}}";

fn asked(id: &str, value: &Value) -> NewRun {
    NewRun { request_id: Some(id.to_owned()), ..payload(value) }
}

fn reused(answer: Result<milepost_engine::Accepted, EngineError>, differs: &str) {
    match answer {
        Err(EngineError::Rejected(refused)) if refused.code == "request_id_reused" => {
            assert!(refused.message.contains(&format!("another {differs}")), "{}", refused.message);
        }
        other => panic!("{other:?}"),
    }
}

async fn the_same_id_for_another_workflow_is_another_run(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(ORDER).await.unwrap();
    engine.deploy(&ORDER.replace("name: order", "name: invoice")).await.unwrap();
    let order = within(engine.start("order", asked("r", &json!({"n": 1})))).await.unwrap();
    let invoice = within(engine.start("invoice", asked("r", &json!({"n": 2})))).await.unwrap();
    assert!(order.run != invoice.run && !invoice.existing);
    let again = within(engine.start("invoice", asked("r", &json!({"n": 2})))).await.unwrap();
    assert_eq!((again.run, again.existing), (invoice.run, true));
}

async fn another_request_under_the_same_id_is_refused(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(ORDER).await.unwrap();
    let new = || asked("r", &json!({"n": 1, "m": 2.0}));
    let first = within(engine.start("order", new())).await.unwrap();
    // Written otherwise, it is the same.
    let spelt = NewRun { payload: Json::trusted(r#"{"m":2,"n":1}"#), ..new() };
    let again = within(engine.start("order", spelt)).await.unwrap();
    assert_eq!((again.run, again.existing), (first.run, true));
    let rebuild = Some(RebuildRequest::Steps(vec!["b".to_owned()]));
    for (other, differs) in [
        (asked("r", &json!({"n": 2})), "payload;"),
        (NewRun { priority: 1, ..new() }, "priority;"),
        (NewRun { start_at: Some(Timestamp(1)), ..new() }, "start_at;"),
        (NewRun { rebuild, ..new() }, "rebuild;"),
        (NewRun { priority: 1, ..asked("r", &json!({})) }, "payload, another priority;"),
    ] {
        reused(within(engine.start("order", other)).await, differs);
    }
    // Also at the same moment, in one batch.
    let both = tokio::join!(
        engine.start("order", asked("twice", &json!({"n": 1}))),
        engine.start("order", asked("twice", &json!({"n": 2})))
    );
    let (started, refused) = if both.0.is_ok() { both } else { (both.1, both.0) };
    assert!(!started.unwrap().existing);
    reused(refused, "payload;");
}

/// A deploy between a request and its repetition is nobody's fault.
async fn a_request_is_answered_with_its_run_after_the_tag_moved(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy(ORDER).await.unwrap();
    let first = within(engine.start("order", asked("r", &json!({"n": 1})))).await.unwrap();
    let next = ORDER.replace("1.0.0", "2.0.0").replace("{type: object}", "{type: object, required: [customer]}");
    let newer = engine.deploy(&next).await.unwrap();
    let again = within(engine.start("order", asked("r", &json!({"n": 1})))).await.unwrap();
    assert_eq!((again.run, again.existing), (first.run, true), "although the new version would refuse the payload");
    reused(within(engine.start("order", asked("r", &json!({"n": 2})))).await, "payload;");
    let unknown = within(engine.start("order", asked("new", &json!({"n": 1})))).await.unwrap_err();
    assert_eq!(unknown.code(), "payload_invalid");
    // Who names a version means it.
    let version = format!("sha256:{}", newer.hash);
    reused(
        within(engine.start(&version, asked("r", &json!({"n": 1, "customer": 1})))).await,
        "version, another payload;",
    );
    let older = within(engine.resolve_target("order~1")).await.unwrap().0;
    let same = within(engine.start(&format!("sha256:{}", older.hash), asked("r", &json!({"n": 1})))).await.unwrap();
    assert_eq!((same.run, same.existing), (first.run, true), "the version that it ran");
    reused(
        within(engine.start_document(&next.replace(", required: [customer]", ""), asked("r", &json!({"n": 1})))).await,
        "version;",
    );
}

async fn all_that_an_update_asks_for_is_compared(home: Home) {
    let engine = home.open(config()).await;
    let base = within(engine.start_document(ORDER, payload(&json!({"n": 1})))).await.unwrap().run;
    let other_base = within(engine.start_document(ORDER, payload(&json!({"n": 1})))).await.unwrap().run;
    let set = |n: u32| vec![ChangeRequest { kind: "set".to_owned(), payload: Json::of(&json!({ "n": n })) }];
    let new = || NewRun { request_id: Some("u".to_owned()), ..NewRun::default() };
    let first = within(engine.update(base, None, set(2), new())).await.unwrap();
    let again = within(engine.update(base, None, set(2), new())).await.unwrap();
    assert_eq!((again.run, again.existing), (first.run, true));
    reused(within(engine.update(base, None, set(3), new())).await, "list of changes;");
    reused(within(engine.update(base, None, Vec::new(), new())).await, "list of changes;");
    reused(within(engine.update(other_base, None, set(2), new())).await, "base run;");
    let newer = engine.deploy(&ORDER.replace("b: {skill: noop}", "c: {skill: noop}")).await.unwrap();
    reused(within(engine.update(base, Some(newer), set(2), new())).await, "version;");
    reused(within(engine.start_document(ORDER, asked("u", &json!({"n": 1})))).await, "base run, another payload");
}

async fn requests_live_as_long_as_their_runs(home: Home) {
    let engine = home.open(config()).await;
    let start = async |engine: &Engine| within(engine.start_document(ORDER, asked("r", &json!({})))).await.unwrap();
    let first = start(&engine).await;
    within(engine.wait(first.run)).await.unwrap();
    engine.flush_projections().await;
    assert!(start(&engine).await.existing);
    within(async {
        while engine.store().forget_runs(Timestamp(i64::MAX >> 1), 10).await.unwrap().runs == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let next = start(&engine).await;
    assert!(!next.existing && next.run != first.run);
}

on! {
    embedded: [
        the_same_id_for_another_workflow_is_another_run,
        another_request_under_the_same_id_is_refused,
        a_request_is_answered_with_its_run_after_the_tag_moved,
        all_that_an_update_asks_for_is_compared,
        requests_live_as_long_as_their_runs,
    ],
    postgres: [
        the_same_id_for_another_workflow_is_another_run,
        another_request_under_the_same_id_is_refused,
        a_request_is_answered_with_its_run_after_the_tag_moved,
        all_that_an_update_asks_for_is_compared,
    ]
}
