//! Where secrets come from, who gets them, and what is kept of them.

use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;
use tempfile::TempDir;

use super::*;
use crate::clock::ManualClock;

const ORG: OrgId = OrgId::DEFAULT;

struct Kept {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    folder: TempDir,
}

impl Kept {
    fn new() -> Kept {
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000_000)));
        Kept { store: Arc::new(MemoryStore::new()), clock, folder: tempfile::tempdir().unwrap() }
    }

    fn secrets(&self, keys: &str) -> Secrets {
        let config = SecretsConfig {
            keys: keys.parse().unwrap(),
            folder: Some(self.folder.path().to_owned()),
            // What cargo sets for tests.
            env_prefix: Some("CARGO_PKG_".to_owned()),
            env_allowed: AllowedVariables::default(),
        };
        Secrets::new(self.store.clone(), self.clock.clone(), config, Limits::default())
    }
}

fn key(byte: &str) -> String {
    byte.repeat(32)
}

async fn set(secrets: &Secrets, name: &str, value: &str) -> (u32, bool) {
    let set = secrets.set(ORG, name, value, &SecretAccess::default()).await.unwrap();
    (set.version, set.created)
}

/// `value version`, or the code of the error.
async fn get(secrets: &Secrets, reference: &str) -> String {
    get_as(secrets, reference, "flow", "default").await
}

async fn get_as(secrets: &Secrets, reference: &str, workflow: &str, queue: &str) -> String {
    let references = [(Arc::from("KEY"), Arc::from(reference))];
    match secrets.resolve(ORG, workflow, queue, &references).await {
        Ok(resolved) => {
            let secret = resolved.iter().next().unwrap();
            assert_eq!(&*secret.name, "KEY");
            format!("{} {}", secret.value.expose(), secret.version)
        }
        Err(error) => {
            let passing = error.code == "secret_unavailable";
            assert_eq!(error.retryable, passing, "{error}");
            error.code
        }
    }
}

#[tokio::test]
async fn places_are_asked_in_their_order() {
    let kept = Kept::new();
    let secrets = kept.secrets(&key("0a"));
    assert_eq!(get(&secrets, "secret://version-major").await.split(' ').next(), Some("0"), "CARGO_PKG_VERSION_MAJOR");
    std::fs::write(kept.folder.path().join("version-major"), "of a file\n").unwrap();
    kept.clock.advance_ms(5_000);
    let of_a_file = get(&secrets, "secret://version-major").await;
    assert!(of_a_file.starts_with("of a file file:"), "{of_a_file}");
    assert_eq!(set(&secrets, "version-major", "sealed").await, (1, true));
    assert_eq!(get(&secrets, "secret://version-major").await, "sealed db:1");
    assert_eq!(get(&secrets, "secret://nothing").await, "unknown_secret");
    assert_eq!(get(&secrets, "secret://version-major@7").await, "unknown_secret");
    assert_eq!(get(&secrets, "junk").await, "unknown_secret");
}

#[tokio::test]
async fn a_version_changes_when_the_value_does() {
    let kept = Kept::new();
    let secrets = kept.secrets(&key("0a"));
    assert_eq!(set(&secrets, "a", "one").await, (1, true));
    assert_eq!(set(&secrets, "a", "one").await, (1, false), "the same again is no change");
    assert_eq!(set(&secrets, "a", "two").await, (2, false));
    assert_eq!(get(&secrets, "secret://a").await, "two db:2");
    assert_eq!(get(&secrets, "secret://a@1").await, "one db:1", "an old version can be had until it is removed");
    secrets.remove(ORG, "a", Some(1)).await.unwrap();
    assert_eq!(get(&secrets, "secret://a@1").await, "unknown_secret");
    secrets.remove(ORG, "a", None).await.unwrap();
    assert_eq!(get(&secrets, "secret://a").await, "unknown_secret");
    assert_eq!(set(&secrets, "a", "one").await, (3, true), "no number is used twice");
    let gone = secrets.remove(ORG, "b", None).await.unwrap_err();
    assert_eq!(gone.code(), "unknown_secret");

    let file = kept.folder.path().join("f");
    let mut versions = Vec::new();
    for value in ["one", "two", "one"] {
        std::fs::write(&file, value).unwrap();
        kept.clock.advance_ms(5_000);
        versions.push(get(&secrets, "secret://f").await);
    }
    assert!(versions[0] == versions[2] && versions[0] != versions[1], "{versions:?}");
    let same_key = kept.secrets(&key("0a"));
    assert_eq!(get(&same_key, "secret://f").await, versions[0], "the same on every node");
    assert_ne!(get(&kept.secrets(""), "secret://f").await, versions[0], "who has no key cannot try values out");
}

