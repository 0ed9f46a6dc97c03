//! Why steps ran, were reused, or wait.

use std::time::Duration;

use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::workers::{Exchange, Rate};
use milepost_engine::{ChangeRequest, Config, Engine, Explanation, NewRun, RebuildRequest};
use milepost_store::rows::ResultFilter;
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_step_that_ran_names_what_changed,
        a_reused_step_names_whose_result_it_has,
        a_changed_definition_is_told_by_its_fields,
        what_was_disowned_evicted_or_rebuilt_is_told,
        variables_and_secrets_are_told_without_their_values,
        steps_without_a_key_say_so,
        a_step_that_waits_says_for_what,
        a_step_in_line_says_in_which_and_what_limits_it,
    ],
    postgres: [
        a_step_that_ran_names_what_changed,
        a_reused_step_names_whose_result_it_has,
        a_changed_definition_is_told_by_its_fields,
        a_step_in_line_says_in_which_and_what_limits_it,
    ]
}

const CHAIN: &str = r#"
name: chain
defaults: {cache: {enabled: true}}
steps:
  a: {skill: echo, input: {n: "${{ payload.a }}", deep: {list: ["${{ payload.b }}", 2]}}}
  b: {skill: echo, input: {of: "${{ steps.a.output.n > 0 }}"}}
  each: {skill: echo, foreach: "${{ payload.xs }}", input: {is: "${{ item }}"}}
  fresh: {skill: echo, cache: {enabled: false}}
  never: {skill: echo, when: "${{ payload.a > 9 }}"}
  rest: {skill: sleep, input: {ms: 0}, cache: {enabled: true}}
changes:
  set: {merge: ""}
"#;

fn of(a: i32) -> NewRun {
    payload(&json!({"a": a, "b": "x", "xs": [1, 2]}))
}

fn set(change: &Value) -> Vec<ChangeRequest> {
    vec![ChangeRequest { kind: "set".to_owned(), payload: Json::of(change) }]
}

async fn why(engine: &Engine, run: milepost_core::id::RunId, step: &str) -> Explanation {
    within(engine.explain(run, step)).await.unwrap()
}

/// `changed: ran because …`.
fn said(told: &Explanation) -> String {
    format!("{}: {}", told.reason, told.message)
}

/// `input/n 1 -> 2`.
fn told(explanation: &Explanation) -> Vec<String> {
    let side = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
    let line = |d: &milepost_core::difference::Difference| {
        format!("{}{} {} -> {}", d.part.as_str(), d.path, side(&d.before), side(&d.after))
    };
    explanation.differences.iter().map(line).collect()
}

