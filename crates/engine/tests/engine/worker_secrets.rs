//! Whatever a worker says, in whichever way, nothing that is kept shows the secrets that it was given.

use milepost_core::event::ErrorInfo;
use milepost_core::id::RunId;
use milepost_core::json::Json;

use milepost_engine::secrets::{SecretAccess, SecretsConfig};
use milepost_engine::skills::LogStream;
use milepost_engine::workers::{Heartbeat, Outcome, WorkerLine, WorkerResult, WorkerTask};
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::rows::ArtifactFilter;
use serde_json::json;

use crate::support::*;
use crate::workers::{call, exchange, result, server, take};

on! {
    embedded: [
        no_way_from_a_worker_into_what_is_kept_shows_a_secret,
        what_was_given_stays_secret_when_it_is_changed_or_removed,
        a_node_that_cannot_read_the_secrets_keeps_nothing_of_what_is_said,
    ],
    postgres: [
        no_way_from_a_worker_into_what_is_kept_shows_a_secret,
        what_was_given_stays_secret_when_it_is_changed_or_removed,
    ]
}

const VALUE: &str = "hunter2-hunter2";
const DOCUMENT: &str =
    "{name: s, self_patch: {}, steps: {a: {skill: x, secrets: {API_KEY: 'secret://audio/api-key'}}}}";

fn with_keys(keys: &str) -> Config {
    let secrets = SecretsConfig { keys: keys.parse().unwrap(), ..SecretsConfig::default() };
    Config { secrets, ..server() }
}

async fn open(home: &Home) -> Engine {
    home.open(with_keys(&"0a".repeat(32))).await
}

async fn set(engine: &Engine, value: &str) {
    engine.secrets().set(ORG, "audio/api-key", value, &SecretAccess::default()).await.unwrap();
}

fn line(text: &str) -> WorkerLine {
    WorkerLine { stream: LogStream::Log, text: text.to_owned(), at: None }
}

/// What a worker says of one attempt.
#[derive(Default)]
struct Said {
    progress: Option<Json>,
    beat_lines: Vec<WorkerLine>,
    outcome: Option<Outcome>,
    artifacts: Vec<Json>,
    lines: Vec<WorkerLine>,
}

fn output(text: &str) -> Said {
    Said { outcome: Some(Outcome::Completed(Json::trusted(text))), ..Said::default() }
}

fn artifact(artifact: &serde_json::Value) -> Said {
    Said { artifacts: vec![Json::of(artifact)], ..output("1") }
}

async fn say(engine: &Engine, task: &WorkerTask, said: Said) -> String {
    let Said { progress, beat_lines, outcome, artifacts, lines } = said;
    let beat = Heartbeat { task: task.task, token: task.token.to_string(), progress, lines: beat_lines };
    exchange(engine, milepost_engine::workers::Exchange { capacity: 0, heartbeats: vec![beat], ..call("w") }).await;
    let open = engine.task(task.task).await.unwrap();
    let outcome = outcome.unwrap_or_else(|| Outcome::Completed(Json::null()));
    within(engine.report(WorkerResult { artifacts, lines, ..result(task, outcome) })).await.unwrap();
    open.progress.map(|progress| progress.as_str().to_owned()).unwrap_or_default()
}

/// All that is kept of a run, as text.
async fn kept(engine: &Engine, run: RunId) -> String {
    let mut kept = String::new();
    for event in log(engine.store(), run).await {
        kept.push_str(event.data.as_str());
    }
    let view = engine.run(run).await.unwrap();
    kept.push_str(&serde_json::to_string(&view).unwrap());
    kept.push_str(&serde_json::to_string(&engine.step(run, "a").await.unwrap()).unwrap());
    kept.push_str(&serde_json::to_string(&engine.logs(run, None, None, 100).await.unwrap()).unwrap());
    let artifacts = engine.artifacts(run, &ArtifactFilter::default(), None, 100).await.unwrap();
    kept.push_str(&format!("{artifacts:?}"));
    kept
}

