//! The `milepost` program: what a person types, and what it prints. The only place that names a concrete store.

mod backend;
mod bench;
mod client;
mod commands;
mod context;
mod database;
mod logging;
mod output;
mod progress;
mod target;
mod wire;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::{Context, Globals};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable workflow engine in one binary.
///
/// Exit status: 0 done, 1 the run failed (or `doctor` found something), 2 wrong use, 3 no server.
#[derive(Debug, Parser)]
#[command(
    name = "milepost",
    version,
    about,
    after_help = "Examples:
  milepost run examples/chain.yaml
  milepost validate flow.yaml
  milepost runs show last"
)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<commands::run::Run>),
    Recover(commands::recover::Recover),
    Validate(commands::validate::Validate),
    Runs(commands::runs::Runs),
    Migrate(commands::migrate::Migrate),
    Doctor(commands::doctor::Doctor),
    Limits(commands::limits::ShowLimits),
    Bench(bench::Bench),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.globals.start_logging();
    let format = cli.globals.format;
    let outcome = match Context::new(cli.globals) {
        Ok(context) => carry_out(cli.verb, context).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_or_else(|error| {
        output::error::report(&error, format);
        ExitCode::from(output::error::exit_status(&error))
    })
}

async fn carry_out(verb: Verb, context: Context) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Run(run) => Box::pin(run.run(context)).await,
        Verb::Recover(recover) => Box::pin(recover.run(context)).await,
        Verb::Validate(validate) => validate.run(context),
        Verb::Runs(runs) => Box::pin(runs.run(context)).await,
        Verb::Migrate(migrate) => migrate.run(context).await,
        Verb::Doctor(doctor) => doctor.run(context).await,
        Verb::Limits(limits) => limits.run(context),
        Verb::Bench(bench) => Box::pin(bench.run()).await,
    }
}

/// A line for programs or people to read, on standard output. A reader that has gone away is no reason to stop a run.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A line for people, on standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
