//! `milepost runs`: what a database holds, and words to its runs.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use milepost_core::id::{OrgId, RunId};
use milepost_core::status::RunStatus;
use milepost_engine::view::{EventView, RunSummary};
use milepost_engine::{list_runs, read_run, transitions};
use milepost_store::Store;
use milepost_store::rows::RunFilter;

use super::signal::{Named, OfStep, Plain};
use crate::context::Context;
use crate::output::error::Refusal;
use crate::output::{self, Page, print_json, table, time};

/// List runs, show one, send it a signal.
///
/// RUN is a run's id, the beginning of it if that is unique, or `last`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs list --status failed
  milepost runs show last
  milepost runs signal last approved --payload '{\"by\": \"Ada\"}'")]
pub(crate) struct Runs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(List),
    Show(Show),
    Events(Events),
    /// Send a signal: the one a `wait` step waits for, or any other
    #[command(after_help = "Examples:
  milepost runs signal last approved
  milepost runs signal 0198 approved --payload '{\"by\": \"Ada\"}'
  milepost runs signal last approved --payload @answer.json --step sign_off")]
    Signal(Named),
    /// Start no more steps of a run; those under way end
    #[command(after_help = "Examples:\n  milepost runs pause last\n  milepost runs pause 0198c0de -o json")]
    Pause(Plain),
    /// Go on with a paused run
    #[command(after_help = "Examples:\n  milepost runs resume last\n  milepost runs resume 0198c0de -o json")]
    Resume(Plain),
    /// End a run in good order: steps under way are stopped
    #[command(after_help = "Examples:\n  milepost runs cancel last\n  milepost runs cancel 01a1defb")]
    Cancel(Plain),
    /// End a run at once
    #[command(
        after_help = "Examples:\n  milepost runs terminate last\n  milepost runs terminate last --payload '{\"reason\": \"it hangs\"}'"
    )]
    Terminate(Plain),
    /// Let a run start that waits for approval
    #[command(after_help = "Examples:\n  milepost runs approve last\n  milepost runs approve 0198c0de -o json")]
    Approve(Plain),
    /// Refuse a run that waits for approval; it ends as cancelled
    #[command(
        after_help = "Examples:\n  milepost runs reject last\n  milepost runs reject last --payload '{\"reason\": \"too dear\"}'"
    )]
    Reject(Plain),
    /// Try a failed step again; a failed run goes on
    #[command(
        after_help = "Examples:\n  milepost runs retry last --step cut\n  milepost runs retry last --step 'shots[3]'"
    )]
    Retry(OfStep),
    /// Skip a step, and what depends on it
    #[command(
        after_help = "Examples:\n  milepost runs skip last --step cut\n  milepost runs skip last --step 'shots[3]'"
    )]
    Skip(OfStep),
}

/// List runs, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs list
  milepost runs list --status failed --workflow campaign.build
  milepost runs list --limit 100 -o json")]
struct List {
    /// Only runs with this status
    #[arg(long)]
    status: Option<RunStatus>,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only runs older than this one: `next_cursor` of the page before
    #[arg(long, value_name = "RUN")]
    cursor: Option<RunId>,
}

/// Show a run: its steps, attempts, errors and changes of status.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs show last
  milepost runs show 0198c0de
  milepost runs show last -o json")]
struct Show {
    /// The run: its id, the beginning of it, or `last`
    run: String,
}

/// Print a run's log.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs events last
  milepost runs events last --after 100 --limit 50
  milepost runs events last -o json")]
struct Events {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// Only events after this number
    #[arg(long, default_value_t = 0, value_name = "SEQ")]
    after: u64,
    /// At most so many
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

impl Runs {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::List(list) => list.run(context).await,
            Verb::Show(show) => show.run(context).await,
            Verb::Events(events) => events.run(context).await,
            Verb::Signal(named) => named.send(context).await,
            Verb::Pause(plain) => plain.send("PAUSE", context).await,
            Verb::Resume(plain) => plain.send("RESUME", context).await,
            Verb::Cancel(plain) => plain.send("CANCEL", context).await,
            Verb::Terminate(plain) => plain.send("TERMINATE", context).await,
            Verb::Approve(plain) => plain.send("APPROVE", context).await,
            Verb::Reject(plain) => plain.send("REJECT", context).await,
            Verb::Retry(of_step) => of_step.send("RETRY_STEP", context).await,
            Verb::Skip(of_step) => of_step.send("SKIP_STEP", context).await,
        }
    }
}

