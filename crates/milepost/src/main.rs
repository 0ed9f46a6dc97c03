//! The `milepost` program: what a person types, and what it prints. The only place that names a concrete store.

mod backend;
mod bench;
mod client;
mod commands;
mod config;
mod context;
mod database;
mod files;
mod keyfile;
mod logging;
mod output;
mod person;
mod program;
mod progress;
mod server;
mod target;
mod wire;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use context::{Context, Globals};
use output::plain;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable workflow engine in one binary.
///
/// Exit status: 0 done, 1 the run failed (or `doctor` found something), 2 wrong use, 3 no server, 70 a part of the server failed.
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
    Dev(commands::dev::Dev),
    Serve(Box<commands::serve::Serve>),
    Token(commands::token::Token),
    Worker(commands::worker::Worker),
    Secrets(commands::secrets::Secrets),
    Queues(commands::queues::Queues),
    Outbox(commands::outbox::Outbox),
    Cache(commands::cache::Cache),
    Run(Box<commands::run::Run>),
    Recover(commands::recover::Recover),
    Validate(commands::validate::Validate),
    Deploy(commands::deploy::Deploy),
    Workflows(commands::workflows::Workflows),
    Tags(commands::tags::Tags),
    Diff(commands::diff::Diff),
    Plan(Box<commands::plan::Plan>),
    Rebuild(Box<commands::rebuild::Rebuild>),
    Runs(Box<commands::runs::Runs>),
    Gc(commands::gc::Gc),
    Migrate(commands::migrate::Migrate),
    Doctor(commands::doctor::Doctor),
    Limits(commands::limits::ShowLimits),
    Bench(bench::Bench),
    /// The worker of a load.
    #[command(hide = true)]
    BenchWorker(bench::BenchWorker),
    Completion(commands::completion::Completion),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    // A server or worker that is kept tells what happens to it; other verbs tell what somebody should know.
    let is_kept = matches!(cli.verb, Verb::Serve(_) | Verb::Worker(_));
    cli.globals.start_logging(if is_kept { "info" } else { "warn" });
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
        Verb::Dev(dev) => Box::pin(dev.run(context)).await,
        Verb::Serve(serve) => Box::pin(serve.run(context)).await,
        Verb::Token(token) => token.run(&context),
        Verb::Worker(worker) => Box::pin(worker.run(context)).await,
        Verb::Queues(queues) => Box::pin(queues.run(context)).await,
        Verb::Outbox(outbox) => Box::pin(outbox.run(context)).await,
        Verb::Cache(cache) => Box::pin(cache.run(context)).await,
        Verb::Secrets(secrets) => Box::pin(secrets.run(context)).await,
        Verb::Run(run) => Box::pin(run.run(context)).await,
        Verb::Recover(recover) => Box::pin(recover.run(context)).await,
        Verb::Validate(validate) => validate.run(context),
        Verb::Deploy(deploy) => Box::pin(deploy.run(context)).await,
        Verb::Workflows(workflows) => Box::pin(workflows.run(context)).await,
        Verb::Tags(tags) => Box::pin(tags.run(context)).await,
        Verb::Diff(diff) => Box::pin(diff.run(context)).await,
        Verb::Plan(plan) => Box::pin(plan.run(context)).await,
        Verb::Rebuild(rebuild) => Box::pin(rebuild.run(context)).await,
        Verb::Runs(runs) => Box::pin(runs.run(context)).await,
        Verb::Gc(gc) => Box::pin(gc.run(context)).await,
        Verb::Migrate(migrate) => migrate.run(context).await,
        Verb::Doctor(doctor) => doctor.run(context).await,
        Verb::Limits(limits) => limits.run(context),
        Verb::Bench(bench) => Box::pin(bench.run()).await,
        Verb::BenchWorker(worker) => worker.run(&context),
        Verb::Completion(completion) => Ok(completion.run(Cli::command())),
    }
}

/// A line for programs or people to read, on standard output. A reader that has gone away is no reason to stop a run.
fn print_line(line: &str) {
    // Tables go by the terminal, texts by what its user wants of it.
    let styled = console::colors_enabled() || std::io::stdout().is_terminal();
    let _ = writeln!(std::io::stdout(), "{}", plain::shown(line, styled));
}

/// JSON for programs, on standard output.
fn print_json(json: &str) {
    let _ = writeln!(std::io::stdout(), "{}", plain::escaped(json));
}

/// A line for people, on standard error.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain::shown(line, console::colors_enabled_stderr()));
}
