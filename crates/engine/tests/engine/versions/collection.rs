//! What nothing leads to goes, after a while; nothing else does.

use std::time::Duration;

use milepost_engine::definitions::{Collected, DefinitionsConfig};
use milepost_engine::{Clock as _, Config, ManualClock};
use milepost_store::blobs::Blobs;
use milepost_store::rows::RevisionKind;

use super::*;

on! {
    embedded: [what_runs_left_goes_with_them_and_tags_keep_all, a_dry_run_counts_what_a_pass_removes],
    postgres: [what_runs_left_goes_with_them_and_tags_keep_all, a_dry_run_counts_what_a_pass_removes]
}

const HOUR: u64 = 3600 * 1000;

async fn what_runs_left_goes_with_them_and_tags_keep_all(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let grace = Some(Duration::from_secs(10 * 3600));
    let definitions = DefinitionsConfig { grace, ..DefinitionsConfig::default() };
    let engine = home.open(Config { clock: clock.clone(), definitions, ..config() }).await;
    let all = engine.definitions();
    deployed(all, "t", &saying(&[("a", "one")])).await;
    for number in 0..12 {
        said(all, "t", "a", &number.to_string()).await;
    }
    let tagged = engine.start("t", payload(&json!({}))).await.unwrap().run;
    let bare = start(&engine, "{name: bare, steps: {a: {skill: noop}}}", payload(&json!({}))).await;
    ended(&engine, tagged).await;
    ended(&engine, bare).await;
    engine.flush_projections().await;
    let store = home.store().await;
    let plan = store.head(ORG, bare).await.unwrap().unwrap().plan_hash;
    let collect = async || all.collect(ORG, None, false).await.unwrap();
    // The runs are there, so their snapshots are.
    clock.advance_ms(11 * HOUR);
    assert_eq!(collect().await.found.revisions, 0);
    // Runs are forgotten; what they ran was used a moment ago.
    let again = engine.start_plan(&engine.resolve(&format!("sha256:{plan}")).await.unwrap(), payload(&json!({}))).await;
    ended(&engine, again.unwrap().run).await;
    engine.flush_projections().await;
    while store.forget_runs(clock.now().plus_ms(1), 100).await.unwrap().runs > 0 {}
    assert!(store.head(ORG, bare).await.unwrap().is_none());
    assert_eq!(collect().await.found.revisions, 1, "the tagged run's, which nobody has used since");
    assert!(engine.resolve(&format!("sha256:{plan}")).await.is_ok());
    clock.advance_ms(11 * HOUR);
    let dry = all.collect(ORG, None, true).await.unwrap().found;
    assert_eq!(dry.revisions, 1);
    let found = collect().await.found;
    assert_eq!((found.revisions, found.blobs), (1, 1));
    assert!(found.bytes > 0);
    assert_eq!(store.definitions().blob(ORG, plan).await.unwrap(), None);
    let gone = definitions_of(&home).await.resolve(ORG, &format!("sha256:{plan}")).await.unwrap_err();
    assert_eq!(gone.code(), "unknown_ref");
    // All that the tag ever pointed at is there, whole and patched.
    let moves = all.history(ORG, "t", None, 100).await.unwrap();
    for moved in &moves {
        let fresh = definitions_of(&home).await;
        meant(&fresh, &moved.to_revision_id.to_string()).await.unwrap();
    }
    assert_eq!(moves.len(), 13);
    // What was forgotten can be run again.
    let (_, status) = run(&engine, "{name: bare, steps: {a: {skill: noop}}}", payload(&json!({}))).await;
    assert_eq!(status, milepost_core::status::RunStatus::Completed);
    assert!(store.definitions().blob(ORG, plan).await.unwrap().is_some());
}

