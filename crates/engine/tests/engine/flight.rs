//! Identical work at the same time: one makes the result, the others wait for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::skills::SkillError;
use milepost_engine::workers::{Exchange, Outcome, WorkerResult, WorkerTask};
use milepost_engine::{ChangeRequest, Config, Engine, NewRun};
use milepost_store::Store;
use milepost_store::rows::ResultFilter;
use serde_json::{Value, json};

use crate::faults::{Fault, Faulty, Plan};
use crate::support::*;

on! {
    embedded: [
        a_hundred_runs_at_once_are_one_execution,
        a_hundred_items_of_one_run_are_one_execution,
        everything_works_when_no_state_is_at_hand,
        a_step_that_nobody_else_makes_begins_with_the_commit_that_made_it_ready,
        when_it_fails_one_of_those_who_wait_is_next,
        one_that_is_tried_again_later_lets_others_go_first,
        when_its_run_is_cancelled_one_of_those_who_wait_is_next,
        when_its_run_is_paused_before_it_begins_another_does,
        a_waiting_run_can_be_stopped,
        steps_that_are_rebuilt_neither_wait_nor_keep_others_waiting,
        a_step_that_a_patch_changes_waits_no_more,
        what_was_disowned_meanwhile_is_made_anew,
        two_orgs_do_not_wait_for_each_other,
        two_nodes_make_it_once,
        a_node_that_dies_while_it_leads_is_replaced,
        a_node_that_dies_while_its_runs_wait_is_replaced,
        what_another_node_makes_ready_in_a_run_that_waits_begins,
        a_run_that_waits_for_a_workers_step_may_change_its_node,
    ],
    postgres: [
        a_hundred_runs_at_once_are_one_execution,
        a_hundred_items_of_one_run_are_one_execution,
        everything_works_when_no_state_is_at_hand,
        when_it_fails_one_of_those_who_wait_is_next,
        when_its_run_is_cancelled_one_of_those_who_wait_is_next,
        when_its_run_is_paused_before_it_begins_another_does,
        steps_that_are_rebuilt_neither_wait_nor_keep_others_waiting,
        two_orgs_do_not_wait_for_each_other,
        two_nodes_make_it_once,
        a_node_that_dies_while_it_leads_is_replaced,
        what_another_node_makes_ready_in_a_run_that_waits_begins,
        a_run_that_waits_for_a_workers_step_may_change_its_node,
    ]
}

const DOCUMENT: &str = r#"
name: flight
steps: {a: {skill: make, input: {n: "${{ payload.n }}"}, cache: {enabled: true}}}
changes: {again: {rebuild: [a]}}
"#;

/// The skill `make` is counted, waits at a gate, and gives back its input; the first so many times it fails instead.
#[derive(Clone)]
struct Maker {
    gate: Gate,
    count: Arc<AtomicUsize>,
    failing: usize,
}

impl Maker {
    fn new() -> Maker {
        Maker { gate: Gate::new(), count: Arc::default(), failing: 0 }
    }

