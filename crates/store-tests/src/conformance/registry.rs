//! Blobs and tags.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_store::Store;
use milepost_store::rows::BlobRow;

use crate::rows::{ORG, at, unique};

pub(super) async fn check(store: &dyn Store) {
    a_blob_is_kept_once(store).await;
    a_tag_can_be_moved(store).await;
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

async fn a_tag_can_be_moved(store: &dyn Store) {
    let tag = unique("tag");
    let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), None);
    store.set_tag(ORG, &tag, first, at(0)).await.unwrap();
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(first));
    store.set_tag(ORG, &tag, second, at(1)).await.unwrap();
    assert_eq!(store.tag(ORG, &tag).await.unwrap(), Some(second));
    assert_eq!(store.tag(OrgId(2), &tag).await.unwrap(), None);
}