/// Snapshots whose content nobody else has, one whose content a version has, one that a chain is made short by, bare content.
async fn a_dry_run_counts_what_a_pass_removes(home: Home) {
    let clock = Arc::new(ManualClock::at(now()));
    let grace = Some(Duration::from_secs(10 * 3600));
    let definitions = DefinitionsConfig { grace, ..DefinitionsConfig::default() };
    let engine = home.open(Config { clock: clock.clone(), definitions, ..config() }).await;
    let all = engine.definitions();
    let mut runs = Vec::new();
    for number in 0..3 {
        let document = format!("{{name: bare, steps: {{a: {{skill: noop, input: {{n: {number}}}}}}}}}");
        runs.push(start(&engine, &document, payload(&json!({}))).await);
    }
    deployed(all, "t", &saying(&[("a", "one")])).await;
    runs.push(engine.start("t", payload(&json!({}))).await.unwrap().run);
    deployed(all, "long", &saying(&[("l", "0")])).await;
    for number in 1..=10 {
        said(all, "long", "l", &number.to_string()).await;
    }
    runs.push(engine.start("long", payload(&json!({}))).await.unwrap().run);
    for run in runs {
        ended(&engine, run).await;
    }
    engine.flush_projections().await;
    let store = home.store().await;
    let bare = milepost_store::rows::BlobRow {
        hash: milepost_core::hash::Digest::of(b"bare"),
        media_type: "text/plain".to_owned(),
        size: 4,
        content: b"bare".to_vec(),
        blob: None,
        created_at: clock.now(),
    };
    let write = milepost_store::rows::DefinitionWrite { blobs: vec![bare], ..Default::default() };
    assert!(store.definitions().write(ORG, &write).await.unwrap());
    while store.forget_runs(clock.now().plus_ms(1), 100).await.unwrap().runs > 0 {}
    clock.advance_ms(11 * HOUR);
    let mut passes = Vec::new();
    loop {
        let counted = all.collect(ORG, None, true).await.unwrap();
        assert_eq!(all.collect(ORG, None, true).await.unwrap(), counted, "counting changes nothing");
        let removed = all.collect(ORG, None, false).await.unwrap();
        assert_eq!(counted, removed, "pass {}", passes.len());
        passes.push((removed.found.revisions, removed.found.blobs, removed.compacted));
        if removed == Collected::default() {
            break;
        }
    }
    // Three snapshots with their content, those of `t` and `long` without, and what was bare.
    assert_eq!(passes, [(5, 4, 1), (0, 0, 0)]);
    assert_eq!(meant(&definitions_of(&home).await, "long").await.unwrap(), saying(&[("l", "10")]));
}

async fn definitions_of(home: &Home) -> Definitions {
    definitions(home).await
}

/// 300 KiB of one step's input.
fn large(word: &str) -> Value {
    let text = word.repeat(300 * 1024 / word.len());
    json!({"name": "large", "steps": {"a": {"skill": "noop", "input": {"say": text}}}})
}

fn files(folder: &std::path::Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let below = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { 1 };
    entries.map(|entry| below(entry.unwrap().path())).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_large_is_in_the_blob_store_and_leaves_it() {
    let (home, folder) = (Home::sqlite(), tempfile::tempdir().unwrap());
    let blobs = Blobs::in_folder(folder.path());
    let open = async || Definitions::open(home.store().await, Some(blobs.clone()), Limits::default());
    let all = open().await;
    let first = deployed(&all, "t", &large("one")).await;
    let patch = json!([{"op": "replace", "path": "/steps/a/input/say", "value": "two".repeat(100 * 1024)}]);
    all.patch(ORG, "t", &patch, &Moving::default()).await.unwrap();
    assert_eq!(files(folder.path()), 2, "a document and a patch");
    let store = home.store().await;
    let row = store.definitions().blob(ORG, first.tag.version_hash).await.unwrap().unwrap();
    assert!(row.content.is_empty() && row.blob.is_some() && row.size > 300_000);
    assert_eq!(meant(&open().await, "t~1").await.unwrap(), large("one"));
    assert_eq!(meant(&open().await, "t").await.unwrap()["steps"]["a"]["input"]["say"], "two".repeat(100 * 1024));
    // The same again is not put twice. Who does not know the blob store is told so.
    deployed(&all, "u", &large("one")).await;
    assert_eq!(files(folder.path()), 2);
    let blind = meant(&definitions(&home).await, "t").await.unwrap_err();
    assert_eq!(blind.code(), "store_unusable", "{blind}");
    // A run of something large, and its end.
    let clock = Arc::new(ManualClock::at(now()));
    let engine = home.open(Config { clock: clock.clone(), blobs: Some(blobs.clone()), ..config() }).await;
    let bare = start(&engine, &large("six").to_string(), payload(&json!({}))).await;
    assert_eq!(ended(&engine, bare).await, milepost_core::status::RunStatus::Completed);
    assert_eq!(files(&folder.path().join("cas")), 3);
    engine.flush_projections().await;
    while store.forget_runs(clock.now().plus_ms(1), 100).await.unwrap().runs > 0 {}
    clock.advance_ms(24 * HOUR * 8);
    let found = engine.definitions().collect(ORG, None, false).await.unwrap().found;
    assert_eq!((found.revisions, found.blobs), (1, 1));
    assert_eq!(files(&folder.path().join("cas")), 2);
    // A file that is lost, or is another, is noticed.
    let key = row.blob.unwrap();
    std::fs::write(folder.path().join(&key), "{}").unwrap();
    assert_eq!(meant(&open().await, "t~1").await.unwrap_err().code(), "corrupt");
    std::fs::remove_file(folder.path().join(&key)).unwrap();
    assert_eq!(meant(&open().await, "t~1").await.unwrap_err().code(), "corrupt");
    let left = store.definitions().revisions_in(ORG, first.tag.version_hash, first.tag.version_hash, 10);
    assert_eq!(left.await.unwrap()[0].kind, RevisionKind::DagVersion);
}
