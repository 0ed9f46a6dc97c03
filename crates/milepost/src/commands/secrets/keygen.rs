//! `milepost secrets keygen`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use milepost_engine::secrets::Keyring;
use serde_json::json;

use crate::context::Context;
use crate::keyfile;
use crate::output::error::Refusal;
use crate::output::print_json;

/// Make a key for sealing secrets.
///
/// Prints it, or writes it to a file that only its owner can read. Servers are told it by secrets.key_file or
/// MILEPOST_SECRETS_KEY. Whoever has it and the database has all secrets; without it they are lost.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets keygen --out /etc/milepost/secrets.key
  MILEPOST_SECRETS_KEY=$(milepost secrets keygen) milepost serve")]
pub(super) struct Keygen {
    /// The file to write; one that is there is not touched
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Keygen {
    pub(super) fn run(&self, context: &Context) -> anyhow::Result<ExitCode> {
        match &self.out {
            Some(path) => {
                let shown = path.display();
                keyfile::make(path).map_err(|error| {
                    let message = format!("{shown} cannot be made: {error}; choose another path");
                    Refusal::new("unwritable_file", message)
                })?;
                match context.is_json() {
                    true => print_json(&json!({ "key_file": path }))?,
                    false => crate::print_line(&format!("a key is in {shown}; keep a copy apart from the database")),
                }
            }
            None => {
                let key = Keyring::generate();
                match context.is_json() {
                    true => print_json(&json!({ "key": *key }))?,
                    false => crate::print_line(&key),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
