//! `milepost rebuild`: a run that was, once more, with changes.

use std::process::ExitCode;

use clap::Args;
use milepost_core::change::RebuildRequest;
use milepost_core::json::Json;

use super::change::ChangeFlags;
use super::start::StartFlags;
use crate::backend::{Backend, NewRun, Subject, Update};
use crate::context::Context;
use crate::target::Otherwise;

/// Run an earlier run once more, with changes, and wait for its end.
///
/// The new run has the base run's payload, changed as the types say that the document declares under `changes`, and goes
/// back to it by its `base_run_id`. Steps that the changes do not touch have the results they had, where these are kept;
/// `--step` and `--all` make steps run all the same. All else is as with `milepost run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost rebuild last --change 'audio.update={\"prompt\": \"harp\"}'
  milepost rebuild 0198c0de --change asset3d.replace=@model.json --change full_rebuild
  milepost rebuild last --step cut --step mix
  milepost rebuild last --workflow campaign.next --detach -o json")]
pub(crate) struct Rebuild {
    /// The base run: its id, the beginning of it, or `last`
    run: String,
    #[command(flatten)]
    change: ChangeFlags,
    /// Run this step whatever is kept of it; may be repeated
    #[arg(long = "step", value_name = "ID")]
    steps: Vec<String>,
    /// Run all steps, whatever is kept
    #[arg(long, conflicts_with = "steps")]
    all: bool,
    #[command(flatten)]
    start: StartFlags,
}

impl Rebuild {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let changes = self.change.read()?;
        let definition = self.change.newer(&self.start.limits(&context)?)?;
        let backend = Backend::open(context.target(Otherwise::Server).await?, self.start.access(&context)?).await?;
        let base = match super::runs::resolve(&backend, &self.run).await {
            Ok(base) => base,
            Err(error) => {
                backend.close().await;
                return Err(error);
            }
        };
        let update = Subject::Update(Update { base, changes, definition });
        let new = NewRun { rebuild: self.rebuild(), ..self.start.new_run(update, Json::trusted("{}")) };
        self.start.carry_out(backend, &context, new, Vec::new()).await
    }

    fn rebuild(&self) -> Option<RebuildRequest> {
        match self.all {
            true => Some(RebuildRequest::All),
            false => (!self.steps.is_empty()).then(|| RebuildRequest::Steps(self.steps.clone())),
        }
    }
}