    fn failing(times: usize) -> Maker {
        Maker { failing: times, ..Maker::new() }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn config(&self) -> Config {
        let maker = self.clone();
        config().skill("make", move |_, input: Value| {
            let maker = maker.clone();
            async move {
                let nth = maker.count.fetch_add(1, Ordering::SeqCst);
                maker.gate.pass().await;
                match nth < maker.failing {
                    true => Err(SkillError::new("broken", "as it was told")),
                    false => Ok(input),
                }
            }
        })
    }
}

fn n(n: u32) -> NewRun {
    payload(&json!({"n": n}))
}

async fn start_many(engine: &Engine, count: usize) -> Vec<RunId> {
    join_all((0..count).map(|_| start(engine, DOCUMENT, n(1)))).await
}

async fn is_waiting(engine: &Engine, run: RunId) -> bool {
    types(engine.store(), run).await == ["RunQueued", "RunStarted"]
}

/// The one of them whose step is under way.
async fn leader(engine: &Engine, runs: &[RunId]) -> RunId {
    let mut leaders = Vec::new();
    for run in runs {
        let started = types(engine.store(), *run).await.iter().any(|name| name == "StepStarted");
        let ended = engine.summary(*run).await.unwrap().status.is_terminal();
        leaders.extend((started && !ended).then_some(*run));
    }
    assert_eq!(leaders.len(), 1, "one leads");
    leaders[0]
}

/// How often each thing became of their steps.
async fn ends(engine: &Engine, runs: &[RunId]) -> BTreeMap<String, usize> {
    let mut ends = BTreeMap::new();
    for run in runs {
        ended(engine, *run).await;
        *ends.entry(steps(&engine.run(*run).await.unwrap())).or_default() += 1;
    }
    ends
}

fn of<const N: usize>(ends: [(&str, usize); N]) -> BTreeMap<String, usize> {
    ends.into_iter().map(|(end, count)| (end.to_owned(), count)).collect()
}

/// Every run is sound, and nothing is left of flights.
async fn all_is_well(engine: &Engine, runs: &[RunId]) {
    for run in runs {
        sound(engine, *run).await;
        assert_eq!(engine.awaited(*run), []);
    }
    let results = engine.store().cache().results(ORG, &ResultFilter::All, None, 1000).await.unwrap();
    let keys: Vec<_> = results.iter().map(|row| (ORG, row.key)).collect();
    assert!(engine.store().flights().under_way(&keys).await.unwrap().iter().all(Option::is_none));
    healthy(engine.store()).await;
}

async fn a_hundred_runs_at_once_are_one_execution(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let runs = start_many(&engine, 100).await;
    maker.gate.arrival().await;
    let first = leader(&engine, &runs).await;
    for run in runs.iter().filter(|run| **run != first) {
        assert!(is_waiting(&engine, *run).await);
        assert_eq!(engine.awaited(*run), [(StepRef::whole(0), first)]);
    }
    healthy(engine.store()).await;
    maker.gate.let_through(1);
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 99)]));
    assert_eq!(maker.count(), 1);
    all_is_well(&engine, &runs).await;
}

async fn a_hundred_items_of_one_run_are_one_execution(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let document = r#"
name: items
steps: {a: {skill: make, foreach: "${{ range(100) }}", input: {n: 1}, cache: {enabled: true}}}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    maker.gate.arrival().await;
    maker.gate.let_through(1);
    assert_eq!((ended(&engine, id).await, maker.count()), (RunStatus::Completed, 1));
    assert_eq!(output(&engine.run(id).await.unwrap(), "a"), json!(vec![json!({"n": 1}); 100]));
    all_is_well(&engine, &[id]).await;
}

async fn everything_works_when_no_state_is_at_hand(home: Home) {
    let maker = Maker::failing(1);
    let engine = home.open(Config { cached_bytes: 0, ..maker.config() }).await;
    let runs = start_many(&engine, 20).await;
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 1), ("a failed", 1), ("a skipped (cache_hit)", 18)]));
    assert_eq!(maker.count(), 2);
    all_is_well(&engine, &runs).await;
}

async fn a_step_that_nobody_else_makes_begins_with_the_commit_that_made_it_ready(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let id = start(&engine, DOCUMENT, n(1)).await;
    let events = log(engine.store(), id).await;
    let names: Vec<&str> = events.iter().map(|event| &*event.event_type).collect();
    assert_eq!(names, ["RunQueued", "RunStarted", "StepStarted"]);
    assert!(events.iter().all(|event| event.persisted_at == events[0].persisted_at), "more than one commit");
    maker.gate.let_through(1);
    ended(&engine, id).await;
}

async fn when_it_fails_one_of_those_who_wait_is_next(home: Home) {
    let maker = Maker::failing(2);
    let engine = home.open(maker.config()).await;
    let runs = start_many(&engine, 10).await;
    for attempt in 1..=3 {
        maker.gate.arrival().await;
        assert_eq!((maker.count(), maker.gate.inside()), (attempt, 1));
        maker.gate.let_through(1);
    }
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 1), ("a failed", 2), ("a skipped (cache_hit)", 7)]));
    assert_eq!((maker.count(), maker.gate.most()), (3, 1));
    all_is_well(&engine, &runs).await;
}

async fn one_that_is_tried_again_later_lets_others_go_first(home: Home) {
    let maker = Maker::failing(1);
    let engine = home.open(maker.config()).await;
    let document = "{name: again, steps: {a: {skill: make, cache: {enabled: true}, \
                    retry: {max_attempts: 2, backoff_ms: 400, max_backoff_ms: 400}}}}";
    let first = start(&engine, document, NewRun::default()).await;
    maker.gate.arrival().await;
    let second = start(&engine, document, NewRun::default()).await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &[second]).await, of([("a completed", 1)]));
    assert_eq!(ends(&engine, &[first]).await, of([("a skipped (cache_hit)", 1)]));
    assert_eq!(maker.count(), 2);
    all_is_well(&engine, &[first, second]).await;
}

