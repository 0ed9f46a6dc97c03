//! `milepost runs show`.

use std::process::ExitCode;

use clap::Args;

use super::resolve;
use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{self, print_json};
use crate::target::Otherwise;

/// Show a run: its steps, attempts, errors and changes of status.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs show last
  milepost runs show 0198c0de
  milepost runs show last --step cut
  milepost runs show last -o json")]
pub(super) struct Show {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// One step with its attempts, input and output; an item is named as in `shots[3]`
    #[arg(long, value_name = "ID")]
    step: Option<String>,
}

impl Show {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        if let Some(step) = &self.step {
            return self.show_step(step, &context).await;
        }
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let run = resolve(&backend, &self.run).await?;
        let view = backend.show(run).await?;
        match context.is_json() {
            true => print_json(&view)?,
            false => output::run::print_all(&view.value, &backend.transitions(run).await?),
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn show_step(&self, step: &str, context: &Context) -> anyhow::Result<ExitCode> {
        // Its input is worked out again, which takes an engine.
        let access = Access::Write(context.default_limits().clone());
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let run = resolve(&backend, &self.run).await?;
        let step = backend.step(run, step).await;
        backend.close().await;
        let step = step?;
        match context.is_json() {
            true => print_json(&step)?,
            false => output::step::print(&step.value, run),
        }
        Ok(ExitCode::SUCCESS)
    }
}
