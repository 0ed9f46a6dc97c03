//! Files that runs leave: attached, recorded, inherited, and gone when nobody needs them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use milepost_core::artifact::NewArtifact;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::artifacts::{ArtifactView, ArtifactsConfig, NewRecord};
use milepost_engine::skills::SkillError;
use milepost_engine::view::RunView;
use milepost_engine::workers::{Exchange, Exchanged, Outcome, WorkerResult, WorkerTask};
use milepost_engine::{Clock as _, Config, Engine, EngineError, ManualClock, NewRun, SystemClock};
use milepost_store::blobs::Blobs;
use milepost_store::rows::ArtifactFilter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::*;

on! {
    embedded: [
        what_is_uploaded_is_found_by_its_hash,
        an_upload_that_breaks_off_or_lies_leaves_nothing,
        two_orgs_know_nothing_of_each_other,
        files_of_a_step_come_with_its_outcome,
        a_worker_that_names_what_is_not_there_may_say_it_again,
        one_bad_item_does_not_spoil_the_others,
        recorded_on_their_own_while_it_runs_and_after_its_end,
        one_of_a_kind_for_each_step_of_a_training,
        a_key_that_comes_again_is_the_same_request,
        a_result_that_is_taken_leaves_its_files_to_the_new_run,
        a_changed_file_with_an_equal_output_is_a_change,
        a_result_of_which_a_file_is_gone_is_made_again_and_nothing_else,
        what_nobody_names_goes_after_a_while_and_nothing_else,
        kinds_are_kept_as_long_as_it_is_said,
        everything_works_when_no_state_is_at_hand,
    ],
    postgres: [
        what_is_uploaded_is_found_by_its_hash,
        files_of_a_step_come_with_its_outcome,
        a_worker_that_names_what_is_not_there_may_say_it_again,
        one_of_a_kind_for_each_step_of_a_training,
        a_result_that_is_taken_leaves_its_files_to_the_new_run,
        a_changed_file_with_an_equal_output_is_a_change,
        a_result_of_which_a_file_is_gone_is_made_again_and_nothing_else,
        what_nobody_names_goes_after_a_while_and_nothing_else,
    ]
}

/// A folder for content, and a count of how often `make` made something.
struct Bench {
    folder: TempDir,
    made: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), made: Arc::default() }
    }

    fn blobs(&self) -> Blobs {
        Blobs::in_folder(self.folder.path())
    }

    /// `make` attaches its input's `text` as a file and gives it back, or what it is told to `say`.
    fn config(&self) -> Config {
        let made = self.made.clone();
        let config = config().skill("make", move |context, input: Value| {
            made.fetch_add(1, Ordering::SeqCst);
            async move {
                let text = input["text"].as_str().unwrap_or_default().to_owned();
                let artifact = NewArtifact {
                    kind: input["kind"].as_str().map(str::to_owned),
                    filename: Some("made.txt".to_owned()),
                    media_type: Some("text/plain".to_owned()),
                    training_step: input["at"].as_i64(),
                    metadata: Some(Json::trusted(r#"{"by":"make"}"#)),
                    ..NewArtifact::default()
                };
                context.attach_bytes(text.clone(), artifact).await?;
                match input["fail"].is_null() {
                    true => Ok(input.get("say").cloned().unwrap_or_else(|| json!(text))),
                    false => Err(SkillError::fatal("broken", "as it was told")),
                }
            }
        });
        Config { blobs: Some(self.blobs()), ..config }
    }

    fn runs(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    /// Files in the blob store, with what processes may have left.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => files.push(entry.path()),
                }
            }
        }
        files
    }
}

fn pieces(parts: &[&'static str]) -> impl futures::Stream<Item = Result<Bytes, std::io::Error>> + Send {
    let parts: Vec<Result<Bytes, std::io::Error>> =
        parts.iter().map(|part| Ok(Bytes::from_static(part.as_bytes()))).collect();
    futures::stream::iter(parts)
}

async fn store(engine: &Engine, text: &'static str) -> Digest {
    engine.files().upload(engine.org(), None, pieces(&[text])).await.unwrap().sha256
}

async fn text(engine: &Engine, hash: Digest) -> String {
    let found = engine.files().find(engine.org(), hash).await.unwrap();
    let download = engine.files().download(&found, None).await.unwrap();
    let pieces: Vec<Bytes> = download.pieces.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, EngineError>) -> &'static str {
    result.unwrap_err().code()
}

