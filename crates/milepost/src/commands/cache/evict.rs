//! `milepost cache evict`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::{OfStep, bytes, resolve};
use crate::backend::{Backend, ResultsOf};
use crate::context::Context;
use crate::output::error::Refusal;
use crate::output::print_json;

/// Remove results. Whoever asks for one of them from now on runs the step.
///
/// What steps under way are making is kept as ever; `milepost cache disown` covers that as well.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache evict --workflow campaign.build --step render
  milepost cache evict --key 9f86d081884c
  milepost cache evict --all --yes")]
pub(super) struct Evict {
    #[command(flatten)]
    of: OfStep,
    /// Only what is kept under this key; the beginning of it will do
    #[arg(long, value_name = "KEY", conflicts_with_all = ["workflow", "all"])]
    key: Option<String>,
    /// All results of all workflows
    #[arg(long, conflicts_with = "workflow")]
    all: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

impl Evict {
    /// All that can be refused is refused before anything is opened.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.of.workflow.is_none() && self.key.is_none() && !self.all {
            let message = "it is not said what; name a workflow with --workflow, a key with --key, or say --all";
            return Err(Refusal::new("needs_filter", message));
        }
        // One key is one result that was named: it means no more than it says.
        if !self.yes && self.key.is_none() && !std::io::stdin().is_terminal() {
            let message = "this may concern many results, and nobody is there to be asked; see `milepost cache stats`, then say --yes";
            return Err(Refusal::new("needs_yes", message));
        }
        Ok(())
    }

    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let of = match &self.key {
            Some(digits) => ResultsOf::Key(resolve(backend, digits).await?.to_string()),
            None => self.of.results(),
        };
        if !self.yes && self.key.is_none() && !confirmed(backend, &of).await? {
            return Ok(ExitCode::FAILURE);
        }
        let evicted = backend.evict(&of).await?;
        match context.is_json() {
            true => print_json(&evicted)?,
            false => crate::print_line(&match evicted.value.evicted {
                1 => "1 result is gone".to_owned(),
                count => format!("{count} results are gone"),
            }),
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn confirmed(backend: &Backend, of: &ResultsOf) -> anyhow::Result<bool> {
    let total = backend.cache_stats(of).await?.value.total;
    if total.results == 0 {
        return Ok(true);
    }
    let mut err = std::io::stderr();
    let _ = write!(err, "evict {} results of {}? [y/N] ", total.results, bytes(total.bytes));
    let _ = err.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
