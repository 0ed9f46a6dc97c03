//! `milepost queues clear`.

use std::process::ExitCode;

use clap::Args;

use super::{NewLimits, limit, queue_name};
use crate::context::Context;
use crate::output::print_json;

/// Lift all limits of a queue. What waits in it stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost queues clear audio")]
pub(super) struct Clear {
    /// The queue, as `milepost queues list` has it
    #[arg(value_parser = queue_name)]
    queue: String,
}

impl Clear {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let limited = limit(&context, &NewLimits { queue: self.queue, ..NewLimits::default() }).await?;
        match context.is_json() {
            true => print_json(&limited)?,
            false => crate::print_line(&format!("{} has no limits", limited.value.queue)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