#[tokio::test]
async fn what_was_found_is_believed_for_a_few_seconds() {
    let kept = Kept::new();
    let (here, there) = (kept.secrets(&key("0a")), kept.secrets(&key("0a")));
    set(&here, "a", "one").await;
    assert_eq!(get(&there, "secret://a").await, "one db:1");
    set(&here, "a", "two").await;
    assert_eq!(get(&here, "secret://a").await, "two db:2", "who sets it knows at once");
    assert_eq!(get(&there, "secret://a").await, "one db:1");
    kept.clock.advance_ms(5_000);
    assert_eq!(get(&there, "secret://a").await, "two db:2");
}

#[tokio::test]
async fn a_secret_is_given_to_whom_it_is_for() {
    let kept = Kept::new();
    let secrets = kept.secrets(&key("0a"));
    let only = |queues: &[&str], workflows: &[&str]| SecretAccess {
        queues: Some(queues.iter().map(|name| (*name).to_owned()).collect()),
        workflows: Some(workflows.iter().map(|name| (*name).to_owned()).collect()),
    };
    secrets.set(ORG, "a", "value", &only(&["audio", INLINE_QUEUE], &["campaign"])).await.unwrap();
    let asked = async |workflow, queue| get_as(&secrets, "secret://a", workflow, queue).await;
    assert_eq!(asked("campaign", "audio").await, "value db:1");
    assert_eq!(asked("campaign", "inline").await, "value db:1");
    assert_eq!(asked("campaign", "default").await, "secret_denied");
    assert_eq!(asked("other", "audio").await, "secret_denied");
    set(&secrets, "a", "newer").await;
    assert_eq!(asked("other", "audio").await, "secret_denied", "a new value is for the same");
    assert_eq!(get_as(&secrets, "secret://a@1", "other", "audio").await, "secret_denied", "and so is an old one");
    let lifted = secrets.set(ORG, "a", "newer", &only(&["audio"], &[])).await.unwrap();
    assert_eq!(lifted.version, 2, "who may have it is not part of its version");
    assert_eq!(asked("other", "audio").await, "newer db:2");
    std::fs::write(kept.folder.path().join("a"), "a file").unwrap();
    assert_eq!(asked("campaign", "default").await, "secret_denied", "no other place is asked for it");
}

#[tokio::test]
async fn keys_are_changed_while_secrets_are_in_use() {
    let kept = Kept::new();
    let old = kept.secrets(&key("0a"));
    set(&old, "a", "one").await;
    set(&old, "a", "two").await;
    set(&old, "b", "three").await;
    let both = kept.secrets(&format!("{},{}", key("0b"), key("0a")));
    let new = kept.secrets(&key("0b"));
    assert_eq!(get(&both, "secret://a").await, "two db:2");
    assert_eq!(get(&new, "secret://a").await, "secret_unavailable");
    assert_eq!(new.rotate().await.unwrap(), Rotated { resealed: 0, unreadable: 3 });
    assert_eq!(both.rotate().await.unwrap(), Rotated { resealed: 3, unreadable: 0 });
    assert_eq!(both.rotate().await.unwrap(), Rotated::default());
    for (reference, value) in [("secret://a", "two db:2"), ("secret://a@1", "one db:1"), ("secret://b", "three db:1")] {
        assert_eq!(get(&new, reference).await, value, "a value has the version it had");
    }
    kept.clock.advance_ms(5_000);
    assert_eq!(get(&old, "secret://a").await, "secret_unavailable");
    set(&new, "a", "two").await;
    assert_eq!(get(&new, "secret://a").await, "two db:2");
    let none = kept.secrets("");
    assert_eq!(get(&none, "secret://a").await, "secret_unavailable", "it is there, and there is no key");
    assert_eq!(none.rotate().await.unwrap_err().code(), "no_secrets_key");
    let refused = none.set(ORG, "c", "x", &SecretAccess::default()).await.unwrap_err();
    assert_eq!(refused.code(), "no_secrets_key");
}

