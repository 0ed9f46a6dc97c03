//! Update runs: what was, with changes.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::{ChangeRequest, NewRun, RebuildRequest};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        an_update_runs_with_the_changed_payload_of_its_base,
        an_update_may_have_a_newer_definition,
        a_run_under_way_can_be_a_base,
        a_base_that_failed_half_way_gives_what_it_had,
        a_base_that_was_cancelled_gives_what_it_had,
        several_changes_and_updates_of_updates_add_up,
        steps_are_rebuilt_by_name,
        changes_that_do_not_fit_start_nothing,
        a_plan_says_what_a_run_would_do_and_stores_nothing,
        the_plan_of_an_update_sees_the_changed_payload,
    ],
    postgres: [
        an_update_runs_with_the_changed_payload_of_its_base,
        a_base_that_failed_half_way_gives_what_it_had,
        steps_are_rebuilt_by_name,
    ]
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

const HALF: &str = r#"
name: half
defaults: {cache: {enabled: true}}
steps:
  a: {skill: echo, input: {n: "${{ payload.a }}"}}
  b: {skill: fail, input: {times: "${{ payload.times }}", of: "${{ steps.a.output.n }}"}}
  c: {skill: echo, input: {of: "${{ steps.b.output.of }}"}}
changes:
  fix: {replace: /times}
  set: {merge: ""}
"#;

async fn a_base_that_failed_half_way_gives_what_it_had(home: Home) {
    let engine = home.open(config()).await;
    let (base, status) = run(&engine, HALF, payload(&json!({"a": 1, "times": 9}))).await;
    assert_eq!(status, RunStatus::Failed);
    let fix = vec![change("fix", &json!(0))];
    let update = within(engine.update(base, None, fix, NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    assert_eq!(steps(&engine.run(update).await.unwrap()), "a skipped (cache_hit), b completed, c completed");
    sound(&engine, update).await;
}

async fn a_base_that_was_cancelled_gives_what_it_had(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: stopped
steps:
  a: {skill: echo, input: 1, cache: {enabled: true}}
  b: {skill: wait, input: {signal: go}, depends_on: [a], when: "${{ payload.wait }}"}
changes: {wait.set: {replace: /wait}}
"#;
    let base = start(&engine, document, payload(&json!({"wait": true}))).await;
    within(engine.signal(base, milepost_engine::Engine::new_signal("CANCEL"))).await.unwrap();
    assert_eq!(ended(&engine, base).await, RunStatus::Cancelled);
    let changes = vec![change("wait.set", &json!(false))];
    let update = within(engine.update(base, None, changes, NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    let view = engine.run(update).await.unwrap();
    // Whether `a` had ended when the signal came is a matter of moments.
    assert!(steps(&view).ends_with("b skipped (condition)"), "{}", steps(&view));
}

async fn several_changes_and_updates_of_updates_add_up(home: Home) {
    let engine = home.open(config()).await;
    let (first, _) = run(&engine, HALF, payload(&json!({"a": 1, "times": 9}))).await;
    let changes =
        vec![change("set", &json!({"a": 2, "more": 1})), change("fix", &json!(0)), change("set", &json!({"a": 3}))];
    let second = within(engine.update(first, None, changes, NewRun::default())).await.unwrap().run;
    ended(&engine, second).await;
    let third = within(engine.update(second, None, vec![change("set", &json!({"more": null}))], NewRun::default()));
    let third = third.await.unwrap().run;
    assert_eq!(ended(&engine, third).await, RunStatus::Completed);
    let view = engine.run(third).await.unwrap();
    assert_eq!(view.payload.to_value(), json!({"a": 3, "times": 0}));
    assert_eq!(steps(&view), "a skipped (cache_hit), b skipped (cache_hit), c skipped (cache_hit)");
    assert_eq!(view.summary.base_run_id, Some(second));
}

async fn steps_are_rebuilt_by_name(home: Home) {
    let engine = home.open(config()).await;
    let of = |rebuild| NewRun { rebuild, ..payload(&json!({"a": 1, "times": 0})) };
    let (base, _) = run(&engine, HALF, of(None)).await;
    let named = |names: &[&str]| Some(RebuildRequest::Steps(names.iter().map(|name| (*name).to_owned()).collect()));
    let update = within(engine.update(base, None, Vec::new(), of(named(&["b"])))).await.unwrap().run;
    ended(&engine, update).await;
    let view = engine.run(update).await.unwrap();
    assert_eq!(steps(&view), "a skipped (cache_hit), b completed, c skipped (cache_hit)");
    let (new, _) = run(&engine, HALF, of(named(&["c", "a"]))).await;
    assert_eq!(steps(&engine.run(new).await.unwrap()), "a completed, b skipped (cache_hit), c completed");
    let (all, _) = run(&engine, HALF, of(Some(RebuildRequest::All))).await;
    assert_eq!(steps(&engine.run(all).await.unwrap()), "a completed, b completed, c completed");
    let unknown = engine.update(base, None, Vec::new(), of(named(&["bb"]))).await.unwrap_err();
    assert_eq!(unknown.code(), "unknown_step");
    assert!(unknown.to_string().contains("did you mean `b`?"), "{unknown}");
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
    assert_eq!(steps, ["first run no_cache", "never skip condition", "perhaps unknown upstream"]);
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
