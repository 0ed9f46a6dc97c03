//! Workers: what they are given, what they say, what happens when they fall silent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::event::ErrorInfo;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::secrets::SecretsConfig;
use milepost_engine::skills::LogStream;
use milepost_engine::workers::{
    DirectiveKind, Exchange, Exchanged, Heartbeat, Outcome, Rate, WorkerLine, WorkerResult, WorkerTask,
};
use milepost_engine::{Clock as _, Config, Engine, ManualClock, NewRun, SystemClock};
use serde_json::json;

use crate::support::*;

on! {
    embedded: [
        a_chain_goes_through_one_worker_call_by_call,
        a_result_that_comes_again_is_taken_as_the_first_time,
        a_worker_that_says_nothing_loses_its_step_and_its_late_word_changes_nothing,
        a_slow_step_that_heartbeats_is_never_taken_away,
        a_worker_that_fell_silent_is_given_nothing_by_a_call_that_still_waits,
        a_waiting_worker_is_given_what_becomes_ready,
        a_worker_that_hangs_up_is_given_nothing,
        nothing_begins_while_a_run_is_paused,
        a_worker_hears_at_once_that_its_run_was_cancelled,
        only_the_worker_itself_is_told_what_is_new,
        progress_that_does_not_fit_is_refused_and_the_lease_goes_on,
        a_worker_gets_only_what_it_can_do,
        what_a_dead_node_offered_and_watched_goes_on,
        a_worker_may_talk_to_any_node,
        a_step_that_waits_on_one_node_comes_to_a_worker_on_another,
        a_cancel_through_another_node_reaches_the_worker,
        a_line_of_a_workers_log_is_kept_with_its_attempt,
        a_step_that_takes_too_long_fails_and_its_worker_is_told,
        a_concurrency_key_is_never_held_by_more_than_its_limit,
        a_slot_of_a_dead_worker_comes_back,
        a_queue_has_no_more_under_way_than_it_may,
        a_queue_begins_no_more_than_its_rate,
        one_run_of_another_org_does_not_wait_behind_many,
        a_run_that_needs_a_worker_is_refused_where_none_can_come,
        a_step_of_a_run_that_was_terminated_is_gone,
        an_output_that_is_too_large_fails_the_step,
        a_worker_gets_its_secrets_and_nothing_it_says_shows_them,
        a_secret_that_nobody_has_fails_the_step_and_no_worker_gets_it,
    ],
    postgres: [
        a_chain_goes_through_one_worker_call_by_call,
        a_result_that_comes_again_is_taken_as_the_first_time,
        a_worker_that_says_nothing_loses_its_step_and_its_late_word_changes_nothing,
        nothing_begins_while_a_run_is_paused,
        what_a_dead_node_offered_and_watched_goes_on,
        a_worker_may_talk_to_any_node,
        a_step_that_waits_on_one_node_comes_to_a_worker_on_another,
        a_cancel_through_another_node_reaches_the_worker,
        a_line_of_a_workers_log_is_kept_with_its_attempt,
        a_concurrency_key_is_never_held_by_more_than_its_limit,
        a_queue_has_no_more_under_way_than_it_may,
        a_queue_begins_no_more_than_its_rate,
        one_run_of_another_org_does_not_wait_behind_many,
    ]
}

const ONE: &str = "{name: one, steps: {a: {skill: x, heartbeat_timeout_ms: 1000}}}";
const CHAIN: &str = "{name: chain, steps: {a: {skill: x}, b: {skill: x, input: {n: '${{ steps.a.output }}'}}, \
                     c: {skill: y, depends_on: [b]}}}";

pub(crate) fn server() -> Config {
    Config { workers: true, node_lease_ms: 1000, ..config() }
}

pub(crate) fn call(worker: &str) -> Exchange {
    Exchange {
        worker: worker.into(),
        secret: Some(Digest::of(worker.as_bytes())),
        queues: vec!["default".into()],
        every_org: false,
        skills: None,
        capacity: 1,
        wait: Duration::ZERO,
        results: Vec::new(),
        heartbeats: Vec::new(),
    }
}

fn patient(worker: &str) -> Exchange {
    Exchange { wait: Duration::from_secs(30), ..call(worker) }
}

