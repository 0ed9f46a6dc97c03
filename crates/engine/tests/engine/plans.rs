//! What a run would do, and what it then does.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::{RunStatus, StepStatus};
use milepost_engine::definitions::Protection;
use milepost_engine::{ChangeRequest, Engine, NewRun, PlanView, RebuildRequest};
use milepost_store::rows::ResultFilter;
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_plan_says_what_then_happens_and_takes_nothing,
        items_are_counted,
        what_changed_is_named,
        times_are_those_of_the_last_time,
        a_protected_tag_plans_with_its_own_results,
        what_is_disowned_or_rebuilt_is_planned_to_run,
        a_chain_is_gone_through_to_its_end,
    ],
    postgres: [
        a_plan_says_what_then_happens_and_takes_nothing,
        items_are_counted,
        what_changed_is_named,
        times_are_those_of_the_last_time,
    ]
}

const GRAPH: &str = r#"
name: graph
defaults: {cache: {enabled: true}}
steps:
  a: {skill: echo, input: {n: "${{ payload.a }}"}}
  b: {skill: echo, input: {of: "${{ steps.a.output.n > 0 }}"}}
  c: {skill: echo, input: {of: "${{ steps.b.output }}", n: "${{ payload.c }}"}}
  each: {skill: echo, foreach: "${{ payload.xs }}", input: "${{ item }}"}
  fresh: {skill: echo, input: 1, cache: {enabled: false}}
  never: {skill: echo, when: "${{ payload.c > 9 }}"}
  after: {skill: echo, input: 7, depends_on: [fresh]}
changes:
  set: {merge: ""}
"#;

fn of(a: i32, c: i32, xs: &[i32]) -> NewRun {
    payload(&json!({"a": a, "c": c, "xs": xs}))
}

fn set(change: &Value) -> Vec<ChangeRequest> {
    vec![ChangeRequest { kind: "set".to_owned(), payload: Json::of(change) }]
}

/// `a reuse, b run`.
fn shown(view: &PlanView) -> String {
    let step = |step: &milepost_engine::PlannedStep| {
        let items = step.items.map(|items| format!(" {}/{}", items.reuse, items.total)).unwrap_or_default();
        format!("{} {}{items}", step.step_id, step.decision.as_str())
    };
    view.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}

/// What was foreseen is what happened.
async fn kept_its_word(engine: &Engine, plan: &PlanView, run: RunId) {
    let view = engine.run(run).await.unwrap();
    for step in plan.steps.iter().filter(|step| step.items.is_none()) {
        let found = view.steps.iter().find(|found| found.step_id == step.step_id).unwrap();
        let fits = match step.decision.as_str() {
            "reuse" => found.cache_hit,
            "run" => found.status == StepStatus::Completed,
            "skip" => found.status == StepStatus::Skipped && !found.cache_hit,
            _ => true,
        };
        assert!(fits, "{} was planned as {:?}: {}", step.step_id, step.decision, steps(&view));
        if step.decision.as_str() != "unknown" {
            assert_eq!(step.input_hash, found.input_hash, "{}", step.step_id);
        }
    }
}