#[tokio::test]
async fn what_cannot_be_a_secret_is_refused_and_not_quoted() {
    let kept = Kept::new();
    let secrets = kept.secrets(&key("0a"));
    let long = "hunter2".repeat(10_000);
    let blank = SecretAccess { queues: Some(vec!["a b".to_owned()]), workflows: None };
    for (name, value, access, code) in [
        ("../a", "hunter2", SecretAccess::default(), "bad_secret_name"),
        ("", "hunter2", SecretAccess::default(), "bad_secret_name"),
        ("a", "", SecretAccess::default(), "bad_secret"),
        ("a", "hunter2\0", SecretAccess::default(), "bad_secret"),
        ("a", &long, SecretAccess::default(), "secret_too_large"),
        ("a", "hunter2", blank, "bad_restriction"),
    ] {
        let refused = secrets.set(ORG, name, value, &access).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
    assert!(secrets.list(ORG, None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn many_who_set_a_secret_at_once_make_a_version_each() {
    let kept = Kept::new();
    let secrets = Arc::new(kept.secrets(&key("0a")));
    let setting = (0..5).map(|n| {
        let secrets = secrets.clone();
        tokio::spawn(async move { set(&secrets, "a", &n.to_string()).await.0 })
    });
    let mut versions = futures::future::try_join_all(setting).await.unwrap();
    versions.sort_unstable();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_row_that_was_put_elsewhere_does_not_open() {
    let kept = Kept::new();
    let secrets = kept.secrets(&key("0a"));
    set(&secrets, "a", "one").await;
    let (_, sealed) = kept.store.secrets().get(ORG, "a", None).await.unwrap().unwrap();
    let stolen = milepost_store::rows::SecretWrite {
        name: "b".to_owned(),
        expected_version: 0,
        queues: Vec::new(),
        workflows: Vec::new(),
        sealed,
    };
    assert!(kept.store.secrets().put(ORG, &stolen).await.unwrap());
    assert_eq!(get(&secrets, "secret://b").await, "secret_unavailable");
}

fn step_with(env: &str) -> milepost_core::document::Loaded {
    let source = format!("{{name: x, steps: {{a: {{skill: noop, env: [{env}]}}}}}}");
    milepost_core::document::load(&source, &Limits::default()).unwrap()
}

fn with_variables(allowed: &str, keys: &str) -> Secrets {
    let kept = Kept::new();
    let mut secrets = kept.secrets(keys);
    secrets.config.env_allowed = allowed.parse().unwrap();
    secrets
}

#[test]
fn only_variables_that_are_allowed_reach_a_step() {
    let secrets = with_variables("CARGO_*, NOT_SET_AT_ALL", "");
    let env = |names: &str| secrets.env_of(&step_with(names).plan.steps[0]);
    let given = env("CARGO_MANIFEST_DIR, NOT_SET_AT_ALL").unwrap();
    assert_eq!(given.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["CARGO_MANIFEST_DIR"]);
    // `CARGO_PKG_…` is where these tests have their secrets.
    for refused in ["PATH", "ALSO_NOT_SET", "CARGO_PKG_NAME"] {
        let error = env(refused).unwrap_err();
        assert_eq!((error.code.as_str(), error.retryable), ("env_not_allowed", false), "{refused}");
        assert!(error.message.contains(refused) && error.message.contains("env.allowed"), "{}", error.message);
    }
    assert!(with_variables("", "").env_of(&step_with("LANG").plan.steps[0]).is_err());
}

#[test]
fn a_variable_cannot_be_guessed_by_its_fingerprint() {
    let step = step_with("CARGO_MANIFEST_DIR, PATH");
    let hashes = |keys: &str| with_variables("CARGO_*", keys).env_hashes(&step.plan.steps[0]);
    let known = hashes(&key("0a"));
    let plain = Digest::of(env!("CARGO_MANIFEST_DIR").as_bytes());
    assert!(known["CARGO_MANIFEST_DIR"].is_some_and(|hash| hash != plain) && known["PATH"].is_none());
    assert_eq!(known, hashes(&key("0a")), "the same for whoever has the key");
    assert_ne!(known, hashes(&key("0b")));
}
