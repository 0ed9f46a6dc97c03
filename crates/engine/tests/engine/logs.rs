//! What steps say is kept with their run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milepost_core::id::RunId;
use milepost_core::limits::Limits;
use milepost_core::status::RunStatus;
use milepost_engine::skills::{LogStream, SkillContext, SkillError};
use milepost_engine::{Config, Engine, LogLineView, NewRun};
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use serde_json::{Value, json};

use crate::faults::{Fault, Faulty, Plan};
use crate::support::*;

on! {
    embedded: [
        both_streams_of_a_program_are_kept,
        pages_of_lines_follow_each_other,
        each_attempt_has_a_log_of_its_own,
        what_was_said_is_stored_when_the_engine_ends,
        what_is_not_there_is_refused,
        more_than_is_kept_is_cut,
        a_line_that_is_too_long_is_cut,
        what_is_large_is_kept_outside_and_read_alike,
        lines_are_not_lost_when_there_is_no_blob_store,
    ],
    postgres: [
        both_streams_of_a_program_are_kept,
        pages_of_lines_follow_each_other,
        what_is_large_is_kept_outside_and_read_alike,
    ]
}

/// `a 1/1 0 stdout text`: all lines, read in pages of `limit`.
async fn lines(engine: &Engine, run: RunId, step: Option<&str>, limit: u32) -> Vec<String> {
    let (mut lines, mut cursor) = (Vec::new(), None);
    loop {
        let page = within(engine.logs(run, step, cursor, limit)).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        lines.extend(page.items.iter().map(shown));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return lines,
        }
    }
}

fn shown(line: &LogLineView) -> String {
    let (logical, engine) = (line.logical_attempt, line.engine_attempt);
    format!("{} {logical}/{engine} {} {} {}", line.step_id, line.line, line.stream.as_str(), line.text)
}

/// Says `n` lines in each attempt, and fails the first.
fn talks(config: Config) -> Config {
    config.skill("talk", |context: SkillContext, input: Value| async move {
        for n in 0..input["n"].as_u64().unwrap_or(1) {
            context.log(LogStream::Log, format!("{n} of {}", context.step_id));
        }
        match context.logical_attempt {
            1 if input["again"] == true => Err(SkillError::new("again", "once more")),
            _ => Ok(json!({})),
        }
    })
}

async fn both_streams_of_a_program_are_kept(home: Home) {
    let engine = home.open(config()).await;
    let document =
        r#"{name: s, steps: {a: {skill: shell, input: {command: "echo one; echo two >&2; sleep 0.05; echo '{}'"}}}}"#;
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let mut said = lines(&engine, id, Some("a"), 100).await;
    assert_eq!(said.pop().as_deref(), Some("a 1/1 2 stdout {}"));
    // Which of the two streams is heard first is not ours to say.
    let mut words: Vec<&str> = said.iter().map(|line| line.rsplit_once(' ').unwrap().1).collect();
    words.sort_unstable();
    assert_eq!(words, ["one", "two"]);
    assert!(said.iter().any(|line| line.ends_with("stderr two")), "{said:?}");
}

async fn pages_of_lines_follow_each_other(home: Home) {
    let engine = home.open(talks(config())).await;
    let document = r#"
name: pages
steps:
  b: {skill: talk, foreach: [1, 2], input: {n: 7}}
  a: {skill: talk, input: {n: 50}}
"#;
    let (id, _) = run(&engine, document, NewRun::default()).await;
    let all = lines(&engine, id, None, 1000).await;
    let expected = |step: &str, count: u32| (0..count).map(|n| format!("{step} 1/1 {n} log {n} of {step}")).collect();
    let steps: [Vec<String>; 3] = [expected("a", 50), expected("b[0]", 7), expected("b[1]", 7)];
    assert_eq!(all, steps.concat());
    for limit in [1, 3, 7, 50, 63, 64] {
        assert_eq!(lines(&engine, id, None, limit).await, all, "{limit}");
        assert_eq!(lines(&engine, id, Some("b[1]"), limit).await, steps[2], "{limit}");
    }
    assert_eq!(lines(&engine, id, Some("b"), 10).await, [""; 0]);
}

