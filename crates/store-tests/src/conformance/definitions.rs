//! Documents in versions.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    BlobRow, ChainRow, DefinitionWrite, MoveKind, MoveRow, RequestRow, RevisionKind, RevisionRow, TagRow, TagWrite,
};
use milepost_store::{DefinitionStore, Store};
use uuid::Uuid;

use crate::rows::{ORG, at, new_run, start, unique};

/// An org of its own for each check that looks at all there is of one.
fn org() -> OrgId {
    OrgId(1000 + i32::from(u16::from_le_bytes([Uuid::now_v7().as_bytes()[15], Uuid::now_v7().as_bytes()[14]])))
}

pub(super) async fn check(store: &dyn Store) {
    let definitions = store.definitions();
    a_blob_is_kept_once(definitions).await;
    a_tag_moves_only_from_where_it_is(definitions).await;
    tags_are_listed_by_their_bytes(definitions).await;
    moves_are_found_by_number_time_and_steps(definitions).await;
    one_document_has_one_version(definitions).await;
    nothing_is_written_that_builds_upon_what_is_not_there(definitions).await;
    a_chain_is_read_in_its_order(definitions).await;
    a_chain_is_made_again(definitions).await;
    content_is_counted_by_who_has_it(definitions).await;
    ancestors_come_with_the_nearest_first(definitions).await;
    a_request_is_answered_once(definitions).await;
    what_nothing_leads_to_is_removed(store).await;
    keys_are_noted_until_content_names_them(definitions).await;
}

#[must_use]
pub(crate) fn blob(content: &str, time: Timestamp) -> BlobRow {
    let content = content.as_bytes().to_vec();
    let (hash, size) = (Digest::of(&content), content.len() as u64);
    BlobRow { hash, media_type: "application/json".to_owned(), size, content, blob: None, created_at: time }
}

