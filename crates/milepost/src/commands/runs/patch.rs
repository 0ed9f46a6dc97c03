//! `milepost runs patch`: the definition of a run is changed while it runs.

use std::process::ExitCode;

use clap::Args;
use milepost_core::id::{RunId, SignalId};

use super::resolve;
use super::signal::{open, say_who_goes_on};
use crate::backend::{Backend, NewPatch, UndoPatch};
use crate::commands::read_json;
use crate::context::Context;
use crate::output::{print_json, table};
use crate::wire::{PatchOutlook, Patched, Said, StepLists};

/// Change the definition of a run while it runs.
///
/// What has not begun may change in every way; what is under way stays as it is; what has ended keeps its result unless
/// --rerun says otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs patch last --ops @grow.json --preview
  milepost runs patch last --ops '[{\"op\": \"remove\", \"path\": \"/steps/publish\"}]' -m 'not yet'
  milepost runs patch last --undo")]
pub(super) struct Patch {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// RFC 6902 operations on the run's document, steps as a map by id: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", required_unless_present = "undo")]
    ops: Option<String>,
    /// Show what it would do, and do nothing
    #[arg(long, requires = "ops")]
    preview: bool,
    /// What has ended may be changed, and runs again with all that saw its result
    #[arg(long, requires = "ops")]
    rerun: bool,
    /// Undo the newest patch, while nothing of it has begun
    #[arg(long, conflicts_with = "ops")]
    undo: bool,
    /// Why; kept with the patch
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    /// The patch's own id; the same id again is the same patch
    #[arg(long, value_name = "UUID")]
    patch_id: Option<uuid::Uuid>,
}

impl Patch {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = open(&context).await?;
        let done = match resolve(&backend, &self.run).await {
            Ok(run) => self.patch(&backend, run, &context).await,
            Err(error) => Err(error),
        };
        backend.close().await;
        done
    }

    async fn patch(self, backend: &Backend, run: RunId, context: &Context) -> anyhow::Result<ExitCode> {
        let patch_id = SignalId(self.patch_id.unwrap_or_else(uuid::Uuid::now_v7));
        let Some(ops) = self.ops else {
            let undone = backend.undo_patch(run, &UndoPatch { message: self.message, patch_id }).await?;
            return tell(backend, context, &undone, "is undone");
        };
        let ops = read_json("the list of operations", &ops)?;
        if self.preview {
            return show(context, &backend.preview_patch(run, ops, self.rerun).await?);
        }
        let patch = NewPatch { ops, rerun: self.rerun, message: self.message, patch_id };
        tell(backend, context, &backend.patch_run(run, &patch).await?, "is in force")
    }
}

fn tell(backend: &Backend, context: &Context, patched: &Said<Patched>, what: &str) -> anyhow::Result<ExitCode> {
    if context.is_json() {
        print_json(patched)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Patched { run_id, status, existing, steps } = &patched.value;
    let again = if *existing { " already" } else { "" };
    crate::print_line(&format!("the patch {what}{again}; run {run_id} is {}", table::run_status(*status)));
    print(steps);
    if !status.is_terminal() {
        say_who_goes_on(backend);
    }
    Ok(ExitCode::SUCCESS)
}

/// A patch that would be refused makes the command fail, as the patch would.
fn show(context: &Context, outlook: &Said<PatchOutlook>) -> anyhow::Result<ExitCode> {
    let PatchOutlook { fits, refusal, steps } = &outlook.value;
    if context.is_json() {
        print_json(outlook)?;
    } else {
        match refusal {
            None => crate::print_line("the patch would be taken"),
            Some(refusal) => crate::print_line(&format!("the patch would be refused: {}", refusal.message)),
        }
        print(steps);
    }
    Ok(if *fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(steps: &StepLists) {
    let lists = [
        ("new", &steps.new),
        ("changed", &steps.changed),
        ("run again", &steps.rerun),
        ("removed", &steps.removed),
        ("orphaned", &steps.orphaned),
        ("kept", &steps.kept),
    ];
    for (what, ids) in lists.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        crate::print_line(&format!("  {what:<10} {}", ids.join(", ")));
    }
}
