//! Tags, their history, diffs and merges: the same words to a server and to a database.

use milepost_core::json::Json;
use serde_json::Value;

use super::{Backend, Mover, Past};
use crate::wire::{Collected, Deployed, Difference, Merged, Move, Moved, Page, Said, Tag};

impl Backend {
    /// Names and what they point at, by name.
    pub(crate) async fn tags(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Tag>>> {
        match self {
            Backend::Local(local) => local.tags(cursor, limit).await,
            Backend::Remote(client) => client.tags(cursor, limit).await,
        }
    }

    pub(crate) async fn tag(&self, tag: &str) -> anyhow::Result<Said<Tag>> {
        match self {
            Backend::Local(local) => local.tag(tag).await,
            Backend::Remote(client) => client.tag(tag).await,
        }
    }

    /// Where a tag has been, the newest first.
    pub(crate) async fn moves(&self, tag: &str, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Move>>> {
        match self {
            Backend::Local(local) => local.moves(tag, cursor, limit).await,
            Backend::Remote(client) => client.moves(tag, cursor, limit).await,
        }
    }

    pub(crate) async fn set_tag(&self, tag: &str, target: &str, mover: &Mover) -> anyhow::Result<Said<Tag>> {
        match self {
            Backend::Local(local) => local.set_tag(tag, target, mover).await,
            Backend::Remote(client) => client.set_tag(tag, target, mover).await,
        }
    }

    pub(crate) async fn undo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        match self {
            Backend::Local(local) => local.undo(tag, mover).await,
            Backend::Remote(client) => client.undo(tag, mover).await,
        }
    }

    pub(crate) async fn redo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        match self {
            Backend::Local(local) => local.redo(tag, mover).await,
            Backend::Remote(client) => client.redo(tag, mover).await,
        }
    }

    pub(crate) async fn restore(&self, tag: &str, past: &Past, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        match self {
            Backend::Local(local) => local.restore(tag, past, mover).await,
            Backend::Remote(client) => client.restore(tag, past, mover).await,
        }
    }

    /// Merges what a reference means into a tag. What clashes is in the refusal.
    pub(crate) async fn merge(
        &self,
        tag: &str,
        from: &str,
        dry_run: bool,
        mover: &Mover,
    ) -> anyhow::Result<Said<Merged>> {
        match self {
            Backend::Local(local) => local.merge(tag, from, dry_run, mover).await,
            Backend::Remote(client) => client.merge(tag, from, dry_run, mover).await,
        }
    }

    /// Lets only these move a tag; anyone where none is named.
    pub(crate) async fn protect(&self, tag: &str, movers: Option<&[String]>, mover: &Mover) -> anyhow::Result<()> {
        match self {
            Backend::Local(local) => local.protect(tag, movers, mover).await,
            Backend::Remote(client) => client.protect(tag, movers, mover).await,
        }
    }

    pub(crate) async fn unprotect(&self, tag: &str, mover: &Mover) -> anyhow::Result<()> {
        match self {
            Backend::Local(local) => local.unprotect(tag, mover).await,
            Backend::Remote(client) => client.unprotect(tag, mover).await,
        }
    }

    pub(crate) async fn diff(&self, from: &str, to: &str) -> anyhow::Result<Said<Difference>> {
        match self {
            Backend::Local(local) => local.diff(from, to).await,
            Backend::Remote(client) => client.diff(from, to).await,
        }
    }

    /// Patches what a tag points at, and moves it there.
    pub(crate) async fn patch(&self, tag: &str, ops: &Json, mover: &Mover) -> anyhow::Result<Said<Deployed>> {
        let ops: Value = ops.to_value();
        match self {
            Backend::Local(local) => local.patch(tag, &ops, mover).await,
            Backend::Remote(client) => client.patch(tag, &ops, mover).await,
        }
    }

    /// Removes what nothing refers to, or counts it.
    pub(crate) async fn collect_garbage(&self, dry_run: bool) -> anyhow::Result<Said<Collected>> {
        match self {
            Backend::Local(local) => local.collect_garbage(dry_run).await,
            Backend::Remote(client) => client.collect_garbage(dry_run).await,
        }
    }
}
