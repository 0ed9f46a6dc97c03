//! Update runs: what was, with changes.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::{ChangeRequest, NewRun};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        an_update_runs_with_the_changed_payload_of_its_base,
        an_update_may_have_a_newer_definition,
        a_run_under_way_can_be_a_base,
        changes_that_do_not_fit_start_nothing,
        a_plan_says_what_a_run_would_do_and_stores_nothing,
        the_plan_of_an_update_sees_the_changed_payload,
    ],
    postgres: [an_update_runs_with_the_changed_payload_of_its_base]
}

const CAMPAIGN: &str = r#"
name: campaign
params: {type: object, properties: {audio: {type: object, required: [prompt]}}}
steps:
  bgm: {skill: echo, input: {prompt: "${{ payload.audio.prompt }}", bpm: "${{ payload.audio.bpm }}"}}
changes:
  audio.update: {merge: /audio}
  full_rebuild: {rebuild: all}
"#;

fn change(kind: &str, payload: &Value) -> ChangeRequest {
    ChangeRequest { kind: kind.to_owned(), payload: Json::of(payload) }
}

fn audio() -> NewRun {
    payload(&json!({"audio": {"prompt": "calm", "bpm": 90}}))
}

async fn an_update_runs_with_the_changed_payload_of_its_base(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, CAMPAIGN, audio()).await;
    let changes = vec![change("audio.update", &json!({"prompt": "wild"})), change("full_rebuild", &json!(null))];
    let new = || NewRun { request_id: Some("u1".to_owned()), priority: 3, ..NewRun::default() };
    let update = within(engine.update(base, None, changes.clone(), new())).await.unwrap();
    assert_eq!(ended(&engine, update.run).await, RunStatus::Completed);
    for projected in [false, true] {
        if projected {
            engine.flush_projections().await;
        }
        let view = engine.run(update.run).await.unwrap();
        assert_eq!(output(&view, "bgm"), json!({"prompt": "wild", "bpm": 90}));
        assert_eq!((view.summary.base_run_id, view.summary.trigger_type), (Some(base), "update"));
        assert_eq!(view.summary.priority, 3);
    }
    assert_eq!(engine.store().head(ORG, update.run).await.unwrap().unwrap().base_run, Some(base));
    let queued = log(engine.store(), update.run).await[0].data.to_value();
    assert_eq!(queued["base"], json!({"run": base, "changes": ["audio.update", "full_rebuild"]}));
    assert_eq!(engine.run(base).await.unwrap().summary.trigger_type, "initial");
    // The same request again, and an update of the update.
    let again = within(engine.update(base, None, changes, new())).await.unwrap();
    assert_eq!((again.run, again.existing), (update.run, true));
    let faster = vec![change("audio.update", &json!({"bpm": 120}))];
    let next = within(engine.update(update.run, None, faster, NewRun::default())).await.unwrap();
    ended(&engine, next.run).await;
    assert_eq!(output(&engine.run(next.run).await.unwrap(), "bgm"), json!({"prompt": "wild", "bpm": 120}));
    sound(&engine, update.run).await;
}

async fn an_update_may_have_a_newer_definition(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, CAMPAIGN, audio()).await;
    let newer =
        engine.deploy(&CAMPAIGN.replace("audio.update", "music.update").replace("bpm:", "tempo:")).await.unwrap();
    let changes = vec![change("music.update", &json!({"bpm": 60}))];
    let update = within(engine.update(base, Some(newer), changes, NewRun::default())).await.unwrap();
    ended(&engine, update.run).await;
    assert_eq!(output(&engine.run(update.run).await.unwrap(), "bgm"), json!({"prompt": "calm", "tempo": 60}));
    let old = vec![change("music.update", &json!({}))];
    assert_eq!(engine.update(base, None, old, NewRun::default()).await.unwrap_err().code(), "unknown_change");
}

async fn a_run_under_way_can_be_a_base(home: Home) {
    let engine = home.open(config()).await;
    let document = "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}";
    let base = start(&engine, document, payload(&json!({"n": 1}))).await;
    let update = within(engine.update(base, None, Vec::new(), NewRun::default())).await.unwrap();
    assert_eq!(engine.run(update.run).await.unwrap().payload.to_value(), json!({"n": 1}));
}

async fn changes_that_do_not_fit_start_nothing(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, CAMPAIGN, payload(&json!({"video": 1, "audio": {"prompt": "calm", "bpm": 1}}))).await;
    let refused = async |run: RunId, changes| engine.update(run, None, changes, NewRun::default()).await.unwrap_err();
    assert_eq!(refused(base, vec![change("video.cut", &json!({}))]).await.code(), "unknown_change");
    // What the change makes is checked like any payload.
    assert_eq!(refused(base, vec![change("audio.update", &json!({"prompt": null}))]).await.code(), "payload_invalid");
    assert_eq!(refused(RunId(uuid::Uuid::nil()), Vec::new()).await.code(), "unknown_run");
    assert_eq!(engine.store().count_runs().await.unwrap(), 1);
}

async fn a_plan_says_what_a_run_would_do_and_stores_nothing(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: planned
version: "2"
params: {type: object, required: [n]}
steps:
  first: {skill: echo, input: {n: "${{ payload.n }}"}}
  never: {skill: echo, when: "${{ payload.n > 9 }}"}
  perhaps: {skill: echo, when: "${{ steps.first.output.n }}"}
"#;
    let plan = engine.deploy(document).await.unwrap();
    let view = json!(within(engine.plan_run(&plan, payload(&json!({"n": 1})))).await.unwrap());
    assert_eq!((&view["workflow"], &view["workflow_version"]), (&json!("planned"), &json!("2")));
    assert_eq!(view["counts"], json!({"run": 1, "reuse": 0, "unknown": 1, "skip": 1}));
    let steps: Vec<_> = view["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| [&step["step_id"], &step["decision"], &step["reason"]].map(|text| text.as_str().unwrap()).join(" "))
        .collect();
    assert_eq!(steps, ["first run no_cache", "never skip condition", "perhaps unknown depends_on_run"]);
    assert_eq!(engine.store().count_runs().await.unwrap(), 0);
    let (id, _) = run(&engine, document, payload(&json!({"n": 1}))).await;
    assert_eq!(view["steps"][0]["input_hash"], json!(engine.run(id).await.unwrap().steps[0].input_hash));
    // All that a start would refuse is refused.
    let refused = async |payload_of: Value| engine.plan_run(&plan, payload(&payload_of)).await.unwrap_err();
    assert_eq!(refused(json!({})).await.code(), "payload_invalid");
}

async fn the_plan_of_an_update_sees_the_changed_payload(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: planned
steps: {cut: {skill: noop, when: "${{ payload.video }}"}}
changes: {video.set: {replace: /video}}
"#;
    let (base, _) = run(&engine, document, payload(&json!({"video": true}))).await;
    let decision = async |changes| {
        let view = engine.plan_update(base, None, changes, NewRun::default()).await.unwrap();
        view.steps[0].decision.as_str()
    };
    assert_eq!(decision(Vec::new()).await, "run");
    assert_eq!(decision(vec![change("video.set", &json!(false))]).await, "skip");
    let unknown = engine.plan_update(base, None, vec![change("x", &json!(1))], NewRun::default()).await;
    assert_eq!(unknown.unwrap_err().code(), "unknown_change");
    assert_eq!(engine.store().count_runs().await.unwrap(), 1);
}
