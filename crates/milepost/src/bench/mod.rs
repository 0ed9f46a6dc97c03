//! `milepost bench`: how fast the engine is, against the same rows through the driver alone, in the same run.

mod apart;
mod child;
mod definitions;
mod fairness;
mod follow;
mod http;
mod load;
mod measure;
mod record;
mod remote;
mod reuse;
mod server;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use milepost_engine::{Config, Engine};
use serde::Serialize;

use crate::database::Database;
use measure::{Usage, round};
use record::Recorder;
pub(crate) use worker::BenchWorker;

/// Measure the engine, or a server under load from this process.
///
/// Prints one JSON line. `limit_steps_per_s` is what the same rows in the same batch sizes reach through the driver
/// alone, right after, in the same process; `limit_ratio` is engine ÷ limit.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost bench chain --runs 2000 --steps 10 --concurrency 64
  milepost bench fan --runs 200 --steps 100 --concurrency 16
  milepost bench start --runs 20000 --concurrency 64 --store postgres://localhost/bench
  milepost bench load --runs 100 --steps 50000
  milepost bench server --runs 20000 --concurrency 64
  milepost bench server --runs 2000 --concurrency 8 --second-node --store postgres://localhost/bench
  milepost bench streams --runs 10000 --subscribers 1000
  milepost bench idle --runs 10000
  milepost bench chain --worker http
  milepost bench chain --worker python
  milepost bench workers --idle 10000
  milepost bench fairness --runs 100000
  milepost bench definitions --runs 100000
  milepost bench plan --steps 10000
  milepost bench reuse --steps 1000
  milepost bench limit --runs 2000 --steps 10 --concurrency 64")]