async fn a_step_that_ran_names_what_changed(home: Home) {
    let engine = home.open(config()).await;
    let (first, _) = run(&engine, CHAIN, of(1)).await;
    let told_first = why(&engine, first, "a").await;
    assert_eq!(said(&told_first), "first: ran because it never ran before, as far as is known");
    assert_eq!(told_first.preimage.unwrap().to_value()["input"]["n"], json!(1));
    // Of runs that are no updates the most alike of the last few counts.
    run(&engine, CHAIN, payload(&json!({"a": 5, "b": "y", "xs": []}))).await;
    let (third, _) = run(&engine, CHAIN, of(2)).await;
    let changed = why(&engine, third, "a").await;
    assert_eq!(said(&changed), "changed: ran because `n` of its input changed");
    assert_eq!(told(&changed), ["input/n 1 -> 2"]);
    let nearest = changed.nearest.unwrap();
    assert_eq!((nearest.run_id, nearest.of_base_run), (first, false));
    // Of an update the base run's key counts, however alike others are.
    let base = run(&engine, CHAIN, payload(&json!({"a": 7, "b": "z", "xs": [3]}))).await.0;
    let update =
        within(engine.update(base, None, set(&json!({"b": "x", "a": 3})), NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    let changed = why(&engine, update, "a").await;
    assert_eq!(told(&changed), ["input/deep/list/0 \"z\" -> \"x\"", "input/n 7 -> 3"]);
    assert_eq!(changed.nearest.map(|nearest| (nearest.run_id, nearest.of_base_run)), Some((base, true)));
    assert_eq!(changed.decision, "ran");
    let item = why(&engine, base, "each[0]").await;
    assert_eq!(said(&item), "changed: ran because `is` of its input changed");
    assert!(matches!(engine.explain(base, "eahc").await, Err(error) if error.code() == "unknown_step"));
}

async fn a_reused_step_names_whose_result_it_has(home: Home) {
    let engine = home.open(config()).await;
    let (first, _) = run(&engine, CHAIN, of(1)).await;
    let (second, _) = run(&engine, CHAIN, of(1)).await;
    let reused = why(&engine, second, "b").await;
    assert_eq!((reused.decision, reused.reason), ("reused", "cached"));
    let result = reused.result.unwrap();
    assert_eq!((result.run_id, result.created_at.is_some(), result.duration_ms.is_some()), (first, true, true));
    assert_eq!(reused.preimage.unwrap().to_value()["step"], json!("b"));
    // Who made it is known also when the result itself is gone.
    engine.store().cache().evict(ORG, &ResultFilter::Workflow("chain".to_owned()), 50).await.unwrap();
    let result = why(&engine, second, "b").await.result.unwrap();
    assert_eq!((result.run_id, result.created_at.is_some(), result.duration_ms), (first, true, None));
}

async fn a_changed_definition_is_told_by_its_fields(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, CHAIN, of(1)).await;
    let newer =
        engine.deploy(&CHAIN.replace("b: {skill: echo, input: {of", "b: {skill: noop, input: {as")).await.unwrap();
    let update = within(engine.update(base, Some(newer), Vec::new(), NewRun::default())).await.unwrap().run;
    ended(&engine, update).await;
    let changed = why(&engine, update, "b").await;
    let expected = "changed: ran because `input.as` of its definition is new, `input.of` of its definition is gone, `skill` of its definition changed and 2 more";
    assert_eq!(said(&changed), expected);
    assert!(told(&changed).contains(&"definition/skill \"echo\" -> \"noop\"".to_owned()), "{:?}", told(&changed));
}

async fn what_was_disowned_evicted_or_rebuilt_is_told(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, CHAIN, of(1)).await;
    engine.flush_projections().await;
    engine.store().cache().disown(ORG, "chain", Some("b")).await.unwrap();
    let again = async |new: NewRun| {
        let update = within(engine.update(base, None, Vec::new(), new)).await.unwrap().run;
        ended(&engine, update).await;
        engine.flush_projections().await;
        update
    };
    let disowned = why(&engine, again(NewRun::default()).await, "b").await;
    assert_eq!(said(&disowned), "changed: ran because earlier results were disowned");
    assert_eq!(told(&disowned), ["epoch/step 0 -> 1"]);
    let steps = ResultFilter::Step { workflow: "chain".to_owned(), step_id: "a".to_owned() };
    engine.store().cache().evict(ORG, &steps, 50).await.unwrap();
    let evicted = why(&engine, again(NewRun::default()).await, "a").await;
    let expected = format!("no_result: ran because the result of run {base}, which began with the same, was evicted");
    assert_eq!(said(&evicted), expected);
    let rebuild = NewRun { rebuild: Some(RebuildRequest::All), ..NewRun::default() };
    let rebuilt = why(&engine, again(rebuild).await, "a").await;
    assert_eq!(said(&rebuilt), "rebuild: ran because somebody wanted it rebuilt, whatever is kept");
    let failing = r#"{name: f, steps: {a: {skill: fail, input: {times: 9, code: bad}, cache: {enabled: true}}}}"#;
    let (failed, _) = run(&engine, failing, NewRun::default()).await;
    engine.flush_projections().await;
    let (second, _) = run(&engine, failing, NewRun::default()).await;
    let expected =
        format!("no_result: ran because run {failed}, which began with the same, left no result: it failed there");
    assert_eq!(said(&why(&engine, second, "a").await), expected);
}

async fn variables_and_secrets_are_told_without_their_values(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: keyed
steps:
  a: {skill: echo, input: 1, cache: {enabled: true}, env: [LC_NOT_SET], secrets: {TOKEN: "secret://t"}}
"#;
    let (only, _) = run(&engine, document, NewRun::default()).await;
    let told = why(&engine, only, "a").await;
    let preimage = told.preimage.unwrap().to_value();
    assert_eq!(preimage["env"], json!({"LC_NOT_SET": null}));
    assert!(preimage["secrets"]["TOKEN"].is_string(), "{preimage}");
}

