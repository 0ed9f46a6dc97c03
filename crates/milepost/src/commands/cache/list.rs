//! `milepost cache list`.

use std::process::ExitCode;

use clap::Args;

use super::{OfStep, bytes};
use crate::backend::Backend;
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::wire::{CacheResult, Page, Said};

/// So many at a time are asked for.
const PAGE: u32 = 500;
/// So much of a key is shown to people: enough to tell one from all others.
const SHOWN_DIGITS: usize = 16;

/// List results that are kept, by workflow, step and key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache list
  milepost cache list --workflow campaign.build --step render
  milepost cache list --limit 1000 -o json")]
pub(super) struct List {
    #[command(flatten)]
    of: OfStep,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

impl List {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let page = self.collect(backend).await?;
        match context.is_json() {
            true => print_json(&page)?,
            false => print(&page),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Over as many pages as it takes.
    async fn collect(&self, backend: &Backend) -> anyhow::Result<Page<Said<CacheResult>>> {
        let mut all: Page<Said<CacheResult>> = Page { items: Vec::new(), next_cursor: None };
        loop {
            let wanted = (self.limit - all.items.len() as u32).min(PAGE);
            let page = backend.cache_list(&self.of.results(), all.next_cursor.as_deref(), wanted).await?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() || all.items.len() >= self.limit as usize {
                return Ok(all);
            }
        }
    }
}

fn print(page: &Page<Said<CacheResult>>) {
    if page.items.is_empty() {
        crate::print_line("no results are kept");
        return;
    }
    let now = time::now();
    let header = ["KEY", "WORKFLOW", "STEP", "FOR", "SIZE", "TOOK", "HITS", "MADE", "LAST HIT"];
    let mut rows = table::new(&header);
    for result in page.items.iter().map(|result| &result.value) {
        let whom = match (result.run_id, result.trust.as_str()) {
            (Some(run), _) => format!("run {run}"),
            (None, "protected") => "all, protected".to_owned(),
            (None, _) => "all".to_owned(),
        };
        rows.add_row([
            result.key.to_string()[..SHOWN_DIGITS].to_owned(),
            result.workflow.clone(),
            result.step_id.clone(),
            whom,
            bytes(result.bytes),
            time::span(result.duration_ms),
            result.hits.to_string(),
            time::age(result.created_at, now),
            result.last_hit_at.map_or("never".to_owned(), |at| time::age(at, now)),
        ]);
    }
    table::print(&rows);
    if page.next_cursor.is_some() {
        crate::say("there are more; --limit shows more of them");
    }
}
