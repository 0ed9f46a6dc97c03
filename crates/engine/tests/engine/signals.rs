//! What people may do to a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use milepost_core::json::Json;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_engine::skills::SkillError;
use milepost_engine::{Engine, EngineError, NewRun};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_wait_ends_with_its_signal,
        a_signal_that_comes_early_is_kept,
        pause_holds_back_ready_steps,
        cancel_takes_a_program_and_its_children_down,
        terminate_ends_at_once,
        approval_lets_a_run_go_on_or_ends_it,
        a_failed_step_can_be_tried_again,
        steps_can_be_skipped,
        the_same_signal_twice_is_one,
        a_signal_that_does_not_fit_is_refused_and_on_record,
        a_signal_is_refused_when_the_run_went_on_since_it_was_seen,
    ],
    postgres: [a_wait_ends_with_its_signal, a_failed_step_can_be_tried_again]
}

const WAITS: &str = r#"
name: waits
steps:
  before: {skill: noop}
  wait: {skill: wait, depends_on: [before], input: {signal: go}}
  after: {skill: echo, input: {by: "${{ steps.wait.output.by }}"}}
"#;

fn go(by: &str) -> Signal {
    Signal { payload: Json::of(&json!({ "by": by })), ..Engine::new_signal("go") }
}

/// Waits until a `wait` step has begun.
async fn waiting(engine: &Engine, run: milepost_core::id::RunId) {
    within(async {
        while !log(engine.store(), run)
            .await
            .iter()
            .any(|event| event.event_type == "StepStarted" && event.step_id.as_deref() == Some("wait"))
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn a_wait_ends_with_its_signal(home: Home) {
    let engine = home.open(config()).await;
    let id = start(&engine, WAITS, NewRun::default()).await;
    waiting(&engine, id).await;
    engine.flush_projections().await;
    let head = engine.store().head(ORG, id).await.unwrap().unwrap();
    assert_eq!(head.owner, None, "a run at rest needs nobody");
    healthy(engine.store()).await;
    engine.signal(id, go("Ada")).await.unwrap();
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "after"), json!({"by": "Ada"}));
    sound(&engine, id).await;
}

async fn a_signal_that_comes_early_is_kept(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = WAITS.replace("{skill: noop}", "{skill: gate, input: {}}");
    let id = start(&engine, &document, NewRun::default()).await;
    gate.arrival().await;
    engine.signal(id, go("early bird")).await.unwrap();
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "after"), json!({"by": "early bird"}));
    sound(&engine, id).await;
}

async fn pause_holds_back_ready_steps(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = "{name: p, steps: {a: {skill: gate, input: {}}, b: {skill: noop, depends_on: [a]}}}";
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    send(&engine, id, "PAUSE").await;
    gate.let_through(1);
    event(&engine, id, "StepCompleted").await;
    assert_eq!(engine.run(id).await.unwrap().summary.status, RunStatus::Paused);
    assert_eq!(types(engine.store(), id).await.iter().filter(|name| *name == "StepStarted").count(), 1);
    engine.flush_projections().await;
    healthy(engine.store()).await;
    send(&engine, id, "RESUME").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    sound(&engine, id).await;
}

