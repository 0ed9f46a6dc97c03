//! Steps that are pushed: what receivers are sent, what their answers mean, and that no crash loses one.

use std::sync::Arc;

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::secrets::{SecretAccess, SecretsConfig};
use milepost_engine::workers::{Outcome, WorkerResult};
use milepost_engine::{
    Clock as _, Config, Egress, Engine, EngineError, ManualClock, NewRun, OutboxConfig, OutboxItem, OutboxStatus,
    PushConfig, list_outbox,
};
use milepost_store::Store;
use milepost_store::rows::OutboxFilter;
use serde_json::{Value, json};

use crate::faults::{Fault, Faulty, Plan};
use crate::receiver::{KEY, Received, Receiver, Reply};
use crate::support::*;

on! {
    embedded: [
        a_step_is_pushed_and_the_answer_is_its_outcome,
        a_later_answer_comes_as_a_workers_does,
        a_receiver_that_falls_silent_is_pushed_to_again,
        what_may_pass_is_tried_again_until_it_does,
        a_receiver_says_when_to_come_again,
        what_was_tried_in_vain_is_a_dead_letter_and_its_step_can_be_retried,
        a_retry_by_policy_is_another_delivery,
        a_lease_that_ends_first_fails_the_attempt,
        a_host_that_is_down_is_left_alone_and_others_go_on,
        a_host_gets_no_more_at_once_than_it_may,
        a_cancelled_run_waits_for_no_answer,
        a_cancelled_run_waits_for_no_next_try,
        a_terminated_run_lets_its_request_go,
        a_step_that_takes_too_long_lets_its_request_go,
        a_crash_before_the_request_loses_nothing,
        a_crash_before_the_answer_is_recorded_loses_nothing,
        a_waiting_delivery_of_a_dead_node_is_made_by_another,
        a_concurrency_key_holds_for_what_is_pushed,
        a_server_that_ends_in_good_order_hands_its_deliveries_over,
    ],
    postgres: [
        a_step_is_pushed_and_the_answer_is_its_outcome,
        what_may_pass_is_tried_again_until_it_does,
        what_was_tried_in_vain_is_a_dead_letter_and_its_step_can_be_retried,
        a_crash_before_the_request_loses_nothing,
        a_crash_before_the_answer_is_recorded_loses_nothing,
        a_waiting_delivery_of_a_dead_node_is_made_by_another,
        a_concurrency_key_holds_for_what_is_pushed,
    ]
}

pub(crate) fn server() -> Config {
    let push = PushConfig { signing_secrets: vec![KEY.to_owned()], egress: private(), ..PushConfig::default() };
    let secrets = SecretsConfig { env_allowed: "CARGO_*".parse().unwrap(), ..SecretsConfig::default() };
    Config { workers: true, node_lease_ms: 1000, push, secrets, ..config() }
}

/// A server whose clock only the test moves.
fn by_hand() -> (Config, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(now()));
    (Config { clock: clock.clone(), ..server() }, clock)
}

async fn outbox(engine: &Engine) -> Vec<OutboxItem> {
    list_outbox(engine.store(), ORG, OutboxFilter::All, None, 100).await.unwrap()
}

