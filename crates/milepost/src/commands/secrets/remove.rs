//! `milepost secrets remove`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::print_json;

/// Remove a secret with all its versions, or one of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets remove audio/api-key
  milepost secrets remove audio/api-key --version 1")]
pub(super) struct Remove {
    name: String,
    /// Only this version
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

impl Remove {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        backend.remove_secret(&self.name, self.version).await?;
        match (context.is_json(), self.version) {
            (true, version) => print_json(&json!({ "name": self.name, "version": version, "removed": true }))?,
            (false, Some(version)) => crate::print_line(&format!("version {version} of {} is removed", self.name)),
            (false, None) => crate::print_line(&format!("{} is removed", self.name)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