async fn each_attempt_has_a_log_of_its_own(home: Home) {
    let engine = home.open(talks(config())).await;
    let document =
        "{name: again, steps: {a: {skill: talk, retry: {max_attempts: 2, backoff_ms: 1}, input: {again: true}}}}";
    let (id, _) = run(&engine, document, NewRun::default()).await;
    assert_eq!(lines(&engine, id, None, 1).await, ["a 1/1 0 log 0 of a", "a 2/1 0 log 0 of a"]);
}

async fn what_was_said_is_stored_when_the_engine_ends(home: Home) {
    let engine = home.open(talks(config())).await;
    let (id, _) = run(&engine, "{name: end, steps: {a: {skill: talk, input: {n: 3}}}}", NewRun::default()).await;
    within(engine.shutdown()).await;
    drop(engine);
    let next = home.open(config()).await;
    assert_eq!(lines(&next, id, Some("a"), 10).await.len(), 3);
}

async fn what_is_not_there_is_refused(home: Home) {
    let engine = home.open(talks(config())).await;
    let (id, _) = run(&engine, "{name: r, steps: {talk: {skill: talk, input: {}}}}", NewRun::default()).await;
    let refused = async |run, step, cursor: Option<&str>| {
        within(engine.logs(run, step, cursor.map(str::to_owned), 10)).await.unwrap_err()
    };
    assert_eq!(refused(RunId(uuid::Uuid::nil()), None, None).await.code(), "unknown_run");
    let unknown = refused(id, Some("tlak"), None).await;
    assert_eq!(unknown.code(), "unknown_step");
    assert!(unknown.to_string().contains("did you mean `talk`?"), "{unknown}");
    assert_eq!(refused(id, None, Some("junk")).await.code(), "bad_cursor");
}

async fn a_line_that_is_too_long_is_cut(home: Home) {
    let limits = Limits { log_bytes: 100_000, output_bytes: 50_000, large_output_bytes: 50_000, ..Limits::default() };
    let engine = home.open(Config { limits, ..config() }).await;
    let long = "head -c 3000000 /dev/zero | tr '\\0' x";
    let shell = |command: String| json!({"skill": "shell", "input": {"command": command}});
    let document = json!({"name": "long", "on_failure": "continue", "steps": {
        "more": shell(format!("{long}; echo; echo '{{\"n\": 1}}'")),
        "only": shell(long.to_owned()),
        "fails": shell(format!("({long}; echo; echo why) >&2; false")),
    }});
    let (id, status) = run(&engine, &document.to_string(), NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    let view = engine.run(id).await.unwrap();
    let step = |id: &str| view.steps.iter().find(|step| step.step_id == id).unwrap();
    assert_eq!(step("more").output.as_ref().unwrap().to_value(), json!({"n": 1}));
    let error = |id: &str| step(id).error.clone().unwrap();
    assert_eq!((&*error("only").code, error("only").retryable), ("output_too_large", false));
    assert!(error("only").message.contains("more than 100000 bytes"), "{}", error("only").message);
    assert_eq!(error("fails").message, "exit status: 1: … (a line that was too long)\nwhy");
    let said = lines(&engine, id, Some("more"), 10).await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("more 1/1 0 stdout xxx") && said[0].len() < 20_000, "{}", said[0].len());
    assert!(said[0].ends_with("x… (a line that was too long; the rest is left out)"));
}

/// Says `n` lines of `width` characters.
fn talks_much(config: Config) -> Config {
    config.skill("much", |context: SkillContext, input: Value| async move {
        let (n, width) = (input["n"].as_u64().unwrap(), usize::try_from(input["width"].as_u64().unwrap()).unwrap());
        (0..n).for_each(|n| context.log(LogStream::Stdout, format!("{n:0width$}")));
        Ok(json!({}))
    })
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.unwrap().path())).collect()
}

async fn what_is_large_is_kept_outside_and_read_alike(home: Home) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Some(Blobs::in_folder(folder.path()));
    let engine = home.open(talks_much(Config { blobs: blobs.clone(), ..config() })).await;
    let document = "