pub(crate) struct Bench {
    #[arg(value_enum)]
    scenario: Scenario,
    /// How many runs
    #[arg(long, default_value_t = 2000)]
    runs: usize,
    /// Steps of each run (always 1 for `start`)
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// Runs under way at once
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
    /// `sqlite` (a new file in a temporary folder), a file, or a postgres:// address
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// Who carries the steps out
    #[arg(long, value_enum, default_value_t = Worker::Inline)]
    worker: Worker,
    /// Tasks at once of a worker in a process of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    worker_concurrency: usize,
    /// WebSocket subscribers of one run (`streams`)
    #[arg(long, default_value_t = 1000)]
    subscribers: usize,
    /// Workers that are connected and have nothing to do (`workers`)
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Follow the run on a second server of the same database (`server`)
    #[arg(long)]
    second_node: bool,
    /// Store this many finished runs first
    #[arg(long, default_value_t = 0)]
    prefill: usize,
    /// Print peak memory as well
    #[arg(long)]
    report_memory: bool,
    /// Do not measure the limit
    #[arg(long)]
    no_limit: bool,
    /// Print a line `ack RUN_ID` for every run that is acknowledged, for crash tests
    #[arg(long, hide = true)]
    print_acks: bool,
    /// Wait until no run of the database is open, for crash tests
    #[arg(long, hide = true)]
    drain: bool,
    /// How long a node that says nothing is believed to live, for crash tests
    #[arg(long, hide = true, default_value_t = 10_000)]
    node_lease_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Steps one after the other, each using the output of the one before
    Chain,
    /// Steps side by side
    Fan,
    /// One step
    Start,
    /// The chain again, for its limit
    Limit,
    /// Retries, short sleeps, foreach, child runs and a concurrency key, all at once
    Mixed,
    /// Runs that sleep: what they cost while they do
    Sleep,
    /// One run with a long history that waits: how long a node that takes it over needs to load it, `--runs` times
    Load,
    /// A server in a process of its own: runs are started over HTTP while others read them and follow one
    Server,
    /// The same with many subscribers of one run; each must see every event once
    Streams,
    /// A server with runs that sleep: what it costs while nothing happens
    Idle,
    /// A server with workers that have nothing to do: what they cost it
    Workers,
    /// One org has queued `--runs` runs and workers are busy: how long another org's run waits for one
    Fairness,
    /// A tag that has made `--runs` moves: what reading, patching, moving and undoing cost
    Definitions,
    /// A graph of `--steps` steps that ran before: what a plan of one change costs
    Plan,
    /// The same graph: what a run costs that has all results already
    Reuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Worker {
    /// In this process
    Inline,
    /// A process of its own with the Rust SDK, against a server in another one (`chain`, `fan`, `start`)
    Http,
    /// The same with the Python SDK
    Python,
}

impl Worker {
    fn as_str(self) -> &'static str {
        match self {
            Worker::Inline => "inline",
            Worker::Http => "http",
            Worker::Python => "python",
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Report {
    peer: &'static str,
    store: &'static str,
    scenario: String,
    worker: &'static str,
    runs: usize,
    steps_per_run: usize,
    concurrency: usize,
    wall_s: f64,
    runs_per_s: f64,
    steps_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_s: f64,
    steps_per_cpu_s: f64,
    rss_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_rss_mib: Option<f64>,
    /// From a step being ready to its start; upper bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_to_started_p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_to_started_p99_ms: Option<f64>,
    limit_steps_per_s: Option<f64>,
    limit_ratio: Option<f64>,
}

impl Bench {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let database = match self.store.as_str() {
            "sqlite" => Database::Sqlite(folder.path().join("bench.db")),
            other => Database::parse(other),
        };
        if matches!(self.scenario, Scenario::Server | Scenario::Streams | Scenario::Idle | Scenario::Workers) {
            return self.server(folder.path(), &database).await;
        }
        if matches!(self.scenario, Scenario::Fairness | Scenario::Definitions | Scenario::Plan | Scenario::Reuse) {
            let store = database.open().await?;
            let line = match self.scenario {
                Scenario::Fairness => fairness::fairness(store, self.runs).await?,
                Scenario::Plan => reuse::plan(store, self.steps).await?,
                Scenario::Reuse => reuse::reuse(store, self.steps).await?,
                _ => definitions::definitions(store, self.runs).await?,
            };
            crate::print_json(&line.to_string());
            return Ok(ExitCode::SUCCESS);
        }
        if self.worker != Worker::Inline {
            return self.remote(folder.path(), &database).await;
        }
        let recorder = Arc::new(Recorder::new(database.open().await?));
        let inline_concurrency = 1024.max(self.concurrency * 2);
        let config = Config { inline_concurrency, node_lease_ms: self.node_lease_ms, ..Config::default() };
        let config = load::skills(config);
        let engine = Engine::open_with(recorder.clone(), config).await?;
        match self.scenario {
            Scenario::Sleep => return self.sleep(engine).await,
            Scenario::Load => return self.load(engine).await,
            _ => {}
        }
        let steps = self.steps();
        let plan = match self.scenario {
            Scenario::Mixed => load::deploy_mixed(&engine).await?,
            scenario => engine.deploy(&load::document(scenario == Scenario::Fan, steps)).await?,
        };
        load::prefill(&engine, self.prefill).await?;
        // A few runs to warm up: connections, plans, pages.
        load::drive(&engine, &plan, 16.min(self.runs), 4, self.print_acks).await?;
        engine.flush_projections().await;
        recorder.record(!self.no_limit);
        let before = Usage::now(&database);
        let driven = load::drive(&engine, &plan, self.runs, self.concurrency, self.print_acks).await?;
        while self.drain && !engine.store().open_runs(None, 1).await?.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        engine.flush_projections().await;
        let used = Usage::now(&database).since(&before);
        let recorded = recorder.take();
        engine.shutdown().await;
        let total_steps = (self.runs * steps) as f64;
        let limit = match self.no_limit {
            true => None,
            false => Some(total_steps / recorder.replay(&database, folder.path(), &recorded).await?.as_secs_f64()),
        };
        let report = Report {
            cpu_s: round(used.cpu_s),
            steps_per_cpu_s: round(total_steps / used.cpu_s),
            rss_mib: round(measure::rss_mib()),
            peak_rss_mib: self.report_memory.then(|| round(measure::peak_rss_mib())),
            limit_steps_per_s: limit.map(round),
            limit_ratio: limit.map(|limit| round(total_steps / driven.wall_s / limit)),
            ..self.report(recorder.kind(), &driven)
        };
        crate::print_json(&serde_json::to_string(&report)?);
        Ok(ExitCode::SUCCESS)
    }

    fn steps(&self) -> usize {
        match self.scenario {
            Scenario::Start => 1,
            Scenario::Mixed => load::MIXED_STEPS,
            _ => self.steps,
        }
    }

    /// What a load took, but for what it used.
    fn report(&self, store: &'static str, driven: &load::Driven) -> Report {
        let total_steps = (self.runs * self.steps()) as f64;
        Report {
            peer: "milepost",
            store,
            scenario: format!("{:?}", self.scenario).to_lowercase(),
            worker: self.worker.as_str(),
            runs: self.runs,
            steps_per_run: self.steps(),
            concurrency: self.concurrency,
            wall_s: round(driven.wall_s),
            runs_per_s: round(self.runs as f64 / driven.wall_s),
            steps_per_s: round(total_steps / driven.wall_s),
            p50_ms: round(driven.percentile_ms(50)),
            p99_ms: round(driven.percentile_ms(99)),
            ..Report::default()
        }
    }

    /// Loads a server and a worker, each in a process of its own.
    async fn remote(&self, folder: &std::path::Path, database: &Database) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(
            matches!(self.scenario, Scenario::Chain | Scenario::Fan | Scenario::Start),
            "--worker {} is for chain, fan and start",
            self.worker.as_str()
        );
        self.prefill(database).await?;
        let server = child::Server::start(folder, &address(database))?;
        let worker = match self.worker {
            Worker::Python => child::Worker::python(&server.host, self.worker_concurrency)?,
            _ => child::Worker::start(&server.host, self.worker_concurrency)?,
        };
        let document = load::document(self.scenario == Scenario::Fan, self.steps());
        let before = measure::database_cpu_s(database);
        let remote = on_one_thread(remote::drive(&server, &worker, &document, self.runs, self.concurrency))?;
        let cpu_s = remote.cpu_s + measure::database_cpu_s(database) - before;
        let report = Report {
            cpu_s: round(cpu_s),
            steps_per_cpu_s: round((self.runs * self.steps()) as f64 / cpu_s),
            rss_mib: round(remote.rss_mib),
            peak_rss_mib: self.report_memory.then(|| round(remote.peak_rss_mib)),
            ready_to_started_p50_ms: remote.delay_ms.map(|(p50, _)| round(p50)),
            ready_to_started_p99_ms: remote.delay_ms.map(|(_, p99)| round(p99)),
            ..self.report(kind(database), &remote.driven)
        };
        crate::print_json(&serde_json::to_string(&report)?);
        Ok(ExitCode::SUCCESS)
    }

