//! `milepost runs explain`: why a step ran, was reused or waits.

use std::process::ExitCode;

use clap::Args;

use super::resolve;
use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{self, print_json};
use crate::target::Otherwise;

/// Tell why a step ran, whose result it has, or what it waits for.
///
/// Of a step that ran: what is different from the last time, by the base run of an update, or by the most alike of the last
/// few runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs explain last cut
  milepost runs explain 0198c0de 'shots[3]' -o json")]
pub(super) struct Explain {
    /// The run's id, the beginning of it, or `last`
    run: String,
    /// The step; an item is named as in `shots[3]`
    step: String,
}

impl Explain {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        // Plans and keys are read, which takes an engine.
        let access = Access::Write(context.default_limits().clone());
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let told = match resolve(&backend, &self.run).await {
            Ok(run) => backend.explain(run, &self.step).await,
            Err(error) => Err(error),
        };
        backend.close().await;
        let told = told?;
        match context.is_json() {
            true => print_json(&told)?,
            false => output::explanation::print(&told.value),
        }
        Ok(ExitCode::SUCCESS)
    }
}
