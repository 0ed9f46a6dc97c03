//! `milepost tags show`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::{print_json, tag};

/// Show what a name points at, since when, and who may move it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags show campaign.build
  milepost tags show campaign.build -o json | jq .tag_version")]
pub(super) struct Show {
    /// The name
    tag: String,
}

impl Show {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let found = backend.tag(&self.tag).await?;
        match context.is_json() {
            true => print_json(&found)?,
            false => crate::print_line(tag::shown(&found.value).trim_end()),
        }
        Ok(ExitCode::SUCCESS)
    }
}
