//! `milepost outbox list`.

use std::process::ExitCode;

use clap::Args;

use super::collect;
use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::target::Otherwise;
use crate::wire::{Delivery, Page, Said};

/// So much of an error is shown to people.
const ERROR_CHARS: usize = 80;

/// List what is owed to others and what was given up, the oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost outbox list
  milepost outbox list --dead -o json")]
pub(super) struct List {
    /// Only what was given up
    #[arg(long)]
    dead: bool,
}

impl List {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let page = collect(&backend, self.dead).await?;
        match context.is_json() {
            true => print_json(&page)?,
            false => print(&page, self.dead),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(page: &Page<Said<Delivery>>, dead: bool) {
    if page.items.is_empty() {
        crate::print_line(if dead { "no dead letters" } else { "nothing is owed" });
        return;
    }
    let now = time::now();
    let mut rows = table::new(&["DELIVERY", "STATUS", "RUN", "STEP", "TRIES", "NEXT TRY", "LAST ERROR"]);
    for delivery in page.items.iter().map(|delivery| &delivery.value) {
        let error = delivery.last_error.as_deref().unwrap_or_default();
        rows.add_row([
            delivery.id.to_string(),
            delivery.status.clone(),
            delivery.run_id.to_string(),
            delivery.step_id.clone().unwrap_or_default(),
            delivery.attempts.to_string(),
            delivery.next_try_at.map(|at| format!("in {}", time::span(at.ms_since(now)))).unwrap_or_default(),
            error.lines().next().unwrap_or_default().chars().take(ERROR_CHARS).collect(),
        ]);
    }
    table::print(&rows);
}