#[must_use]
pub(crate) fn version(blob: &BlobRow) -> RevisionRow {
    RevisionRow {
        revision_id: Uuid::now_v7(),
        kind: RevisionKind::DagVersion,
        cas_hash: blob.hash,
        version_hash: blob.hash,
        plan_hash: None,
        base_version: None,
        parent_id: None,
        merge_parent_id: None,
        depth: 0,
        message: Some("why".to_owned()),
        created_by: None,
        created_at: blob.created_at,
        name: Some("campaign".to_owned()),
        meta: Some(r#"{"ticket": 7}"#.to_owned()),
    }
}

fn snapshot(blob: &BlobRow) -> RevisionRow {
    RevisionRow { kind: RevisionKind::RunSnapshot, plan_hash: Some(blob.hash), ..version(blob) }
}

/// The move that makes `tag` point at a revision, as its `number`-th.
#[must_use]
pub(crate) fn moved(tag: &str, number: u64, to: &RevisionRow, time: Timestamp) -> TagWrite {
    let row = TagRow {
        tag: tag.to_owned(),
        kind: to.kind,
        revision_id: to.revision_id,
        version_hash: to.version_hash,
        version: number,
        at_move: number,
        redo_move: None,
        moved_by: Some("ann".to_owned()),
        moved_at: time,
        message: None,
        protection: None,
    };
    let moved = MoveRow {
        move_id: number,
        kind: MoveKind::Move,
        from_revision_id: None,
        to_kind: to.kind,
        to_revision_id: to.revision_id,
        to_version_hash: to.version_hash,
        restores_move_id: None,
        before_move: (number > 1).then(|| number - 1),
        undone_move: None,
        below_move: None,
        merged_revision_id: None,
        moved_by: Some("ann".to_owned()),
        moved_at: time,
        message: None,
        from_kind: (number > 1).then_some(RevisionKind::PatchSet),
        expected_hash: (number > 1).then_some(to.version_hash),
    };
    TagWrite { expected_version: number - 1, tag: row, moved }
}

fn made(blob: &BlobRow, revision: &RevisionRow, tag: Option<TagWrite>) -> DefinitionWrite {
    DefinitionWrite { blobs: vec![blob.clone()], revisions: vec![revision.clone()], tag, ..DefinitionWrite::default() }
}

async fn written(store: &dyn DefinitionStore, org: OrgId, write: &DefinitionWrite) {
    assert!(store.write(org, write).await.unwrap(), "{write:?}");
}

async fn a_blob_is_kept_once(store: &dyn DefinitionStore) {
    let first = blob(&unique("content\0"), at(1));
    assert_eq!(store.blob(ORG, first.hash).await.unwrap(), None);
    written(store, ORG, &DefinitionWrite { blobs: vec![first.clone()], ..DefinitionWrite::default() }).await;
    let again = BlobRow { created_at: at(2), media_type: "text/plain".to_owned(), ..first.clone() };
    written(store, ORG, &DefinitionWrite { blobs: vec![again], ..DefinitionWrite::default() }).await;
    assert_eq!(store.blob(ORG, first.hash).await.unwrap(), Some(first.clone()));
    assert_eq!(store.blob(OrgId(2), first.hash).await.unwrap(), None);
    let outside = BlobRow { content: Vec::new(), blob: Some(unique("cas/")), ..blob(&unique("large"), at(1)) };
    written(store, ORG, &DefinitionWrite { blobs: vec![outside.clone()], ..DefinitionWrite::default() }).await;
    assert_eq!(store.blob(ORG, outside.hash).await.unwrap(), Some(outside));
}

async fn a_tag_moves_only_from_where_it_is(store: &dyn DefinitionStore) {
    let tag = unique("tag");
    let blobs = ["a", "b", "c"].map(|text| blob(&unique(text), at(0)));
    let revisions = [0, 1, 2].map(|index: usize| version(&blobs[index]));
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), None);
    assert!(!store.protect(ORG, &tag, Some("{}")).await.unwrap());
    let first = moved(&tag, 1, &revisions[0], at(1));
    written(store, ORG, &made(&blobs[0], &revisions[0], Some(first.clone()))).await;
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(first.tag.clone()));
    assert_eq!(store.revision(ORG, revisions[0].revision_id).await.unwrap(), Some(revisions[0].clone()));
    assert!(store.protect(ORG, &tag, Some("{}")).await.unwrap());
    // Once more as if it were new, and from a version that it never had: nothing of it is there.
    for number in [1, 3] {
        let write = made(&blobs[1], &revisions[1], Some(moved(&tag, number, &revisions[1], at(2))));
        assert!(!store.write(ORG, &write).await.unwrap());
        assert_eq!(store.blob(ORG, blobs[1].hash).await.unwrap(), None);
        assert_eq!(store.revision(ORG, revisions[1].revision_id).await.unwrap(), None);
    }
    let second = moved(&tag, 2, &revisions[2], at(3));
    written(store, ORG, &made(&blobs[2], &revisions[2], Some(second.clone()))).await;
    // What protects it stays when it moves.
    let expected = TagRow { protection: Some("{}".to_owned()), ..second.tag };
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(expected));
    assert_eq!(store.moves(ORG, &tag, None, 10).await.unwrap(), [second.moved, first.moved]);
    assert_eq!(store.tag(OrgId(2), &tag).await.unwrap(), None);
    assert!(store.protect(ORG, &tag, None).await.unwrap());
    assert_eq!(store.tag(ORG, &tag).await.unwrap().unwrap().protection, None);
}

async fn tags_are_listed_by_their_bytes(store: &dyn DefinitionStore) {
    let prefix = unique("tags");
    let names = ["A", "Z/z", "a", "b", "é"].map(|name| format!("{prefix}/{name}"));
    for name in names.iter().rev() {
        let blob = blob(name, at(0));
        let revision = version(&blob);
        written(store, ORG, &made(&blob, &revision, Some(moved(name, 1, &revision, at(0))))).await;
    }
    let listed = |after: String, limit| async move {
        let rows = store.tags(ORG, Some(&after), limit).await.unwrap();
        rows.into_iter().map(|row| row.tag).collect::<Vec<String>>()
    };
    assert_eq!(listed(prefix.clone(), 3).await, names[..3]);
    assert_eq!(listed(names[2].clone(), 2).await, names[3..]);
    assert!(!store.tags(ORG, None, 1).await.unwrap().is_empty());
}