    async fn prefill(&self, database: &Database) -> anyhow::Result<()> {
        if self.prefill > 0 {
            let engine = Engine::open_with(database.open().await?, load::skills(Config::default())).await?;
            load::prefill(&engine, self.prefill).await?;
            engine.shutdown().await;
        }
        Ok(())
    }

    /// Loads a server that runs in a process of its own, on the same database that was filled here before.
    async fn server(&self, folder: &std::path::Path, database: &Database) -> anyhow::Result<ExitCode> {
        self.prefill(database).await?;
        let db = address(database);
        let server = child::Server::start(folder, &db)?;
        let start_second = || child::Server::start(&folder.join("second"), &db);
        let second = self.second_node.then(start_second).transpose()?;
        let load =
            server::Load { runs: self.runs, concurrency: self.concurrency.max(1), subscribers: self.subscribers };
        let mut report = match self.scenario {
            Scenario::Streams => server::streams(&server, &load).await?,
            Scenario::Idle => server::idle(&server, &load).await?,
            Scenario::Workers => remote::idle(&server, self.idle).await?,
            _ => server::server(&server, second.as_ref().unwrap_or(&server), &load).await?,
        };
        report["peer"] = "milepost".into();
        report["store"] = kind(database).into();
        report["prefill"] = self.prefill.into();
        report["second_node"] = self.second_node.into();
        crate::print_json(&report.to_string());
        Ok(ExitCode::SUCCESS)
    }

    /// Makes a run with two events for each of `steps` items, and loads its state again and again.
    async fn load(&self, engine: Engine) -> anyhow::Result<ExitCode> {
        let plan = engine.deploy(load::LONG).await?;
        let run = load::start_long(&engine, &plan, self.steps).await?;
        let loads = load::load_again(&engine, &plan, run, self.runs).await?;
        let events = engine.run(run).await?.summary.last_event_seq;
        let line = serde_json::json!({
            "peer": "milepost", "store": engine.store().name(), "scenario": "load", "runs": self.runs,
            "events": events,
            "p50_ms": round(loads.percentile_ms(50)), "p99_ms": round(loads.percentile_ms(99)),
        });
        crate::print_json(&line.to_string());
        engine.shutdown().await;
        Ok(ExitCode::SUCCESS)
    }

    /// Starts runs that sleep for an hour, and looks at what they cost for a few seconds.
    async fn sleep(&self, engine: Engine) -> anyhow::Result<ExitCode> {
        let plan = engine.deploy(load::SLEEPER).await?;
        load::start_all(&engine, &plan, self.runs, self.concurrency).await?;
        engine.flush_projections().await;
        let cpu = measure::cpu_s();
        tokio::time::sleep(std::time::Duration::from_secs(10)).await;
        let share = (measure::cpu_s() - cpu) / 10.0 * 100.0;
        let line = serde_json::json!({
            "peer": "milepost", "scenario": "sleep", "runs": self.runs, "cpu_percent": round(share),
            "rss_mib": round(measure::rss_mib()), "peak_rss_mib": round(measure::peak_rss_mib()),
        });
        crate::print_json(&line.to_string());
        engine.shutdown().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// A load, or a worker, that takes no more of the machine than it must: no threads that wake each other.
fn on_one_thread<T: Send>(work: impl Future<Output = anyhow::Result<T>> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// As a server is told it.
fn address(database: &Database) -> String {
    match database {
        Database::Sqlite(path) => path.display().to_string(),
        Database::Postgres(url) => url.clone(),
    }
}

fn kind(database: &Database) -> &'static str {
    if matches!(database, Database::Postgres(_)) { "postgres" } else { "sqlite" }
}
