//! References into the past, runs on them, and chains that were made short.

use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_engine::definitions::Restore;
use milepost_store::rows::RevisionKind;

use super::*;

on! {
    embedded: [
        the_same_document_is_the_same_revision,
        references_lead_into_the_past,
        nobody_takes_back_what_somebody_else_did_unseen,
        chains_are_made_short_and_nobody_sees_it,
        runs_keep_what_they_ran,
        runs_say_where_the_tags_of_their_children_were,
        moves_and_revisions_say_what_their_authors_knew,
        a_protected_tag_is_moved_by_those_who_may,
        a_key_that_comes_again_is_answered_again,
    ],
    postgres: [
        the_same_document_is_the_same_revision,
        references_lead_into_the_past,
        chains_are_made_short_and_nobody_sees_it,
        runs_keep_what_they_ran,
        runs_say_where_the_tags_of_their_children_were,
        moves_and_revisions_say_what_their_authors_knew,
        a_key_that_comes_again_is_answered_again,
    ]
}

async fn the_same_document_is_the_same_revision(home: Home) {
    let all = definitions(&home).await;
    let (one, two) = (saying(&[("a", "one")]), saying(&[("a", "two")]));
    let first = deployed(&all, "t", &one).await;
    assert!(!first.existing && !first.unchanged);
    let again = deployed(&all, "t", &one).await;
    assert!(again.existing && again.unchanged);
    assert_eq!((again.tag.revision_id, again.tag.version), (first.tag.revision_id, 1));
    let second = deployed(&all, "t", &two).await;
    // Back to the first: the revision is there, the tag moves.
    let back = deployed(&all, "t", &one).await;
    assert!(back.existing && !back.unchanged);
    assert_eq!((back.tag.revision_id, back.tag.version), (first.tag.revision_id, 3));
    // A patch that makes what is there already is a revision of its own; one that changes nothing is none.
    let patched = said(&all, "t", "a", "two").await;
    assert_eq!(patched.tag.version_hash, second.tag.version_hash);
    assert_ne!(patched.tag.revision_id, second.tag.revision_id);
    assert!(said(&all, "t", "a", "two").await.unchanged);
    // Deploying what a patch has made changes nothing.
    assert!(deployed(&all, "t", &two).await.unchanged);
}

async fn references_lead_into_the_past(home: Home) {
    let all = definitions(&home).await;
    let mut versions = Vec::new();
    for word in ["one", "two", "three"] {
        versions.push(deployed(&all, "team/t", &saying(&[("a", word)])).await);
    }
    let word = async |reference: &str| meant(&all, reference).await.unwrap()["steps"]["a"]["input"]["say"].clone();
    assert_eq!(word("team/t").await, "three");
    assert_eq!(word("team/t~1").await, "two");
    assert_eq!(word("team/t~").await, "two");
    assert_eq!(word("team/t~2").await, "one");
    assert_eq!(word(&versions[0].tag.revision_id.to_string()).await, "one");
    let hash = versions[1].tag.version_hash.to_string();
    assert_eq!(word(&format!("sha256:{hash}")).await, "two");
    assert_eq!(word(&format!("sha256:{}", &hash[..12])).await, "two");
    assert_eq!(word(&format!("team/t@{}", versions[1].tag.moved_at)).await, "two");
    let code = async |reference: &str| meant(&all, reference).await.unwrap_err().code();
    assert_eq!(code("team/t~3").await, "unknown_ref");
    assert_eq!(code("team/t~x").await, "unknown_ref");
    assert_eq!(code("team/t@2001-01-01T00:00:00Z").await, "unknown_ref");
    assert_eq!(code("team/t@yesterday").await, "unknown_ref");
    assert_eq!(code("other").await, "unknown_workflow");
    assert_eq!(code("other@2001-01-01T00:00:00Z").await, "unknown_workflow");
    assert_eq!(code("sha256:00").await, "unknown_ref");
    assert_eq!(code(&uuid::Uuid::now_v7().to_string()).await, "unknown_ref");
    // By how far back, and by when: both are moves, and both can be undone.
    let restored = all.restore(ORG, "team/t", &Restore::Target("team/t~2".to_owned()), &Moving::default()).await;
    assert_eq!(restored.unwrap().moved.restores_move_id, Some(1));
    let at = versions[1].tag.moved_at;
    all.restore(ORG, "team/t", &Restore::At(at), &Moving::default()).await.unwrap();
    assert_eq!(word("team/t").await, "two");
    all.undo(ORG, "team/t", &Moving::default()).await.unwrap();
    assert_eq!(word("team/t").await, "one");
    let history = all.history(ORG, "team/t", None, 100).await.unwrap();
    assert_eq!(told(history), "1 move, 2 move, 3 move, 4 restore>1, 5 restore>2, 6 undo>4");
    // A new tag at an old place.
    let made = all.set(ORG, "old", "team/t@2999-01-01T00:00:00Z", &by("ann")).await.unwrap();
    assert_eq!((made.tag.version, made.tag.version_hash), (1, versions[0].tag.version_hash));
    assert!(all.set(ORG, "old", "team/t", &by("ann")).await.unwrap().unchanged);
}

