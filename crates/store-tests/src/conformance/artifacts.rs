//! Files that runs leave, and where their content is. The blob store has no part in this: keys are any text.

use milepost_core::artifact::{Artifact, Beyond, nothing, uri_of};
use milepost_core::cache::Trust;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    ArtifactFilter, ArtifactPosition, ArtifactRow, CacheWrite, ContentRow, KeptWrite, ResultFilter, RunWrite,
    WriteResult,
};
use milepost_store::{ArtifactStore, Store, StoreError};
use uuid::Uuid;

use super::cache::{find, kept, new_key, no_change, with};
use super::{commit, written};
use crate::rows::{ORG, advance, at, batch, new_run, start, unique};

pub(super) async fn check(store: &dyn Store) {
    artifacts_are_written_with_their_run_or_not_at_all(store).await;
    lists_come_in_pages_and_by_what_is_asked_for(store).await;
    one_of_a_kind_for_each_step_of_a_training(store).await;
    what_has_expired_goes(store).await;
    a_result_has_its_files(store).await;
    content_is_named_once(store.artifacts()).await;
    what_nobody_names_goes_a_while_after_its_last_use(store).await;
    keys_are_noted_until_a_row_names_them(store.artifacts()).await;
}

fn new_hash() -> Digest {
    Digest::of(unique("content").as_bytes())
}

fn artifact(kind: &str, sha256: Digest) -> Artifact {
    Artifact {
        id: ArtifactId(Uuid::now_v7()),
        kind: kind.to_owned(),
        uri: uri_of(sha256),
        sha256: Some(sha256),
        size_bytes: Some(3_000_000_000),
        media_type: None,
        filename: None,
        training_step: None,
        metadata: nothing(),
        expires_at: None,
    }
}

/// An artifact of an event, of content that others may have as well.
pub(crate) fn recorded(run: RunId, seq: u64, place: u32, sha256: Digest) -> ArtifactRow {
    row(run, seq, place, artifact("custom", sha256))
}

fn row(run: RunId, seq: u64, place: u32, artifact: Artifact) -> ArtifactRow {
    let position = ArtifactPosition { seq, place };
    ArtifactRow { run, position, step_id: None, skill: None, artifact, created_at: at(7) }
}

fn recording(write: RunWrite, artifacts: Vec<ArtifactRow>) -> RunWrite {
    RunWrite { artifacts, ..write }
}

async fn all(store: &dyn Store, run: RunId, filter: &ArtifactFilter) -> Vec<ArtifactRow> {
    store.artifacts().artifacts(ORG, run, filter, None, 1000).await.unwrap()
}

