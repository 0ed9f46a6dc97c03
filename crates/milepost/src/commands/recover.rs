//! `milepost recover`: finishes what processes left that were killed.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use milepost_core::id::{OrgId, RunId};
use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, OpenRun, Outlook, open_runs};
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use serde::Serialize;
use serde_json::json;

use crate::backend::{config, traces};
use crate::config::places;
use crate::context::{Context, LimitFlags};
use crate::database::Database;
use crate::output::{print_json, table, time};

/// A timer that is due within this time is waited for.
const SOON_MS: u64 = 2_000;
/// Between two looks at the open runs, at least.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// On Postgres a process that was killed is believed to live until its lease has run out.
const LEASE: Duration = Duration::from_secs(11);

/// Finish what killed processes left in this database.
///
/// Takes over the runs of processes that are gone and carries them on until every open run waits for a person, for a
/// timer more than 2 s away, or is in the hands of another process. Prints which runs ended. Exit status 0.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost recover
  milepost recover --db /var/lib/milepost/milepost.db -o json")]
pub(crate) struct Recover {
    /// Let `http` steps call loopback and private addresses
    #[arg(long)]
    allow_private_http: bool,
    /// Steps carried out at once
    #[arg(long, default_value_t = 64, value_name = "N")]
    concurrency: usize,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Debug, Serialize)]
struct Row {
    run_id: RunId,
    workflow: String,
    status: RunStatus,
}

impl Recover {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        context.refuse_server("recover")?;
        let limits = context.limits(&self.limits)?;
        let store = context.database.open().await?;
        let mut seen = BTreeMap::new();
        let (_, blobs) = places::of_command(&context.database)?;
        note_all(&mut seen, &open_runs(&store, blobs.clone(), time::now()).await?);
        let config = Config {
            inline_concurrency: self.concurrency,
            traces: traces()?,
            ..config(&context.database, limits, self.allow_private_http, None)?
        };
        let engine = Engine::open_with(store.clone(), config).await?;
        let open = until_idle(&engine, &store, &context.database, blobs, &mut seen).await;
        engine.shutdown().await;
        let open = open?;
        let ended = ended(&store, seen, &open).await?;
        print(&context, &ended, &open)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn note_all(seen: &mut BTreeMap<RunId, (OrgId, String)>, open: &[OpenRun]) {
    seen.extend(open.iter().map(|open| (open.run, (open.org, open.workflow.clone()))));
}

/// Waits until nothing goes on by itself. Answers what is open then.
async fn until_idle(
    engine: &Engine,
    store: &Arc<dyn Store>,
    database: &Database,
    blobs: Option<Blobs>,
    seen: &mut BTreeMap<RunId, (OrgId, String)>,
) -> anyhow::Result<Vec<OpenRun>> {
    let begun = Instant::now();
    let mut idle_before = false;
    loop {
        let look = Instant::now();
        let open = open_runs(store, blobs.clone(), time::now()).await?;
        note_all(seen, &open);
        let leases_may_run_out = matches!(database, Database::Postgres(_)) && begun.elapsed() < LEASE;
        let idle = !open.iter().any(|run| goes_on(run, engine, leases_may_run_out));
        // Seen twice: a take-over that is on its way shows between the two.
        if idle && idle_before {
            return Ok(open);
        }
        idle_before = idle;
        // A look at very many runs takes its time; it must not be all that happens.
        tokio::time::sleep(LOOK_EVERY.max(look.elapsed() * 4)).await;
    }
}

/// Whether a run will go on by itself soon, and here.
fn goes_on(run: &OpenRun, engine: &Engine, leases_may_run_out: bool) -> bool {
    let elsewhere = run.owner.is_some_and(|owner| owner != engine.node());
    match run.outlook {
        Outlook::Moves => !elsewhere || leases_may_run_out,
        Outlook::WakesAt(at) => at <= time::now().plus_ms(SOON_MS),
        Outlook::AfterAnother | Outlook::WaitsForPeople | Outlook::Stuck => false,
    }
}

async fn ended(
    store: &Arc<dyn Store>,
    seen: BTreeMap<RunId, (OrgId, String)>,
    open: &[OpenRun],
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (run_id, (org, workflow)) in seen {
        if open.iter().any(|open| open.run == run_id) {
            continue;
        }
        if let Some(head) = store.head(org, run_id).await? {
            rows.push(Row { run_id, workflow, status: head.status });
        }
    }
    Ok(rows)
}

fn print(context: &Context, ended: &[Row], open: &[OpenRun]) -> anyhow::Result<()> {
    if context.is_json() {
        let row = |open: &OpenRun| Row { run_id: open.run, workflow: open.workflow.clone(), status: open.status };
        return print_json(&json!({ "ended": ended, "open": open.iter().map(row).collect::<Vec<_>>() }));
    }
    for row in ended {
        crate::print_line(&format!("run {} {} {}", row.run_id, row.workflow, table::run_status(row.status)));
    }
    crate::print_line(&format!("{} runs ended, {} are open", ended.len(), open.len()));
    Ok(())
}