name: large
steps:
  few: {skill: much, input: {n: 3, width: 20}}
  many: {skill: much, input: {n: 3000, width: 100}}
";
    let (id, _) = run(&engine, document, NewRun::default()).await;
    let all = lines(&engine, id, None, 10_000).await;
    let expected = |step: &str, n: usize, width: usize| -> Vec<String> {
        (0..n).map(|n| format!("{step} 1/1 {n} stdout {n:0width$}")).collect()
    };
    assert_eq!(all, [expected("few", 3, 20), expected("many", 3000, 100)].concat());
    for limit in [1, 700, 1000] {
        let first = if limit == 1 { 40 } else { all.len() };
        assert_eq!(first_lines(&engine, id, limit, first).await, all[..first], "{limit}");
    }
    let rows = engine.store().logs(ORG, id, None, None, 1000).await.unwrap();
    assert!(rows.iter().all(|row| row.blob.is_some() == row.content.is_empty()), "either here or there");
    assert!(rows.iter().all(|row| row.blob.is_some() == (row.step_id == "many")), "small ones stay");
    let held: u64 = files(folder.path()).iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(held > 300_000, "{held}");
    // An engine that was not told of the blob store, and a blob that is gone.
    let other = home.open(config()).await;
    let missing = lines(&other, id, Some("many"), 100).await;
    assert!(missing.len() < 100 && missing[0].contains("lines missing here: "), "{missing:?}");
    std::fs::remove_file(&files(folder.path())[0]).unwrap();
    let rest = lines(&engine, id, Some("many"), 700).await;
    assert_eq!(rest.iter().filter(|line| line.contains("is not in the blob store")).count(), 1, "the rest is there");
    assert!(rest.len() > 1000, "{}", rest.len());
}

/// Pages of `limit` lines until there are so many.
async fn first_lines(engine: &Engine, run: RunId, limit: u32, count: usize) -> Vec<String> {
    let (mut lines, mut cursor) = (Vec::new(), None);
    while lines.len() < count {
        let page = within(engine.logs(run, None, cursor, limit)).await.unwrap();
        lines.extend(page.items.iter().map(shown));
        cursor = page.next_cursor;
    }
    lines.truncate(count);
    lines
}

/// Nobody can write there: what would have gone there is in the database.
async fn lines_are_not_lost_when_there_is_no_blob_store(home: Home) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let blobs = Some(Blobs::in_folder(&file.path().join("below")));
    let engine = home.open(talks_much(Config { blobs, ..config() })).await;
    let (id, _) =
        run(&engine, "{name: l, steps: {a: {skill: much, input: {n: 300, width: 100}}}}", NewRun::default()).await;
    assert_eq!(lines(&engine, id, None, 1000).await.len(), 300);
    let rows = engine.store().logs(ORG, id, None, None, 1000).await.unwrap();
    assert!(rows.iter().all(|row| row.blob.is_none() && !row.content.is_empty()));
}

async fn more_than_is_kept_is_cut(home: Home) {
    let limits = Limits { log_bytes: 100, ..Limits::default() };
    let engine = home.open(talks(Config { limits, ..config() })).await;
    let (id, status) = run(&engine, "{name: c, steps: {a: {skill: talk, input: {n: 1000}}}}", NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let said = lines(&engine, id, None, 1000).await;
    assert!((10..20).contains(&said.len()), "{said:?}");
    assert!(said.last().unwrap().contains("cut here; 100 bytes are kept"), "{said:?}");
}

/// A store that cannot take lines now gets them later; the step has ended long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_wait_for_a_store_that_is_away_and_steps_do_not() {
    let faulty = Faulty::new(Plan { fault: Fault::Unavailable, first: u64::MAX, count: 0 });
    faulty.lost_logs.store(1, Ordering::SeqCst);
    let store: Arc<dyn Store> = faulty.clone();
    let engine = Engine::open_with(store, talks(config())).await.unwrap();
    let (id, status) = run(&engine, "{name: w, steps: {a: {skill: talk, input: {n: 3}}}}", NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    within(async {
        while lines(&engine, id, None, 10).await.len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(faulty.lost_logs.load(Ordering::SeqCst), 0);
}
