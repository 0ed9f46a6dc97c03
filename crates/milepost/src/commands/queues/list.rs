//! `milepost queues list`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::target::Otherwise;
use crate::wire::{Page, Queue, Said};

/// List the queues that have tasks or limits, by name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost queues list
  milepost queues list -o json")]
pub(super) struct List {}

impl List {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let queues = backend.queues().await?;
        match context.is_json() {
            true => print_json(&queues)?,
            false => print(&queues),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(queues: &Page<Said<Queue>>) {
    if queues.items.is_empty() {
        crate::print_line("nothing waits, and no queue has limits");
        return;
    }
    let now = time::now();
    let mut rows = table::new(&["QUEUE", "WAITING", "RUNNING", "OLDEST", "CONCURRENCY", "RATE"]);
    for queue in queues.items.iter().map(|queue| &queue.value) {
        rows.add_row([
            queue.queue.clone(),
            queue.waiting.to_string(),
            queue.running.to_string(),
            queue.oldest_ready_at.map(|at| time::age(at, now)).unwrap_or_default(),
            queue.concurrency.map(|most| most.to_string()).unwrap_or_default(),
            queue.rate.map(|rate| rate.to_string()).unwrap_or_default(),
        ]);
    }
    table::print(&rows);
}
