//! What documents can say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use milepost_core::status::RunStatus;
use milepost_engine::skills::SkillError;
use milepost_engine::{Clock, Config, EngineError, ManualClock, NewRun};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        a_chain_hands_outputs_on,
        foreach_goes_over_a_thousand_items,
        a_diamond_joins_what_it_split,
        a_false_condition_skips_a_step_and_not_what_follows,
        retries_wait_longer_each_time,
        a_step_that_takes_too_long_fails,
        a_panic_fails_its_step_and_nothing_else,
        an_error_that_is_final_is_not_retried,
        a_failure_leaves_other_branches_alone_if_told_to,
        higher_priority_goes_first,
        a_run_starts_when_its_time_has_come,
        what_nobody_can_do_is_refused_at_the_door,
    ],
    postgres: [a_chain_hands_outputs_on, foreach_goes_over_a_thousand_items]
}

async fn a_chain_hands_outputs_on(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: chain
steps:
  a: {skill: echo, input: {n: "${{ payload.n + 1 }}"}}
  b: {skill: echo, input: {n: "${{ steps.a.output.n + 1 }}"}}
  c: {skill: echo, input: {n: "${{ steps.b.output.n + 1 }}"}}
"#;
    let (id, status) = run(&engine, document, payload(&json!({"n": 39}))).await;
    assert_eq!(status, RunStatus::Completed);
    let view = engine.run(id).await.unwrap();
    assert_eq!(view.output.unwrap().to_value(), json!({"c": {"n": 42}}));
    sound(&engine, id).await;
    healthy(engine.store()).await;
    engine.shutdown().await;
}

async fn a_diamond_joins_what_it_split(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: diamond
steps:
  top: {skill: echo, input: {n: 1}}
  left: {skill: echo, input: {n: "${{ steps.top.output.n * 10 }}"}}
  right: {skill: echo, input: {n: "${{ steps.top.output.n * 100 }}"}}
  bottom: {skill: echo, input: {n: "${{ steps.left.output.n + steps.right.output.n }}"}}
"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(output(&engine.run(id).await.unwrap(), "bottom"), json!({"n": 110}));
    let started = log(engine.store(), id).await.iter().filter(|event| event.event_type == "StepStarted").count();
    assert_eq!(started, 4);
    sound(&engine, id).await;
}

async fn foreach_goes_over_a_thousand_items(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: wide
steps:
  many: {skill: echo, foreach: "${{ range(1000) }}", input: {n: "${{ item * 2 }}"}}
  sum: {skill: echo, input: {last: "${{ steps.many.output[999].n }}", count: "${{ steps.many.output | length }}"}}
"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let view = engine.run(id).await.unwrap();
    assert_eq!(output(&view, "sum"), json!({"last": 1998, "count": 1000}));
    assert_eq!(view.steps.len(), 1002);
    sound(&engine, id).await;
    healthy(engine.store()).await;
}

async fn a_false_condition_skips_a_step_and_not_what_follows(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: maybe
steps:
  maybe: {skill: echo, when: "${{ payload.yes }}", input: {}}
  after: {skill: echo, depends_on: [maybe], input: {done: true}}
"#;
    let (no, _) = run(&engine, document, payload(&json!({"yes": false}))).await;
    assert_eq!(steps(&engine.run(no).await.unwrap()), "maybe skipped (condition), after completed");
    let (yes, _) = run(&engine, document, payload(&json!({"yes": true}))).await;
    assert_eq!(steps(&engine.run(yes).await.unwrap()), "maybe completed, after completed");
    sound(&engine, no).await;
}

async fn retries_wait_longer_each_time(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), ..config() }).await;
    let document = r#"
name: stubborn
steps:
  try: {skill: fail, input: {times: 2}, retry: {max_attempts: 3, backoff_ms: 40000, max_backoff_ms: 900000}}