async fn artifacts_are_written_with_their_run_or_not_at_all(store: &dyn Store) {
    let (run, lost) = (new_run(), new_run());
    let whole = ArtifactRow {
        step_id: Some("train[3]".into()),
        skill: Some("train".into()),
        artifact: Artifact {
            media_type: Some("application/x-tar".to_owned()),
            filename: Some("Grüße.tar".to_owned()),
            training_step: Some(-9_007_199_254_740_991),
            metadata: Json::trusted(r#"{"loss": 0.25}"#),
            expires_at: Some(Timestamp::MAX),
            ..artifact("checkpoint", new_hash())
        },
        ..row(run, 2, 0, artifact("", new_hash()))
    };
    let bare =
        Artifact { sha256: None, size_bytes: None, uri: "s3://b/x".to_owned(), ..artifact("custom", new_hash()) };
    let bare = row(run, 2, 1, bare);
    written(store, start(run, 1)).await;
    let writes = [
        recording(advance(run, 1, 1), vec![whole.clone(), bare.clone()]),
        recording(advance(lost, 3, 1), vec![row(lost, 4, 0, artifact("custom", new_hash()))]),
    ];
    assert_eq!(commit(store, batch(writes)).await, [WriteResult::Written, WriteResult::Conflict]);
    let both = [whole.clone(), bare.clone()];
    assert_eq!(all(store, run, &ArtifactFilter::default()).await, both);
    assert!(all(store, lost, &ArtifactFilter::default()).await.is_empty());
    let artifacts = store.artifacts();
    assert_eq!(artifacts.artifact(ORG, run, whole.artifact.id).await.unwrap(), Some(whole.clone()));
    assert_eq!(artifacts.artifact(OrgId(2), run, whole.artifact.id).await.unwrap(), None, "another org sees nothing");
    assert_eq!(artifacts.artifact(ORG, lost, whole.artifact.id).await.unwrap(), None);
    let hash = whole.artifact.sha256.unwrap();
    assert_eq!(artifacts.media_type(ORG, hash).await.unwrap(), whole.artifact.media_type);
    assert_eq!(artifacts.media_type(OrgId(2), hash).await.unwrap(), None);
    assert_eq!(store.read_run(ORG, run).await.unwrap().unwrap().artifacts, both);
}

async fn lists_come_in_pages_and_by_what_is_asked_for(store: &dyn Store) {
    let run = new_run();
    let of_step = |row: ArtifactRow, step: &str| ArtifactRow { step_id: Some(step.into()), ..row };
    let rows = vec![
        row(run, 1, 0, artifact("policy", new_hash())),
        of_step(row(run, 1, 1, artifact("replay", new_hash())), "a"),
        of_step(row(run, 1, 2, artifact("policy", new_hash())), "b"),
        of_step(row(run, 2, 0, artifact("policy", new_hash())), "a"),
        of_step(row(run, 2, 1, artifact("replay", new_hash())), "a"),
    ];
    written(store, recording(start(run, 2), rows.clone())).await;
    for step in [None, Some("a"), Some("nobody")] {
        for kind in [None, Some("policy"), Some("nothing")] {
            let filter = ArtifactFilter { step_id: step.map(str::to_owned), kind: kind.map(str::to_owned) };
            let expected: Vec<ArtifactRow> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
            assert_eq!(all(store, run, &filter).await, expected, "{filter:?}");
            let mut paged = Vec::new();
            while let Some(next) = store
                .artifacts()
                .artifacts(ORG, run, &filter, paged.last().map(|row: &ArtifactRow| row.position), 1)
                .await
                .unwrap()
                .pop()
            {
                paged.push(next);
            }
            assert_eq!(paged, expected, "{filter:?}");
        }
    }
}

async fn one_of_a_kind_for_each_step_of_a_training(store: &dyn Store) {
    let run = new_run();
    let numbered = |kind: &str, step: i64| Artifact { training_step: Some(step), ..artifact(kind, new_hash()) };
    let first = row(run, 1, 0, numbered("checkpoint", 100));
    let rows =
        vec![first.clone(), row(run, 1, 1, numbered("checkpoint", 200)), row(run, 1, 2, numbered("policy", 100))];
    written(store, recording(start(run, 1), rows)).await;
    let found = store.artifacts().numbered(ORG, run, "checkpoint", 100).await.unwrap();
    assert_eq!(found, Some(first));
    assert_eq!(store.artifacts().numbered(ORG, run, "checkpoint", 300).await.unwrap(), None);
    assert_eq!(store.artifacts().numbered(ORG, new_run(), "checkpoint", 100).await.unwrap(), None);
    if store.name() != "memory" {
        // The core sees to it; the database would not have it either.
        let again = recording(advance(run, 1, 1), vec![row(run, 2, 0, numbered("checkpoint", 100))]);
        let refused = store.commit(std::sync::Arc::new(batch([again]))).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert_eq!(store.head(ORG, run).await.unwrap().unwrap().last_seq, 1, "nothing of it is there");
    }
}

async fn what_has_expired_goes(store: &dyn Store) {
    let (run, long_ago) = (new_run(), Timestamp(-1000));
    let expiring = |us: i64| Artifact { expires_at: Some(Timestamp(us)), ..artifact("replay", new_hash()) };
    let rows = vec![
        row(run, 1, 0, expiring(-1001)),
        row(run, 1, 1, expiring(-1000)),
        row(run, 1, 2, expiring(-999)),
        row(run, 1, 3, artifact("replay", new_hash())),
    ];
    written(store, recording(start(run, 1), rows.clone())).await;
    assert_eq!(store.artifacts().forget_expired(long_ago, 1).await.unwrap(), 1);
    assert_eq!(store.artifacts().forget_expired(long_ago, 10).await.unwrap(), 1);
    assert_eq!(store.artifacts().forget_expired(long_ago, 10).await.unwrap(), 0);
    assert_eq!(all(store, run, &ArtifactFilter::default()).await, rows[2..]);
}

fn naming(key: Digest, workflow: &str, sha256: Digest) -> KeptWrite {
    let beyond = Beyond { artifacts: vec![artifact("custom", sha256)], ..Beyond::default() };
    KeptWrite { trust: Trust::Open, beyond: Some(Box::new(beyond)), ..kept(key, workflow, "s") }
}

async fn a_result_has_its_files(store: &dyn Store) {
    let (run, key) = (new_run(), new_key());
    let kept = naming(key, &unique("workflow"), new_hash());
    written(store, with(start(run, 1), CacheWrite { kept: vec![kept.clone()], ..no_change(at(1)) })).await;
    let found = find(store, ORG, &[kept.key]).await.pop().unwrap().unwrap();
    assert_eq!((found.beyond, found.output), (kept.beyond, Some(kept.output)));
}

fn content(sha256: Digest, us: i64) -> ContentRow {
    ContentRow { sha256, blob: unique("artifacts/1/key"), size_bytes: 5_000_000_000, used_at: at(us) }
}

async fn content_is_named_once(artifacts: &dyn ArtifactStore) {
    let first = content(new_hash(), 1);
    let hash = first.sha256;
    assert!(artifacts.contents(ORG, &[hash]).await.unwrap().is_empty());
    assert!(artifacts.touch_contents(ORG, &[hash], at(2)).await.unwrap().is_empty());
    assert!(artifacts.name_content(ORG, &first, None).await.unwrap());
    let second = content(hash, 2);
    assert!(!artifacts.name_content(ORG, &second, None).await.unwrap(), "somebody was first");
    assert!(!artifacts.name_content(ORG, &second, Some("elsewhere")).await.unwrap());
    assert_eq!(artifacts.contents(ORG, &[hash, new_hash()]).await.unwrap(), std::slice::from_ref(&first));
    assert!(artifacts.contents(OrgId(2), &[hash]).await.unwrap().is_empty(), "another org has none");
    assert!(artifacts.name_content(OrgId(2), &content(hash, 1), None).await.unwrap(), "and may have its own");
    assert!(artifacts.name_content(ORG, &second, Some(&first.blob)).await.unwrap(), "what was there is gone");
    assert_eq!(artifacts.contents(ORG, &[hash]).await.unwrap(), std::slice::from_ref(&second));
    let touched = ContentRow { used_at: at(9), ..second };
    assert_eq!(artifacts.touch_contents(ORG, &[hash], at(9)).await.unwrap(), std::slice::from_ref(&touched));
    assert_eq!(artifacts.touch_contents(ORG, &[hash], at(8)).await.unwrap(), [touched], "time goes on");
}

async fn what_nobody_names_goes_a_while_after_its_last_use(store: &dyn Store) {
    let artifacts = store.artifacts();
    let [loose, used, by_artifact, by_result] = [(); 4].map(|()| content(new_hash(), 10));
    for row in [&loose, &by_artifact, &by_result] {
        assert!(artifacts.name_content(ORG, row, None).await.unwrap());
    }
    assert!(artifacts.name_content(ORG, &ContentRow { used_at: at(20), ..used.clone() }, None).await.unwrap());
    let (run, key, workflow) = (new_run(), new_key(), unique("workflow"));
    let keeping = CacheWrite { kept: vec![naming(key, &workflow, by_result.sha256)], ..no_change(at(1)) };
    let named = row(run, 1, 0, artifact("custom", by_artifact.sha256));
    written(store, recording(with(start(run, 1), keeping), vec![named])).await;
    let mine = [&loose, &used, &by_artifact, &by_result].map(|row| (ORG, row.sha256));
    let found = async || {
        let page = artifacts.loose_contents(at(20), None, 100_000).await.unwrap();
        let hashes = page.into_iter().map(|(org, row)| (org, row.sha256));
        hashes.filter(|key| mine.contains(key)).collect::<Vec<_>>()
    };
    assert_eq!(found().await, [mine[0]]);
    assert_eq!(artifacts.remove_contents(at(20), &mine).await.unwrap(), (1, 5_000_000_000));
    assert_eq!(artifacts.remove_contents(at(20), &mine).await.unwrap(), (0, 0));
    assert!(artifacts.loose_keys(at(0), 100_000).await.unwrap().contains(&loose.blob), "its key goes at once");
    artifacts.clear_key(&loose.blob).await.unwrap();
    assert!(!artifacts.loose_keys(at(0), 100_000).await.unwrap().contains(&loose.blob));
    // The result is made anew without it.
    let anew = CacheWrite { kept: vec![kept(key, &workflow, "s")], ..no_change(at(2)) };
    written(store, with(start(new_run(), 1), anew)).await;
    assert_eq!(found().await, [mine[3]]);
    let again = CacheWrite { kept: vec![naming(key, &workflow, by_result.sha256)], ..no_change(at(3)) };
    written(store, with(start(new_run(), 1), again)).await;
    assert!(found().await.is_empty());
    store.cache().evict(ORG, &ResultFilter::Key(key), 10).await.unwrap();
    assert_eq!(found().await, [mine[3]], "and then nobody has it any more");
    // In pages, each after the one before.
    let first = artifacts.loose_contents(at(20), None, 1).await.unwrap().pop().unwrap();
    let next = artifacts.loose_contents(at(20), Some((first.0, first.1.sha256)), 1).await.unwrap();
    assert!(next.iter().all(|(org, row)| (*org, row.sha256) > (first.0, first.1.sha256)));
}

async fn keys_are_noted_until_a_row_names_them(artifacts: &dyn ArtifactStore) {
    let (left, row) = (unique("artifacts/1/left"), content(new_hash(), 1));
    for key in [&left, &row.blob] {
        artifacts.note_key(key, at(5)).await.unwrap();
    }
    let loose = async |before: i64| {
        let keys = artifacts.loose_keys(at(before), 100_000).await.unwrap();
        [&left, &row.blob].map(|key| keys.contains(key))
    };
    assert_eq!(loose(5).await, [false, false]);
    assert_eq!(loose(6).await, [true, true]);
    artifacts.note_key(&left, at(6)).await.unwrap();
    assert_eq!(loose(6).await, [false, true], "it is still on its way");
    assert!(artifacts.name_content(ORG, &row, None).await.unwrap());
    assert_eq!(loose(7).await, [true, false]);
    let other = content(row.sha256, 8);
    assert!(artifacts.name_content(ORG, &other, Some(&row.blob)).await.unwrap());
    assert_eq!(loose(9).await, [true, true], "it was replaced");
}
