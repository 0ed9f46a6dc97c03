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
        a_step_shows_its_attempts_and_what_it_was_given,
        items_and_the_steps_they_belong_to_can_be_looked_at,
        steps_that_did_not_run_have_neither_input_nor_attempts,
        waits_and_children_say_what_they_wait_for,
    ],
    postgres: [a_step_shows_its_attempts_and_what_it_was_given, items_and_the_steps_they_belong_to_can_be_looked_at, a_run_looks_as_it_did_after_each_of_its_events, a_summary_says_what_the_whole_run_says]
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

async fn detail(engine: &Engine, run: RunId, step: &str) -> Value {
    json!(within(engine.step(run, step)).await.unwrap())
}

async fn a_step_shows_its_attempts_and_what_it_was_given(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: again
defaults: {retry: {max_attempts: 2, backoff_ms: 1}}
steps:
  first: {skill: echo, input: {n: 20}}
  flaky: {skill: fail, input: {times: 1, code: shaky, n: "${{ steps.first.output.n + payload.m }}", id: "${{ run.id }}"}}
"#;
    let (id, status) = run(&engine, document, payload(&json!({"m": 1}))).await;
    assert_eq!(status, RunStatus::Completed);
    for projected in [false, true] {
        if projected {
            engine.flush_projections().await;
        }
        let step = detail(&engine, id, "flaky").await;
        assert_eq!(step["input"], json!({"times": 1, "code": "shaky", "n": 21, "id": id}));
        assert_eq!(step["depends_on"], json!(["first"]));
        assert_eq!((&step["status"], &step["output"]), (&json!("completed"), &step["input"]));
        let [failed, completed] = step["attempts"].as_array().unwrap().as_slice() else { panic!("{step:#}") };
        assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("shaky")));
        assert_eq!((&completed["status"], &completed["logical_attempt"]), (&json!("completed"), &json!(2)));
        assert!(failed["started_at"].as_str() <= failed["ended_at"].as_str(), "{failed}");
        assert_eq!((&failed["worker"], completed.get("error")), (&json!(engine.node().to_string()), None));
        assert_eq!(completed["input_hash"], step["input_hash"]);
        let whole = json!(engine.run(id).await.unwrap());
        let in_run = whole["steps"].as_array().unwrap().iter().find(|view| view["step_id"] == "flaky").unwrap();
        for (key, value) in in_run.as_object().unwrap() {
            assert_eq!(&step[key], value, "{key}");
        }
    }
    let unknown = engine.step(id, "flakey").await.unwrap_err();
    assert_eq!(unknown.code(), "unknown_step");
    assert!(unknown.to_string().contains("did you mean `flaky`?"), "{unknown}");
}

async fn items_and_the_steps_they_belong_to_can_be_looked_at(home: Home) {
    let engine = home.open(config()).await;
    // Its history rotates, so that what is looked at is no longer at hand.
    let document = r#"
name: many
steps:
  list: {skill: echo, input: "${{ range(payload.n) }}"}
  many: {skill: echo, foreach: "${{ steps.list.output }}", input: {n: "${{ item }}", of: "${{ payload.n }}"}}
  all: {skill: echo, input: {last: "${{ steps.many.output | last }}"}}
"#;
    let (id, _) = run(&engine, document, payload(&json!({"n": 120}))).await;
    let item = detail(&engine, id, "many[117]").await;
    assert_eq!((&item["input"], &item["output"]), (&json!({"n": 117, "of": 120}), &json!({"n": 117, "of": 120})));
    assert_eq!((item["attempts"].as_array().unwrap().len(), item.get("items")), (1, None));
    let whole = detail(&engine, id, "many").await;
    let counts = json!({"total": 120, "pending": 0, "running": 0, "completed": 120, "failed": 0, "skipped": 0});
    assert_eq!((&whole["items"], whole.get("input")), (&counts, None));
    assert_eq!(whole["output"].as_array().unwrap().len(), 120);
    assert_eq!(detail(&engine, id, "all").await["input"], json!({"last": {"n": 119, "of": 120}}));
    assert_eq!(engine.step(id, "many[120]").await.unwrap_err().code(), "unknown_step");
}

async fn steps_that_did_not_run_have_neither_input_nor_attempts(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: idle
steps:
  no: {skill: echo, when: "${{ payload.no }}", input: {n: 1}}
  wait: {skill: wait, input: {signal: go}}
  later: {skill: echo, depends_on: [wait], input: {n: 1}}
"#;
    let id = start(&engine, document, payload(&json!({"no": false}))).await;
    for (name, status) in [("no", "skipped"), ("later", "pending")] {
        let step = detail(&engine, id, name).await;
        assert_eq!((&step["status"], step.get("input"), &step["attempts"]), (&json!(status), None, &json!([])));
    }
}

async fn waits_and_children_say_what_they_wait_for(home: Home) {
    let engine = home.open(config()).await;
    engine.deploy("{name: child, steps: {w: {skill: wait, input: {signal: go}}}}").await.unwrap();
    let document = r#"
name: parent
steps:
  wait: {skill: wait, timeout_ms: 60000, input: {signal: "${{ payload.signal }}"}}
  call: {skill: workflow, input: {ref: child}}
"#;
    let id = start(&engine, document, payload(&json!({"signal": "ready"}))).await;
    let wait = detail(&engine, id, "wait").await;
    assert_eq!(wait["attempts"][0]["waits_for"], json!("ready"));
    assert!(wait["attempts"][0]["due_at"].is_string() && wait["attempts"][0].get("ended_at").is_none(), "{wait:#}");
    let call = detail(&engine, id, "call").await;
    let child = call["attempts"][0]["child_run_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(engine.summary(child).await.unwrap().parent_run_id, Some(id));
    assert_eq!(call["input"], json!({"ref": "child"}));
}

/// What is worked out again may not be what the step was given, such as when another release evaluates it otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_whose_hash_is_another_is_not_shown() {
    let home = Home::sqlite();
    let engine = home.open(config()).await;
    let (id, _) = run(&engine, "{name: h, steps: {a: {skill: echo, input: {n: 1}}}}", NewRun::default()).await;
    engine.flush_projections().await;
    assert_eq!(detail(&engine, id, "a").await["input"], json!({"n": 1}));
    tamper(&home, &format!("UPDATE run_steps SET input_hash = zeroblob(32) WHERE run_id = {}", sql_id(id)));
    let step = detail(&engine, id, "a").await;
    assert_eq!((step.get("input"), &step["output"]), (None, &json!({"n": 1})));
}
