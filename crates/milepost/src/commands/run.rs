//! `milepost run`: runs a document right here, on an embedded engine, to its end.

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use milepost_core::document::{self, Loaded};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_engine::skills::{BuiltInOptions, LogLine, LogSink, Skills};
use milepost_engine::{Config, Engine, NewRun};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{read_json, read_text, shown_name};
use crate::context::{Context, LimitFlags};
use crate::database::Database;
use crate::output::error::Refusal;
use crate::output::problems::BadDocument;
use crate::output::{self, print_json};
use crate::progress::{Ended, Follower, Screen};

/// Run a document here and now, and wait for its end.
///
/// A file may hold several YAML documents: the first is run, the others are deployed by name, so that `workflow` steps
/// find them. Built-in skills are at hand, `shell` among them. Ctrl-C cancels the run; a second one leaves at once.
///
/// Progress goes to standard error: a tree on a terminal, plain lines elsewhere. The outcome goes to standard output;
/// with `-o json` that is one JSON object, the run, and there is no progress unless `--watch` asks for it.
///
/// Exit status: 0 the run completed; 1 it failed, was cancelled or terminated, or was left; 2 it was not started.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost run flow.yaml
  milepost run flow.yaml --payload '{\"topic\": \"tea\"}' -o json
  milepost run flow.yaml --payload @payload.json --signal 'approved={\"by\": \"Ada\"}'
  generate-flow | milepost run - --db /tmp/try.db")]
pub(crate) struct Run {
    /// A YAML or JSON document; `-` is standard input
    file: String,
    /// The run's payload: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    payload: String,
    /// Show progress even with `-o json`
    #[arg(long)]
    watch: bool,
    /// The same id again gives the same run
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Higher goes first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    priority: i32,
    /// Start at this moment, such as 2030-01-31T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start_at: Option<Timestamp>,
    /// Send a signal right after the start; may be repeated
    #[arg(long = "signal", value_name = "NAME[=JSON]")]
    signals: Vec<SignalFlag>,
    /// Let `http` steps call loopback and private addresses
    #[arg(long)]
    allow_private_http: bool,
    /// Steps carried out at once
    #[arg(long, default_value_t = 64, value_name = "N")]
    concurrency: usize,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Clone, Debug)]
struct SignalFlag {
    name: String,
    payload: String,
}

impl FromStr for SignalFlag {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<SignalFlag, Self::Err> {
        let (name, payload) = text.split_once('=').unwrap_or((text, "{}"));
        Ok(SignalFlag { name: name.to_owned(), payload: payload.to_owned() })
    }
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error| format!("{error}; write it as in 2030-01-31T10:00:00Z"))
}

/// The settings of an engine that lives for one command.
pub(super) fn config(database: &Database, limits: Limits, private_addresses: bool, log: Option<LogSink>) -> Config {
    // On one machine a dead process is known by its lock, so looking often costs nothing, and what another process
    // leaves (a signal that was sent) is seen within a second.
    let node_lease_ms = match database {
        Database::Sqlite(_) => 3_000,
        Database::Postgres(_) => 10_000,
    };
    let skills = Skills::built_in(&BuiltInOptions { shell: true, private_addresses });
    Config { limits, node_lease_ms, skills, log, ..Config::default() }
}

