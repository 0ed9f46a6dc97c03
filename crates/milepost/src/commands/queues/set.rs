//! `milepost queues set`.

use std::process::ExitCode;

use clap::Args;

use super::{NewLimits, limit, queue_name};
use crate::context::Context;
use crate::output::print_json;
use crate::wire::{Limited, Rate};

/// Limit what a queue may do. A limit that is not named is lifted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost queues set audio --concurrency 4
  milepost queues set audio --concurrency 4 --rate 100/1m")]
pub(super) struct Set {
    /// The queue, be there something in it or not
    #[arg(value_parser = queue_name)]
    queue: String,
    /// So many tasks may be in the hands of workers at once
    #[arg(long, value_name = "TASKS", required_unless_present = "rate")]
    concurrency: Option<u32>,
    /// So many tasks may begin at once, and then as fast as that fills up again within the time: 100/1m, 5/s
    #[arg(long, value_name = "TASKS/TIME")]
    rate: Option<Rate>,
}

impl Set {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let Set { queue, concurrency, rate } = self;
        let limited = limit(&context, &NewLimits { queue, concurrency, rate }).await?;
        if context.is_json() {
            print_json(&limited)?;
            return Ok(ExitCode::SUCCESS);
        }
        let Limited { queue, concurrency, rate } = &limited.value;
        let concurrency = concurrency.map(|most| format!("{most} tasks at once"));
        let rate = rate.map(|rate| format!("{rate} begin"));
        let limits: Vec<String> = concurrency.into_iter().chain(rate).collect();
        crate::print_line(&format!("{queue} may do no more than this: {}", limits.join(", ")));
        Ok(ExitCode::SUCCESS)
    }
}
