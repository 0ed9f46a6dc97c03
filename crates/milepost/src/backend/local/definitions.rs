//! Tags, diffs and merges of a database: for now these are a server's.

use serde_json::Value;

use super::Local;
use crate::backend::{Mover, Past};
use crate::output::error::Refusal;
use crate::wire::{Collected, Deployed, Difference, Merged, Move, Moved, Page, Said, Tag};

impl Local {
    pub(super) fn needs_server<T>(&self) -> anyhow::Result<T> {
        let message = "this needs a server; start one with `milepost dev`, or name one with --server";
        Err(Refusal::new("needs_server", message).into())
    }

    pub(in crate::backend) async fn tags(&self, _: Option<&str>, _: u32) -> anyhow::Result<Page<Said<Tag>>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn tag(&self, _: &str) -> anyhow::Result<Said<Tag>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn moves(&self, _: &str, _: Option<&str>, _: u32) -> anyhow::Result<Page<Said<Move>>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn set_tag(&self, _: &str, _: &str, _: &Mover) -> anyhow::Result<Said<Tag>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn undo(&self, _: &str, _: &Mover) -> anyhow::Result<Said<Moved>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn redo(&self, _: &str, _: &Mover) -> anyhow::Result<Said<Moved>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn restore(&self, _: &str, _: &Past, _: &Mover) -> anyhow::Result<Said<Moved>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn merge(&self, _: &str, _: &str, _: bool, _: &Mover) -> anyhow::Result<Said<Merged>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn protect(&self, _: &str, _: Option<&[String]>, _: &Mover) -> anyhow::Result<()> {
        self.needs_server()
    }

    pub(in crate::backend) async fn unprotect(&self, _: &str, _: &Mover) -> anyhow::Result<()> {
        self.needs_server()
    }

    pub(in crate::backend) async fn diff(&self, _: &str, _: &str) -> anyhow::Result<Said<Difference>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn patch(&self, _: &str, _: &Value, _: &Mover) -> anyhow::Result<Said<Deployed>> {
        self.needs_server()
    }

    pub(in crate::backend) async fn collect_garbage(&self, _: bool) -> anyhow::Result<Said<Collected>> {
        self.needs_server()
    }
}