async fn all(engine: &Engine, run: RunId) -> Vec<ArtifactView> {
    engine.artifacts(run, &ArtifactFilter::default(), None, 1000).await.unwrap().items
}

fn own(hash: Digest) -> NewArtifact {
    NewArtifact { sha256: Some(hash), ..NewArtifact::default() }
}

async fn what_is_uploaded_is_found_by_its_hash(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    let hash = Digest::of(b"hello");
    assert_eq!(code(engine.files().find(ORG, hash).await), "unknown_blob");
    let stored = engine.files().upload(ORG, Some(hash), pieces(&["hel", "lo"])).await.unwrap();
    assert_eq!((stored.sha256, stored.size_bytes, stored.new), (hash, 5, true));
    assert_eq!(text(&engine, hash).await, "hello");
    for expected in [None, Some(hash)] {
        let again = engine.files().upload(ORG, expected, pieces(&["hello"])).await.unwrap();
        assert_eq!((again.sha256, again.size_bytes, again.new), (hash, 5, false));
    }
    assert_eq!(bench.files().len(), 1, "the same content is stored once");
    // Somebody takes it away behind the server's back; then it is not there, and may be brought again.
    std::fs::remove_file(&bench.files()[0]).unwrap();
    assert_eq!(code(engine.files().find(ORG, hash).await), "unknown_blob");
    assert!(engine.files().upload(ORG, Some(hash), pieces(&["hello"])).await.unwrap().new);
    assert_eq!(text(&engine, hash).await, "hello");
    let nowhere = home.open(config()).await;
    assert_eq!(code(nowhere.files().upload(ORG, None, pieces(&["x"])).await), "no_blob_store");
}

