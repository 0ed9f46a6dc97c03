//! Definitions that somebody damaged behind the engine's back: found by `doctor`, and put right where that can be.

use milepost_engine::{diagnose, repair};
use milepost_store::rows::{MoveKind, RevisionRow};

use super::*;

on! {
    embedded: [whole_definitions_are_left_alone],
    postgres: [
        whole_definitions_are_left_alone,
        a_chain_is_made_again_from_parents,
        a_tag_goes_back_to_where_it_was_whole,
        what_cannot_be_put_right_is_only_told,
    ]
}

/// Damage that the memory store cannot have.
mod damaged {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_chain_is_made_again_from_parents() {
        super::a_chain_is_made_again_from_parents(Home::sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tag_goes_back_to_where_it_was_whole() {
        super::a_tag_goes_back_to_where_it_was_whole(Home::sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_cannot_be_put_right_is_only_told() {
        Box::pin(super::what_cannot_be_put_right_is_only_told(Home::sqlite())).await;
    }
}

fn id(home: &Home, id: uuid::Uuid) -> String {
    match home {
        Home::Postgres(_) => format!("'{id}'"),
        _ => format!("x'{}'", id.simple()),
    }
}

async fn codes(home: &Home) -> Vec<&'static str> {
    let diagnosis = diagnose(&home.store().await, None, now()).await.unwrap();
    let mut codes: Vec<_> = diagnosis.findings.iter().map(|finding| finding.code).collect();
    codes.dedup();
    codes
}

async fn repaired(home: &Home) -> Vec<String> {
    repair(&home.store().await, None, Some("ann")).await.unwrap()
}

async fn revision(all: &Definitions, moved: &Moved) -> RevisionRow {
    all.revision(ORG, moved.tag.revision_id).await.unwrap()
}

async fn whole_definitions_are_left_alone(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "t", &saying(&[("a", "one")])).await;
    for word in ["two", "three"] {
        said(&all, "t", "a", word).await;
    }
    all.undo(ORG, "t", &Moving::default()).await.unwrap();
    assert_eq!(codes(&home).await, [] as [&str; 0]);
    assert_eq!(repaired(&home).await, [] as [&str; 0]);
    assert_eq!(all.history(ORG, "t", None, 10).await.unwrap().len(), 4);
}

async fn a_chain_is_made_again_from_parents(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "t", &saying(&[("a", "one")])).await;
    let first = said(&all, "t", "a", "two").await;
    let second = said(&all, "t", "b", "three").await;
    let wanted = saying(&[("a", "two"), ("b", "three")]);
    let (head, member) = (id(&home, second.tag.revision_id), id(&home, first.tag.revision_id));
    for broken in [
        format!("DELETE FROM patch_chain_members WHERE head_id = {head} AND member_id = {member}"),
        format!("DELETE FROM patch_chain_members WHERE head_id = {head}"),
        // A sibling's patch among its own.
        format!("UPDATE patch_chain_members SET member_id = {head} WHERE head_id = {head} AND seq = 1"),
    ] {
        damage(&home, &broken).await;
        assert_eq!(codes(&home).await, ["broken_chain", "orphaned_tag"], "{broken}");
        let fresh = definitions(&home).await;
        assert!(meant(&fresh, "t").await.is_err(), "{broken}");
        // A revision is read without what it is made of.
        let (row, stored) = fresh.stored(ORG, "t").await.unwrap();
        assert_eq!((row.depth, stored.to_value()), (2, saying_again("b", "three")));
        assert_eq!(repaired(&home).await.len(), 1, "the tag is whole again with its chain: {broken}");
        assert_eq!(codes(&home).await, [] as [&str; 0]);
        assert_eq!(meant(&definitions(&home).await, "t").await.unwrap(), wanted);
    }
    assert_eq!(all.tag(ORG, "t").await.unwrap().version, 3, "no tag moved");
}

async fn a_tag_goes_back_to_where_it_was_whole(home: Home) {
    let all = definitions(&home).await;
    deployed(&all, "t", &saying(&[("a", "one")])).await;
    let second = deployed(&all, "t", &saying(&[("a", "two")])).await;
    let third = deployed(&all, "t", &saying(&[("a", "three")])).await;
    let fourth = deployed(&all, "t", &saying(&[("a", "four")])).await;
    // The target is gone, and the one before it has lost its content.
    damage(&home, &format!("DELETE FROM revisions WHERE revision_id = {}", id(&home, fourth.tag.revision_id))).await;
    let lost = revision(&all, &third).await.cas_hash;
    let hash = match &home {
        Home::Postgres(_) => format!("'\\x{lost}'"),
        _ => format!("x'{lost}'"),
    };
    damage(&home, &format!("DELETE FROM cas_blobs WHERE hash = {hash}")).await;
    assert_eq!(codes(&home).await, ["missing_content", "orphaned_tag"]);
    let done = repaired(&home).await;
    assert!(done.len() == 1 && done[0].starts_with("tag `t` was moved back"), "{done:?}");
    assert_eq!(codes(&home).await, ["missing_content"]);
    let fresh = definitions(&home).await;
    let tag = fresh.tag(ORG, "t").await.unwrap();
    assert_eq!((tag.revision_id, tag.version, tag.moved_by.as_deref()), (second.tag.revision_id, 5, Some("ann")));
    assert_eq!(meant(&fresh, "t").await.unwrap(), saying(&[("a", "two")]));
    let moves = fresh.history(ORG, "t", None, 10).await.unwrap();
    assert_eq!(told(moves.clone()), "1 move, 2 move, 3 move, 4 move, 5 restore>2");
    assert_eq!((moves[0].kind, moves[0].from_revision_id), (MoveKind::Restore, None));
    assert!(moves[0].message.as_deref().unwrap().contains(&fourth.tag.revision_id.to_string()));
    // The history goes on: an undo leads to what was before the place that it was brought back to.
    fresh.undo(ORG, "t", &by("ann")).await.unwrap();
    assert_eq!(meant(&fresh, "t").await.unwrap(), saying(&[("a", "one")]));
    assert_eq!(repaired(&home).await, [] as [&str; 0]);
}

async fn what_cannot_be_put_right_is_only_told(home: Home) {
    let all = definitions(&home).await;
    let only = deployed(&all, "only", &saying(&[("a", "one")])).await;
    deployed(&all, "p", &saying(&[("b", "one")])).await;
    let middle = said(&all, "p", "b", "two").await;
    said(&all, "p", "b", "three").await;
    let gone = [only.tag.revision_id, middle.tag.revision_id].map(|revision| id(&home, revision)).join(", ");
    damage(&home, &format!("DELETE FROM revisions WHERE revision_id IN ({gone})")).await;
    let found = codes(&home).await;
    assert_eq!(found, ["missing_parent", "broken_chain", "orphaned_tag"]);
    // `p` goes back to its first document; `only` was never anywhere else.
    let done = repaired(&home).await;
    assert!(done.len() == 1 && done[0].contains("`p`"), "{done:?}");
    assert_eq!(meant(&definitions(&home).await, "p").await.unwrap(), saying(&[("b", "one")]));
    let undone = definitions(&home).await.undo(ORG, "p", &by("ann")).await.unwrap_err();
    assert_eq!(undone.code(), "nothing_to_undo");
    assert_eq!(definitions(&home).await.tag(ORG, "only").await.unwrap().version, 1);
}
