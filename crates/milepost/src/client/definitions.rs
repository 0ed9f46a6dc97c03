//! What a server is asked about tags, their history, diffs and merges.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Client, refusal};
use crate::backend::{Mover, Past};
use crate::wire::{Collected, Deployed, Difference, Merged, Move, Moved, Page, Said, Tag};

/// The header that says who moves a tag.
const ACTOR: &str = "Milepost-Actor";

impl Client {
    pub(super) async fn post_as<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        mover: &Mover,
    ) -> anyhow::Result<T> {
        let answer = self.sdk.post_with(path, body, &headers(mover)).await;
        answer.map(|(_, value)| value).map_err(|error| refusal(&self.server, error))
    }

    async fn put_as<T: DeserializeOwned>(&self, path: &[&str], body: &Value, mover: &Mover) -> anyhow::Result<T> {
        self.sdk.put_with(path, body, &headers(mover)).await.map_err(|error| refusal(&self.server, error))
    }

    pub(crate) async fn tags(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Tag>>> {
        self.get(&["tags"], &page(cursor, limit)).await
    }

    pub(crate) async fn tag(&self, tag: &str) -> anyhow::Result<Said<Tag>> {
        self.get(&["tags", tag], &[]).await
    }

    pub(crate) async fn moves(&self, tag: &str, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Move>>> {
        self.get(&["tags", tag, "history"], &page(cursor, limit)).await
    }

    pub(crate) async fn set_tag(&self, tag: &str, target: &str, mover: &Mover) -> anyhow::Result<Said<Tag>> {
        self.put_as(&["tags", tag], &body(json!({ "target": target }), mover), mover).await
    }

    pub(crate) async fn undo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        self.post_as(&["tags", tag, "undo"], &body(json!({}), mover), mover).await
    }

    pub(crate) async fn redo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        self.post_as(&["tags", tag, "redo"], &body(json!({}), mover), mover).await
    }

    pub(crate) async fn restore(&self, tag: &str, past: &Past, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        let what = match past {
            Past::Target(target) => json!({ "target": target }),
            Past::At(at) => json!({ "at": at }),
        };
        self.post_as(&["tags", tag, "restore"], &body(what, mover), mover).await
    }

    pub(crate) async fn merge(
        &self,
        tag: &str,
        from: &str,
        dry_run: bool,
        mover: &Mover,
    ) -> anyhow::Result<Said<Merged>> {
        let what = json!({ "from": from, "dry_run": dry_run });
        self.post_as(&["tags", tag, "merge"], &body(what, mover), mover).await
    }

    pub(crate) async fn protect(&self, tag: &str, movers: Option<&[String]>, mover: &Mover) -> anyhow::Result<()> {
        let mut what = json!({ "trust": "protected" });
        if let Some(movers) = movers {
            what["movers"] = json!(movers);
        }
        self.put_as::<Value>(&["tags", tag, "protection"], &what, mover).await.map(drop)
    }

    pub(crate) async fn unprotect(&self, tag: &str, mover: &Mover) -> anyhow::Result<()> {
        let done = self.sdk.delete_with(&["tags", tag, "protection"], &[], &headers(mover)).await;
        done.map_err(|error| refusal(&self.server, error))
    }

    pub(crate) async fn diff(&self, from: &str, to: &str) -> anyhow::Result<Said<Difference>> {
        self.get(&["diff"], &[("from", from.to_owned()), ("to", to.to_owned())]).await
    }

    pub(crate) async fn patch(&self, tag: &str, ops: &Value, mover: &Mover) -> anyhow::Result<Said<Deployed>> {
        self.post_as(&["workflows", tag, "patches"], &body(json!({ "ops": ops }), mover), mover).await
    }

    pub(crate) async fn collect_garbage(&self, dry_run: bool) -> anyhow::Result<Said<Collected>> {
        Ok(self.post(&["gc"], &json!({ "dry_run": dry_run })).await?.1)
    }
}

fn page(cursor: Option<&str>, limit: u32) -> Vec<(&'static str, String)> {
    let cursor = cursor.map(|cursor| ("cursor", cursor.to_owned()));
    std::iter::once(("limit", limit.to_string())).chain(cursor).collect()
}

/// What is asked for, and why.
fn body(mut what: Value, mover: &Mover) -> Value {
    if let Some(message) = &mover.message {
        what["message"] = message.as_str().into();
    }
    what
}

fn headers(mover: &Mover) -> Vec<(&'static str, String)> {
    let actor = mover.actor.as_ref().map(|actor| (ACTOR, actor.clone()));
    let expect = mover.expect.map(|version| ("If-Match", format!("\"{version}\"")));
    actor.into_iter().chain(expect).collect()
}
