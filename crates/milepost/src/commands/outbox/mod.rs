//! `milepost outbox`: what is owed to others, and what was given up.

mod list;
mod retry;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::backend::Backend;
use crate::context::Context;
use crate::wire::{Delivery, Page, Said};

/// So many at a time are asked for.
const PAGE: u32 = 200;

/// List what is owed to others and what was given up, and have it tried again.
///
/// A step with `runtime: push` is owed to its receiver until that answers. What is tried in vain too often is given up: it
/// becomes a dead letter, and its step fails with `push_failed`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost outbox list
  milepost outbox list --dead
  milepost outbox retry --all")]
pub(crate) struct Outbox {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::List),
    Retry(retry::Retry),
}

impl Outbox {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::List(list) => list.run(context).await,
            Verb::Retry(retry) => retry.run(context).await,
        }
    }
}

/// All of them, over as many pages as it takes.
async fn collect(backend: &Backend, dead: bool) -> anyhow::Result<Page<Said<Delivery>>> {
    let mut all: Page<Said<Delivery>> = Page { items: Vec::new(), next_cursor: None };
    loop {
        let page = backend.outbox(dead, all.next_cursor.as_deref(), PAGE).await?;
        all.items.extend(page.items);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
