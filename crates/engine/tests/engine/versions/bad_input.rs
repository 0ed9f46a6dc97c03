//! Each wrong request has its own error, and nothing is stored for it.

use super::*;

on! {
    embedded: [what_is_wrong_is_told_and_nothing_is_stored],
    postgres: [what_is_wrong_is_told_and_nothing_is_stored]
}

async fn what_is_wrong_is_told_and_nothing_is_stored(home: Home) {
    let all = definitions(&home).await;
    let first = deployed(&all, "t", &saying(&[("a", "one"), ("b", "two")])).await;
    let store = home.store().await;
    let everything = async || {
        let (from, to) = ([0; 32], [255; 32]);
        let digest = milepost_core::hash::Digest;
        let revisions = store.definitions().revisions_in(ORG, digest(from), digest(to), 1000).await.unwrap();
        (revisions, all.history(ORG, "t", None, 100).await.unwrap(), all.tags(ORG, None, 10).await.unwrap())
    };
    let before = everything().await;
    let patch = async |ops: Value| all.patch(ORG, "t", &ops, &Moving::default()).await.unwrap_err();
    let depends =
        |step: &str, on: &str| json!({"op": "add", "path": format!("/steps/{step}/depends_on"), "value": [on]});

    let failed = patch(json!([{"op": "test", "path": "/name", "value": "other"}])).await;
    assert_eq!(failed.code(), "patch_failed");
    let failed = patch(json!([{"op": "replace", "path": "/steps/z/skill", "value": "echo"}])).await;
    assert_eq!(failed.code(), "patch_failed");
    let cycle = patch(json!([depends("a", "b"), depends("b", "a")])).await;
    assert!(matches!(&cycle, EngineError::Invalid(problems) if problems[0].code == "cycle"), "{cycle:?}");
    let dangling = patch(json!([depends("a", "nobody")])).await;
    assert!(matches!(&dangling, EngineError::Invalid(problems) if problems[0].code == "unknown_step"));
    let seen = Moving { expected: Some(7), ..Moving::default() };
    let moved = all.patch(ORG, "t", &saying_again("c", "x"), &seen).await.unwrap_err();
    assert_eq!(moved.code(), "tag_moved");
    let new = Moving { expected: Some(0), ..Moving::default() };
    assert_eq!(all.deploy(ORG, "t", loaded(&saying(&[("z", "z")])), &new).await.unwrap_err().code(), "tag_moved");
    assert_eq!(all.patch(ORG, "other", &json!([]), &Moving::default()).await.unwrap_err().code(), "unknown_workflow");
    assert_eq!(all.set(ORG, "new", "nothing", &Moving::default()).await.unwrap_err().code(), "unknown_workflow");
    for bad in ["", "a@b", "a~1", "sha256:aaaaaaaa", &first.tag.revision_id.to_string()] {
        let refused = all.deploy(ORG, bad, loaded(&saying(&[("z", "z")])), &Moving::default()).await.unwrap_err();
        assert_eq!(refused.code(), "bad_tag", "{bad}");
    }
    assert_eq!(everything().await, before);

    // Another org sees nothing of it.
    let other = milepost_core::id::OrgId(2);
    assert_eq!(all.tag(other, "t").await.unwrap_err().code(), "unknown_workflow");
    let by_id = all.resolve(other, &first.tag.revision_id.to_string()).await.unwrap_err();
    assert_eq!(by_id.code(), "unknown_ref");
    let by_hash = all.resolve(other, &format!("sha256:{}", first.tag.version_hash)).await.unwrap_err();
    assert_eq!(by_hash.code(), "unknown_ref");
}

#[tokio::test]
async fn first_digits_that_two_documents_share_mean_neither() {
    let home = Home::memory();
    let all = definitions(&home).await;
    let mut seen = std::collections::HashMap::new();
    // Six digits are shared by two of some thousands.
    for number in 0.. {
        let moved = deployed(&all, "t", &saying(&[("a", &number.to_string())])).await;
        let hash = moved.tag.version_hash.to_string();
        if let Some(other) = seen.insert(hash[..6].to_owned(), hash.clone()) {
            let refused = meant(&all, &format!("sha256:{}", &hash[..6])).await.unwrap_err();
            assert_eq!(refused.code(), "ambiguous_ref");
            assert!(refused.to_string().contains(&other) && refused.to_string().contains(&hash), "{refused}");
            assert!(meant(&all, &format!("sha256:{}", &hash[..16])).await.is_ok());
            return;
        }
    }
}

#[tokio::test]
async fn a_document_that_was_damaged_is_not_taken_for_another() {
    let home = Home::sqlite();
    let all = definitions(&home).await;
    deployed(&all, "t", &saying(&[("a", "one")])).await;
    said(&all, "t", "b", "two").await;
    let guard = "DROP TRIGGER cas_blobs_never_change;";
    tamper(&home, &format!("{guard} UPDATE cas_blobs SET content = CAST(replace(content, 'two', 'six') AS BLOB)"));
    let patched = meant(&definitions(&home).await, "t").await.unwrap_err();
    assert_eq!(patched.code(), "corrupt");
    assert!(patched.to_string().contains("does not have that hash"), "{patched}");
    assert!(meant(&definitions(&home).await, "t~1").await.is_ok());
    // Nothing is built upon it either.
    let refused = definitions(&home).await.patch(ORG, "t", &saying_again("c", "x"), &Moving::default()).await;
    assert_eq!(refused.unwrap_err().code(), "corrupt");
    tamper(&home, "UPDATE cas_blobs SET content = CAST(replace(content, 'one', 'six') AS BLOB)");
    assert_eq!(meant(&definitions(&home).await, "t~1").await.unwrap_err().code(), "corrupt");
}