async fn moves_are_found_by_number_time_and_steps(store: &dyn DefinitionStore) {
    let tag = unique("tag");
    let blob = blob(&unique("x"), at(0));
    let revision = version(&blob);
    written(store, ORG, &made(&blob, &revision, None)).await;
    for number in 1..=5_u32 {
        let mut tag = moved(&tag, number.into(), &revision, at(i64::from(number) * 10));
        // The fourth builds upon the second, as after two undos.
        if number == 4 {
            tag.moved.before_move = Some(2);
        }
        written(store, ORG, &DefinitionWrite { tag: Some(tag), ..DefinitionWrite::default() }).await;
    }
    let ids = |rows: Vec<MoveRow>| rows.iter().map(|row| row.move_id).collect::<Vec<_>>();
    assert_eq!(ids(store.moves(ORG, &tag, None, 3).await.unwrap()), [5, 4, 3]);
    assert_eq!(ids(store.moves(ORG, &tag, Some(3), 3).await.unwrap()), [2, 1]);
    let id = |row: Option<MoveRow>| row.map(|row| row.move_id);
    assert_eq!(id(store.move_of(ORG, &tag, 2).await.unwrap()), Some(2));
    assert_eq!(id(store.move_of(ORG, &tag, 6).await.unwrap()), None);
    for (time, found) in [(9, None), (10, Some(1)), (19, Some(1)), (50, Some(5)), (1000, Some(5))] {
        assert_eq!(id(store.move_at(ORG, &tag, at(time)).await.unwrap()), found, "{time}");
    }
    for (steps, found) in [(0, Some(5)), (1, Some(4)), (2, Some(2)), (3, Some(1)), (4, None), (900, None)] {
        assert_eq!(id(store.move_back(ORG, &tag, 5, steps).await.unwrap()), found, "{steps}");
    }
    assert_eq!(id(store.move_back(OrgId(2), &tag, 5, 0).await.unwrap()), None);
}

async fn one_document_has_one_version(store: &dyn DefinitionStore) {
    let blob = blob(&unique("x"), at(0));
    let (first, second) = (version(&blob), version(&blob));
    written(store, ORG, &made(&blob, &first, None)).await;
    assert!(!store.write(ORG, &made(&blob, &second, None)).await.unwrap());
    let (third, fourth) = (snapshot(&blob), snapshot(&blob));
    assert!(!store.use_plan(ORG, blob.hash, at(1)).await.unwrap());
    written(store, ORG, &made(&blob, &third, None)).await;
    assert!(!store.write(ORG, &made(&blob, &fourth, None)).await.unwrap());
    assert!(store.use_plan(ORG, blob.hash, at(1)).await.unwrap());
    let found = store.revisions_in(ORG, blob.hash, blob.hash, 10).await.unwrap();
    let mut expected = vec![first, third];
    expected.sort_by_key(|row| row.revision_id);
    assert_eq!(found, expected);
    assert_eq!(store.revisions_in(ORG, blob.hash, blob.hash, 1).await.unwrap(), expected[..1]);
    let all = store.revisions_in(ORG, Digest([0; 32]), Digest([255; 32]), 1000).await.unwrap();
    assert!(all.windows(2).all(|pair| pair[0].version_hash.0 <= pair[1].version_hash.0));
    assert_eq!(store.revisions_in(OrgId(2), blob.hash, blob.hash, 10).await.unwrap(), []);
}

async fn nothing_is_written_that_builds_upon_what_is_not_there(store: &dyn DefinitionStore) {
    let there = blob(&unique("x"), at(0));
    let good = version(&there);
    let ids = || Some(Uuid::now_v7());
    for bad in [
        RevisionRow { cas_hash: Digest::of(unique("y").as_bytes()), ..good.clone() },
        RevisionRow { parent_id: ids(), ..good.clone() },
        RevisionRow { base_version: ids(), ..good.clone() },
        RevisionRow { merge_parent_id: ids(), ..good.clone() },
    ] {
        assert!(!store.write(ORG, &made(&there, &bad, None)).await.unwrap(), "{bad:?}");
        assert_eq!(store.revision(ORG, bad.revision_id).await.unwrap(), None);
    }
    let tag = DefinitionWrite { tag: Some(moved(&unique("t"), 1, &good, at(0))), ..DefinitionWrite::default() };
    assert!(!store.write(ORG, &tag).await.unwrap());
    written(store, ORG, &made(&there, &good, None)).await;
    written(store, ORG, &tag).await;
}

