//! `milepost tags set`.

use std::process::ExitCode;

use clap::Args;

use super::position;
use crate::backend::Backend;
use crate::commands::mover::MoverFlags;
use crate::context::Context;
use crate::output::print_json;

/// Point a name at a document that is there already.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags set campaign.build campaign.next -m \"it works\"
  milepost tags set campaign.stable campaign.build~1
  milepost tags set campaign.build sha256:0d838e3d1234 --expect 4")]
pub(super) struct Set {
    /// The name; it need not be there yet
    tag: String,
    /// A name, a revision, sha256:…, NAME~2 or NAME@TIME
    #[arg(value_name = "REF")]
    target: String,
    #[command(flatten)]
    mover: MoverFlags,
}

impl Set {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let set = backend.set_tag(&self.tag, &self.target, &self.mover.read()?).await?;
        match context.is_json() {
            true => print_json(&set)?,
            false => crate::print_line(&format!("{} is {}", set.value.tag, position(&set.value))),
        }
        Ok(ExitCode::SUCCESS)
    }
}
