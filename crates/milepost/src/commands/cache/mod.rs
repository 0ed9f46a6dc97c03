//! `milepost cache`: results of steps that are kept.

mod disown;
mod evict;
mod list;
mod show;
mod stats;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use milepost_core::hash::Digest;

use crate::backend::{Access, Backend, ResultsOf};
use crate::context::Context;
use crate::output::error::Refusal;
use crate::target::Otherwise;

/// Results of steps that are kept: what they spared, which there are, and what is to go.
///
/// A step with `cache: {enabled: true}` is not run where its result is there: the same definition, the same input. Evicting
/// a result makes the next run make it again; disowning also covers what is being made right now.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache stats
  milepost cache list --workflow campaign.build
  milepost cache evict --workflow campaign.build --step render
  milepost cache disown --workflow campaign.build")]
pub(crate) struct Cache {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Stats(stats::Stats),
    List(list::List),
    Show(show::Show),
    Evict(evict::Evict),
    Disown(disown::Disown),
}

impl Cache {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        if let Verb::Evict(evict) = &self.verb {
            evict.check()?;
        }
        let access = match &self.verb {
            Verb::Evict(_) | Verb::Disown(_) => Access::Write(context.default_limits().clone()),
            _ => Access::Read,
        };
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let done = match self.verb {
            Verb::Stats(stats) => stats.run(&backend, &context).await,
            Verb::List(list) => list.run(&backend, &context).await,
            Verb::Show(show) => show.run(&backend, &context).await,
            Verb::Evict(evict) => evict.run(&backend, &context).await,
            Verb::Disown(disown) => disown.run(&backend, &context).await,
        };
        backend.close().await;
        done
    }
}

/// Of which workflow, and which of its steps.
#[derive(Clone, Debug, Args)]
struct OfStep {
    /// Only of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only of this step of the workflow
    #[arg(long, value_name = "ID", requires = "workflow")]
    step: Option<String>,
}

impl OfStep {
    fn results(&self) -> ResultsOf {
        match self.workflow.clone() {
            None => ResultsOf::All,
            Some(workflow) => ResultsOf::Workflow { workflow, step: self.step.clone() },
        }
    }
}

/// The one key that begins so.
async fn resolve(backend: &Backend, digits: &str) -> anyhow::Result<Digest> {
    if let Ok(key) = digits.parse() {
        return Ok(key);
    }
    let found = backend.cache_list(&ResultsOf::Key(digits.to_owned()), None, 100).await?;
    let mut keys: Vec<Digest> = found.items.iter().map(|result| result.value.key).collect();
    keys.dedup();
    match keys[..] {
        [key] => Ok(key),
        [] => {
            let message = format!("no result has a key that begins with {digits}; `milepost cache list` has them");
            Err(Refusal::new("unknown_key", message).into())
        }
        _ => {
            let message = format!("{} keys begin with {digits}; give more digits", keys.len());
            Err(Refusal::new("ambiguous_key", message).into())
        }
    }
}

/// `512 B`, `1.5 KiB`, `12 MiB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 || value >= 10.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_in_units_that_people_read() {
        let shown = [0, 1023, 1024, 1536, 20_480, 5 << 30, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "20 KiB", "5.0 GiB", "16777216 TiB"]);
    }
}
