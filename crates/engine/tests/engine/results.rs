//! Results of steps: kept, taken, and not mixed up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::definitions::Protection;
use milepost_engine::skills::SkillError;
use milepost_engine::workers::{Exchange, Outcome, WorkerResult, WorkerTask};
use milepost_engine::{ChangeRequest, Config, Engine, NewRun};
use milepost_store::rows::ResultFilter;
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_second_run_takes_the_results_of_the_first_in_one_commit,
        what_a_change_touches_runs_and_nothing_else,
        steps_that_are_rebuilt_run_and_are_kept,
        two_orgs_do_not_share,
        failed_results_are_not_kept,
        items_have_results_of_their_own,
        results_for_one_run_go_with_it,
        disowned_results_are_not_taken,
        a_protected_tag_takes_no_results_of_others,
        a_child_and_its_parent_take_results_together,
        results_outlive_the_process_that_made_them,
        everything_works_when_no_state_is_at_hand,
        a_worker_gets_what_has_to_run_and_nothing_else,
        what_waits_in_line_takes_a_result_that_came_meanwhile,
    ],
    postgres: [
        a_second_run_takes_the_results_of_the_first_in_one_commit,
        items_have_results_of_their_own,
        results_for_one_run_go_with_it,
        a_child_and_its_parent_take_results_together,
        a_worker_gets_what_has_to_run_and_nothing_else,
        what_waits_in_line_takes_a_result_that_came_meanwhile,
    ]
}

/// Counts how often the skill `count` runs; it gives back its input, or fails if that is `"fail"`.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicUsize>);

impl Counter {
    fn runs(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn config(&self) -> Config {
        let count = self.0.clone();
        config().skill("count", move |_, input: Value| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                match input == json!("fail") {
                    true => Err(SkillError::fatal("broken", "as it was told")),
                    false => Ok(input),
                }
            }
        })
    }
}

const CHAIN: &str = r#"
name: chain
defaults: {cache: {enabled: true}}
steps:
  a: {skill: count, input: {n: "${{ payload.a }}"}}
  b: {skill: count, input: {of: "${{ steps.a.output.n > 0 }}"}}
  c: {skill: count, input: {of: "${{ steps.b.output }}", n: "${{ payload.c }}"}}
changes:
  c.set: {replace: /c}
  b.again: {rebuild: [b]}
"#;

const HITS: &str = "a skipped (cache_hit), b skipped (cache_hit), c skipped (cache_hit)";

fn of(a: i32, c: i32) -> NewRun {
    payload(&json!({"a": a, "c": c}))
}

async fn a_second_run_takes_the_results_of_the_first_in_one_commit(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let (first, _) = run(&engine, CHAIN, of(1, 1)).await;
    let (second, status) = run(&engine, CHAIN, of(1, 1)).await;
    assert_eq!((counter.runs(), status), (3, RunStatus::Completed));
    let events = log(engine.store(), second).await;
    assert_eq!(
        events.iter().map(|event| &*event.event_type).collect::<Vec<_>>(),
        ["RunQueued", "RunStarted", "StepSkipped", "StepSkipped", "StepSkipped", "RunCompleted"]
    );
    assert!(events.iter().all(|event| event.persisted_at == events[0].persisted_at), "more than one commit");
    assert_eq!(events[2].data.to_value()["from"]["run"], json!(first));
    let expected = engine.run(first).await.unwrap();
    for projected in [false, true] {
        if projected {
            engine.flush_projections().await;
        }
        let view = engine.run(second).await.unwrap();
        assert_eq!((steps(&view), &view.output), (HITS.to_owned(), &expected.output));
        for (step, made) in view.steps.iter().zip(&expected.steps) {
            assert_eq!((&step.output, step.input_hash), (&made.output, made.input_hash), "{}", step.step_id);
        }
    }
    let detail = engine.step(second, "b").await.unwrap();
    assert_eq!(detail.input.map(|input| input.to_value()), Some(json!({"of": true})));
    assert_eq!(detail.step.output.map(|output| output.to_value()), Some(json!({"of": true})));
    let rows =
        engine.store().cache().results(ORG, &ResultFilter::Workflow("chain".to_owned()), None, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| (row.hits, row.producer.0)).collect::<Vec<_>>(), [(1, first); 3]);
    for row in rows {
        let preimage = engine.store().cache().preimage(ORG, row.key.key).await.unwrap().unwrap().to_value();
        assert_eq!((&preimage["workflow"], &preimage["step"]), (&json!("chain"), &json!(row.step_id)));
    }
    sound(&engine, second).await;
    healthy(engine.store()).await;
}

