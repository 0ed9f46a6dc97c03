//! Outputs that are too large for the log: in the blob store, and in expressions as any other.

use std::path::Path;
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::skills::SkillError;
use milepost_engine::workers::{Exchange, Outcome, WorkerResult};
use milepost_engine::{Config, NewRun};
use milepost_store::blobs::Blobs;
use milepost_store::rows::ArtifactFilter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::*;

on! {
    embedded: [
        a_large_output_is_elsewhere_and_its_parts_are_seen,
        items_and_children_may_have_large_outputs,
        a_result_with_a_large_output_is_taken,
        an_output_that_is_gone_fails_whoever_needs_it,
        without_a_place_for_it_a_large_output_is_too_large,
        a_worker_brings_a_large_output,
    ],
    postgres: [
        a_large_output_is_elsewhere_and_its_parts_are_seen,
        items_and_children_may_have_large_outputs,
        a_result_with_a_large_output_is_taken,
    ]
}

const SIZE: usize = 400_000;

fn large(n: u64) -> Value {
    json!({"n": n, "list": [1, 2, 3], "pad": "x".repeat(SIZE)})
}

/// `big` gives back a large output with its input in it. No state is kept at hand: all that is needed is read again.
fn with_blobs(folder: &Path) -> Config {
    let config = config()
        .skill("big", |_, input: Value| async move { Ok::<_, SkillError>(large(input.as_u64().unwrap_or_default())) });
    Config { blobs: Some(Blobs::in_folder(folder)), cached_bytes: 0, ..config }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() { folders.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

const PARTS: &str = r#"
name: parts
steps:
  big: {skill: big, input: 7}
  part: {skill: echo, input: {n: "${{ steps.big.output.n + 1 }}", length: "${{ steps.big.output.pad | length }}"}}
  each: {skill: echo, foreach: "${{ steps.big.output.list }}", input: "${{ item + steps.big.output.n }}"}
"#;

async fn a_large_output_is_elsewhere_and_its_parts_are_seen(home: Home) {
    let folder = folder();
    let engine = home.open(with_blobs(folder.path())).await;
    let (run, status) = run(&engine, PARTS, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    for projected in [false, true] {
        if projected {
            engine.flush_projections().await;
        }
        let view = engine.run(run).await.unwrap();
        assert_eq!(output(&view, "part"), json!({"n": 8, "length": SIZE}));
        assert_eq!(output(&view, "each"), json!([8, 9, 10]));
        let big = view.steps.iter().find(|step| step.step_id == "big").unwrap();
        let hash = Digest::of(large(7).to_string().as_bytes());
        assert_eq!((big.output.is_none(), big.output_blob.map(|blob| blob.sha256)), (true, Some(hash)));
        let artifact = &big.artifacts[0];
        assert_eq!((artifact.kind.as_str(), artifact.sha256, big.artifacts.len()), ("output", Some(hash), 1));
        assert_eq!(engine.content_of(artifact).await.unwrap().size_bytes, large(7).to_string().len() as u64);
    }
    let detail = engine.step(run, "part").await.unwrap();
    assert_eq!(detail.input.unwrap().to_value(), json!({"n": 8, "length": SIZE}));
    assert!(engine.step(run, "big").await.unwrap().step.output.is_none());
    let events = log(engine.store(), run).await;
    assert!(events.iter().all(|event| event.data.len() < 10_000), "the log has only where it is");
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn items_and_children_may_have_large_outputs(home: Home) {
    let folder = folder();
    let engine = home.open(with_blobs(folder.path())).await;
    engine.deploy("{name: child, steps: {made: {skill: big, input: '${{ payload.n }}'}}}").await.unwrap();
    let document = r#"
name: parent
steps:
  items: {skill: big, foreach: "${{ [1, 2] }}", input: "${{ item }}"}
  sum: {skill: echo, input: "${{ steps.items.output[0].n + steps.items.output[1].n }}"}
  child: {skill: workflow, input: {ref: child, payload: {n: 5}}}
  after: {skill: echo, input: "${{ steps.child.output.made.n }}"}
"#;
    let (run, status) = run(&engine, document, NewRun::default()).await;
    let view = engine.run(run).await.unwrap();
    assert_eq!(status, RunStatus::Completed, "{:?}", view.summary.error);
    assert_eq!((output(&view, "sum"), output(&view, "after")), (json!(3), json!(5)));
    let step = |id: &str| view.steps.iter().find(|step| step.step_id == id).unwrap();
    assert!(step("items").output.is_none() && step("items[0]").output_blob.is_some());
    assert!(step("child").output_blob.is_some() && step("child").output.is_none());
    let whole = engine.step(run, "items").await.unwrap().step.output.unwrap().to_value();
    assert_eq!(whole, json!([large(1), large(2)]), "one step alone is shown whole");
    let listed = engine.artifacts(run, &ArtifactFilter::default(), None, 10).await.unwrap().items;
    assert_eq!(listed.iter().filter(|artifact| artifact.kind == "output").count(), 3);
    sound(&engine, run).await;
}

async fn a_result_with_a_large_output_is_taken(home: Home) {
    let folder = folder();
    let engine = home.open(with_blobs(folder.path())).await;
    engine
        .deploy("{name: child, defaults: {cache: {enabled: true}}, steps: {made: {skill: big, input: 5}}}")
        .await
        .unwrap();
    let document = r#"
name: taken
defaults: {cache: {enabled: true}}
steps:
  big: {skill: big, input: 7}
  part: {skill: echo, input: "${{ steps.big.output.n }}"}
  child: {skill: workflow, input: {ref: child}}
  after: {skill: echo, input: "${{ steps.child.output.made.n + steps.part.output }}"}
"#;
    let (first, _) = run(&engine, document, NewRun::default()).await;
    // Another process, which has nothing at hand.
    engine.shutdown().await;
    drop(engine);
    let engine = home.open(with_blobs(folder.path())).await;
    let (second, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let (before, view) = (engine.run(first).await.unwrap(), engine.run(second).await.unwrap());
    assert_eq!((output(&view, "after"), view.steps[0].output_blob), (json!(12), before.steps[0].output_blob));
    let hits = view.steps.iter().filter(|step| step.cache_hit).count();
    assert_eq!(hits, 3, "all but the child run, whose own steps are taken: {}", steps(&view));
    sound(&engine, second).await;
    // Its file is gone, also for who made it a moment ago: it is made again, and nothing else, and is there again.
    let made = Digest::of(large(7).to_string().as_bytes());
    for _ in 0..2 {
        for path in files(folder.path()) {
            if Digest::of(&std::fs::read(&path).unwrap()) == made {
                std::fs::remove_file(path).unwrap();
            }
        }
        for expected in [&["big", "child"][..], &["child"]] {
            let (next, status) = run(&engine, document, NewRun::default()).await;
            let view = engine.run(next).await.unwrap();
            assert_eq!((status, output(&view, "after")), (RunStatus::Completed, json!(12)));
            let made: Vec<&str> = view.steps.iter().filter(|step| !step.cache_hit).map(|step| &*step.step_id).collect();
            assert_eq!(made, expected);
        }
    }
}

async fn an_output_that_is_gone_fails_whoever_needs_it(home: Home) {
    let folder = folder();
    let engine = home.open(with_blobs(folder.path())).await;
    let document = r#"
name: gone
on_failure: continue
steps:
  big: {skill: big, input: 7}
  wait: {skill: wait, input: {signal: go}, depends_on: [big]}
  part: {skill: echo, input: "${{ steps.big.output.n }}", depends_on: [wait]}
  each: {skill: echo, foreach: "${{ steps.big.output.list }}", input: "${{ item }}", depends_on: [wait]}
  other: {skill: echo, input: 1, depends_on: [wait]}
"#;
    let run = start(&engine, document, NewRun::default()).await;
    event(&engine, run, "StepCompleted").await;
    engine.shutdown().await;
    drop(engine);
    files(folder.path()).into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let engine = home.open(with_blobs(folder.path())).await;
    send(&engine, run, "go").await;
    assert_eq!(ended(&engine, run).await, RunStatus::Failed);
    let view = engine.run(run).await.unwrap();
    let step = |id: &str| view.steps.iter().find(|step| step.step_id == id).unwrap();
    for id in ["part", "each"] {
        let error = step(id).error.clone().unwrap();
        assert_eq!((error.code.as_str(), error.retryable), ("output_lost", false), "{id}");
        assert!(error.message.contains("is gone from the blob store; run that step again"), "{}", error.message);
    }
    assert_eq!(step("other").status.as_str(), "completed");
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn without_a_place_for_it_a_large_output_is_too_large(home: Home) {
    let folder = folder();
    let engine = home.open(Config { blobs: None, ..with_blobs(folder.path()) }).await;
    let document = "{name: big, steps: {big: {skill: big, input: 7}}}";
    let (first, status) = run(&engine, document, NewRun::default()).await;
    let error = engine.run(first).await.unwrap().steps[0].error.clone().unwrap();
    assert_eq!((status, error.code.as_str()), (RunStatus::Failed, "output_too_large"));
    let mut config = with_blobs(folder.path());
    config.limits.large_output_bytes = 300_000;
    let engine = home.open(config).await;
    let (second, _) = run(&engine, document, NewRun::default()).await;
    let error = engine.run(second).await.unwrap().steps[0].error.clone().unwrap();
    assert_eq!(error.code, "output_too_large", "{}", error.message);
}

async fn a_worker_brings_a_large_output(home: Home) {
    let folder = folder();
    let engine = home.open(Config { workers: true, ..with_blobs(folder.path()) }).await;
    let document = "{name: w, steps: {a: {skill: x}, b: {skill: echo, input: '${{ steps.a.output.n }}'}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let call = Exchange {
        worker: "w".into(),
        secret: None,
        queues: vec!["default".into()],
        every_org: false,
        skills: None,
        capacity: 1,
        wait: Duration::from_secs(30),
        results: Vec::new(),
        heartbeats: Vec::new(),
    };
    let task = within(engine.exchange(call, std::future::pending())).await.unwrap().tasks.pop().unwrap();
    let result = WorkerResult {
        task: task.task,
        token: task.token.to_string(),
        outcome: Outcome::Completed(Json::of(&large(3))),
        artifacts: vec![Json::trusted(r#"{"uri": "s3://b/x"}"#)],
        lines: Vec::new(),
    };
    within(engine.report(result)).await.unwrap();
    assert_eq!(ended(&engine, run).await, RunStatus::Completed);
    let view = engine.run(run).await.unwrap();
    assert_eq!((output(&view, "b"), view.steps[0].artifacts.len()), (json!(3), 2));
}
