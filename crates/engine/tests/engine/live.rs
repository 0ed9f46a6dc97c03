//! Live patches: runs whose definition is changed while they run, by people and by their own steps.

use std::time::Duration;

use milepost_core::id::{RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::workers::{Exchange, Outcome, WorkerResult, WorkerTask};
use milepost_engine::{Config, Engine, EngineError, NewRun, PatchOptions};
use serde_json::{Value, json};

use crate::support::*;

on! {
    embedded: [
        what_has_not_begun_is_changed_and_the_run_ends_with_the_new_steps,
        what_does_not_fit_is_refused_and_leaves_nothing,
        the_same_patch_is_taken_once_however_far_the_run_has_come,
        a_patch_is_undone_and_its_definition_is_back,
        a_patched_run_is_taken_over_from_a_dead_node,
        what_had_ended_runs_again_when_that_is_asked_for,
        a_lease_given_before_a_patch_is_good_after_it,
        a_waiting_step_moves_to_another_queue,
        a_run_is_patched_through_another_node,
        patches_of_many_at_once_are_all_in_force,
        a_step_grows_the_plan_of_its_run,
        a_returned_patch_that_is_refused_fails_its_step,
        a_worker_returns_a_patch,
        runs_that_grow_end_however_often_the_node_dies,
        a_run_updates_a_patched_one_with_the_definition_it_had,
    ],
    postgres: [
        what_has_not_begun_is_changed_and_the_run_ends_with_the_new_steps,
        the_same_patch_is_taken_once_however_far_the_run_has_come,
        a_patched_run_is_taken_over_from_a_dead_node,
        what_had_ended_runs_again_when_that_is_asked_for,
        a_lease_given_before_a_patch_is_good_after_it,
        a_waiting_step_moves_to_another_queue,
        a_run_is_patched_through_another_node,
        patches_of_many_at_once_are_all_in_force,
        a_worker_returns_a_patch,
        runs_that_grow_end_however_often_the_node_dies,
    ]
}

const CHAIN: &str = "{name: chain, steps: {b: {skill: gate, input: {n: 1}}, d: {skill: echo, depends_on: [b]}, \
                     f: {skill: echo, depends_on: [d]}}}";

fn add(id: &str, definition: Value) -> Value {
    json!([{"op": "add", "path": format!("/steps/{id}"), "value": definition}])
}

async fn patch(engine: &Engine, run: RunId, ops: &Value) -> milepost_engine::PatchedRun {
    within(engine.patch_run(run, ops, PatchOptions::default())).await.unwrap()
}

async fn refused(engine: &Engine, run: RunId, ops: &Value, options: PatchOptions) -> EngineError {
    within(engine.patch_run(run, ops, options)).await.unwrap_err()
}

async fn what_has_not_begun_is_changed_and_the_run_ends_with_the_new_steps(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    let ops = json!([
        {"op": "test", "path": "/steps/d/depends_on", "value": ["b"]},
        {"op": "remove", "path": "/steps/f"},
        {"op": "add", "path": "/steps/d/input", "value": {"was": "${{ steps.b.output.n }}"}},
        {"op": "add", "path": "/steps/a", "value": {"skill": "echo", "input": "${{ steps.d.output }}"}},
    ]);
    let preview = engine.preview_patch(run, &ops, false).await.unwrap();
    let before = log(engine.store(), run).await.len();
    let patched = patch(&engine, run, &ops).await;
    assert_eq!((preview.fits, &preview.steps), (true, &patched.steps));
    let lists = &patched.steps;
    assert_eq!((&lists.kept, &lists.new, &lists.changed), (&vec!["b".into()], &vec!["a".into()], &vec!["d".into()]));
    assert_eq!((lists.removed.as_slice(), lists.orphaned.len(), lists.rerun.len()), (&["f".to_owned()][..], 0, 0));
    gate.let_through(1);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    let view = engine.run(run).await.unwrap();
    assert_eq!(steps(&view), "b completed, d completed, a completed");
    assert_eq!((view.summary.steps_total, view.summary.steps_done), (3, 3));
    assert_eq!(view.output.as_ref().unwrap().to_value(), json!({"a": {"was": 1}}));
    let past = engine.run_at(run, before as u64).await.unwrap();
    assert_eq!((steps(&past).as_str(), past.summary.steps_total), ("b running, d pending, f pending", 3));
    let gone = engine.step(run, "f").await.unwrap().step;
    assert_eq!(json!(gone.skip_reason), "removed");
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn what_does_not_fit_is_refused_and_leaves_nothing(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    let at = log(engine.store(), run).await.len() as u64;
    let plain = PatchOptions::default;
    let begun = json!([{"op": "replace", "path": "/steps/b/input", "value": 2}]);
    for (ops, options, code) in [
        (begun.clone(), plain(), "step_started"),
        (json!([{"op": "test", "path": "/steps/d/skill", "value": "x"}]), plain(), "patch_failed"),
        (json!([{"op": "replace", "path": "/name", "value": "other"}]), plain(), "patch_failed"),
        (json!([{"op": "remove", "path": "/steps/d"}]), plain(), "invalid_document"),
        (add("z", json!({"skill": "nobody"})), plain(), "unknown_skill"),
        (add("z", json!({"skill": "echo"})), PatchOptions { if_seq: Some(at + 1), ..plain() }, "precondition_failed"),
    ] {
        assert_eq!(refused(&engine, run, &ops, options).await.code(), code, "{ops}");
    }
    let preview = engine.preview_patch(run, &begun, false).await.unwrap();
    assert_eq!((preview.fits, preview.refusal.unwrap().code), (false, "step_started"));
    assert_eq!(log(engine.store(), run).await.len() as u64, at);
    let fits = PatchOptions { if_seq: Some(at), message: Some("more".to_owned()), ..plain() };
    within(engine.patch_run(run, &add("z", json!({"skill": "echo"})), fits)).await.unwrap();
    gate.let_through(1);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    let late = refused(&engine, run, &add("y", json!({"skill": "echo"})), plain()).await;
    assert_eq!(late.code(), "run_ended");
    let strange = refused(&engine, RunId(uuid::Uuid::nil()), &begun, plain()).await;
    assert_eq!(strange.code(), "unknown_run");
}

async fn the_same_patch_is_taken_once_however_far_the_run_has_come(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    let options = || PatchOptions { patch_id: Some(SignalId(uuid::Uuid::from_u128(7))), ..PatchOptions::default() };
    let ops = add("a", json!({"skill": "echo", "depends_on": ["b"]}));
    let first = within(engine.patch_run(run, &ops, options())).await.unwrap();
    let again = within(engine.patch_run(run, &ops, options())).await.unwrap();
    gate.let_through(1);
    ended(&engine, run).await;
    let late = within(engine.patch_run(run, &ops, options())).await.unwrap();
    assert_eq!((first.existing, again.existing, late.existing), (false, true, true));
    assert_eq!((&first.steps, &again.steps), (&again.steps, &late.steps));
    let patches = types(engine.store(), run).await.iter().filter(|name| *name == "RunPatched").count();
    assert_eq!(patches, 1);
}

async fn a_patch_is_undone_and_its_definition_is_back(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    let undo = |id| engine.undo_patch(run, id, PatchOptions::default());
    assert_eq!(undo(None).await.unwrap_err().code(), "unknown_patch");
    let first = patch(&engine, run, &json!([{"op": "remove", "path": "/steps/f"}])).await;
    let second = patch(&engine, run, &add("a", json!({"skill": "gate"}))).await;
    gate.arrival().await;
    assert_eq!(undo(Some(first.patch_id)).await.unwrap_err().code(), "patch_touched");
    assert_eq!(undo(Some(second.patch_id)).await.unwrap_err().code(), "patch_touched");
    let third = patch(&engine, run, &add("e", json!({"skill": "echo", "depends_on": ["d"]}))).await;
    let undone = undo(None).await.unwrap();
    assert_eq!((undone.steps.removed, undone.existing), (vec!["e".to_owned()], false));
    let event = log(engine.store(), run).await.into_iter().rev().find(|row| row.event_type == "RunPatched").unwrap();
    assert_eq!(event.data.to_value()["undoes"], json!(third.patch_id));
    gate.let_through(2);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(steps(&engine.run(run).await.unwrap()), "b completed, d completed, a completed");
    sound(&engine, run).await;
}

fn short() -> Config {
    let mut config = Config { node_lease_ms: 60, ..config() };
    config.limits.continue_steps = 2;
    config
}

async fn a_patched_run_is_taken_over_from_a_dead_node(home: Home) {
    let gate = Gate::new();
    let engine = home.open(short().gate(&gate)).await;
    let document = "{name: long, steps: {a: {skill: echo}, b: {skill: echo}, c: {skill: echo, depends_on: [a, b]}, \
                    x: {skill: gate, depends_on: [c]}, y: {skill: echo, depends_on: [x]}}}";
    let run = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    // Before and after a checkpoint, and with numbers that are not in the order of ids.
    patch(&engine, run, &add("bb", json!({"skill": "echo", "depends_on": ["a"]}))).await;
    event(&engine, run, "RunContinued").await;
    patch(&engine, run, &json!([{"op": "remove", "path": "/steps/y"}])).await;
    patch(&engine, run, &add("z", json!({"skill": "echo", "input": "${{ steps.bb.output }}", "depends_on": ["x"]})))
        .await;
    drop(engine);
    let engine = home.open(short().gate(&gate)).await;
    gate.arrival().await;
    gate.let_through(2);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    // Nobody removes what the log still needs.
    engine.definitions().collect(ORG, Some(Duration::ZERO), false).await.unwrap();
    let view = engine.run(run).await.unwrap();
    assert_eq!((view.summary.steps_total, view.summary.steps_done), (6, 6));
    assert!(view.steps.iter().all(|step| step.status == milepost_core::status::StepStatus::Completed));
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn what_had_ended_runs_again_when_that_is_asked_for(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let document = "{name: again, steps: {a: {skill: echo, foreach: '${{ range(4) }}', input: {n: '${{ item }}'}}, \
                    b: {skill: echo, input: '${{ steps.a.output }}'}, g: {skill: gate}, old: {skill: echo}, \
                    z: {skill: echo, depends_on: [b, g]}}}";
    let run = start(&engine, document, NewRun::default()).await;
    gate.arrival().await;
    within(async {
        while engine.run(run).await.unwrap().summary.steps_done < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    engine.flush_projections().await;
    let ops = json!([{"op": "replace", "path": "/steps/a/foreach", "value": "${{ range(2) }}"},
                     {"op": "remove", "path": "/steps/old"}]);
    assert_eq!(refused(&engine, run, &ops, PatchOptions::default()).await.code(), "step_started");
    let options = PatchOptions { rerun: true, ..PatchOptions::default() };
    let patched = within(engine.patch_run(run, &ops, options)).await.unwrap();
    assert_eq!((patched.steps.rerun, patched.steps.orphaned), (vec!["a".into(), "b".into()], vec!["old".into()]));
    gate.let_through(1);
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    let view = engine.run(run).await.unwrap();
    assert_eq!(output(&view, "b"), json!([{"n": 0}, {"n": 1}]));
    assert_eq!(output(&view, "a"), json!([{"n": 0}, {"n": 1}]));
    assert_eq!((view.summary.steps_total, view.summary.steps_done), (4, 4));
    assert_eq!(view.steps.iter().filter(|step| step.step_id.starts_with("a[")).count(), 2);
    let step = engine.step(run, "b").await.unwrap();
    assert_eq!((step.attempts.len(), step.step.logical_attempt), (2, 2));
    sound(&engine, run).await;
}

fn server() -> Config {
    Config { workers: true, node_lease_ms: 1000, ..config() }
}

async fn take(engine: &Engine, queue: &str, wait: Duration) -> Option<WorkerTask> {
    let call = Exchange {
        worker: "w".into(),
        secret: None,
        queues: vec![queue.into()],
        every_org: false,
        skills: None,
        capacity: 1,
        wait,
        results: Vec::new(),
        heartbeats: Vec::new(),
    };
    within(engine.exchange(call, std::future::pending())).await.unwrap().tasks.pop()
}

async fn report(engine: &Engine, task: &WorkerTask, output: Value) {
    let outcome = Outcome::Completed(Json::of(&output));
    let result = WorkerResult {
        task: task.task,
        token: task.token.to_string(),
        outcome,
        artifacts: Vec::new(),
        lines: Vec::new(),
    };
    within(engine.report(result)).await.unwrap();
}

const LONG: Duration = Duration::from_secs(30);

async fn a_lease_given_before_a_patch_is_good_after_it(home: Home) {
    let engine = home.open(server()).await;
    let document = "{name: leased, steps: {m: {skill: x}, n: {skill: x, depends_on: [m]}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let task = take(&engine, "default", LONG).await.unwrap();
    patch(&engine, run, &add("a", json!({"skill": "x", "depends_on": ["n"]}))).await;
    patch(&engine, run, &json!([{"op": "add", "path": "/steps/n/input", "value": "${{ steps.m.output }}"}])).await;
    report(&engine, &task, json!("of m")).await;
    for (step, input) in [("n", "\"of m\""), ("a", "{}")] {
        let task = take(&engine, "default", LONG).await.unwrap();
        assert_eq!((task.step_id.as_str(), task.input.as_str()), (step, input));
        report(&engine, &task, json!(step)).await;
    }
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert_eq!(engine.run(run).await.unwrap().output.unwrap().to_value(), json!({"a": "a"}));
    assert!(engine.store().tasks_of(ORG, run).await.unwrap().is_empty());
    sound(&engine, run).await;
}

async fn a_waiting_step_moves_to_another_queue(home: Home) {
    let engine = home.open(server()).await;
    let document =
        "{name: moving, steps: {m: {skill: x, queue: one}, n: {skill: x, queue: one}, o: {skill: x, queue: one}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let held = take(&engine, "one", LONG).await.unwrap();
    let others: Vec<&str> = ["m", "n", "o"].into_iter().filter(|step| *step != held.step_id).collect();
    let ops = json!([{"op": "replace", "path": format!("/steps/{}/queue", others[0]), "value": "two"},
                     {"op": "replace", "path": format!("/steps/{}", others[1]), "value": {"skill": "echo"}}]);
    patch(&engine, run, &ops).await;
    assert!(take(&engine, "one", Duration::ZERO).await.is_none(), "nothing is left in the old queue");
    let moved = take(&engine, "two", LONG).await.unwrap();
    assert_eq!(moved.step_id, others[0]);
    report(&engine, &moved, json!(1)).await;
    report(&engine, &held, json!(2)).await;
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    assert!(engine.store().tasks_of(ORG, run).await.unwrap().is_empty());
    sound(&engine, run).await;
}

async fn a_run_is_patched_through_another_node(home: Home) {
    let gate = Gate::new();
    let (a, b) = (home.open(config().gate(&gate)).await, home.open(config().gate(&gate)).await);
    let run = start(&a, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    patch(&b, run, &add("a", json!({"skill": "gate", "input": {"n": 2}}))).await;
    // The node that has the run sees it and begins the new step.
    gate.arrival().await;
    patch(&a, run, &add("aa", json!({"skill": "echo", "input": "${{ steps.a.output.n }}"}))).await;
    gate.let_through(2);
    assert_eq!(ended(&b, run).await, RunStatus::Completed);
    a.flush_projections().await;
    b.flush_projections().await;
    assert_eq!(output(&b.run(run).await.unwrap(), "aa"), json!(2));
    sound(&a, run).await;
}

async fn patches_of_many_at_once_are_all_in_force(home: Home) {
    let gate = Gate::new();
    let (a, b) = (home.open(config().gate(&gate)).await, home.open(config().gate(&gate)).await);
    let engines = [std::sync::Arc::new(a), std::sync::Arc::new(b)];
    let run = start(&engines[0], CHAIN, NewRun::default()).await;
    gate.arrival().await;
    let mut senders = Vec::new();
    for n in 0..8 {
        let engine = engines[n % 2].clone();
        senders.push(tokio::spawn(async move {
            patch(&engine, run, &add(&format!("p{n}"), json!({"skill": "echo", "depends_on": ["b"]}))).await
        }));
    }
    for sender in senders {
        sender.await.unwrap();
    }
    gate.let_through(1);
    assert_eq!(ended(&engines[0], run).await, RunStatus::Completed);
    let view = engines[1].run(run).await.unwrap();
    assert_eq!((view.summary.steps_total, view.summary.steps_done), (11, 11));
    engines[1].flush_projections().await;
    sound(&engines[0], run).await;
}

/// A step that adds the next one, `left` times.
fn growing(left: u32) -> Value {
    let next = match left {
        0 => json!([]),
        _ => add(&format!("s{left}"), json!({"skill": "echo", "input": growing(left - 1), "depends_on": ["plan"]})),
    };
    json!({"left": left, "patch": next})
}

async fn a_step_grows_the_plan_of_its_run(home: Home) {
    let engine = home.open(config()).await;
    let document = json!({
        "name": "agent",
        "self_patch": {"max_patches": 3, "max_steps": 5},
        "steps": {"plan": {"skill": "echo", "input": growing(3)}},
    });
    let (run, status) = self::run(&engine, &document.to_string(), NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed, "{:?}", engine.run(run).await.unwrap().summary.error);
    let view = engine.run(run).await.unwrap();
    assert_eq!(steps(&view), "plan completed, s3 completed, s2 completed, s1 completed");
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn a_returned_patch_that_is_refused_fails_its_step(home: Home) {
    let engine = home.open(config()).await;
    let fails = async |limits: Value, patch: Value| {
        let document = json!({"name": "agent", "self_patch": limits,
            "steps": {"plan": {"skill": "echo", "retry": {"max_attempts": 3}, "input": {"patch": patch}}}});
        let (run, status) = self::run(&engine, &document.to_string(), NewRun::default()).await;
        assert_eq!(status, RunStatus::Failed);
        let view = engine.run(run).await.unwrap();
        assert_eq!(view.steps[0].logical_attempt, 1, "it is not tried again");
        let error = view.steps[0].error.clone().unwrap();
        assert_eq!(error.code, "patch_refused");
        sound(&engine, run).await;
        error.message
    };
    let unknown = fails(json!({}), add("z", json!({"skill": "nobody"}))).await;
    assert!(unknown.contains("`nobody`"), "{unknown}");
    let many = fails(json!({"max_steps": 1}), add("z", json!({"skill": "echo"}))).await;
    assert!(many.contains("2 steps"), "{many}");
    let broken = fails(json!({}), add("z", json!({"skill": "echo", "depends_on": ["y"]}))).await;
    assert!(broken.contains("no step `y`"), "{broken}");
}

async fn a_worker_returns_a_patch(home: Home) {
    let (engine, other) = (home.open(server()).await, home.open(server()).await);
    let document =
        "{name: agent, self_patch: {}, steps: {plan: {skill: think}, end: {skill: act, depends_on: [plan]}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let task = take(&engine, "default", LONG).await.unwrap();
    let ops = json!([
        {"op": "add", "path": "/steps/act", "value": {"skill": "act", "input": "${{ steps.plan.output.goal }}"}},
        {"op": "add", "path": "/steps/end/depends_on/-", "value": "act"},
    ]);
    // Told twice, through two nodes, it is one patch.
    report(&engine, &task, json!({"goal": "x", "patch": ops})).await;
    report(&other, &task, json!({"goal": "x", "patch": ops})).await;
    for (step, input) in [("act", "\"x\""), ("end", "{}")] {
        let task = take(&engine, "default", LONG).await.unwrap();
        assert_eq!((task.step_id.as_str(), task.input.as_str()), (step, input));
        report(&other, &task, json!(null)).await;
    }
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    engine.flush_projections().await;
    other.flush_projections().await;
    sound(&engine, run).await;
}

async fn runs_that_grow_end_however_often_the_node_dies(home: Home) {
    let document = json!({
        "name": "agent",
        "self_patch": {"max_patches": 6, "max_steps": 20},
        "steps": {"plan": {"skill": "echo", "input": growing(5)}},
    })
    .to_string();
    let mut engine = home.open(short()).await;
    let mut runs = Vec::new();
    for round in 0..12_u64 {
        for _ in 0..4 {
            runs.push(start(&engine, &document, NewRun::default()).await);
        }
        // Somewhere between a step that returns a patch and the plan that it makes.
        tokio::time::sleep(Duration::from_micros(700 * round)).await;
        drop(engine);
        engine = home.open(short()).await;
    }
    for run in &runs {
        assert_eq!(ended(&engine, *run).await, RunStatus::Completed);
    }
    within(async {
        // Nodes that died a moment ago may still own runs that have ended.
        let store = engine.store();
        while store.dead_nodes(now()).await.unwrap().len() + store.unprojected(1).await.unwrap().len() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for run in runs {
        let view = engine.run(run).await.unwrap();
        assert_eq!((view.summary.steps_total, view.summary.steps_done), (6, 6));
        let patches = types(engine.store(), run).await.iter().filter(|name| *name == "RunPatched").count();
        assert_eq!(patches, 5);
        sound(&engine, run).await;
    }
    healthy(engine.store()).await;
}

async fn a_run_updates_a_patched_one_with_the_definition_it_had(home: Home) {
    let gate = Gate::new();
    let engine = home.open(config().gate(&gate)).await;
    let run = start(&engine, CHAIN, NewRun::default()).await;
    gate.arrival().await;
    patch(&engine, run, &json!([{"op": "remove", "path": "/steps/f"}])).await;
    patch(&engine, run, &add("a", json!({"skill": "echo"}))).await;
    gate.let_through(2);
    ended(&engine, run).await;
    let update = within(engine.update(run, None, Vec::new(), NewRun::default())).await.unwrap().run;
    assert_eq!(ended(&engine, update).await, RunStatus::Completed);
    assert_eq!(steps(&engine.run(update).await.unwrap()), "a completed, b completed, d completed");
    let hash = engine.store().head(ORG, run).await.unwrap().unwrap().plan_hash;
    let (plan, _, text) = engine.document(&format!("sha256:{hash}")).await.unwrap();
    assert!(plan.after.is_none() && !text.as_str().contains("\"patched\""), "{}", text.as_str());
}
