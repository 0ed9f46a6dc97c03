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
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let run = resolve(&backend, &self.run).await?;
        if let Some(step) = &self.step {
            let step = backend.step(run, step).await?;
            match context.is_json() {
                true => print_json(&step)?,
                false => output::step::print(&step.value, run),
            }
            return Ok(ExitCode::SUCCESS);
        }
        let view = backend.show(run).await?;
        match context.is_json() {
            true => print_json(&view)?,
            false => output::run::print_all(&view.value, &backend.transitions(run).await?),
        }
        Ok(ExitCode::SUCCESS)
    }
}