async fn steps_without_a_key_say_so(home: Home) {
    let engine = home.open(config()).await;
    let (only, _) = run(&engine, CHAIN, of(1)).await;
    let reason = async |step: &str| why(&engine, only, step).await.reason;
    assert_eq!((reason("fresh").await, reason("rest").await), ("not_cached", "not_cached"));
    assert_eq!((reason("never").await, reason("each").await), ("condition", "items"));
    let broken = "{name: x, steps: {a: {skill: echo, input: \"${{ payload.no }}\", cache: {enabled: true}}, b: {skill: echo, depends_on: [a]}}}";
    let (failed, _) = run(&engine, broken, NewRun::default()).await;
    let early = why(&engine, failed, "a").await;
    assert!(said(&early).starts_with("failed_early: it failed before it could begin: "), "{}", said(&early));
    assert_eq!(why(&engine, failed, "b").await.reason, "upstream_failed");
}

async fn a_step_that_waits_says_for_what(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: waits
approval: true
steps:
  gate: {skill: wait, input: {signal: go}}
  nap: {skill: sleep, input: {ms: 3600000}}
  flaky: {skill: fail, input: {times: 1}, retry: {max_attempts: 2, backoff_ms: 3600000}}
  after: {skill: echo, depends_on: [gate, nap]}
"#;
    let waiting = start(&engine, document, NewRun::default()).await;
    let kinds = async |step: &str| {
        let told = why(&engine, waiting, step).await;
        told.waits.iter().map(|wait| wait.kind).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(kinds("after").await, "approval dependency");
    send(&engine, waiting, "APPROVE").await;
    event(&engine, waiting, "StepRetryScheduled").await;
    assert_eq!(
        (kinds("gate").await, kinds("nap").await, kinds("flaky").await),
        ("signal".into(), "sleep".into(), "retry".into())
    );
    let after = why(&engine, waiting, "after").await;
    assert_eq!((after.decision, after.reason), ("waiting", "dependency"));
    assert_eq!(after.message, "it waits for `gate` (running), `nap` (running)");
    let gate = why(&engine, waiting, "gate").await;
    assert_eq!((gate.decision, gate.waits[0].signal.as_deref()), ("running", Some("go")));
    send(&engine, waiting, "PAUSE").await;
    assert_eq!(kinds("flaky").await, "pause retry");
}

async fn a_step_in_line_says_in_which_and_what_limits_it(home: Home) {
    let engine = home.open(Config { workers: true, ..config() }).await;
    let document = r#"
name: line
steps:
  a: {skill: render, queue: gpu, concurrency: {key: card, limit: 1}}
  b: {skill: render, queue: gpu, concurrency: {key: card, limit: 1}}
"#;
    let waiting = start(&engine, document, NewRun::default()).await;
    let told = why(&engine, waiting, "a").await;
    let alone = "queue: it is in line in the queue `gpu`, where 2 wait; no worker for `render` has asked here in the last minute";
    assert_eq!(said(&told), alone);
    engine.limit_queue("gpu".into(), Some(1), Some(Rate { limit: 1, per_ms: 3_600_000 })).await.unwrap();
    let call = Exchange {
        worker: "w".into(),
        secret: None,
        queues: vec!["gpu".into()],
        every_org: false,
        skills: Some(vec!["render".into()]),
        capacity: 1,
        wait: Duration::ZERO,
        results: Vec::new(),
        heartbeats: Vec::new(),
    };
    let task = within(engine.exchange(call, std::future::pending())).await.unwrap().tasks.pop().unwrap();
    let other = if task.step_id == "a" { "b" } else { "a" };
    let told = why(&engine, waiting, other).await;
    let kinds: Vec<&str> = told.waits.iter().map(|wait| wait.kind).collect();
    assert_eq!(kinds, ["concurrency_key", "queue_limit", "rate_limit", "queue"], "{told:?}");
    assert_eq!(told.message, "1 of 1 steps with the concurrency key `card` are under way");
    assert!(!told.waits[3].message.contains("no worker"), "{told:?}");
    let running = why(&engine, waiting, &task.step_id).await;
    assert!(running.message.ends_with("it is under way on worker w"), "{}", running.message);
}