impl List {
    async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let filter = RunFilter {
            statuses: self.status.into_iter().collect(),
            workflow: self.workflow,
            before: self.cursor,
            limit: self.limit + 1,
            ..RunFilter::default()
        };
        // Before the first run there is no database, and so no run.
        let mut items = match context.database.is_missing() {
            true => Vec::new(),
            false => list_runs(&context.database.open_to_read().await?, OrgId::DEFAULT, &filter).await?,
        };
        let more = items.len() > self.limit as usize;
        items.truncate(self.limit as usize);
        let next_cursor = items.last().filter(|_| more).map(|run| run.run_id.to_string());
        match context.is_json() {
            true => print_json(&Page { items, next_cursor })?,
            false => print_list(&context, &items, next_cursor.as_deref()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_list(context: &Context, runs: &[RunSummary], next_cursor: Option<&str>) {
    if runs.is_empty() {
        crate::print_line("no runs");
        if context.database.is_missing() {
            crate::say(&format!("there is no database at {} yet", context.database));
        }
        return;
    }
    let now = time::now();
    let mut rows = table::new(&["RUN", "WORKFLOW", "STATUS", "STEPS", "CREATED", "TOOK", ""]);
    for run in runs {
        let took = run.started_at.zip(run.completed_at).map(|(from, to)| time::span(to.ms_since(from)));
        rows.add_row([
            Cell::new(run.run_id),
            Cell::new(&run.workflow),
            table::run_cell(run.status),
            Cell::new(format!("{}/{}", run.steps_done, run.steps_total)),
            Cell::new(time::age(run.created_at, now)),
            Cell::new(took.unwrap_or_default()),
            Cell::new(run.error.as_ref().map(|error| error.code.as_str()).unwrap_or_default()),
        ]);
    }
    table::print(&rows);
    if let Some(cursor) = next_cursor {
        crate::say(&format!("there are more: --cursor {cursor}"));
    }
}

impl Show {
    async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let store = context.database.open_to_read().await?;
        let run = resolve(&store, &self.run).await?;
        let view = read_run(&store, OrgId::DEFAULT, run).await?;
        match context.is_json() {
            true => print_json(&view)?,
            false => output::run::print_all(&view, &transitions(&store, OrgId::DEFAULT, run).await?),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Events {
    async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let store = context.database.open_to_read().await?;
        let run = resolve(&store, &self.run).await?;
        let mut rows = store.events(OrgId::DEFAULT, run, self.after, self.limit + 1).await?;
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.seq.to_string());
        let items: Vec<EventView> = rows.iter().map(|row| EventView::of(run, row)).collect();
        if context.is_json() {
            print_json(&Page { items, next_cursor })?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = table::new(&["SEQ", "AT", "EVENT", "STEP", "ATTEMPT", "DATA"]);
        for event in &items {
            let attempt = event.logical_attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
            let data = console::truncate_str(event.data.as_str(), 100, "…").into_owned();
            table.add_row([
                event.run_seq.to_string(),
                time::clock_time(event.emitted_at),
                event.event_type.clone(),
                event.step_id.clone().unwrap_or_default(),
                attempt,
                data,
            ]);
        }
        table::print(&table);
        if let Some(cursor) = next_cursor {
            crate::say(&format!("there are more: --after {cursor}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The run that is meant: an id, the beginning of one, or `last`.
pub(super) async fn resolve(store: &Arc<dyn Store>, wanted: &str) -> anyhow::Result<RunId> {
    if let Ok(run) = wanted.parse() {
        return match store.head(OrgId::DEFAULT, run).await? {
            Some(_) => Ok(run),
            None => Err(unknown(wanted)),
        };
    }
    let prefix: String = if wanted == "last" { String::new() } else { wanted.to_lowercase().replace('-', "") };
    if prefix.len() > 32 || !prefix.chars().all(|letter| letter.is_ascii_hexdigit()) {
        return Err(unknown(wanted));
    }
    // Ids are in the order of time: those that begin like this are the newest before the last that could.
    let bound = RunId(format!("{prefix:f<32}").parse()?);
    let filter = RunFilter { before: Some(bound), limit: 2, ..RunFilter::default() };
    let found = list_runs(store, OrgId::DEFAULT, &filter).await?;
    let mut matching = found.iter().map(|run| run.run_id).filter(|run| run.0.simple().to_string().starts_with(&prefix));
    match (matching.next(), matching.next()) {
        (Some(run), None) => Ok(run),
        (Some(run), Some(_)) if wanted == "last" => Ok(run),
        (Some(_), Some(_)) => Err(Refusal::new(
            "ambiguous_run",
            format!("several runs begin with {wanted}; give more of the id, as in `milepost runs list`"),
        )
        .into()),
        (None, _) => Err(unknown(wanted)),
    }
}

fn unknown(wanted: &str) -> anyhow::Error {
    let what = if wanted == "last" { "there is no run yet".to_owned() } else { format!("there is no run {wanted}") };
    Refusal::new("unknown_run", format!("{what}; `milepost runs list` shows those there are")).into()
}