/// Whoever is asked why it waits names the run that makes the result.
async fn tells_what_it_waits_for(engine: &Engine, runs: &[RunId]) {
    let leader = leader(engine, runs).await;
    let waiting = *runs.iter().rev().find(|run| **run != leader).unwrap();
    let told = within(engine.explain(waiting, "a")).await.unwrap();
    let waits: Vec<_> = told.waits.iter().map(|wait| (wait.kind, wait.run_id)).collect();
    assert_eq!(waits, [("same_work", Some(leader))], "{told:?}");
}

async fn when_its_run_is_cancelled_one_of_those_who_wait_is_next(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let runs = start_many(&engine, 10).await;
    for signal in ["CANCEL", "TERMINATE"] {
        maker.gate.arrival().await;
        tells_what_it_waits_for(&engine, &runs).await;
        send(&engine, leader(&engine, &runs).await, signal).await;
    }
    maker.gate.arrival().await;
    maker.gate.let_through(1);
    let stopped = ("a skipped (cancelled)", 2);
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 1), stopped, ("a skipped (cache_hit)", 7)]));
    assert_eq!((maker.count(), maker.gate.most()), (3, 1));
    all_is_well(&engine, &runs).await;
}

const QUEUED: &str =
    r#"{name: queued, steps: {a: {skill: elsewhere, input: "${{ payload.n }}", cache: {enabled: true}}}}"#;

/// A worker that waits for one task.
async fn take(engine: &Engine, wait: Duration) -> Option<WorkerTask> {
    let call = Exchange {
        worker: "w".into(),
        secret: None,
        queues: vec!["default".into()],
        every_org: false,
        skills: None,
        capacity: 1,
        wait,
        results: Vec::new(),
        heartbeats: Vec::new(),
    };
    within(engine.exchange(call, std::future::pending())).await.unwrap().tasks.pop()
}

async fn report(engine: &Engine, task: &WorkerTask) {
    let (token, outcome) = (task.token.to_string(), Outcome::Completed(Json::trusted("7")));
    within(engine.report(WorkerResult { task: task.task, token, outcome, artifacts: Vec::new(), lines: Vec::new() }))
        .await
        .unwrap();
}

async fn when_its_run_is_paused_before_it_begins_another_does(home: Home) {
    let engine = home.open(Config { workers: true, ..config() }).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(start(&engine, QUEUED, n(1)).await);
    }
    assert_eq!(engine.awaited(runs[4]), [(StepRef::whole(0), runs[0])]);
    send(&engine, runs[0], "PAUSE").await;
    let task = take(&engine, Duration::from_secs(30)).await.expect("another run leads");
    assert_ne!(task.run, runs[0]);
    assert!(take(&engine, Duration::ZERO).await.is_none(), "two make the same");
    report(&engine, &task).await;
    for run in &runs[1..] {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed);
    }
    send(&engine, runs[0], "RESUME").await;
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 4)]));
    assert!(take(&engine, Duration::ZERO).await.is_none());
    all_is_well(&engine, &runs).await;
}

async fn a_waiting_run_can_be_stopped(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let runs = start_many(&engine, 4).await;
    maker.gate.arrival().await;
    let first = leader(&engine, &runs).await;
    let others: Vec<RunId> = runs.iter().copied().filter(|run| *run != first).collect();
    send(&engine, others[0], "CANCEL").await;
    assert_eq!(ended(&engine, others[0]).await, RunStatus::Cancelled);
    send_to(&engine, others[1], "SKIP_STEP", "a").await;
    send(&engine, others[2], "PAUSE").await;
    for run in &others {
        assert_eq!(engine.awaited(*run), []);
    }
    maker.gate.let_through(1);
    assert_eq!(ended(&engine, first).await, RunStatus::Completed);
    send(&engine, others[2], "RESUME").await;
    assert_eq!(ends(&engine, &others[2..]).await, of([("a skipped (cache_hit)", 1)]));
    all_is_well(&engine, &runs).await;
}