async fn an_upload_that_breaks_off_or_lies_leaves_nothing(home: Home) {
    let bench = Bench::new();
    let mut config = bench.config();
    config.limits.artifact_bytes = 20_000_000;
    let engine = home.open(config).await;
    let files = engine.files();
    let hash = Digest::of(b"hello");
    assert_eq!(code(files.upload(ORG, Some(hash), pieces(&["hal", "lo"])).await), "hash_mismatch");
    let large = || futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[7; 100_000])));
    assert_eq!(code(files.upload(ORG, None, large()).await), "blob_too_large");
    let broken = futures::stream::iter((0..150).map(|n| match n {
        149 => Err(std::io::Error::other("gone")),
        _ => Ok(Bytes::from_static(&[7; 100_000])),
    }));
    assert_eq!(code(files.upload(ORG, None, broken).await), "upload_broken");
    assert!(bench.files().is_empty(), "{:?}", bench.files());
    let keys = engine.store().artifacts().loose_keys(SystemClock.now().plus_ms(1), 10).await.unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    // Whoever goes away in the middle takes what came along.
    let going = files.upload(ORG, None, large().take(120).chain(futures::stream::pending()));
    assert!(tokio::time::timeout(Duration::from_millis(500), going).await.is_err());
    within(async {
        while !bench.files().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // What is there already is compared all the same.
    files.upload(ORG, Some(hash), pieces(&["hello"])).await.unwrap();
    assert_eq!(code(files.upload(ORG, Some(hash), pieces(&["hallo"])).await), "hash_mismatch");
    assert_eq!(text(&engine, hash).await, "hello");
}

async fn two_orgs_know_nothing_of_each_other(home: Home) {
    let bench = Bench::new();
    let ours = home.open(bench.config()).await;
    let theirs = home.open(Config { org: OrgId(2), ..bench.config() }).await;
    let hash = store(&ours, "secret").await;
    assert_eq!(code(theirs.files().find(OrgId(2), hash).await), "unknown_blob");
    let run = start(&theirs, "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    let record = || NewRecord { artifact: own(hash), ..NewRecord::default() };
    assert_eq!(code(theirs.record_artifact(run, record()).await), "artifact_missing");
    assert_eq!(code(ours.record_artifact(run, record()).await), "unknown_run");
    // It is as new to them as it was to us.
    assert!(theirs.files().upload(OrgId(2), Some(hash), pieces(&["secret"])).await.unwrap().new);
    assert_eq!(bench.files().len(), 2);
    let recorded = theirs.record_artifact(run, record()).await.unwrap().artifact;
    assert_eq!(code(ours.artifact(run, recorded.artifact_id).await), "unknown_run");
}

const MAKE: &str = "{name: make, steps: {a: {skill: make, input: {text: hello, kind: replay}}}}";

async fn files_of_a_step_come_with_its_outcome(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    let (run, status) = run(&engine, MAKE, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let artifacts = all(&engine, run).await;
    let [made] = &artifacts[..] else { panic!("{artifacts:?}") };
    let hash = Digest::of(b"hello");
    assert_eq!((made.step_id.as_deref(), made.skill.as_deref(), &*made.kind), (Some("a"), Some("make"), "replay"));
    assert_eq!((made.sha256, made.size_bytes, made.filename.as_deref()), (Some(hash), Some(5), Some("made.txt")));
    assert_eq!(
        (made.uri.clone(), made.metadata.as_str()),
        (format!("milepost://blobs/sha256/{hash}"), r#"{"by":"make"}"#)
    );
    assert_eq!(engine.content_of(made).await.unwrap().size_bytes, 5);
    let completed =
        log(engine.store(), run).await.into_iter().find(|event| event.event_type == "StepCompleted").unwrap();
    let data = completed.data.to_value();
    assert_eq!((&data["output"], &data["artifacts"][0]["artifact_id"]), (&json!("hello"), &json!(made.artifact_id)));
    // In every view, as it is now, as it was, and step by step.
    let of_step = |view: &RunView| view.steps[0].artifacts.clone();
    assert_eq!(of_step(&engine.run(run).await.unwrap()), artifacts);
    assert_eq!(of_step(&engine.run_at(run, completed.seq).await.unwrap()), artifacts);
    assert!(of_step(&engine.run_at(run, completed.seq - 1).await.unwrap()).is_empty());
    assert_eq!(engine.step(run, "a").await.unwrap().step.artifacts, artifacts);
    let by = async |step: &str, kind: &str| {
        let filter = ArtifactFilter { step_id: Some(step.to_owned()), kind: Some(kind.to_owned()) };
        engine.artifacts(run, &filter, None, 10).await.map(|page| page.items.len())
    };
    assert_eq!((by("a", "replay").await.unwrap(), by("a", "policy").await.unwrap()), (1, 0));
    assert_eq!(code(by("b", "replay").await), "unknown_step");
    // What fails leaves nothing.
    let failing = "{name: fails, steps: {a: {skill: make, input: {text: hello, fail: true}}}}";
    let failed = start(&engine, failing, NewRun::default()).await;
    assert_eq!(within(engine.wait(failed)).await.unwrap(), RunStatus::Failed);
    assert!(all(&engine, failed).await.is_empty());
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

fn call(worker: &str) -> Exchange {
    Exchange {
        worker: worker.into(),
        secret: None,
        queues: vec!["default".into()],
        every_org: false,
        skills: None,
        capacity: 10,
        wait: Duration::from_secs(30),
        results: Vec::new(),
        heartbeats: Vec::new(),
    }
}

fn leaving(task: &WorkerTask, artifacts: &[Value]) -> WorkerResult {
    WorkerResult {
        task: task.task,
        token: task.token.to_string(),
        outcome: Outcome::Completed(Json::trusted("1")),
        artifacts: artifacts.iter().map(Json::of).collect(),
        lines: Vec::new(),
    }
}

async fn exchange(engine: &Engine, call: Exchange) -> Exchanged {
    within(engine.exchange(call, std::future::pending())).await.unwrap()
}

async fn report(engine: &Engine, results: Vec<WorkerResult>) -> Vec<(String, &'static str)> {
    let call = Exchange { capacity: 0, wait: Duration::ZERO, results, ..call("w") };
    exchange(engine, call).await.rejected.into_iter().map(|item| (item.token, item.code)).collect()
}

async fn a_worker_that_names_what_is_not_there_may_say_it_again(home: Home) {
    let bench = Bench::new();
    let engine = home.open(Config { workers: true, ..bench.config() }).await;
    let run = start(&engine, "{name: w, steps: {a: {skill: x}}}", NewRun::default()).await;
    let task = exchange(&engine, call("w")).await.tasks.pop().unwrap();
    let token = task.token.to_string();
    let hash = Digest::of(b"hello");
    let named = json!({"kind": "policy", "sha256": hash, "size_bytes": 5});
    assert_eq!(
        report(&engine, vec![leaving(&task, std::slice::from_ref(&named))]).await,
        [(token.clone(), "artifact_missing")]
    );
    store(&engine, "hello").await;
    let wrong = json!({"sha256": hash, "size_bytes": 6});
    assert_eq!(report(&engine, vec![leaving(&task, &[wrong])]).await, [(token.clone(), "artifact_missing")]);
    let elsewhere = json!({"uri": "https://example.org/report", "kind": "evaluation"});
    let result = leaving(&task, &[named, elsewhere]);
    for time in ["first", "second"] {
        assert_eq!(report(&engine, vec![result.clone()]).await, [], "the {time} time");
    }
    assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    let kinds: Vec<String> = all(&engine, run).await.into_iter().map(|artifact| artifact.kind).collect();
    assert_eq!(kinds, ["policy", "evaluation"]);
    let elsewhere = &all(&engine, run).await[1];
    assert_eq!(code(engine.content_of(elsewhere).await), "content_elsewhere");
}

async fn one_bad_item_does_not_spoil_the_others(home: Home) {
    let bench = Bench::new();
    let engine = home.open(Config { workers: true, ..bench.config() }).await;
    let document =
        "{name: w, on_failure: continue, steps: {a: {skill: x}, b: {skill: x}, c: {skill: x}, d: {skill: x}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let mut tasks = exchange(&engine, call("w")).await.tasks;
    while tasks.len() < 4 {
        tasks.extend(exchange(&engine, call("w")).await.tasks);
    }
    tasks.sort_by_key(|task| task.step_id.clone());
    let hash = store(&engine, "hello").await;
    let results = vec![
        leaving(&tasks[0], &[json!({"sha256": hash})]),
        leaving(&tasks[1], &[json!({"sha256": "abc"})]),
        leaving(&tasks[2], &[json!({"sha256": Digest::of(b"nowhere")})]),
        leaving(
            &tasks[3],
            &[json!({"uri": "s3://b/x", "training_step": 1}), json!({"uri": "s3://b/y", "training_step": 1})],
        ),
    ];
    let rejected = report(&engine, results).await;
    let expected = [(1, "bad_artifact"), (2, "artifact_missing"), (3, "artifact_exists")];
    assert_eq!(rejected, expected.map(|(task, code)| (tasks[task].token.to_string(), code)));
    let results = tasks[1..].iter().map(|task| leaving(task, &[])).collect();
    assert_eq!(report(&engine, results).await, []);
    assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    assert_eq!(all(&engine, run).await.len(), 1);
}

async fn recorded_on_their_own_while_it_runs_and_after_its_end(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    let document = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let hash = store(&engine, "hello").await;
    let record = |step: Option<&str>| NewRecord {
        artifact: NewArtifact { media_type: Some("text/plain".to_owned()), ..own(hash) },
        step_id: step.map(str::to_owned),
        key: None,
    };
    let first = engine.record_artifact(run, record(None)).await.unwrap();
    assert!(!first.existing && first.artifact.step_id.is_none() && first.artifact.kind == "custom");
    let second = engine.record_artifact(run, record(Some("w"))).await.unwrap().artifact;
    assert_eq!(second.skill.as_deref(), Some("wait"));
    assert_eq!(code(engine.record_artifact(run, record(Some("x"))).await), "unknown_step");
    let bad = NewRecord { artifact: NewArtifact::default(), ..NewRecord::default() };
    assert_eq!(code(engine.record_artifact(run, bad).await), "bad_artifact");
    let waiting = engine.step(run, "w").await.unwrap();
    assert_eq!((waiting.attempts.len(), waiting.step.status.as_str()), (1, "running"), "the step goes on");
    within(engine.signal(run, Engine::new_signal("go"))).await.unwrap();
    assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    engine.record_artifact(run, record(None)).await.unwrap();
    let view = engine.run(run).await.unwrap();
    assert_eq!((view.artifacts.len(), view.steps[0].artifacts.len()), (2, 1));
    assert_eq!(view.summary.status, RunStatus::Completed);
    assert_eq!(engine.files().media_type(ORG, hash).await.unwrap().as_deref(), Some("text/plain"));
    let page = engine.artifacts(run, &ArtifactFilter::default(), None, 2).await.unwrap();
    let rest = engine.artifacts(run, &ArtifactFilter::default(), page.next_cursor.as_deref(), 2).await.unwrap();
    assert_eq!((page.items.len(), rest.items.len(), rest.next_cursor), (2, 1, None));
    let wrong = engine.artifacts(run, &ArtifactFilter::default(), Some("7"), 2).await;
    assert_eq!(code(wrong), "bad_cursor");
    engine.flush_projections().await;
    sound(&engine, run).await;
    healthy(engine.store()).await;
}

async fn one_of_a_kind_for_each_step_of_a_training(home: Home) {
    let bench = Bench::new();
    let engine = home.open(Config { workers: true, ..bench.config() }).await;
    let run = start(&engine, "{name: w, steps: {a: {skill: x}}}", NewRun::default()).await;
    let task = exchange(&engine, call("w")).await.tasks.pop().unwrap();
    let (hash, other) = (store(&engine, "hello").await, store(&engine, "other").await);
    let record = |kind: &str, hash: Digest, step: i64| NewRecord {
        artifact: NewArtifact { kind: Some(kind.to_owned()), training_step: Some(step), ..own(hash) },
        ..NewRecord::default()
    };
    let first = engine.record_artifact(run, record("checkpoint", hash, 100)).await.unwrap();
    let again = engine.record_artifact(run, record("checkpoint", hash, 100)).await.unwrap();
    assert_eq!((first.existing, again.existing, &again.artifact), (false, true, &first.artifact));
    assert_eq!(code(engine.record_artifact(run, record("checkpoint", other, 100)).await), "artifact_exists");
    engine.record_artifact(run, record("policy", other, 100)).await.unwrap();
    engine.record_artifact(run, record("checkpoint", other, 200)).await.unwrap();
    // The outcome names one that is there, one that is new, and another that is not the one that is there.
    let named = |hash: Digest, step: i64| json!({"kind": "checkpoint", "sha256": hash, "training_step": step});
    let rejected = report(&engine, vec![leaving(&task, &[named(hash, 200)])]).await;
    assert_eq!(rejected, [(task.token.to_string(), "artifact_exists")]);
    assert_eq!(report(&engine, vec![leaving(&task, &[named(hash, 100), named(hash, 300)])]).await, []);
    assert_eq!(within(engine.wait(run)).await.unwrap(), RunStatus::Completed);
    let listed: Vec<_> = all(&engine, run).await.into_iter().map(|a| (a.kind, a.training_step, a.step_id)).collect();
    let of = |kind: &str, step, of: Option<&str>| (kind.to_owned(), Some(step), of.map(str::to_owned));
    let expected = [
        of("checkpoint", 100, None),
        of("policy", 100, None),
        of("checkpoint", 200, None),
        of("checkpoint", 300, Some("a")),
    ];
    assert_eq!(listed, expected);
    sound(&engine, run).await;
}

async fn a_key_that_comes_again_is_the_same_request(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    let (run, _) = run(&engine, MAKE, NewRun::default()).await;
    let record = |uri: &str| NewRecord {
        artifact: NewArtifact { uri: Some(uri.to_owned()), ..NewArtifact::default() },
        step_id: None,
        key: Some("k".to_owned()),
    };
    let tries = (0..8).map(|_| engine.record_artifact(run, record("s3://b/x")));
    let recorded: Vec<_> = futures::future::try_join_all(tries).await.unwrap();
    assert_eq!(recorded.iter().filter(|recorded| !recorded.existing).count(), 1);
    assert!(recorded.iter().all(|again| again.artifact == recorded[0].artifact));
    assert_eq!(all(&engine, run).await.len(), 2);
    assert_eq!(code(engine.record_artifact(run, record("s3://b/y")).await), "idempotency_key_reused");
}

const CACHED: &str = r#"
name: cached
defaults: {cache: {enabled: true}}
steps:
  a: {skill: make, input: {text: hello, at: 7}}
  b: {skill: make, input: {text: "${{ steps.a.output + ' world' }}"}}
  c: {skill: echo, input: {of: "${{ steps.b.output }}"}}
"#;

async fn a_result_that_is_taken_leaves_its_files_to_the_new_run(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    let (first, _) = run(&engine, CACHED, NewRun::default()).await;
    let (second, status) = run(&engine, CACHED, NewRun::default()).await;
    assert_eq!((bench.runs(), status), (2, RunStatus::Completed));
    let (made, inherited) = (all(&engine, first).await, all(&engine, second).await);
    let content = |all: &[ArtifactView]| {
        all.iter().map(|a| (a.step_id.clone(), a.sha256, a.training_step, a.filename.clone())).collect::<Vec<_>>()
    };
    assert_eq!((content(&inherited), inherited.len()), (content(&made), 2));
    assert!(inherited.iter().zip(&made).all(|(new, old)| new.artifact_id != old.artifact_id && new.run_id == second));
    let view = engine.run(second).await.unwrap();
    assert!(view.steps.iter().all(|step| step.cache_hit));
    assert_eq!(view.steps[0].artifacts, inherited[..1]);
    let events = log(engine.store(), second).await;
    assert!(events.iter().all(|event| event.persisted_at == events[0].persisted_at), "more than one commit");
    sound(&engine, second).await;
    healthy(engine.store()).await;
}

const SAYS_THE_SAME: &str = r#"
name: same
defaults: {cache: {enabled: true}}
steps:
  a: {skill: make, input: {text: "${{ payload.text }}", say: 1}}
  b: {skill: echo, depends_on: [a], input: {x: 1}}
  c: {skill: echo, input: {file: "${{ steps.a.artifacts.custom['made.txt'] }}"}}
  d: {skill: echo, input: {of: "${{ steps.b.output }}"}}
"#;

async fn a_changed_file_with_an_equal_output_is_a_change(home: Home) {
    let bench = Bench::new();
    for cached_bytes in [config().cached_bytes, 0] {
        let mut config = Config { cached_bytes, ..bench.config() };
        if cached_bytes == 0 {
            config.limits.continue_steps = 1;
        }
        let engine = home.open(config).await;
        let text =
            |n: &str| NewRun { payload: Json::of(&json!({"text": format!("{n}{cached_bytes}")})), ..NewRun::default() };
        let reused = |view: &RunView| {
            let hits = view.steps.iter().filter(|step| step.cache_hit);
            hits.map(|step| step.step_id.clone()).collect::<Vec<_>>().join("")
        };
        let (first, _) = run(&engine, SAYS_THE_SAME, text("one")).await;
        let (same, _) = run(&engine, SAYS_THE_SAME, text("one")).await;
        let (changed, status) = run(&engine, SAYS_THE_SAME, text("two")).await;
        assert_eq!(status, RunStatus::Completed);
        let views =
            [engine.run(first).await.unwrap(), engine.run(same).await.unwrap(), engine.run(changed).await.unwrap()];
        let hits: Vec<String> = views.iter().map(reused).collect();
        let expected = if cached_bytes == 0 { ["d", "abcd", "d"] } else { ["", "abcd", "d"] };
        assert_eq!(hits, expected, "{cached_bytes}");
        let hash = Digest::of(format!("two{cached_bytes}").as_bytes());
        let file = output(&views[2], "c")["file"].clone();
        assert_eq!((&file["sha256"], &file["uri"]), (&json!(hash), &json!(format!("milepost://blobs/sha256/{hash}"))));
        let told = within(engine.explain(changed, "b")).await.unwrap();
        assert!(told.message.contains("the artifacts of `a` changed"), "{}", told.message);
        // What `a` would leave is not known beforehand.
        let plan = engine.deploy(SAYS_THE_SAME).await.unwrap();
        let foreseen = within(engine.plan_run(&plan, text("three"))).await.unwrap();
        let decisions: Vec<_> =
            foreseen.steps.iter().map(|step| (step.step_id.as_str(), step.decision.as_str())).collect();
        assert_eq!(decisions, [("a", "run"), ("b", "unknown"), ("c", "unknown"), ("d", "unknown")]);
        for id in [first, same, changed] {
            sound(&engine, id).await;
        }
        engine.shutdown().await;
    }
}

async fn a_result_of_which_a_file_is_gone_is_made_again_and_nothing_else(home: Home) {
    let bench = Bench::new();
    let engine = home.open(bench.config()).await;
    run(&engine, CACHED, NewRun::default()).await;
    assert_eq!(bench.runs(), 2);
    let found = engine.files().find(ORG, Digest::of(b"hello world")).await.unwrap();
    let is_gone = |path: &PathBuf| std::fs::read(path).unwrap() == b"hello world";
    let gone: Vec<PathBuf> = bench.files().into_iter().filter(is_gone).collect();
    assert_eq!(gone.len(), 1);
    std::fs::remove_file(&gone[0]).unwrap();
    let (second, status) = run(&engine, CACHED, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let view = engine.run(second).await.unwrap();
    assert_eq!(steps(&view), "a skipped (cache_hit), b completed, c skipped (cache_hit)");
    assert_eq!(bench.runs(), 3, "only what made it runs");
    assert_eq!(text(&engine, found.sha256).await, "hello world");
    let (third, _) = run(&engine, CACHED, NewRun::default()).await;
    assert_eq!(
        (steps(&engine.run(third).await.unwrap()), bench.runs()),
        ("a skipped (cache_hit), b skipped (cache_hit), c skipped (cache_hit)".to_owned(), 3)
    );
}

fn hours(hours: u64) -> u64 {
    hours * 3_600_000
}

async fn what_nobody_names_goes_after_a_while_and_nothing_else(home: Home) {
    let bench = Bench::new();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let engine = home.open(Config { clock: clock.clone(), ..bench.config() }).await;
    let (run, _) = run(&engine, CACHED, NewRun::default()).await;
    let (loose, late) = (store(&engine, "loose").await, store(&engine, "late").await);
    let collect = async || engine.files().collect(clock.now()).await.unwrap();
    assert_eq!(bench.files().len(), 4);
    clock.advance_ms(hours(23));
    assert_eq!(collect().await, milepost_engine::artifacts::Removed::default());
    // Who is about to name it wins, however old it is.
    clock.advance_ms(hours(2));
    let record = NewRecord { artifact: own(late), ..NewRecord::default() };
    engine.record_artifact(run, record).await.unwrap();
    let removed = collect().await;
    assert_eq!((removed.expired, removed.contents, removed.bytes, removed.keys), (0, 1, 5, 1));
    assert_eq!(code(engine.files().find(ORG, loose).await), "unknown_blob");
    assert_eq!((text(&engine, late).await, bench.files().len()), ("late".to_owned(), 3));
    // What is there and was uploaded once more is as good as new.
    let again = store(&engine, "again").await;
    clock.advance_ms(hours(23));
    let stored = engine.files().upload(ORG, Some(again), pieces(&["again"])).await.unwrap();
    assert!(!stored.new);
    clock.advance_ms(hours(23));
    assert_eq!(collect().await.contents, 0);
    clock.advance_ms(hours(2));
    assert_eq!(collect().await.contents, 1);
    // What a process left that died while it uploaded: a key that no row names, and half a file beside it.
    engine.store().artifacts().note_key("artifacts/1/ab/left/blob", clock.now()).await.unwrap();
    let beside = bench.folder.path().join("artifacts/1/ab/left");
    std::fs::create_dir_all(&beside).unwrap();
    std::fs::write(beside.join("blob#1"), "half").unwrap();
    assert_eq!(collect().await.keys, 0);
    clock.advance_ms(hours(25));
    assert_eq!((collect().await.keys, beside.exists()), (1, false));
    // The run is forgotten; results still have their files, and so does nobody when they are evicted.
    engine.flush_projections().await;
    let forgotten = engine.store().forget_runs(clock.now(), 10).await.unwrap();
    assert_eq!(forgotten.runs, 1);
    clock.advance_ms(hours(25));
    assert_eq!(collect().await.contents, 1, "the one that was recorded on its own");
    assert_eq!(bench.files().len(), 2);
    let everything = milepost_store::rows::ResultFilter::All;
    engine.store().cache().evict(ORG, &everything, 100).await.unwrap();
    assert_eq!(collect().await.contents, 2);
    assert!(bench.files().is_empty());
}

async fn kinds_are_kept_as_long_as_it_is_said(home: Home) {
    let bench = Bench::new();
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let retention = [("replay".to_owned(), Duration::from_secs(3600))].into();
    let artifacts = ArtifactsConfig { retention, ..ArtifactsConfig::default() };
    let engine = home.open(Config { clock: clock.clone(), artifacts, ..bench.config() }).await;
    let (run, _) = run(&engine, MAKE, NewRun::default()).await;
    let made = all(&engine, run).await.remove(0);
    assert_eq!(made.expires_at, Some(made.created_at.plus_ms(3_600_000)));
    let hash = store(&engine, "other").await;
    let own_word = clock.now().plus_ms(hours(48));
    let record = NewRecord {
        artifact: NewArtifact { kind: Some("replay".to_owned()), expires_at: Some(own_word), ..own(hash) },
        ..NewRecord::default()
    };
    let recorded = engine.record_artifact(run, record).await.unwrap().artifact;
    assert_eq!(recorded.expires_at, Some(own_word));
    clock.advance_ms(hours(1));
    assert_eq!(engine.files().collect(clock.now()).await.unwrap().expired, 1);
    assert_eq!(all(&engine, run).await, std::slice::from_ref(&recorded));
    assert_eq!(code(engine.artifact(run, made.artifact_id).await), "unknown_artifact");
    clock.advance_ms(hours(47));
    let removed = engine.files().collect(clock.now()).await.unwrap();
    assert_eq!((removed.expired, removed.contents), (1, 2), "and then their content");
    assert!(bench.files().is_empty());
    let events = log(engine.store(), run).await;
    assert!(events.iter().any(|event| event.event_type == "ArtifactRecorded"), "the log keeps the reference");
}

async fn everything_works_when_no_state_is_at_hand(home: Home) {
    let bench = Bench::new();
    let mut config = Config { cached_bytes: 0, ..bench.config() };
    config.limits.continue_steps = 1;
    let engine = home.open(config).await;
    let (first, _) = run(&engine, CACHED, NewRun::default()).await;
    let record = |hash: Digest| NewRecord {
        artifact: NewArtifact { training_step: Some(7), ..own(hash) },
        ..NewRecord::default()
    };
    let other = store(&engine, "other").await;
    assert_eq!(code(engine.record_artifact(first, record(other)).await), "artifact_exists");
    assert!(engine.record_artifact(first, record(Digest::of(b"hello"))).await.unwrap().existing);
    let (second, status) = run(&engine, CACHED, NewRun::default()).await;
    assert_eq!((status, all(&engine, second).await.len()), (RunStatus::Completed, 2));
    sound(&engine, first).await;
    sound(&engine, second).await;
}
