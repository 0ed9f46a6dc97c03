//! Texts that nobody should send: they are refused at the door or cleaned, and what a store refuses all the same takes nothing
//! of others along.

use std::sync::Arc;

use milepost_core::event::ErrorInfo;
use milepost_core::json::Json;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_engine::definitions::Moving;
use milepost_engine::skills::{LogStream, SkillError};
use milepost_engine::workers::{Exchange, Outcome, WorkerLine};
use milepost_engine::{Engine, EngineError, NewRun, OutboxStatus, PatchOptions, list_outbox};
use milepost_store::Store;
use milepost_store::rows::{OutboxFilter, RunFilter};
use serde_json::{Value, json};

use crate::faults::Faulty;
use crate::receiver::{Receiver, Reply};
use crate::support::*;
use crate::workers::{call, exchange, result, take};

on! {
    embedded: [
        a_bad_request_id_harms_only_who_sends_it,
        texts_that_cannot_be_names_are_refused,
        what_a_worker_says_is_kept_without_control_characters,
        a_receiver_that_says_anything_stops_no_other_delivery,
    ],
    postgres: [
        a_bad_request_id_harms_only_who_sends_it,
        texts_that_cannot_be_names_are_refused,
        what_a_worker_says_is_kept_without_control_characters,
        a_receiver_that_says_anything_stops_no_other_delivery,
    ]
}

const NOOP: &str = "{name: good, steps: {a: {skill: noop}}}";
const KEYED: &str = "{name: keyed, concurrency: {key: '${{ payload.key }}', limit: 3}, steps: {a: {skill: noop}}}";

fn requested(id: String) -> NewRun {
    NewRun { request_id: Some(id), ..NewRun::default() }
}

fn code<T: std::fmt::Debug>(answer: Result<T, EngineError>) -> &'static str {
    answer.unwrap_err().code()
}

/// Three who send what cannot be stored, beside many who do not. Answers what the three were told.
async fn beside_innocents(engine: &Engine, document: &str, bad: impl Fn(u32) -> NewRun) -> Vec<&'static str> {
    let innocents = (0..300).map(|n| engine.start_document(NOOP, requested(format!("order-{n}"))));
    let attackers = (0..3).map(|n| engine.start_document(document, bad(n)));
    let both = async { tokio::join!(futures::future::join_all(attackers), futures::future::join_all(innocents)) };
    let (refused, started) = within(both).await;
    for accepted in started {
        assert!(!accepted.unwrap().existing);
    }
    refused.into_iter().map(code).collect()
}

async fn a_bad_request_id_harms_only_who_sends_it(home: Home) {
    let engine = home.open(config()).await;
    let told = beside_innocents(&engine, NOOP, |n| requested(format!("a\0{n}"))).await;
    assert_eq!(told, ["bad_request_id"; 3]);
    let key = |n: u32| NewRun { request_id: Some(format!("key-{n}")), ..payload(&json!({"key": format!("\0{n}")})) };
    let told: Vec<_> = futures::future::join_all((0..3).map(|n| engine.start_document(KEYED, key(n)))).await;
    assert!(told.into_iter().all(|told| code(told) == "bad_concurrency_key"));
    let (_, status) = run(&engine, KEYED, payload(&json!({"key": "fine"}))).await;
    assert_eq!(status, RunStatus::Completed);
}