async fn a_chain_is_read_in_its_order(store: &dyn DefinitionStore) {
    let base_blob = blob(&unique("base"), at(0));
    let base = version(&base_blob);
    written(store, ORG, &made(&base_blob, &base, None)).await;
    let mut members: Vec<RevisionRow> = Vec::new();
    let mut blobs = vec![base_blob];
    for depth in 1..=3_u32 {
        let patch = blob(&unique("patch"), at(0));
        let row = RevisionRow {
            kind: RevisionKind::PatchSet,
            base_version: Some(base.revision_id),
            parent_id: Some(members.last().map_or(base.revision_id, |row| row.revision_id)),
            depth,
            version_hash: Digest::of(unique("result").as_bytes()),
            ..version(&patch)
        };
        members.push(row.clone());
        let chain = (1..).zip(&members).map(|(seq, member)| ChainRow {
            head_id: row.revision_id,
            seq,
            member_id: member.revision_id,
        });
        let write = DefinitionWrite { chain: chain.collect(), ..made(&patch, &row, None) };
        written(store, ORG, &write).await;
        blobs.push(patch);
    }
    let chain = store.chain(ORG, members[2].revision_id).await.unwrap();
    let rows: Vec<&RevisionRow> = chain.iter().map(|stored| &stored.revision).collect();
    assert_eq!(rows, [&base, &members[0], &members[1], &members[2]]);
    assert!(chain.iter().map(|stored| &stored.content).eq(&blobs));
    assert_eq!(store.chain(ORG, members[0].revision_id).await.unwrap().len(), 2);
    assert_eq!(store.chain(ORG, base.revision_id).await.unwrap().len(), 1);
    assert_eq!(store.chain(OrgId(2), base.revision_id).await.unwrap(), []);
    assert_eq!(store.chain(ORG, Uuid::now_v7()).await.unwrap(), []);
}

/// ```text
///   a ── b ── d ── e
///     └─ c ──┘
/// ```
async fn a_chain_is_made_again(store: &dyn DefinitionStore) {
    let org = org();
    let base_blob = blob(&unique("base"), at(1));
    let base = version(&base_blob);
    written(store, org, &made(&base_blob, &base, None)).await;
    let mut parent = base.revision_id;
    let mut patches = Vec::new();
    for depth in 1..=3 {
        let blob = blob(&unique("patch"), at(1));
        let row = RevisionRow {
            kind: RevisionKind::PatchSet,
            base_version: Some(base.revision_id),
            parent_id: Some(parent),
            depth,
            ..version(&blob)
        };
        written(store, org, &made(&blob, &row, None)).await;
        parent = row.revision_id;
        patches.push(row.revision_id);
    }
    let all = store.revisions_after(org, None, 10).await.unwrap();
    let ids: Vec<Uuid> = all.iter().map(|row| row.revision_id).collect();
    assert_eq!(ids, [vec![base.revision_id], patches.clone()].concat());
    let rest = store.revisions_after(org, Some(ids[1]), 1).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.revision_id).collect::<Vec<_>>(), ids[2..3]);
    let head = patches[2];
    assert_eq!(store.chain_rows(org, &[head]).await.unwrap(), []);
    // What is there is replaced, however wrong it is; other heads keep theirs.
    store.rebuild_chain(org, patches[1], &patches[..2]).await.unwrap();
    store.rebuild_chain(org, head, &patches[1..]).await.unwrap();
    store.rebuild_chain(org, head, &patches).await.unwrap();
    let mut rows = store.chain_rows(org, &[head, base.revision_id]).await.unwrap();
    rows.sort_by_key(|row| row.seq);
    let wanted = (1..).zip(&patches).map(|(seq, member_id)| ChainRow { head_id: head, seq, member_id: *member_id });
    assert_eq!(rows, wanted.collect::<Vec<_>>());
    assert_eq!(store.chain_rows(org, &patches).await.unwrap().len(), 5);
    assert_eq!(store.chain(org, head).await.unwrap().len(), 4);
}

async fn content_is_counted_by_who_has_it(store: &dyn DefinitionStore) {
    let org = org();
    let (one, two, young) = (blob(&unique("one"), at(1)), blob(&unique("two"), at(1)), blob(&unique("young"), at(9)));
    for (content, revision) in [(&one, version(&one)), (&two, version(&two)), (&two, snapshot(&two))] {
        written(store, org, &made(content, &revision, None)).await;
    }
    written(store, org, &made(&young, &version(&young), None)).await;
    let hashes = [one.hash, two.hash, young.hash, Digest::of(b"nothing")];
    let mut found = store.blobs_in_use(org, at(5), &hashes).await.unwrap();
    found.sort_by_key(|(_, uses)| *uses);
    let seen: Vec<_> = found.iter().map(|(row, uses)| (row.hash, row.size, row.content.len(), *uses)).collect();
    assert_eq!(seen, [(one.hash, one.size, 0, 1), (two.hash, two.size, 0, 2)]);
}

