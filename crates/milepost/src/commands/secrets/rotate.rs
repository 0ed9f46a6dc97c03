//! `milepost secrets rotate`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::print_json;

/// Exit status where some stay as they were.
const UNREADABLE: u8 = 1;

/// Seal all secrets with the first key.
///
/// Put a new key before the old ones first (secrets.key_file or MILEPOST_SECRETS_KEY, on all servers), and take the old ones
/// away afterwards. Exit status 1 if there are secrets that none of the keys opens.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets rotate
  MILEPOST_SECRETS_KEY=\"$NEW,$OLD\" milepost secrets rotate --db runs.db")]
pub(super) struct Rotate {}

impl Rotate {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let rotated = backend.rotate_secrets().await?;
        let (resealed, unreadable) = (rotated.value.resealed, rotated.value.unreadable);
        match context.is_json() {
            true => print_json(&rotated)?,
            false => {
                crate::print_line(&format!("{resealed} versions are sealed anew, none of the keys opens {unreadable}"))
            }
        }
        Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::from(UNREADABLE) })
    }
}