pub(crate) async fn exchange(engine: &Engine, call: Exchange) -> Exchanged {
    within(engine.exchange(call, std::future::pending())).await.unwrap()
}

/// The next task, however long that takes.
pub(crate) async fn take(engine: &Engine, worker: &str) -> WorkerTask {
    exchange(engine, patient(worker)).await.tasks.pop().expect("a task")
}

async fn nothing(engine: &Engine, worker: &str) {
    let given = exchange(engine, call(worker)).await.tasks;
    assert!(given.is_empty(), "{given:?}");
}

pub(crate) fn result(task: &WorkerTask, outcome: Outcome) -> WorkerResult {
    WorkerResult { task: task.task, token: task.token.to_string(), outcome, artifacts: Vec::new(), lines: Vec::new() }
}

fn completed(task: &WorkerTask) -> WorkerResult {
    result(task, Outcome::Completed(Json::trusted("1")))
}

fn beat(task: &WorkerTask) -> Heartbeat {
    Heartbeat { task: task.task, token: task.token.to_string(), progress: None, lines: Vec::new() }
}

async fn complete(engine: &Engine, task: &WorkerTask) {
    within(engine.report(completed(task))).await.unwrap();
}

async fn a_chain_goes_through_one_worker_call_by_call(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    let mut task = take(&engine, "w").await;
    let mut steps = vec![task.step_id.clone()];
    for _ in 0..2 {
        // One call: the outcome of a step, and the next one with the commit that made it ready.
        let answer = exchange(&engine, Exchange { results: vec![completed(&task)], ..call("w") }).await;
        assert!(answer.rejected.is_empty());
        task = answer.tasks.into_iter().next().expect("the next step");
        steps.push(task.step_id.clone());
        if task.step_id == "b" {
            assert_eq!(task.input.as_str(), r#"{"n":1}"#);
        }
    }
    assert_eq!(steps, ["a", "b", "c"]);
    complete(&engine, &task).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert!(engine.store().tasks_of(ORG, run).await.unwrap().is_empty());
    sound(&engine, run).await;
}

async fn a_result_that_comes_again_is_taken_as_the_first_time(home: Home) {
    let engine = home.open(server()).await;
    let document =
        "{name: r, steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 0}}, b: {skill: x, depends_on: [a]}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let first = take(&engine, "w").await;
    let failed = result(&first, Outcome::Failed(ErrorInfo::retryable("broke", "it broke")));
    let again = Exchange { capacity: 0, results: vec![failed.clone()], ..call("w") };
    assert!(exchange(&engine, again.clone()).await.rejected.is_empty());
    // Also when the next attempt is under way, and when the step is long over.
    assert!(exchange(&engine, again.clone()).await.rejected.is_empty());
    let second = take(&engine, "w").await;
    assert_eq!((second.logical_attempt, second.engine_attempt), (2, 1));
    assert!(exchange(&engine, again.clone()).await.rejected.is_empty());
    complete(&engine, &second).await;
    complete(&engine, &second).await;
    complete(&engine, &take(&engine, "w").await).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert!(exchange(&engine, again).await.rejected.is_empty());
    complete(&engine, &second).await;
    let other = Exchange { capacity: 0, results: vec![result(&second, failed.outcome)], ..call("w") };
    assert_eq!(exchange(&engine, other).await.rejected[0].code, "stale_attempt");
    assert_eq!(types(engine.store(), run).await.iter().filter(|name| *name == "StepFailed").count(), 1);
    sound(&engine, run).await;
}

async fn a_worker_that_says_nothing_loses_its_step_and_its_late_word_changes_nothing(home: Home) {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let engine = home.open(Config { clock: clock.clone(), node_lease_ms: 3_600_000, ..server() }).await;
    let run = start(&engine, ONE, NewRun::default()).await;
    let silent = take(&engine, "silent").await;
    clock.advance_ms(1500);
    let next = take(&engine, "other").await;
    assert_eq!((next.logical_attempt, next.engine_attempt), (1, 2));
    let late = Exchange { heartbeats: vec![beat(&silent)], results: vec![completed(&silent)], ..call("silent") };
    let answer = exchange(&engine, late).await;
    assert_eq!(answer.rejected.iter().map(|item| item.code).collect::<Vec<_>>(), ["stale_attempt"; 2]);
    assert!(answer.tasks.is_empty());
    complete(&engine, &next).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    sound(&engine, run).await;
}

async fn a_worker_that_fell_silent_is_given_nothing_by_a_call_that_still_waits(home: Home) {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let engine = Arc::new(home.open(Config { clock: clock.clone(), node_lease_ms: 3_600_000, ..server() }).await);
    let run = start(&engine, ONE, NewRun::default()).await;
    take(&engine, "stopped").await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { exchange(&engine, patient("stopped")).await }
    });
    // Its call has come, and then the machine sleeps.
    tokio::time::sleep(Duration::from_millis(50)).await;
    clock.advance_ms(1500);
    assert!(within(waiting).await.unwrap().tasks.is_empty());
    complete(&engine, &take(&engine, "other").await).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn a_slow_step_that_heartbeats_is_never_taken_away(home: Home) {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let engine = home.open(Config { clock: clock.clone(), node_lease_ms: 3_600_000, ..server() }).await;
    let run = start(&engine, ONE, NewRun::default()).await;
    let task = take(&engine, "w").await;
    for _ in 0..20 {
        clock.advance_ms(900);
        let call = Exchange { capacity: 0, heartbeats: vec![beat(&task)], ..call("w") };
        assert!(exchange(&engine, call).await.rejected.is_empty());
    }
    complete(&engine, &task).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn a_waiting_worker_is_given_what_becomes_ready(home: Home) {
    let engine = Arc::new(home.open(server()).await);
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { take(&engine, "w").await }
    });
    let run = start(&engine, ONE, NewRun::default()).await;
    complete(&engine, &within(waiting).await.unwrap()).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn a_worker_that_hangs_up_is_given_nothing(home: Home) {
    let engine = home.open(server()).await;
    let hung_up =
        tokio::time::timeout(Duration::from_millis(50), engine.exchange(patient("gone"), std::future::pending()));
    assert!(hung_up.await.is_err());
    let run = start(&engine, ONE, NewRun::default()).await;
    let task = take(&engine, "w").await;
    complete(&engine, &task).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn nothing_begins_while_a_run_is_paused(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    let first = take(&engine, "w").await;
    send(&engine, run, "PAUSE").await;
    let paused = exchange(&engine, Exchange { heartbeats: vec![beat(&first)], ..call("w") }).await;
    assert_eq!(paused.directives.iter().map(|told| told.kind).collect::<Vec<_>>(), [DirectiveKind::Pause]);
    complete(&engine, &first).await;
    nothing(&engine, "w").await;
    assert!(engine.store().tasks_of(ORG, run).await.unwrap().is_empty(), "nothing is in line");
    send(&engine, run, "RESUME").await;
    let second = take(&engine, "w").await;
    assert_eq!(second.step_id, "b");
    // In line, then paused: it is out of line, and in again afterwards.
    complete(&engine, &second).await;
    send(&engine, run, "PAUSE").await;
    nothing(&engine, "w").await;
    send(&engine, run, "RESUME").await;
    complete(&engine, &take(&engine, "w").await).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn a_worker_hears_at_once_that_its_run_was_cancelled(home: Home) {
    let engine = Arc::new(home.open(server()).await);
    let run = start(&engine, ONE, NewRun::default()).await;
    let task = take(&engine, "w").await;
    let listening = tokio::spawn({
        let engine = engine.clone();
        async move { exchange(&engine, Exchange { capacity: 0, ..patient("w") }).await }
    });
    send(&engine, run, "CANCEL").await;
    let told = within(listening).await.unwrap().directives;
    assert_eq!(
        told.iter().map(|told| (told.token, told.kind)).collect::<Vec<_>>(),
        [(task.token, DirectiveKind::Cancel)]
    );
    let stopped = Outcome::Failed(ErrorInfo::fatal("cancelled", "stopped"));
    within(engine.report(result(&task, stopped))).await.unwrap();
    assert_eq!(ended(&engine, run).await, RunStatus::Cancelled);
}

/// The name of a worker is in the log, for everybody to read.
async fn only_the_worker_itself_is_told_what_is_new(home: Home) {
    let engine = Arc::new(home.open(server()).await);
    let run = start(&engine, ONE, NewRun::default()).await;
    let task = take(&engine, "w").await;
    let stranger = |secret: Option<&str>, wait: Duration| {
        let secret = secret.map(|secret| Digest::of(secret.as_bytes()));
        Exchange { secret, capacity: 0, wait, ..call("w") }
    };
    let listening = tokio::spawn({
        let (engine, patient) = (engine.clone(), stranger(None, Duration::from_millis(300)));
        async move { exchange(&engine, patient).await }
    });
    send(&engine, run, "CANCEL").await;
    let mut told = within(listening).await.unwrap().directives;
    for secret in [None, Some("a guess")] {
        told.extend(exchange(&engine, stranger(secret, Duration::ZERO)).await.directives);
    }
    assert!(told.is_empty(), "{told:?}");
    let kinds = |answer: Exchanged| answer.directives.iter().map(|told| told.kind).collect::<Vec<_>>();
    let own = exchange(&engine, Exchange { capacity: 0, ..call("w") }).await;
    assert_eq!(kinds(own), [DirectiveKind::Cancel], "nobody took it away");
    // Whoever shows the lease itself is told, under whatever name.
    let heartbeats = vec![beat(&task)];
    let shown = exchange(&engine, Exchange { heartbeats, ..stranger(None, Duration::ZERO) }).await;
    assert_eq!(kinds(shown), [DirectiveKind::Cancel]);
    let log = log(engine.store(), run).await;
    let nonce = task.token.to_string().rsplit('.').next().unwrap().to_owned();
    assert!(!log.iter().any(|event| event.data.as_str().contains(&nonce)), "the log gives the lease away");
}

async fn progress_that_does_not_fit_is_refused_and_the_lease_goes_on(home: Home) {
    let engine = home.open(server()).await;
    let document = "{name: two, steps: {a: {skill: x}, b: {skill: x}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let (first, second) = (take(&engine, "w").await, take(&engine, "w").await);
    let beats = |progress: &str| {
        let told = |task, text: &str| Heartbeat { progress: Some(Json::trusted(text)), ..beat(task) };
        let heartbeats = vec![told(&first, progress), told(&second, "7")];
        Exchange { capacity: 0, heartbeats, ..call("w") }
    };
    let long = json!("x".repeat(20_000)).to_string();
    for (progress, code) in [(&*long, "progress_too_large"), ("{\"a\": 1, \"a\": 2}", "bad_progress")] {
        let rejected = exchange(&engine, beats(progress)).await.rejected;
        let told: Vec<_> = rejected.iter().map(|item| (item.task, item.code)).collect();
        assert_eq!(told, [(first.task, code)]);
        assert_eq!(engine.task(first.task).await.unwrap().progress, None);
        assert_eq!(engine.task(second.task).await.unwrap().progress, Some(Json::trusted("7")));
    }
    complete(&engine, &first).await;
    complete(&engine, &second).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
}

async fn a_worker_gets_only_what_it_can_do(home: Home) {
    let engine = home.open(server()).await;
    let document = "{name: q, steps: {a: {skill: x, queue: audio}, b: {skill: y}, c: {skill: z}}}";
    start(&engine, document, NewRun::default()).await;
    let call = Exchange { capacity: 9, skills: Some(vec!["y".into(), "x".into()]), ..call("w") };
    let given: Vec<String> = exchange(&engine, call.clone()).await.tasks.into_iter().map(|task| task.step_id).collect();
    assert_eq!(given, ["b"]);
    let call = Exchange { queues: vec!["audio".into(), "default".into()], ..call };
    let given: Vec<String> = exchange(&engine, call).await.tasks.into_iter().map(|task| task.step_id).collect();
    assert_eq!(given, ["a"]);
}

async fn what_a_dead_node_offered_and_watched_goes_on(home: Home) {
    let first = home.open(server()).await;
    let held = start(&first, "{name: h, steps: {a: {skill: x, heartbeat_timeout_ms: 60000}}}", NewRun::default()).await;
    let task = take(&first, "w").await;
    let offered = start(&first, ONE, NewRun::default()).await;
    drop(first);
    let second = home.open(server()).await;
    let next = take(&second, "w").await;
    assert_eq!(next.run, offered);
    // The lease is still the worker's.
    let answer = exchange(&second, Exchange { capacity: 0, heartbeats: vec![beat(&task)], ..call("w") }).await;
    assert!(answer.rejected.is_empty());
    complete(&second, &task).await;
    complete(&second, &next).await;
    for run in [held, offered] {
        assert_eq!(ended(&second, run).await, RunStatus::Completed);
        sound(&second, run).await;
    }
}

async fn a_worker_may_talk_to_any_node(home: Home) {
    let (a, b) = (home.open(server()).await, home.open(server()).await);
    let run = start(&a, CHAIN, NewRun::default()).await;
    let first = take(&a, "w").await;
    let answer = exchange(&b, Exchange { capacity: 0, heartbeats: vec![beat(&first)], ..call("w") }).await;
    assert!(answer.rejected.is_empty());
    let answer = exchange(&b, Exchange { results: vec![completed(&first)], ..patient("w") }).await;
    let second = answer.tasks.into_iter().next().expect("given by the node that recorded the outcome");
    assert_eq!(second.step_id, "b");
    complete(&a, &second).await;
    complete(&b, &take(&b, "w").await).await;
    assert_eq!(ended(&a, run).await, RunStatus::Completed);
    sound(&b, run).await;
}

async fn a_step_that_waits_on_one_node_comes_to_a_worker_on_another(home: Home) {
    let (a, b) = (home.open(server()).await, home.open(server()).await);
    let run = start(&a, CHAIN, NewRun::default()).await;
    for _ in 0..3 {
        complete(&a, &take(&b, "w").await).await;
    }
    assert_eq!(ended(&b, run).await, RunStatus::Completed);
}

async fn a_cancel_through_another_node_reaches_the_worker(home: Home) {
    let (a, b) = (home.open(server()).await, home.open(server()).await);
    let run = start(&a, "{name: h, steps: {a: {skill: x}}}", NewRun::default()).await;
    let task = take(&a, "w").await;
    send(&b, run, "CANCEL").await;
    let told = exchange(&a, Exchange { capacity: 0, ..patient("w") }).await.directives;
    assert_eq!(told.iter().map(|told| told.token).collect::<Vec<_>>(), [task.token]);
}

async fn a_line_of_a_workers_log_is_kept_with_its_attempt(home: Home) {
    let (a, b) = (home.open(server()).await, home.open(server()).await);
    let run = start(&a, "{name: l, steps: {s: {skill: x}}}", NewRun::default()).await;
    let task = take(&a, "w").await;
    let line = |text: &str| WorkerLine { stream: LogStream::Stdout, text: text.to_owned(), at: None };
    // To one node, then to another, which goes on where the first left off.
    for (engine, texts) in [(&a, ["one", "two"]), (&b, ["three", "four"])] {
        let heartbeat = Heartbeat { lines: texts.map(line).to_vec(), ..beat(&task) };
        let call = Exchange { capacity: 0, heartbeats: vec![heartbeat], ..call("w") };
        assert!(exchange(engine, call).await.rejected.is_empty());
        engine.logs(run, None, None, 10).await.unwrap();
    }
    let last = WorkerResult { lines: vec![line("five")], ..completed(&task) };
    within(b.report(last)).await.unwrap();
    let page = b.logs(run, Some("s"), None, 10).await.unwrap();
    let texts: Vec<&str> = page.items.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "three", "four", "five"]);
}

