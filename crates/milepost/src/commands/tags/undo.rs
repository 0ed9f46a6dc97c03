//! `milepost tags undo` and `milepost tags redo`.

use std::process::ExitCode;

use clap::Args;

use super::position;
use crate::backend::Backend;
use crate::commands::mover::{ForcedFlags, explained};
use crate::context::Context;
use crate::output::print_json;
use crate::wire::{Moved, Said};

/// Bring a name back to where it was before its last move.
///
/// Once more goes one further back. Where the newest move is somebody else's, say that you know: with --expect and the version
/// that you have seen, or with --force.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags undo campaign.build
  milepost tags undo campaign.build -m \"too long\" --as alice
  milepost tags undo campaign.build --expect 7")]
pub(super) struct Undo {
    /// The name
    tag: String,
    #[command(flatten)]
    flags: ForcedFlags,
}

/// Bring a name forward again to what was undone last.
///
/// Once a name has moved anywhere else there is nothing to redo; `milepost tags restore` goes wherever it has been.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags redo campaign.build
  milepost tags redo campaign.build --force")]
pub(super) struct Redo {
    /// The name
    tag: String,
    #[command(flatten)]
    flags: ForcedFlags,
}

impl Undo {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let mover = self.flags.read(backend, &self.tag).await?;
        say(&backend.undo(&self.tag, &mover).await.map_err(|error| explained(error, &self.tag))?, "back at", context)
    }
}

impl Redo {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let mover = self.flags.read(backend, &self.tag).await?;
        say(&backend.redo(&self.tag, &mover).await.map_err(|error| explained(error, &self.tag))?, "forward at", context)
    }
}

/// `campaign.build is back at move 2: sha256:… (version 5)`.
pub(super) fn say(moved: &Said<Moved>, how: &str, context: &Context) -> anyhow::Result<ExitCode> {
    if context.is_json() {
        print_json(moved)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Moved { tag, last } = &moved.value;
    let place = last.restores_move_id.map(|id| format!("{how} move {id}: ")).unwrap_or_default();
    crate::print_line(&format!("{} is {place}{}", tag.tag, position(tag)));
    Ok(ExitCode::SUCCESS)
}
