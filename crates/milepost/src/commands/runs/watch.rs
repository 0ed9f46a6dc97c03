//! `milepost runs watch`.

use std::process::ExitCode;

use clap::Args;

use super::resolve;
use crate::backend::{Access, Backend};
use crate::commands::follow;
use crate::context::Context;
use crate::progress::Interrupt;
use crate::target::Otherwise;

/// Follow a run live to its end, wherever it runs.
///
/// Shows what `milepost run` shows. With `-o json` there is no progress, and the run is printed when it has ended. Ctrl-C
/// stops watching; the run goes on.
///
/// Exit status: 0 the run completed; 1 it failed, was cancelled or terminated, or is watched no longer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs watch
  milepost runs watch 0198c0de
  milepost runs watch last -o json --server http://127.0.0.1:7400")]
pub(super) struct Watch {
    /// The run: its id, the beginning of it, or `last`
    #[arg(default_value = "last")]
    run: String,
}

impl Watch {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let run = resolve(&backend, &self.run).await?;
        let outline = match context.is_json() {
            true => None,
            false => Some(backend.outline(run).await?),
        };
        follow::follow(backend, &context, run, outline, Interrupt::Leaves).await
    }
}