async fn nobody_takes_back_what_somebody_else_did_unseen(home: Home) {
    let all = definitions(&home).await;
    all.deploy(ORG, "t", loaded(&saying(&[("a", "one")])), &by("ann")).await.unwrap();
    all.patch(ORG, "t", &saying_again("a", "two"), &by("bob")).await.unwrap();
    assert_eq!(all.undo(ORG, "t", &by("ann")).await.unwrap_err().code(), "moved_by_another");
    let restore = Restore::Target("t~1".to_owned());
    assert_eq!(all.restore(ORG, "t", &restore, &by("ann")).await.unwrap_err().code(), "moved_by_another");
    assert_eq!(all.undo(ORG, "t", &Moving::default()).await.unwrap_err().code(), "moved_by_another");
    let seen = |version| Moving { expected: Some(version), ..by("ann") };
    assert_eq!(all.undo(ORG, "t", &seen(1)).await.unwrap_err().code(), "tag_moved");
    all.undo(ORG, "t", &seen(2)).await.unwrap();
    // Now the newest move is hers.
    assert_eq!(all.redo(ORG, "t", &by("bob")).await.unwrap_err().code(), "moved_by_another");
    let back = all.redo(ORG, "t", &by("ann")).await.unwrap();
    assert_eq!((back.tag.version, back.moved.moved_by.as_deref()), (4, Some("ann")));
}

async fn chains_are_made_short_and_nobody_sees_it(home: Home) {
    let all = definitions(&home).await;
    let store = home.store().await;
    let tables = store.definitions();
    deployed(&all, "t", &saying(&[("a", "0")])).await;
    let mut made = Vec::new();
    for number in 1..=35 {
        let moved = said(&all, "t", "a", &number.to_string()).await;
        let revision = tables.revision(ORG, moved.tag.revision_id).await.unwrap().unwrap();
        assert_eq!((revision.kind, revision.depth), (RevisionKind::PatchSet, (number - 1) % 10 + 1));
        assert_eq!(tables.chain(ORG, revision.revision_id).await.unwrap().len() as u32, revision.depth + 1);
        made.push((revision, number));
    }
    // Every one of them still means what it meant, read by somebody who has nothing at hand.
    let fresh = definitions(&home).await;
    for (revision, number) in &made {
        let document = meant(&fresh, &revision.revision_id.to_string()).await.unwrap();
        assert_eq!(document, saying(&[("a", &number.to_string())]));
    }
    // Where a chain was made short, the version has the digest of the patch before.
    let (tenth, eleventh) = (&made[9].0, &made[10].0);
    let version = tables.revision(ORG, eleventh.base_version.unwrap()).await.unwrap().unwrap();
    assert_eq!((version.kind, version.version_hash), (RevisionKind::DagVersion, tenth.version_hash));
    assert_eq!(version.parent_id, Some(tenth.revision_id));
    assert_eq!(eleventh.parent_id, Some(version.revision_id));
    // What was made short is not taken back: the way back goes through all of them.
    for number in (0..35).rev() {
        all.undo(ORG, "t", &Moving::default()).await.unwrap();
        assert_eq!(meant(&all, "t").await.unwrap(), saying(&[("a", &number.to_string())]));
    }
    // In the background: what a tag points at through a long chain has a version before the next patch needs one.
    let deep = made[29].0.clone();
    all.set(ORG, "deep", &deep.revision_id.to_string(), &Moving::default()).await.unwrap();
    let before = tables.revisions_in(ORG, deep.version_hash, deep.version_hash, 10).await.unwrap().len();
    let collected = all.collect(ORG, None, false).await.unwrap();
    let after = tables.revisions_in(ORG, deep.version_hash, deep.version_hash, 10).await.unwrap().len();
    assert_eq!((collected.compacted, before, after), (0, 2, 2), "the thirty-first patch has made it already");
    let last = definitions(&home).await;
    deployed(&last, "u", &saying(&[("u", "0")])).await;
    for number in 1..=10 {
        said(&last, "u", "u", &number.to_string()).await;
    }
    assert_eq!(last.collect(ORG, None, false).await.unwrap().compacted, 1);
    assert_eq!(last.collect(ORG, None, false).await.unwrap().compacted, 0);
    assert_eq!(meant(&definitions(&home).await, "u").await.unwrap(), saying(&[("u", "10")]));
    let next = said(&last, "u", "u", "11").await;
    assert_eq!(tables.revision(ORG, next.tag.revision_id).await.unwrap().unwrap().depth, 1);
}

