//! The `milepost` program: what a person types, and what it prints. The only place that names a concrete store.

mod bench;
mod database;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A durable workflow engine in one binary.
#[derive(Debug, Parser)]
#[command(name = "milepost", version, about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(bench::Bench),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.verb {
        Verb::Bench(bench) => bench.run().await,
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// A line for programs or people to read, on standard output.
#[expect(clippy::print_stdout, reason = "the one place that writes to standard output")]
fn print_line(line: &str) {
    println!("{line}");
}
