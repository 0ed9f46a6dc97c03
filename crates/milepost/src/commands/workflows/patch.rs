//! `milepost workflows patch`.

use clap::Args;

use crate::backend::Backend;
use crate::commands::deploy::in_words;
use crate::commands::mover::MoverFlags;
use crate::commands::read_json;
use crate::context::Context;
use crate::output::print_json;

/// Change what a name points at, by operations of RFC 6902
///
/// Steps are a map by their ids: `/steps/brief/input/topic`. What they make is checked as any document is, and nothing is
/// stored if an operation does not fit. An operation `test` holds the rest back where something is not as it says.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost workflows patch campaign.build --ops '[{\"op\": \"replace\", \"path\": \"/steps/brief/skill\", \"value\": \"text.long\"}]'
  milepost workflows patch campaign.build --ops @ops.json -m \"longer videos\" --expect 4
  milepost diff campaign.build flow.yaml -o json | jq .ops > ops.json")]
pub(super) struct Patch {
    /// The name
    #[arg(value_name = "TAG")]
    tag: String,
    /// The operations: a JSON list, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    ops: String,
    #[command(flatten)]
    mover: MoverFlags,
}

impl Patch {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<()> {
        let (ops, mover) = (read_json("--ops", &self.ops)?, self.mover.read()?);
        let patched = backend.patch(&self.tag, &ops, &mover).await?;
        match context.is_json() {
            true => print_json(&patched)?,
            false => crate::print_line(&in_words(&patched)),
        }
        Ok(())
    }
}
