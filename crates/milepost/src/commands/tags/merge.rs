//! `milepost tags merge`.

use std::process::ExitCode;

use clap::Args;

use super::position;
use crate::backend::Backend;
use crate::commands::mover::MoverFlags;
use crate::context::Context;
use crate::output::error::{Refusal, WRONG_USE};
use crate::output::{conflicts, diff, error, print_json};
use crate::wire::{Conflict, Merged};

/// Merge a document into a name.
///
/// What both came from is found by their history. Steps and settings are merged field by field: what only one side changed
/// is taken from there. Where both changed the same, or together make no valid document, nothing is done and all conflicts
/// are listed; exit status 2.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags merge campaign.build campaign.next --dry-run
  milepost tags merge campaign.build campaign.next -m \"longer videos\"")]
pub(super) struct Merge {
    /// The name that is moved: ours
    tag: String,
    /// What is merged into it: theirs
    #[arg(value_name = "FROM")]
    from: String,
    /// Only show what it would do
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    mover: MoverFlags,
}

impl Merge {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let merged = match backend.merge(&self.tag, &self.from, self.dry_run, &self.mover.read()?).await {
            Err(error) if !context.is_json() && has_conflicts(&error) => return self.refused(&error),
            merged => merged?,
        };
        match context.is_json() {
            true => print_json(&merged)?,
            false => self.say(&merged.value),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn say(&self, merged: &Merged) {
        let Merge { tag, from, .. } = self;
        if merged.outcome == "up_to_date" {
            return crate::print_line(&format!("{tag} has all of {from} already"));
        }
        crate::print_line(diff::shown(&merged.diff, console::colors_enabled()).trim_end());
        let place = position(&merged.tag);
        crate::print_line(&match (merged.outcome.as_str(), self.dry_run) {
            ("fast_forward", true) => format!("{tag} would go forward to what {from} is: {place}"),
            ("fast_forward", false) => format!("{tag} went forward to what {from} is: {place}"),
            (_, true) => format!("{from} would be merged into {tag}: {place}"),
            (_, false) => format!("{from} is merged into {tag}: {place}"),
        });
    }

    fn refused(&self, refusal: &anyhow::Error) -> anyhow::Result<ExitCode> {
        let told = refusal.downcast_ref::<Refusal>().map(Refusal::conflicts).unwrap_or_default();
        let all = serde_json::from_value::<Vec<Conflict>>(told.to_vec().into())?;
        crate::say(&conflicts::shown(&self.tag, &self.from, &all, console::colors_enabled_stderr()));
        let help = conflicts::help(&self.tag, &self.from, &all);
        error::say(&format!("{} was not merged into {}; {help}", self.from, self.tag));
        Ok(ExitCode::from(WRONG_USE))
    }
}

fn has_conflicts(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| !refusal.conflicts().is_empty())
}
