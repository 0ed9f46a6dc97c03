//! The hot tier: bytes by name in Redis, in front of whoever has the truth about them. Optional.
//!
//! ```text
//!   committer ── get (all at once, a moment at most) ─► link ──► Redis
//!       └─────── put (a queue that drops) ──► writer ──┘ ▲
//!                                   keeper: makes the link, looks after it, makes it anew
//! ```
//!
//! It knows names and bytes, and nothing of what they are: results of steps ([`result_name`]) are the first of them, other
//! content by its hash may follow.
//!
//! **Invariant:** what comes out is what its hash says, or nothing. Whether it is wanted says whoever has the truth, by that
//! hash: what is lost, old or forged here changes no answer.
//! **Invariant:** nobody waits for Redis longer than they say, and not at all while it is away. What cannot be put is dropped.

mod config;
mod keeper;
mod link;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_store::rows::ResultKey;
use tokio::task::JoinHandle;

pub use config::{BadRedisUrl, RedisConfig};
use keeper::Keeper;
use link::Link;
use writer::{Entry, Queue};

use crate::telemetry::metrics::Metrics;

/// Before the bytes stands their hash.
const HASH: usize = 32;
/// More than this is not kept: it would push out a thousand others.
const LARGEST: usize = 1024 * 1024;

/// Bytes that are what their hash says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) hash: Digest,
    pub(crate) output: Json,
}

impl Held {
    /// What was written under a name, if it is whole.
    fn read(value: &[u8]) -> Option<Held> {
        let (hash, bytes) = value.split_at_checked(HASH)?;
        let hash = Digest(hash.try_into().ok()?);
        if Digest::of(bytes) != hash {
            return None;
        }
        Some(Held { hash, output: Json::trusted(std::str::from_utf8(bytes).ok()?) })
    }
}

/// The name of a result. Org and run are part of it, so that none is of use to another; and its key already is the hash of
/// all that it depends on.
pub(crate) fn result_name(org: OrgId, key: &ResultKey) -> String {
    match key.run {
        None => format!("milepost:{}:result:{}", org.0, key.key),
        Some(run) => format!("milepost:{}:result:{}:{run}", org.0, key.key),
    }
}

/// The hot tier, or none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hot(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    link: Arc<Link>,
    queue: Queue,
    patience: Duration,
}

/// The tasks behind it.
#[derive(Debug)]
pub(crate) struct HotTasks {
    writer: JoinHandle<()>,
    pub(crate) keeper: JoinHandle<()>,
}

impl Hot {
    /// Begins to look for Redis; does not wait for it.
    pub(crate) fn open(config: RedisConfig, metrics: &Arc<Metrics>) -> (Hot, HotTasks) {
        let link = Arc::new(Link::new(metrics.clone()));
        let (queue, writer) = writer::open(link.clone(), config.ttl, metrics.clone());
        let keeper = Keeper { client: config.client, shown: config.shown, link: link.clone() };
        let tasks = HotTasks { writer: tokio::spawn(writer.run()), keeper: tokio::spawn(keeper.run()) };
        (Hot(Some(Arc::new(Parts { link, queue, patience: config.patience }))), tasks)
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// How long a commit may wait for it.
    pub(crate) fn patience(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |parts| parts.patience)
    }

    /// Whether Redis is there; `None` if none was asked for.
    pub(crate) fn is_up(&self) -> Option<bool> {
        self.0.as_ref().map(|parts| parts.link.is_up())
    }

    /// What is there under these names and is whole, as long as it keeps coming: nobody waits longer than this for nothing.
    pub(crate) async fn get(&self, names: &[String], within: Duration) -> Vec<Option<Held>> {
        match &self.0 {
            Some(parts) if !names.is_empty() => {
                let values = parts.link.get(names, within).await;
                values.into_iter().map(|value| value.and_then(|value| Held::read(&value))).collect()
            }
            _ => vec![None; names.len()],
        }
    }

    /// Has it written some time soon, or not.
    pub(crate) fn put(&self, name: impl FnOnce() -> String, hash: Digest, output: &Json) {
        let Some(parts) = &self.0 else { return };
        if output.len() <= LARGEST && parts.link.is_up() {
            parts.queue.push(Entry { name: name(), hash, output: output.clone() });
        }
    }
}

impl HotTasks {
    /// Waits a moment for what is still to be written. All that could add to it must have ended before.
    pub(crate) async fn finish(self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let HotTasks { mut writer, keeper } = self;
        if tokio::time::timeout(PATIENCE, &mut writer).await.is_err() {
            writer.abort();
        }
        keeper.abort();
    }

    pub(crate) fn abort(&self) {
        self.writer.abort();
        self.keeper.abort();
    }
}

#[cfg(test)]
mod tests {
    use milepost_core::id::RunId;

    use super::*;

    fn value(hash: Digest, bytes: &[u8]) -> Vec<u8> {
        [&hash.0, bytes].concat()
    }

    #[test]
    fn only_what_is_whole_is_read() {
        let (hash, whole) = (Digest::of(b"[1]"), value(Digest::of(b"[1]"), b"[1]"));
        assert_eq!(Held::read(&whole), Some(Held { hash, output: Json::trusted("[1]") }));
        let not_text = value(Digest::of(b"\xff"), b"\xff");
        for wrong in [&b""[..], &whole[..20], &whole[..34], &[&whole, &b" "[..]].concat(), &not_text] {
            assert_eq!(Held::read(wrong), None);
        }
        assert_eq!(Held::read(&value(Digest::of(b"[2]"), b"[1]")), None, "another's bytes");
    }

    #[test]
    fn names_tell_orgs_and_runs_apart() {
        let (key, run) = (Digest([0xab; 32]), RunId(uuid::Uuid::nil()));
        let name = |org, run| result_name(OrgId(org), &ResultKey { key, run });
        assert_eq!(name(1, None), format!("milepost:1:result:{}", "ab".repeat(32)));
        assert_eq!(name(2, Some(run)), format!("milepost:2:result:{}:{run}", "ab".repeat(32)));
    }
}