"#;
    let id = start(&engine, document, NewRun::default()).await;
    event(&engine, id, "StepRetryScheduled").await;
    clock.advance_ms(19_000);
    assert_eq!(engine.run(id).await.unwrap().summary.status, RunStatus::Running, "half of the delay at least");
    clock.advance_ms(21_000);
    within(async {
        while types(engine.store(), id).await.iter().filter(|name| *name == "StepRetryScheduled").count() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    clock.advance_ms(80_000);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    let tried = engine.run(id).await.unwrap().steps[0].logical_attempt;
    assert_eq!(tried, 3);
    sound(&engine, id).await;
}

async fn a_step_that_takes_too_long_fails(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = "{name: slow, steps: {slow: {skill: gate, timeout_ms: 20, input: {}}}}";
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    assert_eq!(engine.run(id).await.unwrap().summary.error.unwrap().code, "timeout");
    gate.emptied().await;
    sound(&engine, id).await;
}

async fn a_panic_fails_its_step_and_nothing_else(home: Home) {
    let config = Config { inline_concurrency: 1, ..config() }
        .skill("panics", |_, _: Value| async { if true { panic!("on purpose") } else { Ok(Value::Null) } })
        .skill("panics_at_once", |_, _: Value| {
            assert!(!true_at_run_time(), "before there is a future");
            async { Ok(Value::Null) }
        });
    let engine = home.open(config).await;
    for skill in ["panics", "panics_at_once", "panics"] {
        let document = format!("{{name: p, steps: {{p: {{skill: {skill}, input: {{}}}}}}}}");
        let (id, status) = run(&engine, &document, NewRun::default()).await;
        assert_eq!(status, RunStatus::Failed);
        assert_eq!(engine.run(id).await.unwrap().summary.error.unwrap().code, "panic");
    }
    // The one place that the executor has is free again.
    let (_, status) = run(&engine, "{name: p, steps: {p: {skill: noop}}}", NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
}

fn true_at_run_time() -> bool {
    std::hint::black_box(true)
}

async fn an_error_that_is_final_is_not_retried(home: Home) {
    let engine = home.open(config()).await;
    for input in ["{retryable: false}", "{code: bad_card}"] {
        let document = format!(
            "{{name: final, steps: {{try: {{skill: fail, input: {input}, retry: {{max_attempts: 5, non_retryable: [bad_card]}}}}}}}}"
        );
        let (id, status) = run(&engine, &document, NewRun::default()).await;
        assert_eq!(status, RunStatus::Failed);
        assert_eq!(engine.run(id).await.unwrap().steps[0].logical_attempt, 1);
        sound(&engine, id).await;
    }
}

async fn a_failure_leaves_other_branches_alone_if_told_to(home: Home) {
    let engine = home.open(config()).await;
    let document = r#"
name: branches
on_failure: continue
steps:
  bad: {skill: fail, input: {}}
  after_bad: {skill: noop, depends_on: [bad]}
  good: {skill: noop}
  after_good: {skill: noop, depends_on: [good]}
"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    let view = engine.run(id).await.unwrap();
    let mut words: Vec<String> = steps(&view).split(", ").map(str::to_owned).collect();
    words.sort();
    assert_eq!(words, ["after_bad skipped (upstream_failed)", "after_good completed", "bad failed", "good completed"]);
    sound(&engine, id).await;
}

async fn higher_priority_goes_first(home: Home) {
    let gate = Gate::new();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let note = order.clone();
    let config = Config { inline_concurrency: 1, ..config() }.gate(&gate).skill("note", move |_, input: Value| {
        note.lock().unwrap().push(input["n"].as_i64().unwrap());
        async { Ok::<_, SkillError>(()) }
    });
    let engine = home.open(config).await;
    start(&engine, "{name: first, steps: {gate: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    let document = r#"{name: noted, steps: {n: {skill: note, input: {n: "${{ run.priority }}"}}}}"#;
    let mut runs = Vec::new();
    for priority in [0, 5, -3, 9, 5] {
        runs.push(start(&engine, document, NewRun { priority, ..NewRun::default() }).await);
    }
    gate.let_through(1);
    for run in runs {
        ended(&engine, run).await;
    }
    assert_eq!(*order.lock().unwrap(), [9, 5, 5, 0, -3]);
}

async fn a_run_starts_when_its_time_has_come(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), ..config() }).await;
    let begun = Arc::new(AtomicBool::new(false));
    let start_at = Some(clock.now().plus_ms(3_600_000));
    let id = start(&engine, "{name: later, steps: {a: {skill: noop}}}", NewRun { start_at, ..NewRun::default() }).await;
    clock.advance_ms(3_599_000);
    assert_eq!(engine.run(id).await.unwrap().summary.status, RunStatus::Queued);
    clock.advance_ms(1_000);
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    begun.store(true, Ordering::SeqCst);
    sound(&engine, id).await;
}

async fn what_nobody_can_do_is_refused_at_the_door(home: Home) {
    let engine = home.open(config()).await;
    let refused = engine.start_document("{name: odd, steps: {a: {skill: fly}}}", NewRun::default()).await;
    assert!(matches!(refused, Err(EngineError::UnknownSkills(_))), "{refused:?}");
    assert!(matches!(engine.start("nowhere", NewRun::default()).await, Err(EngineError::NoSuchWorkflow(_))));
}