async fn steps_that_are_rebuilt_neither_wait_nor_keep_others_waiting(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let first = start(&engine, DOCUMENT, n(1)).await;
    maker.gate.arrival().await;
    let again = || vec![ChangeRequest { kind: "again".to_owned(), payload: Json::trusted("null") }];
    let forced = within(engine.update(first, None, again(), NewRun::default())).await.unwrap().run;
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &[first, forced]).await, of([("a completed", 2)]));
    // The other way round: nobody waits for what is rebuilt.
    engine.store().cache().evict(ORG, &ResultFilter::All, 10).await.unwrap();
    let forced = within(engine.update(first, None, again(), NewRun::default())).await.unwrap().run;
    maker.gate.arrival().await;
    let beside = start(&engine, DOCUMENT, n(1)).await;
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &[forced, beside]).await, of([("a completed", 2)]));
    assert_eq!(maker.count(), 4);
    all_is_well(&engine, &[first, forced, beside]).await;
}

async fn a_step_that_a_patch_changes_waits_no_more(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let runs = start_many(&engine, 2).await;
    maker.gate.arrival().await;
    let first = leader(&engine, &runs).await;
    let other = runs[usize::from(runs[0] == first)];
    let ops = json!([{"op": "add", "path": "/steps/a/input/n", "value": 2}]);
    within(engine.patch_run(other, &ops, milepost_engine::PatchOptions::default())).await.unwrap();
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &runs).await, of([("a completed", 2)]));
    all_is_well(&engine, &runs).await;
}

async fn what_was_disowned_meanwhile_is_made_anew(home: Home) {
    let maker = Maker::new();
    let engine = home.open(maker.config()).await;
    let before = start(&engine, DOCUMENT, n(1)).await;
    maker.gate.arrival().await;
    engine.store().cache().disown(ORG, "flight", None).await.unwrap();
    let after = start_many(&engine, 3).await;
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    assert_eq!(ends(&engine, &[before]).await, of([("a completed", 1)]));
    assert_eq!(ends(&engine, &after).await, of([("a completed", 1), ("a skipped (cache_hit)", 2)]));
    all_is_well(&engine, &after).await;
}

async fn two_orgs_do_not_wait_for_each_other(home: Home) {
    let maker = Maker::new();
    let ours = home.open(maker.config()).await;
    let theirs = home.open(Config { org: OrgId(2), ..maker.config() }).await;
    let (one, other) = (start_many(&ours, 3).await, start_many(&theirs, 3).await);
    maker.gate.arrival().await;
    maker.gate.arrival().await;
    maker.gate.let_through(2);
    let expected = of([("a completed", 1), ("a skipped (cache_hit)", 2)]);
    assert_eq!((ends(&ours, &one).await, ends(&theirs, &other).await), (expected.clone(), expected));
    assert_eq!(maker.count(), 2);
}

async fn two_nodes_make_it_once(home: Home) {
    let maker = Maker::new();
    let (a, b) = (home.open(maker.config()).await, home.open(maker.config()).await);
    let (mut runs, theirs) = tokio::join!(start_many(&a, 50), start_many(&b, 50));
    runs.extend(theirs);
    maker.gate.arrival().await;
    maker.gate.let_through(1);
    assert_eq!(ends(&a, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 99)]));
    assert_eq!(maker.count(), 1);
    b.flush_projections().await;
    all_is_well(&a, &runs).await;
    // Again and again, with nothing that holds it up: whoever is faster.
    maker.gate.let_through(1000);
    for round in 2..22 {
        let many = |engine| join_all((0..5).map(move |_| start(engine, DOCUMENT, n(round))));
        let (mut runs, theirs) = tokio::join!(many(&a), many(&b));
        runs.extend(theirs);
        assert_eq!(ends(&a, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 9)]));
    }
    assert_eq!(maker.count(), 21);
}

async fn a_node_that_dies_while_it_leads_is_replaced(home: Home) {
    let maker = Maker::new();
    let config = || Config { node_lease_ms: 200, ..maker.config() };
    let (a, b) = (home.open(config()).await, home.open(config()).await);
    let mut runs = start_many(&a, 5).await;
    maker.gate.arrival().await;
    runs.extend(start_many(&b, 5).await);
    drop(a);
    maker.gate.arrival().await;
    maker.gate.let_through(1);
    assert_eq!(ends(&b, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 9)]));
    assert_eq!(maker.count(), 2);
    all_is_well(&b, &runs).await;
}

