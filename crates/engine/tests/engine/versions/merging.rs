//! Two lines of revisions become one.

use milepost_engine::definitions::{DefinitionError, MergeOutcome};

use super::*;

on! {
    embedded: [lines_are_merged_by_step, what_does_not_fit_is_told_and_nothing_moves],
    postgres: [lines_are_merged_by_step]
}

async fn lines_are_merged_by_step(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "main", &saying(&[("a", "one"), ("b", "two")])).await;
    all.set(ORG, "exp", "main", &Moving::default()).await.unwrap();
    let merge = async |into: &str, from: &str| all.merge(ORG, into, from, &Moving::default()).await.unwrap();
    assert_eq!(merge("main", "exp").await.outcome, MergeOutcome::UpToDate);
    // Only one of them went on: the other goes there.
    let patched = said(&all, "exp", "c", "three").await;
    let forward = merge("main", "exp").await;
    assert_eq!((forward.outcome, forward.tag.revision_id), (MergeOutcome::FastForward, patched.tag.revision_id));
    assert_eq!(merge("main", "exp").await.outcome, MergeOutcome::UpToDate);
    assert_eq!(merge("exp", "main").await.outcome, MergeOutcome::UpToDate);
    // Both went on, in different steps, across a chain that was made short.
    for number in 0..12 {
        said(&all, "exp", "c", &number.to_string()).await;
    }
    let ours = said(&all, "main", "d", "four").await;
    let theirs = all.tag(ORG, "exp").await.unwrap();
    let would = all.try_merge(ORG, "main", "exp", &Moving::default()).await.unwrap();
    assert_eq!(would.outcome, MergeOutcome::Merged);
    assert_eq!(would.tag.version, ours.tag.version, "nothing has moved");
    let merged = merge("main", "exp").await;
    assert_eq!((merged.outcome, merged.base), (MergeOutcome::Merged, Some(patched.tag.revision_id)));
    assert_eq!(merged.diff, would.diff);
    let expected = saying(&[("a", "one"), ("b", "two"), ("c", "11"), ("d", "four")]);
    assert_eq!(meant(&all, "main").await.unwrap(), expected);
    let revision = all.revision(ORG, merged.tag.revision_id).await.unwrap();
    assert_eq!(revision.parent_id, Some(ours.tag.revision_id));
    assert_eq!(revision.merge_parent_id, Some(theirs.revision_id));
    // The merge is where they meet now: what was merged is not merged again.
    assert_eq!(merge("main", "exp").await.outcome, MergeOutcome::UpToDate);
    assert_eq!(merge("exp", "main").await.outcome, MergeOutcome::FastForward);
    // A merge is a move, and can be undone.
    all.undo(ORG, "main", &Moving::default()).await.unwrap();
    assert_eq!(all.tag(ORG, "main").await.unwrap().revision_id, ours.tag.revision_id);
    let keyed = Moving { key: Some("once".to_owned()), ..Moving::default() };
    let first = all.merge(ORG, "main", "exp", &keyed).await.unwrap();
    let again = all.merge(ORG, "main", "exp", &keyed).await.unwrap();
    assert_eq!((again.outcome, again.tag.version, again.diff), (first.outcome, first.tag.version, first.diff));
}

async fn what_does_not_fit_is_told_and_nothing_moves(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "main", &saying(&[("a", "one"), ("b", "two")])).await;
    all.set(ORG, "exp", "main", &Moving::default()).await.unwrap();
    said(&all, "main", "a", "ours").await;
    said(&all, "exp", "a", "theirs").await;
    let conflicts = async || match all.merge(ORG, "main", "exp", &Moving::default()).await.unwrap_err() {
        EngineError::Definition(DefinitionError::MergeConflict(conflicts)) => json!(conflicts.list),
        other => panic!("{other}"),
    };
    let found = conflicts().await;
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!((&found[0]["path"], &found[0]["step_id"]), (&json!("/steps/a/input/say"), &json!("a")));
    let values = ["base", "ours", "theirs"].map(|side| found[0][side].clone());
    assert_eq!(values, [json!("one"), json!("ours"), json!("theirs")]);
    assert_eq!(all.tag(ORG, "main").await.unwrap().version, 2);
    // A circle that neither of them has.
    deployed(&all, "main", &saying(&[("a", "x"), ("b", "x")])).await;
    all.set(ORG, "exp", "main", &Moving::default()).await.unwrap();
    let depends =
        |step: &str, on: &str| json!([{"op": "add", "path": format!("/steps/{step}/depends_on"), "value": [on]}]);
    all.patch(ORG, "main", &depends("a", "b"), &Moving::default()).await.unwrap();
    all.patch(ORG, "exp", &depends("b", "a"), &Moving::default()).await.unwrap();
    assert_eq!(conflicts().await[0]["kind"], "cycle");
    // A step that one took away and the other begins to need.
    deployed(&all, "main", &saying(&[("a", "y"), ("b", "y"), ("c", "y")])).await;
    all.set(ORG, "exp", "main", &Moving::default()).await.unwrap();
    all.patch(ORG, "main", &json!([{"op": "remove", "path": "/steps/c"}]), &Moving::default()).await.unwrap();
    all.patch(ORG, "exp", &depends("b", "c"), &Moving::default()).await.unwrap();
    assert_eq!(conflicts().await[0]["kind"], "dangling_reference");
}