async fn runs_keep_what_they_ran(home: Home) {
    let engine = home.open(config()).await;
    let all = engine.definitions();
    deployed(all, "t", &saying(&[("a", "one")])).await;
    let patched = said(all, "t", "a", "two").await;
    let first = engine.start("t", payload(&json!({}))).await.unwrap().run;
    let second = engine.start("t", payload(&json!({}))).await.unwrap().run;
    let old = engine.start("t~1", payload(&json!({}))).await.unwrap().run;
    for (run, word) in [(first, "two"), (second, "two"), (old, "one")] {
        assert_eq!(ended(&engine, run).await, RunStatus::Completed);
        assert_eq!(output(&engine.run(run).await.unwrap(), "a")["say"], word);
    }
    // Both runs of the patched document share one snapshot, and say where it came from.
    let store = home.store().await;
    let hash = patched.tag.version_hash;
    let revisions = store.definitions().revisions_in(ORG, hash, hash, 10).await.unwrap();
    let snapshots: Vec<_> = revisions.iter().filter(|row| row.kind == RevisionKind::RunSnapshot).collect();
    assert_eq!((snapshots.len(), snapshots[0].plan_hash), (1, Some(hash)));
    let queued = log(&store, first).await[0].data.clone();
    let queued: Value = serde_json::from_str(queued.as_str()).unwrap();
    assert_eq!(queued["definition"]["ref"], "t");
    assert_eq!(queued["definition"]["tags_snapshot"]["t"]["tag_version"], 2);
    assert_eq!(queued["definition"]["revision_id"], json!(patched.tag.revision_id));
    // Another engine reads them, with the tag long gone elsewhere.
    deployed(all, "t", &saying(&[("z", "else")])).await;
    let other = home.open(config()).await;
    assert_eq!(output(&other.run(first).await.unwrap(), "a")["say"], "two");
    // A child of a patched workflow.
    let parent = "{name: parent, steps: {c: {skill: workflow, input: {ref: t~1}}}}";
    let (run, status) = run(&other, parent, payload(&json!({}))).await;
    assert_eq!(status, RunStatus::Completed, "{:?}", other.run(run).await);
    other.shutdown().await;
    engine.shutdown().await;
    healthy(&store).await;
}

