//! `milepost rebuild`: a run that was, once more, with changes.

use std::process::ExitCode;

use clap::Args;
use milepost_core::json::Json;

use super::change::ChangeFlags;
use super::start::StartFlags;
use crate::backend::{Backend, Subject};
use crate::context::Context;
use crate::target::Otherwise;

/// Run an earlier run once more, with changes, and wait for its end.
///
/// The new run has the base run's payload, changed as the types say that the document declares under `changes`, and goes
/// back to it by its `base_run_id`. All else is as with `milepost run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost rebuild last --change 'audio.update={\"prompt\": \"harp\"}'
  milepost rebuild 0198c0de --change asset3d.replace=@model.json --change full_rebuild
  milepost rebuild last --workflow campaign.next --detach -o json")]
pub(crate) struct Rebuild {
    /// The base run: its id, the beginning of it, or `last`
    run: String,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    start: StartFlags,
}

impl Rebuild {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let changes = self.change.read()?;
        let backend = Backend::open(context.target(Otherwise::Server).await?, self.start.access(&context)?).await?;
        let update = match self.change.of_run(&backend, &self.run, changes).await {
            Ok(update) => update,
            Err(error) => {
                backend.close().await;
                return Err(error);
            }
        };
        let new = self.start.new_run(Subject::Update(update), Json::trusted("{}"));
        self.start.carry_out(backend, &context, new, Vec::new()).await
    }
}
