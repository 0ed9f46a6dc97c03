//! `milepost runs events`.

use std::process::ExitCode;

use clap::Args;
use comfy_table::Table;
use milepost_core::id::RunId;
use milepost_engine::view::EventView;

use super::resolve;
use crate::backend::feed::Fed;
use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::target::Otherwise;
use crate::wire::{Page, Said};

/// So many at a time are asked for.
const PAGE: u32 = 1000;
/// So much of an event's data is shown to people.
const DATA_CHARS: usize = 100;

/// Print a run's log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs events last
  milepost runs events last --after 100 --limit 50
  milepost runs events last --follow -o json")]
pub(super) struct Events {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// Only events after this number
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// At most so many
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Go on with what comes, up to the run's end; with `-o json` one event on each line
    #[arg(short, long, conflicts_with = "limit")]
    follow: bool,
}

impl Events {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        let run = resolve(&backend, &self.run).await?;
        if self.follow {
            self.print_live(&backend, run, &context).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let page = self.collect(&backend, run).await?;
        match context.is_json() {
            true => print_json(&page)?,
            false => print(&page),
        }
        Ok(ExitCode::SUCCESS)
    }

    /// As many events as are wanted, over as many pages as it takes.
    async fn collect(&self, backend: &Backend, run: RunId) -> anyhow::Result<Page<Said<EventView>>> {
        let mut items = Vec::new();
        let mut after = self.after;
        loop {
            let wanted = (self.limit - u32::try_from(items.len())?).min(PAGE);
            let page = backend.events(run, after, wanted).await?;
            items.extend(page.items);
            let Some(cursor) = page.next_cursor else { return Ok(Page { items, next_cursor: None }) };
            if items.len() >= self.limit as usize {
                return Ok(Page { items, next_cursor: Some(cursor) });
            }
            after = cursor.parse()?;
        }
    }

    async fn print_live(&self, backend: &Backend, run: RunId, context: &Context) -> anyhow::Result<()> {
        let mut feed = backend.feed(run, self.after);
        while let Some(fed) = feed.next().await? {
            match fed {
                Fed::Note(text) => crate::say(&text),
                Fed::Events(events) if context.is_json() => {
                    for event in &events {
                        crate::print_json(&serde_json::to_string(event)?);
                    }
                }
                Fed::Events(events) => events.iter().for_each(|event| crate::print_line(&line(event))),
            }
        }
        Ok(())
    }
}

fn print(page: &Page<Said<EventView>>) {
    let mut rows: Table = table::new(&["SEQ", "AT", "EVENT", "STEP", "ATTEMPT", "DATA"]);
    for event in &page.items {
        rows.add_row(cells(&event.value));
    }
    table::print(&rows);
    if let Some(cursor) = &page.next_cursor {
        crate::say(&format!("there are more: --after {cursor}"));
    }
}

fn cells(event: &EventView) -> [String; 6] {
    [
        event.run_seq.to_string(),
        time::clock_time(event.emitted_at),
        event.event_type.clone(),
        event.step_id.clone().unwrap_or_default(),
        event.logical_attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
        console::truncate_str(event.data.as_str(), DATA_CHARS, "…").into_owned(),
    ]
}

/// One event as it comes: the widths of what follows are not known yet.
fn line(event: &EventView) -> String {
    let [seq, at, event_type, step, attempt, data] = cells(event);
    format!("{seq:<4} {at} {event_type:<18} {step:<20} {attempt:<3} {data}").trim_end().to_owned()
}