async fn no_way_from_a_worker_into_what_is_kept_shows_a_secret(home: Home) {
    let engine = open(&home).await;
    set(&engine, VALUE).await;
    let failed = |code: &str, message: &str| Said {
        outcome: Some(Outcome::Failed(ErrorInfo::fatal(code, message))),
        ..Said::default()
    };
    let uri = "https://files.example/x";
    let patch =
        json!({"patch": [{"op": "add", "path": "/steps/b", "value": {"skill": "noop", "input": {"k": VALUE}}}]});
    let ways: Vec<(&str, Said)> = vec![
        ("a line", Said { beat_lines: vec![line("it is hunter2-hunter2")], ..Said::default() }),
        ("a last line", Said { lines: vec![line("it is hunter2-hunter2")], ..Said::default() }),
        ("progress", Said { progress: Some(Json::of(&json!({"key": VALUE}))), ..Said::default() }),
        ("a key of progress", Said { progress: Some(Json::of(&json!({VALUE: 1}))), ..Said::default() }),
        ("progress in escapes", Said { progress: Some(Json::trusted(r#""\u0068unter2-hunter2""#)), ..Said::default() }),
        ("an output", output(r#"{"k": "hunter2-hunter2"}"#)),
        ("a key of an output", output(r#"{"hunter2-hunter2": 1}"#)),
        ("an output in escapes", output(r#"{"k": "\u0068unter2-hunter2"}"#)),
        ("an output in base64", output(r#""aHVudGVyMi1odW50ZXIy""#)),
        ("a key of an output that comes twice", output(r#"{"hunter2-hunter2": 1, "hunter2-hunter2": 2, "n": 1.5e3}"#)),
        ("a patch", output(&patch.to_string())),
        ("a code", failed("hunter2-hunter2", "no")),
        ("a message", failed("no", "401 for https://h/?k=hunter2-hunter2")),
        ("a name", artifact(&json!({"uri": uri, "filename": "hunter2-hunter2.png"}))),
        ("a kind", artifact(&json!({"uri": uri, "kind": VALUE}))),
        ("an address", artifact(&json!({"uri": "https://files.example/?k=hunter2-hunter2"}))),
        ("metadata", artifact(&json!({"uri": uri, "metadata": {"k": [VALUE]}}))),
        ("a key of metadata", artifact(&json!({"uri": uri, "metadata": {VALUE: 1}}))),
        ("a media type", artifact(&json!({"uri": uri, "media_type": "text/hunter2-hunter2"}))),
    ];
    for (way, said) in ways {
        let run = start(&engine, DOCUMENT, NewRun::default()).await;
        let task = take(&engine, "w").await;
        assert_eq!(task.secrets, [("API_KEY".to_owned(), VALUE.to_owned())]);
        let has_artifacts = !said.artifacts.is_empty();
        let progress = say(&engine, &task, said).await;
        let known = progress + &kept(&engine, run).await;
        assert!(!known.contains("hunter2") && !known.contains("aHVudGVyM"), "{way}: {known}");
        // An artifact that does not fit any more is refused as a whole.
        assert!(has_artifacts || known.contains("[redacted: API_KEY]"), "{way}: {known}");
    }
}

async fn what_was_given_stays_secret_when_it_is_changed_or_removed(home: Home) {
    let (a, b) = (open(&home).await, open(&home).await);
    for (through_another, removed) in [(false, false), (true, false), (false, true), (true, true)] {
        set(&a, VALUE).await;
        let run = start(&a, DOCUMENT, NewRun::default()).await;
        let task = take(&a, "w").await;
        if removed {
            a.secrets().remove(ORG, "audio/api-key", None).await.unwrap();
        } else {
            set(&a, "another-value").await;
        }
        let engine = if through_another { &b } else { &a };
        let said =
            Said { beat_lines: vec![line("hunter2-hunter2 or another-value")], ..output(r#""hunter2-hunter2""#) };
        say(engine, &task, said).await;
        let known = kept(engine, run).await;
        let case = format!("through another node: {through_another}, removed: {removed}: {known}");
        // Where nobody knows the value any more, nothing of what was said is kept.
        let instead = if through_another && removed { "secret_unavailable" } else { "[redacted: API_KEY]" };
        assert!(!known.contains("hunter2") && known.contains(instead), "{case}");
    }
}

/// There may be secrets in it, and nobody there could tell.
async fn a_node_that_cannot_read_the_secrets_keeps_nothing_of_what_is_said(home: Home) {
    let (a, b) = (open(&home).await, home.open(with_keys("")).await);
    set(&a, VALUE).await;
    let run = start(&a, DOCUMENT, NewRun::default()).await;
    let task = take(&a, "w").await;
    let beat = Heartbeat {
        task: task.task,
        token: task.token.to_string(),
        progress: Some(Json::of(&json!(VALUE))),
        lines: vec![line(VALUE)],
    };
    let beats = milepost_engine::workers::Exchange { capacity: 0, heartbeats: vec![beat], ..call("w") };
    let rejected = exchange(&b, beats).await.rejected;
    assert_eq!(rejected.iter().map(|item| item.code).collect::<Vec<_>>(), ["secret_unavailable"]);
    say(&b, &task, output(r#""hunter2-hunter2""#)).await;
    let known = kept(&b, run).await;
    assert!(!known.contains("hunter2") && known.contains("secret_unavailable"), "{known}");
}