async fn a_node_that_dies_while_its_runs_wait_is_replaced(home: Home) {
    let maker = Maker::new();
    let config = || Config { node_lease_ms: 200, ..maker.config() };
    let (a, b) = (home.open(config()).await, home.open(config()).await);
    let mut runs = start_many(&a, 1).await;
    maker.gate.arrival().await;
    runs.extend(start_many(&b, 5).await);
    a.flush_projections().await;
    b.flush_projections().await;
    drop(b);
    within(async {
        while engine_waits(&a, &runs[1..]) < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    maker.gate.let_through(1);
    assert_eq!(ends(&a, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 5)]));
    assert_eq!(maker.count(), 1);
    all_is_well(&a, &runs).await;
}

fn engine_waits(engine: &Engine, runs: &[RunId]) -> usize {
    runs.iter().filter(|run| !engine.awaited(**run).is_empty()).count()
}

async fn what_another_node_makes_ready_in_a_run_that_waits_begins(home: Home) {
    let maker = Maker::new();
    let (a, b) = (home.open(maker.config()).await, home.open(maker.config()).await);
    let document = r#"
name: flight
steps:
  a: {skill: make, input: {n: "${{ payload.n }}"}, cache: {enabled: true}}
  w: {skill: wait, input: {signal: go}}
  e: {skill: noop, depends_on: [w]}
"#;
    let first = start(&a, DOCUMENT, n(1)).await;
    maker.gate.arrival().await;
    let id = start(&a, document, n(1)).await;
    assert_eq!(a.awaited(id), [(StepRef::whole(0), first)]);
    send(&b, id, "go").await;
    within(async {
        while !log(a.store(), id)
            .await
            .iter()
            .any(|event| event.event_type == "StepCompleted" && event.step_id.as_deref() == Some("e"))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    maker.gate.let_through(1);
    assert_eq!(ends(&a, &[id]).await, of([("a skipped (cache_hit), w completed, e completed", 1)]));
    b.flush_projections().await;
    all_is_well(&a, &[first, id]).await;
}

/// The one that takes a command for it has it from then on, and has to know that it waits.
async fn a_run_that_waits_for_a_workers_step_may_change_its_node(home: Home) {
    let config = || Config { workers: true, node_lease_ms: 200, ..config() };
    let (a, b) = (home.open(config()).await, home.open(config()).await);
    let runs = [start(&a, QUEUED, n(1)).await, start(&a, QUEUED, n(1)).await];
    let task = take(&a, Duration::from_secs(30)).await.expect("the first run's step");
    a.flush_projections().await;
    send(&b, runs[1], "hello").await;
    within(async {
        while b.awaited(runs[1]) != [(StepRef::whole(0), runs[0])] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    b.flush_projections().await;
    drop(a);
    report(&b, &task).await;
    assert_eq!(ends(&b, &runs).await, of([("a completed", 1), ("a skipped (cache_hit)", 1)]));
    all_is_well(&b, &runs).await;
}

/// Whatever call fails, and whatever callers are told: everything ends, and it is made once.
async fn with_faults(plan: Plan, cached_bytes: usize) {
    let maker = Maker::new();
    maker.gate.let_through(1000);
    let faulty = Faulty::new(plan);
    let store: Arc<dyn Store> = faulty.clone();
    let engine = Engine::open_with(store.clone(), Config { cached_bytes, ..maker.config() }).await.unwrap();
    engine.deploy(DOCUMENT).await.unwrap();
    faulty.arm();
    let started = join_all((0..5).map(|number| {
        let engine = &engine;
        async move {
            let request_id = Some(format!("r{number}"));
            loop {
                match engine.start("flight", NewRun { request_id: request_id.clone(), ..n(1) }).await {
                    Ok(accepted) => return accepted.run,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        }
    }));
    let runs = within(started).await;
    for run in &runs {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed, "{plan:?}");
    }
    faulty.disarm();
    assert_eq!(maker.count(), 1, "{plan:?}");
    within(async {
        while !store.unprojected(1).await.unwrap().is_empty() {
            engine.flush_projections().await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    all_is_well(&engine, &runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_loses_nobody_who_waits() {
    for (fault, count, cached_bytes) in [
        (Fault::Unavailable, 1, 1 << 20),
        (Fault::Unavailable, 4, 0),
        (Fault::AnswerLost, 1, 1 << 20),
        (Fault::AnswerLost, 2, 0),
    ] {
        let plans = (0..16).map(|first| with_faults(Plan { fault, first, count }, cached_bytes));
        join_all(plans).await;
    }
}
