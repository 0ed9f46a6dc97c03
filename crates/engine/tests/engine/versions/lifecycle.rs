//! The life of a workflow, step by step, with what the tables hold after each.

use milepost_store::rows::{MoveRow, RevisionKind};
use serde_json::json;

use super::*;

on! {
    embedded: [a_workflow_is_made_patched_undone_and_redone],
    postgres: [a_workflow_is_made_patched_undone_and_redone]
}

async fn a_workflow_is_made_patched_undone_and_redone(home: Home) {
    let all = definitions(&home).await;
    let store = home.store().await;
    let tables = store.definitions();

    // 1. A document is stored: one blob, one version, one tag, one move, no chain.
    let base = saying(&[("a", "one")]);
    let first = all.deploy(ORG, "main", loaded(&base), &by("alice")).await.unwrap().1;
    let v1 = tables.revision(ORG, first.tag.revision_id).await.unwrap().unwrap();
    assert_eq!((v1.kind, v1.depth, v1.base_version, v1.parent_id), (RevisionKind::DagVersion, 0, None, None));
    assert_eq!(v1.cas_hash, v1.version_hash);
    let blob = tables.blob(ORG, v1.cas_hash).await.unwrap().unwrap();
    assert_eq!(blob.content, loaded(&base).canonical.as_bytes());
    assert_eq!(tables.chain(ORG, v1.revision_id).await.unwrap().len(), 1);
    assert_eq!((first.tag.version, first.tag.moved_by.as_deref()), (1, Some("alice")));

    // 2. A patch: its operations, a revision on top of the version, the tag and a move; the chain has one member.
    let ops = saying_again("b", "two");
    let second = all.patch(ORG, "main", &ops, &by("alice")).await.unwrap();
    let p1 = tables.revision(ORG, second.tag.revision_id).await.unwrap().unwrap();
    assert_eq!((p1.kind, p1.depth), (RevisionKind::PatchSet, 1));
    assert_eq!((p1.base_version, p1.parent_id), (Some(v1.revision_id), Some(v1.revision_id)));
    let kept: serde_json::Value =
        serde_json::from_slice(&tables.blob(ORG, p1.cas_hash).await.unwrap().unwrap().content).unwrap();
    assert_eq!(kept, ops);
    assert_eq!(p1.version_hash, loaded(&saying(&[("a", "one"), ("b", "two")])).hash);

    // 3. Another: the base is still the version, the parent is the first patch, the chain has both.
    let third = all.patch(ORG, "main", &saying_again("c", "three"), &by("alice")).await.unwrap();
    let p2 = tables.revision(ORG, third.tag.revision_id).await.unwrap().unwrap();
    assert_eq!((p2.depth, p2.base_version, p2.parent_id), (2, Some(v1.revision_id), Some(p1.revision_id)));
    let chain: Vec<_> = tables.chain(ORG, p2.revision_id).await.unwrap();
    let ids: Vec<_> = chain.iter().map(|member| member.revision.revision_id).collect();
    assert_eq!(ids, [v1.revision_id, p1.revision_id, p2.revision_id]);

    // 4. Undo: the tag points at the first patch again, and a fourth move says so.
    let undone = all.undo(ORG, "main", &by("alice")).await.unwrap();
    assert_eq!((undone.tag.revision_id, undone.tag.version), (p1.revision_id, 4));
    let moves = tables.moves(ORG, "main", None, 10).await.unwrap();
    let rows = |moves: &[MoveRow]| {
        let row = |row: &MoveRow| (row.move_id, row.from_revision_id, row.to_revision_id);
        moves.iter().rev().map(row).collect::<Vec<_>>()
    };
    let expected = [
        (1, None, v1.revision_id),
        (2, Some(v1.revision_id), p1.revision_id),
        (3, Some(p1.revision_id), p2.revision_id),
        (4, Some(p2.revision_id), p1.revision_id),
    ];
    assert_eq!(rows(&moves), expected);

    // Undo, redo, redo, edit, redo.
    all.undo(ORG, "main", &by("alice")).await.unwrap();
    assert_eq!(meant(&all, "main").await.unwrap(), base);
    assert_eq!(all.undo(ORG, "main", &by("alice")).await.unwrap_err().code(), "nothing_to_undo");
    let redone = all.redo(ORG, "main", &by("alice")).await.unwrap();
    assert_eq!(redone.tag.revision_id, p1.revision_id);
    let redone = all.redo(ORG, "main", &by("alice")).await.unwrap();
    assert_eq!(redone.tag.revision_id, p2.revision_id);
    assert_eq!(all.redo(ORG, "main", &by("alice")).await.unwrap_err().code(), "nothing_to_redo");
    all.undo(ORG, "main", &by("alice")).await.unwrap();
    all.patch(ORG, "main", &saying_again("d", "four"), &by("alice")).await.unwrap();
    assert_eq!(all.redo(ORG, "main", &by("alice")).await.unwrap_err().code(), "nothing_to_redo");
    let history = all.history(ORG, "main", None, 100).await.unwrap();
    let expected = "1 move, 2 move, 3 move, 4 undo>2, 5 undo>1, 6 redo>2, 7 redo>3, 8 undo>2, 9 move";
    assert_eq!(told(history), expected);
    // The edit came from the first patch, whatever came after that once.
    let last = all.tag(ORG, "main").await.unwrap();
    let p3 = tables.revision(ORG, last.revision_id).await.unwrap().unwrap();
    assert_eq!((p3.parent_id, p3.depth), (Some(p1.revision_id), 2));
    let expected = json!({"name": "t", "steps": {
        "a": {"skill": "echo", "input": {"say": "one"}},
        "b": {"skill": "echo", "input": {"say": "two"}},
        "d": {"skill": "echo", "input": {"say": "four"}},
    }});
    assert_eq!(meant(&definitions(&home).await, "main").await.unwrap(), expected);
}