impl Run {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let limits = context.limits(&self.limits)?;
        // All that can be refused is refused before the database is touched.
        let (first, others) = self.documents(&limits)?;
        let (new, signals) = (self.new_run()?, self.signals()?);
        let (log, logs) = log_channel();
        let config = Config {
            inline_concurrency: self.concurrency,
            ..config(&context.database, limits, self.allow_private_http, Some(log))
        };
        let engine = Engine::open_with(context.database.open().await?, config).await?;
        let outcome = self.carry_out(&engine, &context, (first, others), new, signals, logs).await;
        match outcome {
            // What goes on is dropped, as if the process had died.
            Ok(Ended::LeftAtOnce) => drop(engine),
            _ => engine.shutdown().await,
        }
        Ok(match outcome? {
            Ended::Run(RunStatus::Completed) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        })
    }

    /// The document to run, and those it may need.
    fn documents(&self, limits: &Limits) -> anyhow::Result<(Loaded, Vec<Loaded>)> {
        let source = read_text(&self.file)?;
        let name = shown_name(&self.file);
        let loaded =
            document::load_all(&source, limits).map_err(|problems| BadDocument::new(name, &source, problems))?;
        let mut loaded = loaded.into_iter();
        let first = loaded.next().ok_or_else(|| Refusal::new("empty_document", format!("{name} holds no document")))?;
        Ok((first, loaded.collect()))
    }

    fn new_run(&self) -> anyhow::Result<NewRun> {
        Ok(NewRun {
            payload: read_json("the payload", &self.payload)?,
            request_id: self.request_id.clone(),
            priority: self.priority,
            start_at: self.start_at,
            // Whoever traces what starts this program finds the run in the same trace.
            trace: std::env::var("TRACEPARENT").ok().and_then(|text| text.parse().ok()),
        })
    }

    fn signals(&self) -> anyhow::Result<Vec<(String, Json)>> {
        let read = |flag: &SignalFlag| {
            let payload = read_json(&format!("the payload of the signal {}", flag.name), &flag.payload)?;
            Ok((flag.name.clone(), payload))
        };
        self.signals.iter().map(read).collect()
    }

    async fn carry_out(
        &self,
        engine: &Engine,
        context: &Context,
        documents: (Loaded, Vec<Loaded>),
        new: NewRun,
        signals: Vec<(String, Json)>,
        logs: UnboundedReceiver<LogLine>,
    ) -> anyhow::Result<Ended> {
        let plan = deploy(engine, documents, &new).await?;
        let accepted = engine.start_plan(&plan, new).await?;
        for (name, payload) in signals {
            engine.signal(accepted.run, Signal { payload, ..Engine::new_signal(&name) }).await?;
        }
        let screen = if context.is_json() && !self.watch { Screen::Silent } else { Screen::open(&plan) };
        if accepted.existing && !context.is_json() {
            crate::say(&format!("run {} is there already, with the same request id", accepted.run));
        }
        let mut follower = Follower {
            engine,
            database: &context.database,
            run: accepted.run,
            model: crate::progress::Model::new(plan),
            screen,
            logs,
            last_seq: 0,
        };
        let ended = Box::pin(follower.follow()).await?;
        if !matches!(ended, Ended::Run(_)) {
            let flag = context.database.as_flag();
            crate::say(&format!("left run {} as it is; `milepost recover{flag}` goes on with it", accepted.run));
            return Ok(ended);
        }
        let view = engine.run(accepted.run).await?;
        match context.is_json() {
            true => print_json(&view)?,
            false => output::run::print_outcome(&view),
        }
        Ok(ended)
    }
}

/// Checks everything, then deploys everything: what is refused leaves nothing behind.
async fn deploy(engine: &Engine, (first, others): (Loaded, Vec<Loaded>), new: &NewRun) -> anyhow::Result<Arc<Plan>> {
    for other in &others {
        engine.check_skills(&other.plan)?;
    }
    let Loaded { canonical, hash, plan } = first;
    let plan = Arc::new(plan);
    engine.check_start(&plan, new)?;
    for other in others {
        engine.deploy_loaded(other).await?;
    }
    let plan = Arc::into_inner(plan).ok_or_else(|| anyhow::anyhow!("the plan is still being checked"))?;
    Ok(engine.deploy_loaded(Loaded { canonical, hash, plan }).await?)
}

/// What steps say comes out at the other end.
fn log_channel() -> (LogSink, UnboundedReceiver<LogLine>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // After the run has ended nobody listens.
    let sink: LogSink = Arc::new(move |line| drop(sender.send(line)));
    (sink, receiver)
}