async fn cancel_takes_a_program_and_its_children_down(home: Home) {
    let engine = home.open(config()).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // The program's own child says who it is, then both sleep for a long time.
    let command = format!("sh -c 'echo $$ > {0}.tmp; mv {0}.tmp {0}; sleep 1000' & sleep 1000", file.display());
    let document = json!({"name": "shell", "steps": {"long": {"skill": "shell", "input": {"command": command}}}});
    let id = start(&engine, &document.to_string(), NewRun::default()).await;
    let child = within(async {
        loop {
            match std::fs::read_to_string(&file) {
                Ok(text) => return text.trim().to_owned(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    send(&engine, id, "CANCEL").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Cancelled);
    within(async {
        // A zombie that nobody has waited for yet is as dead.
        while std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(steps(&engine.run(id).await.unwrap()), "long skipped (cancelled)");
    sound(&engine, id).await;
}

async fn terminate_ends_at_once(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let id = start(&engine, "{name: t, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    send(&engine, id, "TERMINATE").await;
    assert_eq!(engine.run(id).await.unwrap().summary.status, RunStatus::Terminated);
    gate.emptied().await;
    sound(&engine, id).await;
    healthy(engine.store()).await;
}

async fn approval_lets_a_run_go_on_or_ends_it(home: Home) {
    let engine = home.open(config()).await;
    let document = "{name: asks, approval: true, steps: {a: {skill: noop}}}";
    let yes = start(&engine, document, NewRun::default()).await;
    let no = start(&engine, document, NewRun::default()).await;
    engine.flush_projections().await;
    healthy(engine.store()).await;
    send(&engine, yes, "APPROVE").await;
    send(&engine, no, "REJECT").await;
    assert_eq!(ended(&engine, yes).await, RunStatus::Completed);
    assert_eq!(ended(&engine, no).await, RunStatus::Cancelled);
    sound(&engine, yes).await;
    sound(&engine, no).await;
}

async fn a_failed_step_can_be_tried_again(home: Home) {
    let works = Arc::new(AtomicBool::new(false));
    let flag = works.clone();
    let config = config().skill("flaky", move |_, _: Value| {
        let works = flag.load(Ordering::SeqCst);
        async move { if works { Ok(json!({"ok": true})) } else { Err(SkillError::fatal("down", "not today")) } }
    });
    let engine = home.open(config).await;
    let document = r#"
name: again
steps:
  first: {skill: noop}
  flaky: {skill: flaky, depends_on: [first], input: {}}
  last: {skill: echo, input: {ok: "${{ steps.flaky.output.ok }}"}}
"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    engine.flush_projections().await;
    works.store(true, Ordering::SeqCst);
    send_to(&engine, id, "RETRY_STEP", "flaky").await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    let view = engine.run(id).await.unwrap();
    assert_eq!(output(&view, "last"), json!({"ok": true}));
    assert_eq!((view.summary.steps_done, view.summary.steps_failed), (3, 0));
    sound(&engine, id).await;
}

async fn steps_can_be_skipped(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = r#"
name: skips
steps:
  stuck: {skill: gate, input: {}}
  other: {skill: gate, input: {}}
  later: {skill: noop, depends_on: [other]}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    gate.arrival().await;
    send_to(&engine, id, "SKIP_STEP", "stuck").await;
    send_to(&engine, id, "SKIP_STEP", "later").await;
    gate.let_through(1);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    let view = engine.run(id).await.unwrap();
    assert!(steps(&view).contains("stuck skipped (operator)"), "{}", steps(&view));
    assert!(steps(&view).contains("later skipped (operator)"), "{}", steps(&view));
    gate.emptied().await;
    sound(&engine, id).await;
}

async fn a_signal_is_refused_when_the_run_went_on_since_it_was_seen(home: Home) {
    let engine = home.open(config()).await;
    let id = start(&engine, WAITS, NewRun::default()).await;
    waiting(&engine, id).await;
    let seen = engine.run(id).await.unwrap().summary.last_event_seq;
    let pause = Engine::new_signal("PAUSE");
    let paused = within(engine.signal_if(id, pause.clone(), Some(seen))).await.unwrap();
    assert_eq!((paused.status, paused.last_seq, paused.existing), (RunStatus::Paused, seen + 2, false));
    let late = within(engine.signal_if(id, go("Bob"), Some(seen))).await.unwrap_err();
    assert_eq!(late.code(), "precondition_failed");
    assert!(
        matches!(late, EngineError::Moved { run, expected, last_seq } if (run, expected, last_seq) == (id, seen, seen + 2))
    );
    let early = within(engine.signal_if(id, go("Bob"), Some(seen + 3))).await.unwrap_err();
    assert_eq!(early.code(), "precondition_failed");
    // Sent again by somebody who did not hear the answer.
    let again = within(engine.signal_if(id, pause, Some(seen))).await.unwrap();
    assert_eq!((again.last_seq, again.existing), (seen + 2, true));
    let resumed = within(engine.signal_if(id, Engine::new_signal("RESUME"), Some(paused.last_seq))).await.unwrap();
    within(engine.signal_if(id, go("Ada"), Some(resumed.last_seq))).await.unwrap();
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "after"), json!({"by": "Ada"}));
    assert_eq!(types(engine.store(), id).await.iter().filter(|name| *name == "SignalAccepted").count(), 3);
    sound(&engine, id).await;
}

async fn the_same_signal_twice_is_one(home: Home) {
    let count = Arc::new(AtomicU32::new(0));
    let seen = count.clone();
    let config = config().skill("count", move |_, _: Value| {
        seen.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, SkillError>(json!({})) }
    });
    let engine = home.open(config).await;
    let document = r#"
name: twice
steps:
  wait: {skill: wait, input: {signal: go}}
  count: {skill: count, depends_on: [wait], input: {}}
  wait_again: {skill: wait, depends_on: [count], input: {signal: go}}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    let signal = go("me");
    let (a, b) = tokio::join!(engine.signal(id, signal.clone()), engine.signal(id, signal.clone()));
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
    engine.signal(id, signal).await.unwrap();
    let accepted = types(engine.store(), id).await.iter().filter(|name| *name == "SignalAccepted").count();
    assert_eq!(accepted, 1);
    engine.signal(id, go("somebody else")).await.unwrap();
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    sound(&engine, id).await;
}

async fn a_signal_that_does_not_fit_is_refused_and_on_record(home: Home) {
    let engine = home.open(config()).await;
    let id = start(&engine, WAITS, NewRun::default()).await;
    waiting(&engine, id).await;
    let refused = engine.signal(id, Engine::new_signal("RESUME")).await;
    assert!(
        matches!(&refused, Err(EngineError::Rejected(rejection)) if rejection.code == "signal_rejected"),
        "{refused:?}"
    );
    assert!(types(engine.store(), id).await.contains(&"SignalRejected".to_owned()));
    engine.signal(id, go("Ada")).await.unwrap();
    ended(&engine, id).await;
    let late = engine.signal(id, Engine::new_signal("PAUSE")).await;
    assert!(matches!(&late, Err(EngineError::Rejected(rejection)) if rejection.code == "run_ended"), "{late:?}");
    sound(&engine, id).await;
}