async fn moves_and_revisions_say_what_their_authors_knew(home: Home) {
    let all = definitions(&home).await;
    let meta = || Json::parse(r#"{"ticket": 7}"#).unwrap();
    let noted = |expected| Moving { expected, meta: Some(meta()), ..by("ann") };
    let first = all.deploy(ORG, "t", loaded(&saying(&[("a", "one")])), &noted(None)).await.unwrap().1;
    let second = all.patch(ORG, "t", &saying_again("a", "two"), &noted(Some(1))).await.unwrap();
    all.undo(ORG, "t", &Moving { expected: Some(2), ..by("ann") }).await.unwrap();
    let moves = all.history(ORG, "t", None, 10).await.unwrap();
    let seen: Vec<_> = moves.iter().rev().map(|row| (row.from_kind, row.expected_hash)).collect();
    let (version, patch) = (RevisionKind::DagVersion, RevisionKind::PatchSet);
    let hashes = [first.tag.version_hash, second.tag.version_hash];
    assert_eq!(seen, [(None, None), (Some(version), Some(hashes[0])), (Some(patch), Some(hashes[1]))]);
    for moved in [&first, &second] {
        let row = all.revision(ORG, moved.tag.revision_id).await.unwrap();
        assert_eq!((row.name.as_deref(), row.meta.as_deref()), (Some("t"), Some(r#"{"ticket": 7}"#)));
    }
    let big = format!("{{\"a\": \"{}\"}}", "x".repeat(20_000));
    for bad in ["[1]", "7", "null", big.as_str()] {
        let moving = Moving { meta: Some(Json::parse(bad).unwrap()), ..by("ann") };
        let refused = all.patch(ORG, "t", &saying_again("a", "three"), &moving).await.unwrap_err();
        assert_eq!(refused.code(), "bad_meta", "{bad}");
    }
}

async fn runs_say_where_the_tags_of_their_children_were(home: Home) {
    let engine = home.open(config()).await;
    let all = engine.definitions();
    deployed(all, "leaf", &saying(&[("a", "one")])).await;
    said(all, "leaf", "a", "two").await;
    let of = |reference: &str| json!({"skill": "workflow", "input": {"ref": reference, "payload": {}}});
    deployed(all, "middle", &json!({"name": "middle", "steps": {"l": of("leaf~1"), "own": of("middle")}})).await;
    let steps =
        json!({"m": of("middle"), "none": of("nobody"), "open": of("${{ payload.which }}"), "again": of("middle")});
    deployed(all, "top", &json!({"name": "top", "steps": steps})).await;
    let run = engine.start("top", payload(&json!({"which": "leaf"}))).await.unwrap().run;
    // The tags move while the run is under way: it says where they were.
    said(all, "leaf", "a", "three").await;
    let view = engine.run(run).await.unwrap();
    let definition = view.definition.unwrap().to_value();
    let versions: std::collections::BTreeMap<String, u64> = definition["tags_snapshot"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(tag, place)| (tag.clone(), place["tag_version"].as_u64().unwrap()))
        .collect();
    let wanted = [("leaf", 1), ("middle", 1), ("top", 1)].map(|(tag, version)| (tag.to_owned(), version));
    assert_eq!(versions, wanted.into());
    send(&engine, run, "TERMINATE").await;
}

async fn a_protected_tag_is_moved_by_those_who_may(home: Home) {
    use milepost_engine::definitions::{Protection, Trust};
    let all = definitions(&home).await;
    deployed(&all, "prod", &saying(&[("a", "one")])).await;
    let protection = Protection { movers: vec!["ann".to_owned()], trust: Trust::Protected };
    let row = all.protect(ORG, "prod", Some(&protection), None).await.unwrap();
    assert_eq!(Protection::of(&row).unwrap(), Some(protection.clone()));
    for refused in [
        all.patch(ORG, "prod", &saying_again("a", "two"), &by("bob")).await.unwrap_err(),
        all.set(ORG, "prod", "prod~0", &Moving::default()).await.unwrap_err(),
        all.undo(ORG, "prod", &by("bob")).await.unwrap_err(),
        all.protect(ORG, "prod", None, Some("bob")).await.unwrap_err(),
    ] {
        assert_eq!(refused.code(), "tag_protected");
    }
    all.patch(ORG, "prod", &saying_again("a", "two"), &by("ann")).await.unwrap();
    assert!(all.tag(ORG, "prod").await.unwrap().protection.is_some());
    all.protect(ORG, "prod", None, Some("ann")).await.unwrap();
    all.patch(ORG, "prod", &saying_again("a", "three"), &by("bob")).await.unwrap();
}

async fn a_key_that_comes_again_is_answered_again(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "t", &saying(&[("a", "one")])).await;
    let keyed = |key: &str| Moving { key: Some(key.to_owned()), ..by("ann") };
    let first = all.patch(ORG, "t", &saying_again("a", "two"), &keyed("k1")).await.unwrap();
    said(&all, "t", "a", "three").await;
    // The answer was lost, and somebody else has the request again, long after: one move, the same answer.
    let again = definitions(&home).await.patch(ORG, "t", &saying_again("a", "two"), &keyed("k1")).await.unwrap();
    assert_eq!((&again.moved, again.tag.revision_id), (&first.moved, first.tag.revision_id));
    assert_eq!((again.tag.version, again.existing, again.unchanged), (2, false, false));
    assert_eq!(all.tag(ORG, "t").await.unwrap().version, 3);
    let other = all.patch(ORG, "t", &saying_again("a", "four"), &keyed("k1")).await.unwrap_err();
    assert_eq!(other.code(), "idempotency_key_reused");
    let undone = all.undo(ORG, "t", &Moving { by: None, ..keyed("k2") }).await.unwrap();
    let again = all.undo(ORG, "t", &Moving { by: None, ..keyed("k2") }).await.unwrap();
    assert_eq!(again.moved, undone.moved);
    assert_eq!(meant(&all, "t").await.unwrap(), saying(&[("a", "two")]));
    // Also where there was nothing to do.
    let same = saying(&[("a", "two")]);
    let first = all.deploy(ORG, "t", loaded(&same), &keyed("k3")).await.unwrap().1;
    said(&all, "t", "a", "five").await;
    let again = all.deploy(ORG, "t", loaded(&same), &keyed("k3")).await.unwrap().1;
    assert!(first.unchanged && again.unchanged);
    assert_eq!(meant(&all, "t").await.unwrap(), saying(&[("a", "five")]));
}
