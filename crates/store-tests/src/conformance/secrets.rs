//! Secrets, sealed. What is sealed is any bytes here.

use milepost_core::id::OrgId;
use milepost_store::SecretStore;
use milepost_store::rows::{SealedRow, SecretPosition, SecretRow, SecretWrite};

use crate::rows::{ORG, at, unique};

pub(super) async fn check(secrets: &dyn SecretStore) {
    versions_follow_each_other(secrets).await;
    a_number_is_never_used_twice(secrets).await;
    secrets_are_listed_by_their_bytes(secrets).await;
    a_version_is_sealed_anew_once(secrets).await;
}

fn sealed(version: u32, key: &str) -> SealedRow {
    let ciphertext = vec![0, 255, u8::try_from(version).unwrap()];
    SealedRow { version, key_id: key.to_owned(), nonce: vec![7; 24], ciphertext, created_at: at(version.into()) }
}

fn write(name: &str, expected_version: u32, key: &str) -> SecretWrite {
    let sealed = Some(sealed(expected_version + 1, key));
    SecretWrite { name: name.to_owned(), expected_version, queues: Vec::new(), workflows: Vec::new(), sealed }
}

fn row(name: &str, last_version: u32, versions: &[u32]) -> SecretRow {
    SecretRow {
        name: name.to_owned(),
        last_version,
        queues: Vec::new(),
        workflows: Vec::new(),
        versions: versions.iter().map(|version| (*version, at((*version).into()))).collect(),
    }
}

async fn versions_follow_each_other(secrets: &dyn SecretStore) {
    let (name, key) = (unique("audio/api-key"), unique("key"));
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), None);
    assert!(!secrets.put(ORG, &write(&name, 1, &key)).await.unwrap(), "there is no version 1 yet");
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), None, "nothing was written");
    assert!(secrets.put(ORG, &write(&name, 0, &key)).await.unwrap());
    assert!(!secrets.put(ORG, &write(&name, 0, &key)).await.unwrap(), "somebody was first");
    let second = SecretWrite {
        queues: vec!["audio".to_owned(), "video".to_owned()],
        workflows: vec!["campaign.build".to_owned()],
        ..write(&name, 1, &key)
    };
    assert!(secrets.put(ORG, &second).await.unwrap());
    let both = SecretRow { queues: second.queues, workflows: second.workflows, ..row(&name, 2, &[1, 2]) };
    let expected = |version| Some((both.clone(), Some(sealed(version, &key))));
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), expected(2));
    assert_eq!(secrets.get(ORG, &name, Some(1)).await.unwrap(), expected(1));
    assert_eq!(secrets.get(ORG, &name, Some(3)).await.unwrap(), Some((both, None)));
    assert_eq!(secrets.get(OrgId(2), &name, None).await.unwrap(), None);
    // Who may have it, alone.
    let anybody = SecretWrite { sealed: None, ..write(&name, 2, &key) };
    assert!(secrets.put(ORG, &anybody).await.unwrap());
    let expected = Some((row(&name, 2, &[1, 2]), Some(sealed(2, &key))));
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), expected);
}

async fn a_number_is_never_used_twice(secrets: &dyn SecretStore) {
    let (name, key) = (unique("removed"), unique("key"));
    assert!(!secrets.remove(ORG, &name, None).await.unwrap(), "there is none");
    for expected in 0..3 {
        let write = SecretWrite { queues: vec!["audio".to_owned()], ..write(&name, expected, &key) };
        assert!(secrets.put(ORG, &write).await.unwrap());
    }
    assert!(secrets.remove(ORG, &name, Some(3)).await.unwrap());
    assert!(!secrets.remove(ORG, &name, Some(3)).await.unwrap());
    let older = SecretRow { queues: vec!["audio".to_owned()], ..row(&name, 3, &[1, 2]) };
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), Some((older, Some(sealed(2, &key)))));
    assert!(!secrets.remove(OrgId(2), &name, None).await.unwrap(), "another org has none");
    assert!(secrets.remove(ORG, &name, None).await.unwrap());
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), Some((row(&name, 3, &[]), None)));
    assert!(!secrets.put(ORG, &write(&name, 0, &key)).await.unwrap());
    assert!(secrets.put(ORG, &write(&name, 3, &key)).await.unwrap());
    let again = Some((row(&name, 4, &[4]), Some(sealed(4, &key))));
    assert_eq!(secrets.get(ORG, &name, None).await.unwrap(), again);
}

async fn secrets_are_listed_by_their_bytes(secrets: &dyn SecretStore) {
    let (prefix, key) = (unique("listed"), unique("key"));
    let names = ["A", "Z/z", "a", "b"].map(|name| format!("{prefix}/{name}"));
    for name in names.iter().rev() {
        assert!(secrets.put(ORG, &write(name, 0, &key)).await.unwrap());
    }
    let removed = format!("{prefix}/B");
    assert!(secrets.put(ORG, &write(&removed, 0, &key)).await.unwrap());
    assert!(secrets.remove(ORG, &removed, None).await.unwrap());
    let rows = names.each_ref().map(|name| row(name, 1, &[1]));
    assert_eq!(secrets.list(ORG, Some(&prefix), 3).await.unwrap(), rows[..3]);
    assert_eq!(secrets.list(ORG, Some(&names[1]), 2).await.unwrap(), rows[2..]);
    assert!(!secrets.list(ORG, None, 1).await.unwrap().is_empty());
}

async fn a_version_is_sealed_anew_once(secrets: &dyn SecretStore) {
    let (name, key, newer) = (unique("rotated"), unique("key"), unique("key"));
    for expected in 0..3 {
        assert!(secrets.put(ORG, &write(&name, expected, &key)).await.unwrap());
    }
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let page = secrets.sealed_otherwise(&newer, after.as_ref(), 2).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        // Others have secrets in here, too.
        found.extend(page.into_iter().filter(|(of, _)| of.name == name));
    }
    let of = |version| SecretPosition { org: ORG, name: name.clone(), version };
    assert_eq!(found, [1, 2, 3].map(|version| (of(version), sealed(version, &key))));
    let anew = SealedRow { nonce: vec![8; 24], ciphertext: vec![1], ..sealed(2, &newer) };
    assert!(secrets.reseal(&of(2), &[7; 24], &anew).await.unwrap());
    assert!(!secrets.reseal(&of(2), &[7; 24], &anew).await.unwrap(), "somebody else was first");
    assert!(!secrets.reseal(&of(4), &[7; 24], &anew).await.unwrap(), "there is none");
    assert_eq!(secrets.get(ORG, &name, Some(2)).await.unwrap().unwrap().1, Some(anew));
    let left = secrets.sealed_otherwise(&newer, Some(&of(1)), 1).await.unwrap();
    assert_eq!(left, [(of(3), sealed(3, &key))]);
}