async fn texts_that_cannot_be_names_are_refused(home: Home) {
    let engine = home.open(crate::workers::server()).await;
    engine.deploy("{name: w, steps: {w: {skill: wait, input: {signal: go}}}}").await.unwrap();
    let id = engine.start("w", NewRun::default()).await.unwrap().run;
    let signal = |name: &str| Engine::new_signal(name);
    for (bad, long) in [("a\0", false), ("a\u{1b}[2J", false), ("\u{9b}", false), (&*"x".repeat(5000), true)] {
        assert_eq!(code(engine.signal(id, signal(bad)).await), "bad_signal");
        let about = Signal { step: Some(bad.to_owned()), ..signal("go") };
        assert_eq!(code(engine.signal(id, about).await), "unknown_step");
        let (definitions, moving) = (engine.definitions(), Moving::default());
        assert_eq!(code(definitions.undo(ORG, bad, &moving).await), "unknown_workflow");
        assert_eq!(code(definitions.tag(ORG, bad).await), "unknown_workflow");
        assert_eq!(code(definitions.history(ORG, bad, None, 10).await), "unknown_workflow");
        assert_eq!(code(definitions.tags(ORG, Some(bad), 10).await), "bad_cursor");
        let because = Moving { message: Some(bad.to_owned()), ..Moving::default() };
        assert_eq!(code(definitions.undo(ORG, "w", &because).await), "bad_text");
        let by = Moving { by: Some(bad.to_owned()), ..Moving::default() };
        assert_eq!(code(definitions.undo(ORG, "w", &by).await), "bad_actor");
        let key = Moving { key: Some(bad.to_owned()), ..Moving::default() };
        assert_eq!(code(definitions.undo(ORG, "w", &key).await), "bad_idempotency_key");
        let message = PatchOptions { message: Some(bad.to_owned()), ..PatchOptions::default() };
        assert_eq!(code(engine.patch_run(id, &json!([]), message).await), "bad_text");
        assert_eq!(code(engine.limit_queue(bad.into(), Some(1), None).await), "bad_name");
        let named = Exchange { queues: vec![bad.into()], ..call("worker") };
        assert_eq!(code(engine.exchange(named, std::future::pending()).await), "bad_name");
        assert_eq!(code(engine.exchange(call(bad), std::future::pending()).await), "bad_name");
        let found = engine.list(&RunFilter { workflow: Some(bad.to_owned()), limit: 10, ..RunFilter::default() }).await;
        assert!(found.is_ok_and(|found| found.is_empty()) || !long);
    }
    send(&engine, id, "go").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
}

