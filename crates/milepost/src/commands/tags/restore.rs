//! `milepost tags restore`.

use std::process::ExitCode;

use clap::Args;
use milepost_core::time::Timestamp;

use super::undo::say;
use crate::backend::{Backend, Past};
use crate::commands::mover::MoverFlags;
use crate::context::Context;

/// Bring a name back to anything that it has been.
///
/// Unlike an undo this is a move of its own: an undo of it brings back what was before.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags restore campaign.build campaign.build~3
  milepost tags restore campaign.build sha256:0d838e3d1234 -m \"as it was in spring\"
  milepost tags restore campaign.build --at 2026-01-31T10:00:00Z")]
pub(super) struct Restore {
    /// The name
    tag: String,
    /// A revision, sha256:…, NAME~2 or NAME@TIME
    #[arg(value_name = "REF", required_unless_present = "at")]
    target: Option<String>,
    /// What it was then
    #[arg(long, value_name = "TIME", conflicts_with = "target")]
    at: Option<Timestamp>,
    #[command(flatten)]
    mover: MoverFlags,
}

impl Restore {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let past = match (self.at, self.target) {
            (Some(at), _) => Past::At(at),
            (None, target) => Past::Target(target.unwrap_or_default()),
        };
        say(&backend.restore(&self.tag, &past, &self.mover.read()?).await?, "what it was at", context)
    }
}