/// Waits until the outbox is so.
async fn until(engine: &Engine, is_so: impl Fn(&[OutboxItem]) -> bool) -> Vec<OutboxItem> {
    within(async {
        loop {
            let items = outbox(engine).await;
            if is_so(&items) {
                return items;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Waits until a delivery has failed and waits for its next try.
async fn waits(engine: &Engine) -> OutboxItem {
    until(engine, |items| items.iter().any(|item| item.status == OutboxStatus::Pending)).await.remove(0)
}

async fn empty(engine: &Engine) {
    until(engine, <[_]>::is_empty).await;
}

/// Moves the clock to the next try, whenever nothing else is under way, until the run has ended.
async fn ended_by_hand(engine: &Engine, clock: &ManualClock, run: RunId) -> RunStatus {
    within(async {
        while engine.run(run).await.unwrap().summary.status == RunStatus::Running {
            let items = outbox(engine).await;
            let next = items.iter().map(|item| item.next_try_at).min().flatten();
            if let Some(next) = next {
                clock.advance_ms(next.ms_since(clock.now()) + 1);
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    ended(engine, run).await
}

async fn code(engine: &Engine, run: RunId) -> Value {
    let view = engine.run(run).await.unwrap();
    let error = view.steps[0].error.as_ref().unwrap();
    json!([error.code, error.retryable])
}

async fn a_step_is_pushed_and_the_answer_is_its_outcome(home: Home) {
    let receiver = Receiver::answering([Reply::output(&json!({"n": 7}))]).await;
    let engine = home.open(server()).await;
    let document = format!(
        "{{name: two, version: 1.2.0, steps: {{first: {{skill: echo, input: {{n: '${{{{ payload.n }}}}'}}}}, \
         a: {{skill: image.render, runtime: push, push: {{url: '{}'}}, timeout_ms: 60000, env: [CARGO_PKG_NAME], \
         input: {{n: '${{{{ steps.first.output.n }}}}'}}}}}}}}",
        receiver.url
    );
    let (run, status) = run(&engine, &document, payload(&json!({"n": 3}))).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!({"n": 7}));

    let received = receiver.received();
    assert_eq!(received.len(), 1);
    let Received { body, .. } = &received[0];
    assert_eq!((&body["run_id"], &body["step_id"]), (&json!(run), &json!("a")));
    assert_eq!((&body["skill"], &body["input"]), (&json!("image.render"), &json!({"n": 3})));
    assert_eq!((&body["logical_attempt"], &body["engine_attempt"]), (&json!(1), &json!(1)));
    assert_eq!((&body["timeout_ms"], &body["heartbeat_ms"]), (&json!(60000), &json!(20000)));
    assert_eq!(body["env"], json!({"CARGO_PKG_NAME": "milepost-engine"}));
    let host = receiver.url.trim_start_matches("http://").trim_end_matches("/hook");
    assert_eq!(body["context"]["queue"], json!(format!("push:{host}")));
    assert_eq!((&body["context"]["workflow"], &body["context"]["workflow_version"]), (&json!("two"), &json!("1.2.0")));
    let task = body["task_id"].as_str().unwrap();
    assert_eq!(received[0].header("milepost-task-id"), task);
    assert_eq!(received[0].header("idempotency-key"), format!("{task}/1/1"));
    assert_eq!(received[0].header("traceparent"), body["context"]["traceparent"].as_str().unwrap());
    assert_eq!(received[0].header("content-type"), "application/json");

    let detail = engine.step(run, "a").await.unwrap();
    assert_eq!(detail.attempts[0].worker.as_deref(), Some("push"));
    empty(&engine).await;
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn a_later_answer_comes_as_a_workers_does(home: Home) {
    let receiver = Receiver::answering([Reply::status(202)]).await;
    let engine = home.open(server()).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    let body = receiver.arrival().await.body;
    empty(&engine).await;
    let token = body["lease_token"].as_str().unwrap().to_owned();
    let task = body["task_id"].as_str().unwrap().parse().unwrap();
    engine.beat(task, token.clone(), None, Vec::new()).await.unwrap();
    let outcome = Outcome::Completed(Json::trusted(r#"{"late": true}"#));
    engine.report(WorkerResult { task, token, outcome, artifacts: Vec::new(), lines: Vec::new() }).await.unwrap();
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!({"late": true}));
    assert_eq!(receiver.received().len(), 1);
}

async fn a_receiver_that_falls_silent_is_pushed_to_again(home: Home) {
    let receiver = Receiver::answering([Reply::status(202), Reply::output(&json!(2))]).await;
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let run = start(&engine, &receiver.document(", heartbeat_timeout_ms: 5000"), NewRun::default()).await;
    receiver.arrival().await;
    empty(&engine).await;
    clock.advance_ms(6000);
    let again = receiver.arrival().await;
    assert_eq!((&again.body["logical_attempt"], &again.body["engine_attempt"]), (&json!(1), &json!(2)));
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    sound(&engine, run).await;
}

async fn what_may_pass_is_tried_again_until_it_does(home: Home) {
    let receiver = Receiver::answering([Reply::status(503), Reply::status(500), Reply::json(200, &json!([1]))]).await;
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    for tries in 1..=2 {
        receiver.arrival().await;
        let item = waits(&engine).await;
        assert_eq!((item.attempts, item.run_id, item.step_id.as_deref()), (tries, run, Some("a")));
        assert!(item.last_error.unwrap().contains("the receiver answered 50"));
        clock.advance_ms(2000);
    }
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!([1]));
    let received = receiver.received();
    let keys: Vec<&str> = received.iter().map(|request| request.header("idempotency-key")).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "one attempt, however often it is sent");
    assert!(received.iter().all(|request| request.body == received[0].body), "worked out again, it is the same");
    empty(&engine).await;
    sound(&engine, run).await;
}

async fn a_receiver_says_when_to_come_again(home: Home) {
    let busy = Reply::Of(429, &[("retry-after", "90")], String::new());
    let receiver = Receiver::answering([busy, Reply::status(204)]).await;
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let begun = clock.now();
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    let item = waits(&engine).await;
    assert!(item.next_try_at.unwrap() >= begun.plus_ms(90_000));
    clock.advance_ms(91_000);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), Value::Null);
}

async fn what_was_tried_in_vain_is_a_dead_letter_and_its_step_can_be_retried(home: Home) {
    let receiver = Receiver::answering([Reply::status(500)]).await;
    let (config, clock) = by_hand();
    let engine = home.open(Config { outbox: OutboxConfig { max_tries: 2 }, ..config }).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    waits(&engine).await;
    clock.advance_ms(2000);
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
    assert_eq!(code(&engine, run).await, json!(["push_failed", true]));
    let dead = until(&engine, |items| items.iter().any(|item| item.status == OutboxStatus::Dead)).await.remove(0);
    assert_eq!((dead.attempts, dead.run_id), (2, run));
    assert!(dead.last_error.unwrap().contains("500"));
    engine.flush_projections().await;
    let findings = milepost_engine::diagnose(engine.store(), None, clock.now()).await.unwrap().findings;
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["dead_letters"]);

    receiver.answer_from_now_on(Reply::output(&json!("at last")));
    let retried = engine.retry_delivery(dead.id, None).await.unwrap();
    assert_eq!(retried.status, "step_retried");
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!("at last"));
    empty(&engine).await;
    let gone = engine.retry_delivery(dead.id, None).await;
    assert!(matches!(gone, Err(EngineError::NoSuchDelivery(_))), "{gone:?}");
    sound(&engine, run).await;
}

async fn a_retry_by_policy_is_another_delivery(home: Home) {
    let receiver = Receiver::answering([
        Reply::json(200, &json!({"outcome": "failed", "error": {"code": "busy", "message": "not now"}})),
        Reply::output(&json!(1)),
    ])
    .await;
    let engine = home.open(server()).await;
    let document = receiver.document(", retry: {max_attempts: 2, backoff_ms: 1}");
    let (run, status) = run(&engine, &document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let attempts: Vec<Value> =
        receiver.received().iter().map(|request| request.body["logical_attempt"].clone()).collect();
    assert_eq!(attempts, [json!(1), json!(2)]);
    let refused = Receiver::answering([Reply::Of(422, &[], "no such shot".to_owned())]).await;
    let document = refused.document(", retry: {max_attempts: 5, backoff_ms: 1}");
    let (failed, status) = self::run(&engine, &document, NewRun::default()).await;
    assert_eq!((status, code(&engine, failed).await), (RunStatus::Failed, json!(["push_rejected", false])));
    assert_eq!(refused.received().len(), 1, "the same would be refused again");
    empty(&engine).await;
    sound(&engine, run).await;
}

async fn a_lease_that_ends_first_fails_the_attempt(home: Home) {
    let receiver = Receiver::answering([Reply::status(500)]).await;
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let run = start(&engine, &receiver.document(", heartbeat_timeout_ms: 3000"), NewRun::default()).await;
    assert_eq!(ended_by_hand(&engine, &clock, run).await, RunStatus::Failed);
    assert_eq!(code(&engine, run).await, json!(["push_failed", true]));
    empty(&engine).await;
    assert!(receiver.received().len() >= 2, "it was tried while there was time");
}

async fn a_host_that_is_down_is_left_alone_and_others_go_on(home: Home) {
    let (down, well) =
        (Receiver::answering([Reply::status(500)]).await, Receiver::answering([Reply::status(204)]).await);
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(start(&engine, &down.document(""), NewRun::default()).await);
        down.arrival().await;
    }
    until(&engine, |items| items.iter().filter(|item| item.status == OutboxStatus::Pending).count() == 5).await;
    // Five failures in a row: the next one waits in line, without a lease.
    let sixth = start(&engine, &down.document(""), NewRun::default()).await;
    let (_, status) = run(&engine, &well.document(""), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(types(engine.store(), sixth).await, ["RunQueued", "RunStarted"]);
    assert_eq!(down.received().len(), 5);

    down.answer_from_now_on(Reply::status(204));
    clock.advance_ms(5000);
    for run in runs.into_iter().chain([sixth]) {
        assert_eq!(ended_by_hand(&engine, &clock, run).await, RunStatus::Completed);
        sound(&engine, run).await;
    }
    empty(&engine).await;
}

async fn a_host_gets_no_more_at_once_than_it_may(home: Home) {
    let gate = Gate::new();
    let receiver = Receiver::answering([Reply::Held(gate.clone(), Box::new(Reply::status(204)))]).await;
    let config = server();
    let push = PushConfig { per_host: 2, ..config.push.clone() };
    let engine = home.open(Config { push, ..config }).await;
    let document = receiver.document(", foreach: '${{ range(7) }}', input: {n: '${{ item }}'}");
    let run = start(&engine, &document, NewRun::default()).await;
    gate.arrival().await;
    for _ in 1..7 {
        gate.arrival().await;
        assert_eq!(gate.inside(), 2);
        gate.let_through(1);
    }
    gate.let_through(1);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(gate.most(), 2);
    let mut items: Vec<Value> = receiver.received().iter().map(|request| request.body["input"]["n"].clone()).collect();
    items.sort_by_key(Value::as_u64);
    assert_eq!(items, (0..7).map(Value::from).collect::<Vec<_>>());
}

/// A receiver that never answers.
async fn silent() -> (Receiver, Gate) {
    let gate = Gate::new();
    (Receiver::answering([Reply::Held(gate.clone(), Box::new(Reply::status(204)))]).await, gate)
}

async fn a_cancelled_run_waits_for_no_answer(home: Home) {
    let (receiver, gate) = silent().await;
    let engine = home.open(server()).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    gate.arrival().await;
    send(&engine, run, "CANCEL").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Cancelled);
    gate.emptied().await;
    empty(&engine).await;
}

async fn a_cancelled_run_waits_for_no_next_try(home: Home) {
    let receiver = Receiver::answering([Reply::status(500)]).await;
    let (config, _clock) = by_hand();
    let engine = home.open(config).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    waits(&engine).await;
    send(&engine, run, "CANCEL").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Cancelled, "though the clock stands still");
    empty(&engine).await;
}

async fn a_terminated_run_lets_its_request_go(home: Home) {
    let (receiver, gate) = silent().await;
    let engine = home.open(server()).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    gate.arrival().await;
    send(&engine, run, "TERMINATE").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Terminated);
    gate.emptied().await;
    empty(&engine).await;
}

async fn a_step_that_takes_too_long_lets_its_request_go(home: Home) {
    let (receiver, gate) = silent().await;
    let (config, clock) = by_hand();
    let engine = home.open(config).await;
    let document = receiver.document(", timeout_ms: 5000, heartbeat_timeout_ms: 60000");
    let run = start(&engine, &document, NewRun::default()).await;
    gate.arrival().await;
    clock.advance_ms(5000);
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
    assert_eq!(code(&engine, run).await, json!(["timeout", true]));
    gate.emptied().await;
    empty(&engine).await;
}

/// What was written and what was sent, after a node died that had written a delivery and sent nothing.
async fn a_crash_before_the_request_loses_nothing(home: Home) {
    // Nobody is there yet: the node dies with its delivery unmade.
    let reserved = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = reserved.local_addr().unwrap().to_string();
    drop(reserved);
    let engine = home.open(server()).await;
    let document = format!(
        "{{name: early, steps: {{first: {{skill: echo, input: {{list: [4, 5]}}}}, a: {{skill: s, runtime: push, \
         foreach: '${{{{ steps.first.output.list }}}}', input: {{n: '${{{{ item }}}}'}}, \
         push: {{url: 'http://{address}/hook'}}}}}}}}"
    );
    let run = start(&engine, &document, NewRun::default()).await;
    until(&engine, |items| items.len() == 2 && items.iter().all(|item| item.last_error.is_some())).await;
    drop(engine);

    let receiver = Receiver::on(&address, [Reply::output(&json!("there"))]).await;
    let engine = home.open(server()).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    let mut sent: Vec<(Value, Value)> =
        receiver.received().iter().map(|r| (r.body["step_id"].clone(), r.body["input"].clone())).collect();
    sent.sort_by_key(|(step, _)| step.to_string());
    assert_eq!(sent, [(json!("a[0]"), json!({"n": 4})), (json!("a[1]"), json!({"n": 5}))], "each once");
    empty(&engine).await;
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn a_crash_before_the_answer_is_recorded_loses_nothing(home: Home) {
    let gate = Gate::new();
    let first = Reply::Held(gate.clone(), Box::new(Reply::output(&json!("lost"))));
    let receiver = Receiver::answering([first, Reply::output(&json!("kept"))]).await;
    let engine = home.open(server()).await;
    let document = receiver.document(", input: {n: '${{ payload.n }}'}");
    let run = start(&engine, &document, payload(&json!({"n": 9}))).await;
    gate.arrival().await;
    drop(engine);
    gate.let_through(1);

    let engine = home.open(server()).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!("kept"));
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].header("idempotency-key"), received[1].header("idempotency-key"));
    assert_eq!(received[0].body["input"], received[1].body["input"]);
    assert_eq!(received[0].body["lease_token"], received[1].body["lease_token"]);
    empty(&engine).await;
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn a_waiting_delivery_of_a_dead_node_is_made_by_another(home: Home) {
    let receiver = Receiver::answering([Reply::status(503), Reply::status(204)]).await;
    let (first, second) = (home.open(server()).await, home.open(server()).await);
    let run = start(&first, &receiver.document(""), NewRun::default()).await;
    receiver.arrival().await;
    until(&first, |items| items.iter().any(|item| item.last_error.is_some())).await;
    drop(first);
    assert_eq!(ended(&second, run).await, RunStatus::Completed);
    empty(&second).await;
    sound(&second, run).await;
}

async fn a_concurrency_key_holds_for_what_is_pushed(home: Home) {
    let gate = Gate::new();
    let receiver = Receiver::answering([Reply::Held(gate.clone(), Box::new(Reply::status(204)))]).await;
    let engine = home.open(server()).await;
    let document = receiver.document(", foreach: '${{ range(4) }}', concurrency: {key: one, limit: 1}");
    let run = start(&engine, &document, NewRun::default()).await;
    for _ in 0..4 {
        gate.arrival().await;
        gate.let_through(1);
    }
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(gate.most(), 1);
}

async fn a_server_that_ends_in_good_order_hands_its_deliveries_over(home: Home) {
    let (receiver, gate) = silent().await;
    let engine = home.open(server()).await;
    let run = start(&engine, &receiver.document(""), NewRun::default()).await;
    gate.arrival().await;
    engine.shutdown().await;
    drop(engine);
    receiver.answer_from_now_on(Reply::status(204));
    let engine = home.open(server()).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_refused_unless_they_are_allowed() {
    let receiver = Receiver::answering([Reply::status(204)]).await;
    let config = server();
    let push = PushConfig { egress: Egress::default(), ..config.push.clone() };
    let engine = Home::memory().open(Config { push, ..config }).await;
    for url in [receiver.url.clone(), receiver.url.replace("127.0.0.1", "localhost")] {
        let document = format!("{{name: p, steps: {{a: {{skill: s, runtime: push, push: {{url: '{url}'}}}}}}}}");
        let (run, status) = run(&engine, &document, NewRun::default()).await;
        assert_eq!((status, code(&engine, run).await), (RunStatus::Failed, json!(["private_address", false])));
    }
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn a_run_with_a_pushed_step_is_refused_where_nobody_pushes() {
    let engine = Home::memory().open(config()).await;
    let document = "{name: p, steps: {a: {skill: s, runtime: push, push: {url: 'https://example.com'}}}}";
    let refused = engine.start_document(document, NewRun::default()).await;
    assert!(matches!(refused, Err(EngineError::UnknownSkills(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_signed_with_every_key_while_one_is_changed() {
    let receiver = Receiver::answering([Reply::status(204)]).await;
    let config = server();
    let push = PushConfig { signing_secrets: vec!["the new key".to_owned(), KEY.to_owned()], ..config.push.clone() };
    let engine = Home::memory().open(Config { push, ..config }).await;
    let (_, status) = run(&engine, &receiver.document(""), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed, "the receiver still has the old one");
    assert_eq!(receiver.received()[0].header("milepost-signature").matches("v2=").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_has_a_delivery_of_its_own() {
    let receiver = Receiver::answering([Reply::status(503), Reply::status(204)]).await;
    let (config, clock) = by_hand();
    let engine = Home::memory().open(config).await;
    let id = start(&engine, &receiver.document(""), NewRun::default()).await;
    assert_eq!(ended_by_hand(&engine, &clock, id).await, RunStatus::Completed);
    let received = receiver.received();
    let told = |name: &str| [received[0].header(name).to_owned(), received[1].header(name).to_owned()];
    let [first, second] = told("milepost-delivery");
    assert_ne!(first, second, "one that came before is no news");
    let [first, second] = told("idempotency-key");
    assert_eq!(first, second, "the work is the same");
}

/// Whichever call to the database fails, or is answered by nobody, the step is pushed and ends once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_fails_at_any_moment_loses_no_delivery() {
    for fault in [Fault::Unavailable, Fault::AnswerLost] {
        for first in 0..16 {
            let receiver = Receiver::answering([Reply::output(&json!(1))]).await;
            let faulty = Faulty::new(Plan { fault, first, count: 1 });
            let store: Arc<dyn Store> = faulty.clone();
            let engine = Engine::open_with(store, server()).await.unwrap();
            let document = format!(
                "{{name: faulty, steps: {{first: {{skill: echo}}, a: {{skill: s, runtime: push, depends_on: [first], \
                 push: {{url: '{}'}}}}}}}}",
                receiver.url
            );
            engine.deploy(&document).await.unwrap();
            faulty.arm();
            let run = within(async {
                loop {
                    let new = NewRun { request_id: Some("one".to_owned()), ..NewRun::default() };
                    match engine.start("faulty", new).await {
                        Ok(accepted) => return accepted.run,
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            })
            .await;
            let status = within(async {
                loop {
                    match engine.wait(run).await {
                        Ok(status) => return status,
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            })
            .await;
            faulty.disarm();
            assert_eq!(status, RunStatus::Completed, "{fault:?} {first}");
            assert!(!receiver.received().is_empty());
            empty(&engine).await;
            sound(&engine, run).await;
        }
    }
}

/// A server that can keep secrets, with one.
async fn with_secrets(home: &Home, values: &[(&str, &str)]) -> Engine {
    let secrets = SecretsConfig { keys: "0a".repeat(32).parse().unwrap(), ..SecretsConfig::default() };
    let engine = home.open(Config { secrets, ..server() }).await;
    for (name, value) in values {
        engine.secrets().set(ORG, name, value, &SecretAccess::default()).await.unwrap();
    }
    engine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_has_its_secrets_and_nothing_that_is_kept_does() {
    let echo = Reply::json(200, &json!({"outcome": "completed", "output": {"told": "it is hunter2-hunter2"}}));
    let receiver = Receiver::answering([Reply::Of(503, &[], "hunter2-hunter2 is too busy".to_owned()), echo]).await;
    let home = Home::sqlite();
    let engine = with_secrets(&home, &[("audio/key", "hunter2-hunter2")]).await;
    let run = start(&engine, &receiver.document(", secrets: {KEY: 'secret://audio/key'}"), NewRun::default()).await;
    receiver.arrival().await;
    let item = waits(&engine).await;
    let error = item.last_error.unwrap();
    assert!(error.contains("[redacted: KEY] is too busy"), "{error}");
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(run).await.unwrap(), "a"), json!({"told": "it is [redacted: KEY]"}));
    assert!(receiver.received().iter().all(|request| request.body["secrets"] == json!({"KEY": "hunter2-hunter2"})));
    engine.shutdown().await;
    drop(engine);
    let Home::Sqlite(folder) = &home else { unreachable!("it is a file") };
    let kept = std::fs::read(folder.path().join("runs.db")).unwrap();
    assert!(!kept.windows(7).any(|part| part == b"hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_may_have_a_key_of_its_own() {
    let receiver = Receiver::answering([Reply::status(204)]).await;
    let home = Home::memory();
    // It is used as it is; the server's own is not.
    let ours = receiver.key();
    let engine = with_secrets(&home, &[("hooks/ours", &ours), ("hooks/other", KEY)]).await;
    let pushed = |keys: &str| {
        format!(
            "{{name: p, steps: {{a: {{skill: s, runtime: push, push: {{url: '{}', signing_secret: {keys}}}}}}}}}",
            receiver.url
        )
    };
    let (_, status) = run(&engine, &pushed("'secret://hooks/ours'"), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let (_, status) = run(&engine, &pushed("['secret://hooks/other', 'secret://hooks/ours']"), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed, "one of two");
    let (refused, status) = run(&engine, &pushed("'secret://hooks/other'"), NewRun::default()).await;
    assert_eq!((status, code(&engine, refused).await), (RunStatus::Failed, json!(["push_rejected", false])));
    let (unknown, status) = run(&engine, &pushed("'secret://hooks/none'"), NewRun::default()).await;
    assert_eq!((status, code(&engine, unknown).await), (RunStatus::Failed, json!(["unknown_secret", false])));
    assert_eq!(receiver.received().len(), 2);
    empty(&engine).await;
}
