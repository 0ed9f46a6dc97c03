//! Blobs and tags.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_store::Store;
use milepost_store::rows::{BlobRow, Deployed, TagRow};
use uuid::Uuid;

use crate::rows::{ORG, at, unique};

pub(super) async fn check(store: &dyn Store) {
    a_blob_is_kept_once(store).await;
    a_tag_points_at_what_was_deployed_last(store).await;
    tags_are_listed_by_their_bytes(store).await;
}

async fn a_blob_is_kept_once(store: &dyn Store) {
    let content = unique("content\0").into_bytes();
    let blob = BlobRow { hash: Digest::of(&content), media_type: "application/yaml".to_owned(), content };
    assert_eq!(store.blob(ORG, blob.hash).await.unwrap(), None);
    store.put_blob(ORG, &blob).await.unwrap();
    store.put_blob(ORG, &blob).await.unwrap();
    assert_eq!(store.blob(ORG, blob.hash).await.unwrap(), Some(blob.clone()));
    assert_eq!(store.blob(OrgId(2), blob.hash).await.unwrap(), None);
    let empty = BlobRow { hash: Digest::of(b""), media_type: "text/plain".to_owned(), content: Vec::new() };
    store.put_blob(ORG, &empty).await.unwrap();
    assert_eq!(store.blob(ORG, empty.hash).await.unwrap(), Some(empty));
}

async fn a_tag_points_at_what_was_deployed_last(store: &dyn Store) {
    let tag = unique("tag");
    let (first, second) = (Digest::of(unique("first").as_bytes()), Digest::of(unique("second").as_bytes()));
    let ids: [Uuid; 4] = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), None);
    let row = |target, version, moved_at, revision| TagRow {
        tag: tag.clone(),
        target,
        version,
        moved_at,
        revision_id: Some(revision),
    };
    let made = store.deploy(ORG, &tag, first, ids[0], at(0)).await.unwrap();
    assert_eq!(made, Deployed { revision_id: ids[0], existing: false, tag_version: 1 });
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(row(first, 1, at(0), ids[0])));
    // The same again moves nothing.
    let again = store.deploy(ORG, &tag, first, ids[1], at(1)).await.unwrap();
    assert_eq!(again, Deployed { revision_id: ids[0], existing: true, tag_version: 1 });
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(row(first, 1, at(0), ids[0])));
    let moved = store.deploy(ORG, &tag, second, ids[2], at(2)).await.unwrap();
    assert_eq!(moved, Deployed { revision_id: ids[2], existing: false, tag_version: 2 });
    // Back to the first: the revision is there, the tag moves.
    let back = store.deploy(ORG, &tag, first, ids[3], at(3)).await.unwrap();
    assert_eq!(back, Deployed { revision_id: ids[0], existing: true, tag_version: 3 });
    assert_eq!(store.tag(OrgId(2), &tag).await.unwrap(), None);
    let other = store.deploy(OrgId(2), &tag, first, ids[1], at(4)).await.unwrap();
    assert_eq!(other, Deployed { revision_id: ids[1], existing: false, tag_version: 1 });
}

async fn tags_are_listed_by_their_bytes(store: &dyn Store) {
    let prefix = unique("tags");
    let names = ["A", "Z/z", "a", "b", "é"].map(|name| format!("{prefix}/{name}"));
    for name in names.iter().rev() {
        store.deploy(ORG, name, Digest::of(name.as_bytes()), Uuid::now_v7(), at(0)).await.unwrap();
    }
    let listed = |after: String, limit| async move {
        let rows = store.tags(ORG, Some(&after), limit).await.unwrap();
        rows.into_iter().map(|row| row.tag).collect::<Vec<String>>()
    };
    assert_eq!(listed(prefix.clone(), 3).await, names[..3]);
    assert_eq!(listed(names[2].clone(), 2).await, names[3..]);
    assert!(!store.tags(ORG, None, 1).await.unwrap().is_empty());
}