async fn what_a_worker_says_is_kept_without_control_characters(home: Home) {
    let engine = home.open(crate::workers::server()).await;
    let id = start(&engine, "{name: one, steps: {a: {skill: x}}}", NewRun::default()).await;
    let task = take(&engine, "w1").await;
    let error = ErrorInfo::fatal("bad\0code", "it said \0 and \u{1b}[31m, then\n\tended");
    let line = WorkerLine { stream: LogStream::Log, text: "a\0b\u{7}".to_owned(), at: None };
    let mut failed = result(&task, Outcome::Failed(error));
    failed.lines.push(line);
    let answer = exchange(&engine, Exchange { results: vec![failed], capacity: 0, ..call("w1") }).await;
    assert!(answer.rejected.is_empty(), "{:?}", answer.rejected);
    assert_eq!(ended(&engine, id).await, RunStatus::Failed);
    let error = engine.run(id).await.unwrap().steps.remove(0).error.unwrap();
    assert_eq!(error.code, "bad\u{fffd}code");
    assert_eq!(error.message, "it said \u{fffd} and \u{fffd}[31m, then\n\tended");
    let said = engine.logs(id, None, None, 10).await.unwrap().items;
    assert_eq!(said[0].text, "a\u{fffd}b\u{fffd}");
    engine.flush_projections().await;
    assert_eq!(engine.list(&RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap()[0].run_id, id);
}

async fn a_receiver_that_says_anything_stops_no_other_delivery(home: Home) {
    let loud = Receiver::answering([Reply::Of(503, &[], "down\0 for \u{1b}good".to_owned())]).await;
    let fine = Receiver::answering([Reply::output(&json!(1))]).await;
    let engine = home.open(crate::push::server()).await;
    let hostile = start(&engine, &loud.document(""), NewRun::default()).await;
    let items = within(async {
        loop {
            let items = list_outbox(engine.store(), ORG, OutboxFilter::All, None, 10).await.unwrap();
            if items.iter().any(|item| item.status == OutboxStatus::Pending) {
                return items;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = items[0].last_error.as_deref().unwrap();
    assert!(error.contains("down\u{fffd} for \u{fffd}good"), "{error}");
    let (_, status) = run(&engine, &fine.document(""), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    loud.answer_from_now_on(Reply::output(&json!(2)));
    assert_eq!(ended(&engine, hostile).await, RunStatus::Completed);
}

async fn refusing(config: milepost_engine::Config) -> (Arc<dyn Store>, Engine) {
    let store: Arc<dyn Store> = Faulty::refusing("poison");
    let engine = Engine::open_with(store.clone(), config).await.unwrap();
    (store, engine)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_refused_takes_no_other_along() {
    let (store, engine) = refusing(config()).await;
    let told = beside_innocents(&engine, NOOP, |n| requested(format!("poison-{n}"))).await;
    assert_eq!(told, ["store_refused"; 3]);
    engine.flush_projections().await;
    healthy(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projection_that_is_refused_takes_no_other_along() {
    let (store, engine) = refusing(config()).await;
    let bad = start(&engine, "{name: poison, steps: {a: {skill: noop}}}", NewRun::default());
    let good = (0..20).map(|_| start(&engine, NOOP, NewRun::default()));
    let (bad, good) = tokio::join!(bad, futures::future::join_all(good));
    for run in &good {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed);
    }
    assert_eq!(ended(&engine, bad).await, RunStatus::Completed);
    within(engine.flush_projections()).await;
    let listed = store.list_runs(ORG, &RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    assert_eq!(listed.len(), good.len());
    assert_eq!(engine.projector_lag_ms(), 0, "nothing is tried again and again");
    assert_eq!(engine.run(bad).await.unwrap().summary.status, RunStatus::Completed, "it is read from its log");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_refused_take_no_others_along() {
    let talks = |context: milepost_engine::skills::SkillContext, input: Value| async move {
        context.log(LogStream::Log, input["text"].as_str().unwrap_or_default());
        Ok::<_, SkillError>(json!({}))
    };
    let (_, engine) = refusing(config().skill("talk", talks)).await;
    let document = "{name: l, steps: {a: {skill: talk, input: {text: fine}}, b: {skill: talk, input: {text: poi}}}}";
    let document = document.replace("poi}", "'poi${{ \"son\" }}'}");
    let (id, status) = run(&engine, &document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let said = engine.logs(id, None, None, 10).await.unwrap().items;
    assert_eq!(said.iter().map(|line| line.text.as_str()).collect::<Vec<_>>(), ["fine"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_error_that_is_refused_is_left_out() {
    let loud = Receiver::answering([Reply::Of(503, &[], "poison".to_owned()), Reply::output(&json!(1))]).await;
    let (store, engine) = refusing(crate::push::server()).await;
    let (_, status) = run(&engine, &loud.document(""), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    within(async {
        while !list_outbox(&store, ORG, OutboxFilter::All, None, 10).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_refused_fails_its_step_and_its_worker_is_told_so() {
    let (_, engine) = refusing(crate::workers::server()).await;
    let bad = start(&engine, "{name: one, steps: {a: {skill: x}}}", NewRun::default()).await;
    let first = take(&engine, "w1").await;
    let good = start(&engine, "{name: two, steps: {a: {skill: x}}}", NewRun::default()).await;
    let second = take(&engine, "w1").await;
    let outputs = [(&first, "\"poison\""), (&second, "\"fine\"")];
    let results = outputs.map(|(task, output)| result(task, Outcome::Completed(Json::trusted(output)))).into();
    let answer = exchange(&engine, Exchange { results, capacity: 0, ..call("w1") }).await;
    assert!(answer.rejected.is_empty(), "{:?}", answer.rejected);
    assert_eq!(ended(&engine, good).await, RunStatus::Completed);
    assert_eq!(ended(&engine, bad).await, RunStatus::Failed);
    assert_eq!(engine.run(bad).await.unwrap().steps[0].error.as_ref().unwrap().code, "not_stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_of_items_are_joined_up_to_a_limit() {
    let home = Home::memory();
    // A checkpoint has no outputs: they are read when they are needed.
    let limits = milepost_core::limits::Limits {
        large_output_bytes: 10_000,
        continue_steps: 1,
        continue_bytes: 1,
        ..config().limits
    };
    let open = async || home.open(milepost_engine::Config { limits: limits.clone(), ..config() }).await;
    let document = "{name: j, steps: {many: {skill: echo, foreach: '${{ range(payload.n) }}', input: {t: '${{ payload.t }}'}}, \
                    wait: {skill: wait, depends_on: [many], input: {signal: go}}, \
                    end: {skill: echo, depends_on: [wait], input: {n: '${{ steps.many.output | length }}'}}}}";
    let joined = async |n: u32| {
        let engine = open().await;
        let id = start(&engine, document, payload(&json!({"n": n, "t": "x".repeat(1000)}))).await;
        let waits = async || log(engine.store(), id).await.iter().any(|row| row.step_id.as_deref() == Some("wait"));
        within(async {
            while !waits().await {
                tokio::task::yield_now().await;
            }
        })
        .await;
        engine.shutdown().await;
        // Whoever has it next reads what it needs.
        let engine = open().await;
        send(&engine, id, "go").await;
        ended(&engine, id).await;
        engine.run(id).await.unwrap()
    };
    let few = joined(5).await;
    assert_eq!(output(&few, "end"), json!({"n": 5}));
    let many = joined(40).await;
    let end = many.steps.iter().find(|step| step.step_id == "end").unwrap();
    let error = end.error.clone().unwrap_or_else(|| panic!("{many:?}"));
    assert_eq!(error.code, "output_lost");
    assert!(error.message.contains("more than 10000 bytes"), "{}", error.message);
}
