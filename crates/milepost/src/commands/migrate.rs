//! `milepost migrate`: brings the database's schema up to date.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::output::print_json;

/// Make the database, or bring its schema up to date.
///
/// Every command that writes does this by itself; do it beforehand where only some accounts may change tables.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost migrate
  milepost migrate --db /var/lib/milepost/milepost.db
  MILEPOST_DB=postgres://localhost/milepost milepost migrate")]
pub(crate) struct Migrate {}

impl Migrate {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        context.refuse_server("migrate")?;
        let version = context.database.migrate().await?;
        match context.is_json() {
            true => print_json(&json!({ "schema_version": version }))?,
            false => crate::print_line(&format!("{} has schema {version}", context.database)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
