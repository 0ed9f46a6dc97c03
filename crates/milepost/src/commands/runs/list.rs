//! `milepost runs list`.

use std::process::ExitCode;

use clap::Args;
use comfy_table::Cell;
use milepost_core::id::RunId;

use super::filter::FilterFlags;
use crate::backend::{Access, Backend, RunFilter};
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::target::{Otherwise, Target};
use crate::wire::{Page, Said, Summary};

/// So many at a time are asked for.
const PAGE: u32 = 200;

/// List runs, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs list
  milepost runs list --status failed --status paused --workflow campaign.build
  milepost runs list --since 2h --all -o json
  milepost runs list --stuck")]
pub(super) struct List {
    #[command(flatten)]
    filter: FilterFlags,
    /// At most so many
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only runs older than this one: `next_cursor` of the page before
    #[arg(long, value_name = "RUN")]
    cursor: Option<RunId>,
    /// All of them, page by page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

impl List {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let target = context.target(Otherwise::Server).await?;
        // Before the first run there is no database, and so no run.
        let missing = match &target {
            Target::Database(database) if database.is_missing() => Some(database.to_string()),
            _ => None,
        };
        let page = match &missing {
            Some(_) => Page { items: Vec::new(), next_cursor: None },
            None => self.read(&Backend::open(target, Access::Read).await?).await?,
        };
        match context.is_json() {
            true => print_json(&page)?,
            false => print(&page, missing.as_deref()),
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn read(&self, backend: &Backend) -> anyhow::Result<Page<Said<Summary>>> {
        let filter = self.filter.read(backend).await?;
        let limit = if self.all { usize::MAX } else { self.limit as usize };
        collect(backend, &filter, self.cursor, limit).await
    }
}

/// As many runs as are wanted, over as many pages as it takes.
async fn collect(
    backend: &Backend,
    filter: &RunFilter,
    mut cursor: Option<RunId>,
    limit: usize,
) -> anyhow::Result<Page<Said<Summary>>> {
    let mut items = Vec::new();
    loop {
        let wanted = u32::try_from(limit - items.len()).unwrap_or(PAGE).min(PAGE);
        let page = backend.list(filter, cursor, wanted).await?;
        items.extend(page.items);
        cursor = page.next_cursor.as_deref().map(str::parse).transpose()?;
        if cursor.is_none() || items.len() >= limit {
            return Ok(Page { items, next_cursor: cursor.map(|run| run.to_string()) });
        }
    }
}

fn print(page: &Page<Said<Summary>>, missing: Option<&str>) {
    if page.items.is_empty() {
        crate::print_line("no runs");
        if let Some(database) = missing {
            crate::say(&format!("there is no database at {database} yet"));
        }
        return;
    }
    let now = time::now();
    let mut rows = table::new(&["RUN", "WORKFLOW", "STATUS", "STEPS", "CREATED", "TOOK", ""]);
    for run in page.items.iter().map(|run| &run.value) {
        let took = run.started_at.zip(run.completed_at).map(|(from, to)| time::span(to.ms_since(from)));
        rows.add_row([
            Cell::new(run.run_id),
            Cell::new(&run.workflow),
            table::run_cell(run.status),
            Cell::new(format!("{}/{}", run.steps_done, run.steps_total)),
            Cell::new(time::age(run.created_at, now)),
            Cell::new(took.unwrap_or_default()),
            Cell::new(match (&run.stuck, &run.stale, &run.error) {
                (Some(_), ..) => "stuck".to_owned(),
                (None, Some(stale), _) => format!("stale from event {}", stale.from_seq),
                (None, None, error) => error.as_ref().map(|error| error.code.clone()).unwrap_or_default(),
            }),
        ]);
    }
    table::print(&rows);
    if let Some(cursor) = &page.next_cursor {
        crate::say(&format!("there are more: --cursor {cursor}"));
    }
}