async fn a_plan_says_what_then_happens_and_takes_nothing(home: Home) {
    let engine = home.open(config()).await;
    let plan = engine.deploy(GRAPH).await.unwrap();
    let first = within(engine.plan_run(&plan, of(1, 1, &[1, 2]))).await.unwrap();
    assert_eq!(shown(&first), "a run, b unknown, c unknown, each run 0/2, fresh run, after run, never skip");
    let (base, _) = run(&engine, GRAPH, of(1, 1, &[1, 2])).await;
    kept_its_word(&engine, &first, base).await;
    let before = engine.store().count_runs().await.unwrap();
    for (change, expected) in [
        (json!({}), "a reuse, b reuse, c reuse, each reuse 2/2, fresh run, after reuse, never skip"),
        (json!({"c": 2}), "a reuse, b reuse, c run, each reuse 2/2, fresh run, after reuse, never skip"),
        (json!({"a": 2, "c": 10}), "a run, b unknown, c unknown, each reuse 2/2, fresh run, after reuse, never run"),
        (json!({"xs": [2, 3]}), "a reuse, b reuse, c reuse, each run 1/2, fresh run, after reuse, never skip"),
    ] {
        let plan = within(engine.plan_update(base, None, set(&change), NewRun::default())).await.unwrap();
        assert_eq!(shown(&plan), expected, "{change}");
        assert_eq!(plan.base_run_id, Some(base));
    }
    assert_eq!(engine.store().count_runs().await.unwrap(), before);
    let rows =
        engine.store().cache().results(ORG, &ResultFilter::Workflow("graph".to_owned()), None, 50).await.unwrap();
    assert!(rows.iter().all(|row| row.hits == 0), "a plan takes nothing");
    let change = json!({"a": 2, "c": 10, "xs": [2, 3]});
    let plan = within(engine.plan_update(base, None, set(&change), NewRun::default())).await.unwrap();
    let update = within(engine.update(base, None, set(&change), NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    kept_its_word(&engine, &plan, update).await;
}

async fn items_are_counted(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, GRAPH, of(1, 1, &[1, 2, 3])).await;
    let change = set(&json!({"xs": [3, 4, 2, 5, 1]}));
    let plan = within(engine.plan_update(base, None, change, NewRun::default())).await.unwrap();
    let items = plan.steps.iter().find(|step| step.step_id == "each").and_then(|step| step.items).unwrap();
    assert_eq!((items.total, items.reuse, items.run, items.unknown), (5, 3, 2, 0));
}

async fn what_changed_is_named(home: Home) {
    let engine = home.open(config()).await;
    let message = |plan: &PlanView, id: &str| {
        let step = plan.steps.iter().find(|step| step.step_id == id).unwrap();
        format!("{}: {}", step.reason, step.message.as_deref().unwrap_or_default())
    };
    let plan = engine.deploy(GRAPH).await.unwrap();
    let first = within(engine.plan_run(&plan, of(1, 1, &[]))).await.unwrap();
    assert_eq!(message(&first, "a"), "no_result: nothing is known of an earlier time");
    assert_eq!(
        (message(&first, "b"), message(&first, "fresh")),
        ("upstream: known after a".to_owned(), "no_cache: its results are not kept".to_owned())
    );
    let (base, _) = run(&engine, GRAPH, of(1, 1, &[])).await;
    let update = within(engine.plan_update(base, None, set(&json!({"c": 2})), NewRun::default())).await.unwrap();
    assert_eq!(message(&update, "c"), "no_result: `n` of its input changed");
    let newer =
        engine.deploy(&GRAPH.replace("n: \"${{ payload.a }}\"", "n: \"${{ payload.a }}\", m: 1")).await.unwrap();
    let update = within(engine.plan_update(base, Some(newer), Vec::new(), NewRun::default())).await.unwrap();
    assert_eq!(message(&update, "a"), "no_result: its definition changed and `m` of its input is new");
    engine.store().cache().evict(ORG, &ResultFilter::Workflow("graph".to_owned()), 50).await.unwrap();
    let gone = within(engine.plan_update(base, None, Vec::new(), NewRun::default())).await.unwrap();
    assert_eq!(message(&gone, "a"), "no_result: it began with this before and no result is left");
}

async fn times_are_those_of_the_last_time(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: timed
steps:
  nap: {skill: sleep, input: {ms: 30}}
  other: {skill: sleep, input: {ms: 20}}
  a: {skill: echo, input: "${{ payload.a }}", depends_on: [nap, other], cache: {enabled: true}}
changes: {set: {merge: ""}}
"#;
    let plan = engine.deploy(document).await.unwrap();
    let new = || payload(&json!({"a": 1}));
    let first = within(engine.plan_run(&plan, new())).await.unwrap();
    assert_eq!((first.predicted_ms, first.work_ms, first.unpredicted), (None, 0, 3));
    let (base, _) = run(&engine, document, new()).await;
    engine.flush_projections().await;
    let took = |view: &milepost_engine::view::RunView, id: &str| {
        view.steps.iter().find(|step| step.step_id == id).unwrap().duration_ms
    };
    let view = engine.run(base).await.unwrap();
    let (nap, other) = (took(&view, "nap").unwrap(), took(&view, "other").unwrap());
    for plan in [
        within(engine.plan_update(base, None, Vec::new(), NewRun::default())).await.unwrap(),
        within(engine.plan_run(&plan, new())).await.unwrap(),
    ] {
        assert_eq!((plan.predicted_ms, plan.work_ms), (Some(nap.max(other)), nap + other));
        let reused = plan.steps.iter().find(|step| step.step_id == "a").unwrap();
        assert_eq!((reused.saved_ms, reused.predicted_ms), (Some(plan.saved_ms), None));
        assert_eq!(plan.unpredicted, 0);
    }
}

async fn a_protected_tag_plans_with_its_own_results(home: Home) {
    let engine = home.open(config()).await;
    let plan = engine.deploy(GRAPH).await.unwrap();
    run(&engine, GRAPH, of(1, 1, &[])).await;
    engine.definitions().protect(ORG, "graph", Some(&Protection::default()), None).await.unwrap();
    let (_, target) = engine.resolve_target("graph").await.unwrap();
    let trust = engine.trust_in(&plan, &target).await.unwrap();
    let counts = async || within(engine.plan_run(&plan, NewRun { trust, ..of(1, 1, &[]) })).await.unwrap().counts.reuse;
    assert_eq!(counts().await, 0);
    let protected = within(engine.start("graph", of(1, 1, &[]))).await.unwrap().run;
    ended(&engine, protected).await;
    assert_eq!(counts().await, 4);
}

async fn what_is_disowned_or_rebuilt_is_planned_to_run(home: Home) {
    let engine = home.open(config()).await;
    let (base, _) = run(&engine, GRAPH, of(1, 1, &[])).await;
    let names = vec!["a".to_owned()];
    let again = NewRun { rebuild: Some(RebuildRequest::Steps(names)), ..NewRun::default() };
    let plan = within(engine.plan_update(base, None, Vec::new(), again)).await.unwrap();
    assert_eq!(shown(&plan), "a run, b unknown, c unknown, each run 0/0, fresh run, after reuse, never skip");
    assert_eq!(plan.steps[0].reason, "rebuild");
    engine.store().cache().disown(ORG, "graph", Some("b")).await.unwrap();
    let plan = within(engine.plan_update(base, None, Vec::new(), NewRun::default())).await.unwrap();
    assert_eq!(shown(&plan), "a reuse, b run, c unknown, each run 0/0, fresh run, after reuse, never skip");
    assert_eq!(plan.steps[1].message.as_deref(), Some("earlier results were disowned"));
}

async fn a_chain_is_gone_through_to_its_end(home: Home) {
    let engine = home.open(config()).await;
    let mut steps = vec![r#"s000: {skill: echo, input: {n: "${{ payload.a }}"}}"#.to_owned()];
    steps.extend(
        (1..300)
            .map(|n| format!(r#"s{n:03}: {{skill: echo, input: {{n: "${{{{ steps.s{:03}.output.n }}}}"}}}}"#, n - 1)),
    );
    let document = format!("{{name: long, defaults: {{cache: {{enabled: true}}}}, steps: {{{}}}}}", steps.join(", "));
    let new = || payload(&json!({"a": 1}));
    let (base, _) = run(&engine, &document, new()).await;
    let plan = within(engine.plan_update(base, None, Vec::new(), NewRun::default())).await.unwrap();
    assert_eq!((plan.counts.reuse, plan.counts.run), (300, 0));
}