async fn what_a_change_touches_runs_and_nothing_else(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let (base, _) = run(&engine, CHAIN, of(1, 1)).await;
    let change = ChangeRequest { kind: "c.set".to_owned(), payload: Json::trusted("2") };
    let update = within(engine.update(base, None, vec![change], NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    let view = engine.run(update).await.unwrap();
    assert_eq!(steps(&view), "a skipped (cache_hit), b skipped (cache_hit), c completed");
    // `a` runs, and what `b` sees of it is what it was.
    let (third, _) = run(&engine, CHAIN, of(2, 2)).await;
    assert_eq!(steps(&engine.run(third).await.unwrap()), "a completed, b skipped (cache_hit), c skipped (cache_hit)");
    assert_eq!(counter.runs(), 5);
    sound(&engine, third).await;
}

async fn steps_that_are_rebuilt_run_and_are_kept(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let (base, _) = run(&engine, CHAIN, of(1, 1)).await;
    let change = ChangeRequest { kind: "b.again".to_owned(), payload: Json::trusted("null") };
    let update = within(engine.update(base, None, vec![change], NewRun::default())).await.unwrap().run;
    ended(&engine, update).await;
    assert_eq!(log(engine.store(), update).await[0].data.to_value()["rebuild"], json!(["b"]));
    let view = engine.run(update).await.unwrap();
    assert_eq!(steps(&view), "a skipped (cache_hit), b completed, c skipped (cache_hit)");
    let step = ResultFilter::Step { workflow: "chain".to_owned(), step_id: "b".to_owned() };
    let rows = engine.store().cache().results(ORG, &step, None, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.producer.0).collect::<Vec<_>>(), [update]);
}

async fn two_orgs_do_not_share(home: Home) {
    let counter = Counter::default();
    let ours = home.open(counter.config()).await;
    run(&ours, CHAIN, of(1, 1)).await;
    let theirs = home.open(Config { org: OrgId(2), ..counter.config() }).await;
    let (other, _) = run(&theirs, CHAIN, of(1, 1)).await;
    assert_eq!(counter.runs(), 6);
    assert_eq!(steps(&theirs.run(other).await.unwrap()), "a completed, b completed, c completed");
    run(&theirs, CHAIN, of(1, 1)).await;
    assert_eq!(counter.runs(), 6);
}

async fn failed_results_are_not_kept(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let document = r#"{name: f, steps: {a: {skill: count, input: "${{ payload.a }}", cache: {enabled: true}}}}"#;
    for runs in 1..=2 {
        let (_, status) = run(&engine, document, payload(&json!({"a": "fail"}))).await;
        assert_eq!((status, counter.runs()), (RunStatus::Failed, runs));
    }
    assert_eq!(
        engine.store().cache().results(ORG, &ResultFilter::Workflow("f".to_owned()), None, 10).await.unwrap(),
        []
    );
}

async fn items_have_results_of_their_own(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let document = r#"
name: items
steps:
  each: {skill: count, foreach: "${{ payload.xs }}", input: "${{ item }}", cache: {enabled: true}}
  all: {skill: count, input: "${{ steps.each.output }}"}
"#;
    run(&engine, document, payload(&json!({"xs": [1, 2, 3]}))).await;
    let (second, _) = run(&engine, document, payload(&json!({"xs": [4, 3, 2, 1]}))).await;
    assert_eq!(counter.runs(), 3 + 1 + 1 + 1);
    let view = engine.run(second).await.unwrap();
    assert_eq!((output(&view, "each"), output(&view, "all")), (json!([4, 3, 2, 1]), json!([4, 3, 2, 1])));
    sound(&engine, second).await;
}

async fn results_for_one_run_go_with_it(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    let document = "{name: own, steps: {a: {skill: count, cache: {enabled: true, scope: run_only}}}}";
    for runs in 1..=2 {
        run(&engine, document, NewRun::default()).await;
        assert_eq!(counter.runs(), runs);
    }
    let left = engine.store().cache().results(ORG, &ResultFilter::Workflow("own".to_owned()), None, 10).await.unwrap();
    assert_eq!(left, []);
}

async fn disowned_results_are_not_taken(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    run(&engine, CHAIN, of(1, 1)).await;
    engine.store().cache().disown(ORG, "chain", Some("b")).await.unwrap();
    let (second, _) = run(&engine, CHAIN, of(1, 1)).await;
    let view = engine.run(second).await.unwrap();
    assert_eq!(steps(&view), "a skipped (cache_hit), b completed, c skipped (cache_hit)");
    engine.store().cache().disown(ORG, "chain", None).await.unwrap();
    run(&engine, CHAIN, of(1, 1)).await;
    assert_eq!(counter.runs(), 3 + 1 + 3);
}

async fn a_protected_tag_takes_no_results_of_others(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    run(&engine, CHAIN, of(1, 1)).await;
    engine.deploy(CHAIN).await.unwrap();
    engine.definitions().protect(ORG, "chain", Some(&Protection::default()), None).await.unwrap();
    for runs in [6, 6] {
        let protected = within(engine.start("chain", of(1, 1))).await.unwrap().run;
        ended(&engine, protected).await;
        assert_eq!(counter.runs(), runs);
    }
    // The other way round they may.
    let protected = within(engine.start("chain", of(3, 3))).await.unwrap().run;
    ended(&engine, protected).await;
    let before = counter.runs();
    let (open, _) = run(&engine, CHAIN, of(3, 3)).await;
    assert_eq!((counter.runs(), steps(&engine.run(open).await.unwrap())), (before, HITS.to_owned()));
}

async fn a_child_and_its_parent_take_results_together(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    engine.deploy(CHAIN).await.unwrap();
    let parent = r#"
name: parent
steps:
  child: {skill: workflow, input: {ref: chain, payload: {a: 1, c: 1}}}
  after: {skill: count, input: "${{ steps.child.output }}", cache: {enabled: true}}
"#;
    run(&engine, parent, NewRun::default()).await;
    let (second, status) = run(&engine, parent, NewRun::default()).await;
    assert_eq!((counter.runs(), status), (4, RunStatus::Completed));
    assert_eq!(steps(&engine.run(second).await.unwrap()), "child completed, after skipped (cache_hit)");
    sound(&engine, second).await;
    healthy(engine.store()).await;
}

async fn results_outlive_the_process_that_made_them(home: Home) {
    let counter = Counter::default();
    let engine = home.open(counter.config()).await;
    run(&engine, CHAIN, of(1, 1)).await;
    engine.shutdown().await;
    let engine = home.open(counter.config()).await;
    let (second, _) = run(&engine, CHAIN, of(1, 1)).await;
    assert_eq!((counter.runs(), steps(&engine.run(second).await.unwrap())), (3, HITS.to_owned()));
}

async fn everything_works_when_no_state_is_at_hand(home: Home) {
    let counter = Counter::default();
    let engine = home.open(Config { cached_bytes: 0, ..counter.config() }).await;
    for runs in [3, 3] {
        let (id, status) = run(&engine, CHAIN, of(1, 1)).await;
        assert_eq!((status, counter.runs()), (RunStatus::Completed, runs));
        sound(&engine, id).await;
    }
}

const QUEUED: &str = r#"
name: queued
defaults: {cache: {enabled: true}}
steps: {a: {skill: x}, b: {skill: x, input: "${{ steps.a.output }}"}}
"#;

fn completed(task: &WorkerTask) -> WorkerResult {
    let (token, outcome) = (task.token.to_string(), Outcome::Completed(Json::trusted("1")));
    WorkerResult { task: task.task, token, outcome, artifacts: Vec::new(), lines: Vec::new() }
}

/// What a worker that does not wait is given for what it has done.
async fn exchange(engine: &Engine, done: Option<&WorkerTask>) -> Option<WorkerTask> {
    let call = Exchange {
        worker: "w".into(),
        secret: None,
        queues: vec!["default".into()],
        every_org: false,
        skills: None,
        capacity: 1,
        wait: Duration::ZERO,
        results: done.map(completed).into_iter().collect(),
        heartbeats: Vec::new(),
    };
    within(engine.exchange(call, std::future::pending())).await.unwrap().tasks.pop()
}

async fn a_worker_gets_what_has_to_run_and_nothing_else(home: Home) {
    let engine = home.open(Config { workers: true, ..config() }).await;
    let first = start(&engine, QUEUED, NewRun::default()).await;
    let a = exchange(&engine, None).await.expect("the first step");
    let b = exchange(&engine, Some(&a)).await.expect("the next step, with the commit that made it ready");
    assert!(exchange(&engine, Some(&b)).await.is_none());
    assert_eq!(ended(&engine, first).await, RunStatus::Completed);
    let (second, status) = run(&engine, QUEUED, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert!(exchange(&engine, None).await.is_none());
    assert!(engine.store().tasks_of(ORG, second).await.unwrap().is_empty());
    sound(&engine, second).await;
    healthy(engine.store()).await;
}

async fn what_waits_in_line_takes_a_result_that_came_meanwhile(home: Home) {
    let engine = home.open(Config { workers: true, cached_bytes: 0, ..config() }).await;
    let document = "{name: line, steps: {a: {skill: x, cache: {enabled: true}}}}";
    let runs = [start(&engine, document, NewRun::default()).await, start(&engine, document, NewRun::default()).await];
    let task = exchange(&engine, None).await.expect("a step");
    within(engine.report(completed(&task))).await.unwrap();
    assert!(exchange(&engine, None).await.is_none(), "the other run has its result");
    for run in runs {
        assert_eq!(ended(&engine, run).await, RunStatus::Completed);
        sound(&engine, run).await;
    }
    healthy(engine.store()).await;
}