async fn ancestors_come_with_the_nearest_first(store: &dyn DefinitionStore) {
    let mut rows: Vec<RevisionRow> = Vec::new();
    for (parent, merged) in [(None, None), (Some(0), None), (Some(0), None), (Some(1), Some(2)), (Some(3), None)] {
        let blob = blob(&unique("x"), at(0));
        let id = |index: Option<usize>| index.map(|index| rows[index].revision_id);
        let row = RevisionRow { parent_id: id(parent), merge_parent_id: id(merged), ..version(&blob) };
        written(store, ORG, &made(&blob, &row, None)).await;
        rows.push(row);
    }
    let line = store.ancestors(ORG, rows[4].revision_id, 10).await.unwrap();
    let ids: Vec<usize> = line.iter().map(|row| rows.iter().position(|known| known == row).unwrap()).collect();
    assert_eq!(ids, [4, 3, 1, 2, 0]);
    assert_eq!(store.ancestors(ORG, rows[4].revision_id, 1).await.unwrap(), [rows[4].clone(), rows[3].clone()]);
    assert_eq!(store.ancestors(ORG, Uuid::now_v7(), 10).await.unwrap(), []);
}

async fn a_request_is_answered_once(store: &dyn DefinitionStore) {
    let key = unique("key");
    let request = |time| RequestRow {
        key: key.clone(),
        fingerprint: Digest::of(b"asked"),
        answer: "{}".to_owned(),
        created_at: time,
    };
    let write = |time| DefinitionWrite { request: Some(request(time)), ..DefinitionWrite::default() };
    assert_eq!(store.request(ORG, &key).await.unwrap(), None);
    written(store, ORG, &write(at(1))).await;
    let blob = blob(&unique("x"), at(0));
    let again = DefinitionWrite { request: Some(request(at(2))), ..made(&blob, &version(&blob), None) };
    assert!(!store.write(ORG, &again).await.unwrap());
    assert_eq!(store.blob(ORG, blob.hash).await.unwrap(), None);
    assert_eq!(store.request(ORG, &key).await.unwrap(), Some(request(at(1))));
    assert_eq!(store.request(OrgId(2), &key).await.unwrap(), None);
    store.forget_requests(at(1)).await.unwrap();
    assert!(store.request(ORG, &key).await.unwrap().is_some());
    store.forget_requests(at(2)).await.unwrap();
    assert_eq!(store.request(ORG, &key).await.unwrap(), None);
}