async fn a_step_that_takes_too_long_fails_and_its_worker_is_told(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, "{name: t, steps: {a: {skill: x, timeout_ms: 50}}}", NewRun::default()).await;
    let task = take(&engine, "w").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
    let late = Exchange { capacity: 0, heartbeats: vec![beat(&task)], ..call("w") };
    assert_eq!(exchange(&engine, late).await.rejected[0].code, "stale_attempt");
}

const KEYED: &str = "{name: k, steps: {s: {skill: x, foreach: '${{ [1, 2, 3, 4, 5, 6] }}', heartbeat_timeout_ms: 1000, \
                     concurrency: {key: '${{ payload.who }}', limit: 2}}}}";

/// All tasks that are given now.
async fn take_all(engine: &Engine) -> Vec<WorkerTask> {
    exchange(engine, Exchange { capacity: 100, ..call("w") }).await.tasks
}

async fn a_concurrency_key_is_never_held_by_more_than_its_limit(home: Home) {
    let (a, b) = (home.open(server()).await, home.open(server()).await);
    let runs = [
        start(&a, KEYED, payload(&json!({"who": "ada"}))).await,
        start(&b, KEYED, payload(&json!({"who": "ada"}))).await,
        start(&b, KEYED, payload(&json!({"who": "bob"}))).await,
    ];
    let mut held: Vec<WorkerTask> = Vec::new();
    let mut done = 0;
    within(async {
        while done < 18 {
            for engine in [&a, &b] {
                held.extend(take_all(engine).await);
                let of = |who: usize| held.iter().filter(|task| (task.run == runs[2]) == (who == 2)).count();
                assert!(of(0) <= 2 && of(2) <= 2, "{} and {} are under way", of(0), of(2));
            }
            if let Some(task) = held.pop() {
                complete(&a, &task).await;
                done += 1;
            } else {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
    .await;
    for run in runs {
        assert_eq!(ended(&a, run).await, RunStatus::Completed);
    }
}

async fn a_slot_of_a_dead_worker_comes_back(home: Home) {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let engine = home.open(Config { clock: clock.clone(), node_lease_ms: 3_600_000, ..server() }).await;
    start(&engine, KEYED, payload(&json!({"who": "ada"}))).await;
    let dead = take_all(&engine).await;
    assert_eq!(dead.len(), 2);
    nothing(&engine, "w").await;
    clock.advance_ms(1500);
    take(&engine, "other").await;
    take(&engine, "other").await;
    nothing(&engine, "other").await;
}

async fn a_queue_has_no_more_under_way_than_it_may(home: Home) {
    let engine = home.open(server()).await;
    within(engine.limit_queue("default".into(), Some(3), None)).await.unwrap();
    let document = "{name: f, steps: {s: {skill: x, foreach: '${{ [1, 2, 3, 4, 5, 6, 7, 8] }}'}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let mut held = take_all(&engine).await;
    assert_eq!(held.len(), 3);
    nothing(&engine, "w").await;
    while let Some(task) = held.pop() {
        complete(&engine, &task).await;
        if held.len() < 2 && within(engine.queues()).await.unwrap().iter().any(|queue| queue.waiting > 0) {
            held.push(take(&engine, "w").await);
        }
    }
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    within(engine.limit_queue("default".into(), None, None)).await.unwrap();
    start(&engine, document, NewRun::default()).await;
    assert_eq!(take_all(&engine).await.len(), 8);
}

async fn a_queue_begins_no_more_than_its_rate(home: Home) {
    let engine = home.open(server()).await;
    let rate = Rate { limit: 2, per_ms: 600 };
    within(engine.limit_queue("default".into(), None, Some(rate))).await.unwrap();
    start(&engine, "{name: f, steps: {s: {skill: x, foreach: '${{ [1, 2, 3, 4] }}'}}}", NewRun::default()).await;
    let begun = std::time::Instant::now();
    assert_eq!(take_all(&engine).await.len(), 2);
    take(&engine, "w").await;
    assert!(begun.elapsed() >= Duration::from_millis(280), "the third came after {:?}", begun.elapsed());
    take(&engine, "w").await;
    assert!(begun.elapsed() >= Duration::from_millis(580), "the fourth came after {:?}", begun.elapsed());
}

async fn one_run_of_another_org_does_not_wait_behind_many(home: Home) {
    const MANY: usize = 5000;
    let many = home.open(server()).await;
    let other = home.open(Config { org: OrgId(2), ..server() }).await;
    let plan = within(many.deploy("{name: m, steps: {s: {skill: x}}}")).await.unwrap();
    let starts = (0..MANY).map(|_| many.start_plan(&plan, NewRun::default()));
    within(futures::future::try_join_all(starts)).await.unwrap();
    let all = |capacity| Exchange { every_org: true, capacity, ..patient("w") };
    let mut held = exchange(&many, all(4)).await.tasks;
    let alone = start(&other, ONE, NewRun::default()).await;
    let mut given = BTreeSet::new();
    within(async {
        // Each task takes a moment: the many never come to an end, and the one is among the next.
        while !given.contains(&alone) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let results = held.drain(..).map(|task| completed(&task)).collect();
            held = exchange(&many, Exchange { results, ..all(4) }).await.tasks;
            given.extend(held.iter().map(|task| task.run));
        }
    })
    .await;
    assert!(given.len() < MANY / 2, "it came after {} others", given.len());
    let results = held.drain(..).map(|task| completed(&task)).collect();
    let answer = exchange(&many, Exchange { results, capacity: 0, wait: Duration::ZERO, ..all(0) }).await;
    assert!(answer.rejected.is_empty());
    assert_eq!(ended(&other, alone).await, RunStatus::Completed);
}

async fn a_run_that_needs_a_worker_is_refused_where_none_can_come(home: Home) {
    let engine = home.open(config()).await;
    let refused = within(engine.start_document(ONE, NewRun::default())).await.unwrap_err();
    assert_eq!(refused.code(), "unknown_skill");
}

async fn a_step_of_a_run_that_was_terminated_is_gone(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    let waiting = start(&engine, CHAIN, NewRun::default()).await;
    let task = take(&engine, "w").await;
    for run in [run, waiting] {
        send(&engine, run, "TERMINATE").await;
        assert!(engine.store().tasks_of(ORG, run).await.unwrap().is_empty());
    }
    let late = within(engine.report(completed(&task))).await.unwrap_err();
    assert_eq!(late.code(), "stale_attempt");
    nothing(&engine, "w").await;
}

async fn an_output_that_is_too_large_fails_the_step(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, ONE, NewRun::default()).await;
    let task = take(&engine, "w").await;
    let long = Json::of(&json!("x".repeat(300_000)));
    within(engine.report(result(&task, Outcome::Completed(long)))).await.unwrap();
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
}

const SECRET: &str = "{name: s, steps: {a: {skill: x, secrets: {API_KEY: 'secret://audio/api-key'}}}}";

async fn a_worker_gets_its_secrets_and_nothing_it_says_shows_them(home: Home) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("audio")).unwrap();
    std::fs::write(folder.path().join("audio/api-key"), "hunter2-hunter2\n").unwrap();
    let secrets = SecretsConfig { folder: Some(folder.path().to_owned()), ..SecretsConfig::default() };
    let with_secrets = || Config { secrets: secrets.clone(), ..server() };
    let (a, b) = (home.open(with_secrets()).await, home.open(with_secrets()).await);
    let run = start(&a, SECRET, NewRun::default()).await;
    let task = take(&a, "w").await;
    assert_eq!(task.secrets, [("API_KEY".to_owned(), "hunter2-hunter2".to_owned())]);
    let line = WorkerLine { stream: LogStream::Log, text: "the key is hunter2-hunter2".to_owned(), at: None };
    let heartbeat = Heartbeat { lines: vec![line], ..beat(&task) };
    exchange(&a, Exchange { capacity: 0, heartbeats: vec![heartbeat], ..call("w") }).await;
    // Through a node that did not give it.
    let error = ErrorInfo::fatal("refused", "401 for hunter2-hunter2");
    within(b.report(result(&task, Outcome::Failed(error)))).await.unwrap();
    assert_eq!(ended(&a, run).await, RunStatus::Failed);
    let lines = a.logs(run, None, None, 10).await.unwrap();
    assert_eq!(lines.items[0].text, "the key is [redacted: API_KEY]");
    let log = log(a.store(), run).await;
    assert!(log.iter().any(|event| event.data.as_str().contains("401 for [redacted: API_KEY]")));
    assert!(!log.iter().any(|event| event.data.as_str().contains("hunter2")));
}

async fn a_secret_that_nobody_has_fails_the_step_and_no_worker_gets_it(home: Home) {
    let engine = home.open(server()).await;
    let run = start(&engine, SECRET, NewRun::default()).await;
    nothing(&engine, "w").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
    let log = log(engine.store(), run).await;
    assert!(log.iter().any(|event| event.data.as_str().contains("unknown_secret")));
}
