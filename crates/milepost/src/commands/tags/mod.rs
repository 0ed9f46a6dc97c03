//! `milepost tags`: names, what they point at, and where they have been.

mod list;
mod log;
mod merge;
mod protect;
mod restore;
mod set;
mod show;
mod undo;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::hash;
use crate::target::Otherwise;
use crate::wire::Tag;

/// So many at a time are asked for.
const PAGE: u32 = 200;

/// Move names, undo and redo that, merge one into another, and see where they have been.
///
/// A tag is a name that points at a revision of a document. Every move is kept, with who made it and why, and none is ever
/// changed: an undo is a move too.
///
/// Where a document is asked for, it may be a name, a revision's id, sha256:… (or its beginning), NAME~2 for what it was two
/// undos ago, or NAME@2026-01-31T10:00:00Z for what it was then.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags
  milepost tags log campaign.build
  milepost tags undo campaign.build -m \"too long\"
  milepost tags set campaign.build campaign.next
  milepost tags merge campaign.build campaign.next --dry-run")]
pub(crate) struct Tags {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::List),
    Show(show::Show),
    Log(log::Log),
    Set(set::Set),
    Undo(undo::Undo),
    Redo(undo::Redo),
    Restore(restore::Restore),
    Merge(merge::Merge),
    Protect(protect::Protect),
}

impl Tags {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let verb = self.verb.unwrap_or(Verb::List(list::List {}));
        let access = match &verb {
            Verb::List(_) | Verb::Show(_) | Verb::Log(_) => Access::Read,
            _ => Access::Write(context.default_limits().clone()),
        };
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let done = match verb {
            Verb::List(list) => list.run(&backend, &context).await,
            Verb::Show(show) => show.run(&backend, &context).await,
            Verb::Log(log) => log.run(&backend, &context).await,
            Verb::Set(set) => set.run(&backend, &context).await,
            Verb::Undo(undo) => undo.run(&backend, &context).await,
            Verb::Redo(redo) => redo.run(&backend, &context).await,
            Verb::Restore(restore) => restore.run(&backend, &context).await,
            Verb::Merge(merge) => merge.run(&backend, &context).await,
            Verb::Protect(protect) => protect.run(&backend, &context).await,
        };
        backend.close().await;
        done
    }
}

/// `sha256:0d838e3d1234 (version 4)`.
fn position(tag: &Tag) -> String {
    format!("{} (version {})", hash(&tag.version_hash), tag.tag_version)
}