async fn what_nothing_leads_to_is_removed(store: &dyn Store) {
    let (org, definitions) = (org(), store.definitions());
    let (old, cutoff) = (at(10), at(100));
    // A tag's version with its patch, a snapshot, an old version that nobody has, one that is young, and bare content.
    let blobs = ["tagged", "patch", "plan", "loose", "young", "bare", "kept"].map(|text| {
        let time = if text == "young" { at(100) } else { old };
        blob(&unique(text), time)
    });
    let base = version(&blobs[0]);
    let patch = RevisionRow {
        kind: RevisionKind::PatchSet,
        base_version: Some(base.revision_id),
        parent_id: Some(base.revision_id),
        depth: 1,
        version_hash: Digest::of(unique("result").as_bytes()),
        ..version(&blobs[1])
    };
    let chain = ChainRow { head_id: patch.revision_id, seq: 1, member_id: patch.revision_id };
    written(definitions, org, &made(&blobs[0], &base, None)).await;
    let tagged = moved(&unique("t"), 1, &patch, old);
    written(definitions, org, &DefinitionWrite { chain: vec![chain], ..made(&blobs[1], &patch, Some(tagged)) }).await;
    let plan = snapshot(&blobs[2]);
    written(definitions, org, &made(&blobs[2], &plan, None)).await;
    let loose = version(&blobs[3]);
    let child_blob = blob(&unique("child"), old);
    let child = RevisionRow { parent_id: Some(loose.revision_id), ..version(&child_blob) };
    written(definitions, org, &made(&blobs[3], &loose, None)).await;
    written(definitions, org, &made(&child_blob, &child, None)).await;
    written(definitions, org, &made(&blobs[4], &version(&blobs[4]), None)).await;
    written(definitions, org, &DefinitionWrite { blobs: vec![blobs[5].clone()], ..DefinitionWrite::default() }).await;
    // It is used: not before its use is old is it loose.
    assert!(definitions.use_plan(org, blobs[2].hash, cutoff).await.unwrap());
    let found = |rows: Vec<RevisionRow>| rows.into_iter().map(|row| row.revision_id).collect::<Vec<_>>();
    assert_eq!(found(definitions.loose_revisions(org, cutoff, None, 10).await.unwrap()), [child.revision_id]);
    let later = at(1000);
    let expected = [plan.revision_id, child.revision_id];
    let young = found(definitions.loose_revisions(org, later, None, 10).await.unwrap());
    assert!(expected.iter().all(|id| young.contains(id)) && young.len() == 3, "{young:?}");
    assert_eq!(found(definitions.loose_revisions(org, later, Some(young[0]), 1).await.unwrap()), young[1..2]);
    // Those that are not loose stay, whoever asks.
    let all = [base.revision_id, patch.revision_id, plan.revision_id, loose.revision_id, child.revision_id];
    assert_eq!(definitions.remove_revisions(org, cutoff, &all[..4]).await.unwrap(), 0);
    assert_eq!(definitions.remove_revisions(org, cutoff, &all).await.unwrap(), 1);
    assert_eq!(definitions.remove_revisions(org, cutoff, &all).await.unwrap(), 1);
    assert_eq!(definitions.revision(org, loose.revision_id).await.unwrap(), None);
    assert_eq!(definitions.remove_revisions(org, later, &[plan.revision_id]).await.unwrap(), 1);
    assert!(!definitions.use_plan(org, blobs[2].hash, later).await.unwrap());
    let mut bare: Vec<Digest> = [&blobs[2], &blobs[3], &child_blob, &blobs[5]].map(|blob| blob.hash).to_vec();
    bare.sort_unstable();
    let found = definitions.loose_blobs(org, cutoff, None, 10).await.unwrap();
    assert_eq!(found.iter().map(|blob| blob.hash).collect::<Vec<_>>(), bare);
    assert!(found.iter().all(|blob| blob.content.is_empty() && blob.size > 0));
    let rest = definitions.loose_blobs(org, cutoff, Some(bare[1]), 1).await.unwrap();
    assert_eq!(rest.iter().map(|blob| blob.hash).collect::<Vec<_>>(), bare[2..3]);
    bare.push(blobs[0].hash);
    let bytes = found.iter().map(|blob| blob.size).sum::<u64>();
    assert_eq!(definitions.remove_blobs(org, cutoff, &bare).await.unwrap(), (4, bytes));
    assert!(definitions.blob(org, blobs[0].hash).await.unwrap().is_some());
    assert!(definitions.orgs().await.unwrap().contains(&org));
    // Plans of runs, and of runs that had others before.
    let run = new_run();
    super::written(store, start(run, 1)).await;
    let head = store.head(ORG, run).await.unwrap().unwrap();
    definitions.keep_plans(ORG, run, &[blobs[6].hash, blobs[6].hash]).await.unwrap();
    definitions.keep_plans(ORG, new_run(), &[blobs[5].hash]).await.unwrap();
    let used = definitions.plans_in_use(ORG).await.unwrap();
    assert!(used.contains(&head.plan_hash) && used.contains(&blobs[6].hash) && !used.contains(&blobs[5].hash));
    assert!(definitions.plans_in_use(org).await.unwrap().is_empty());
}

async fn keys_are_noted_until_content_names_them(store: &dyn DefinitionStore) {
    let keys = ["a", "b", "c"].map(|key| unique(&format!("cas/{key}")));
    for key in &keys {
        store.note_key(key, at(5)).await.unwrap();
    }
    let outside =
        |key: &str| BlobRow { content: Vec::new(), blob: Some(key.to_owned()), ..blob(&unique("outside"), at(1)) };
    let first = outside(&keys[0]);
    written(store, ORG, &DefinitionWrite { blobs: vec![first.clone()], ..DefinitionWrite::default() }).await;
    // The same content under another key is not taken.
    let second = BlobRow { blob: Some(keys[1].clone()), ..first.clone() };
    written(store, ORG, &DefinitionWrite { blobs: vec![second], ..DefinitionWrite::default() }).await;
    let loose = |before| async move {
        let found = store.loose_keys(before, 1000).await.unwrap();
        found.into_iter().collect::<std::collections::BTreeSet<String>>()
    };
    let now = loose(at(5)).await;
    assert!(keys.iter().all(|key| !now.contains(key)));
    let later = loose(at(6)).await;
    assert_eq!(keys.each_ref().map(|key| later.contains(key)), [false, true, true]);
    store.clear_key(&keys[1]).await.unwrap();
    // Content that is removed leaves its key behind.
    assert_eq!(store.remove_blobs(ORG, at(2), &[first.hash]).await.unwrap(), (1, first.size));
    let last = loose(at(1)).await;
    assert_eq!(keys.each_ref().map(|key| last.contains(key)), [true, false, false]);
}
