//! `milepost worker`: carries out tasks of a server with the skills of a program.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use milepost_sdk as sdk;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client;
use crate::context::Context;
use crate::output::error::Refusal;
use crate::program::Program;
use crate::target::{Otherwise, Server, Target};

/// Carry out tasks of a server with skills of your own, in any language.
///
/// The program is started once for each task that is carried out at the same time. It says which skills it has, is given one task
/// after the other on standard input, and answers on standard output, all as lines of JSON; docs/workers.md tells the whole. What
/// it writes to standard error is the step's log. Ends in good order on Ctrl-C: takes no more tasks, and lets those under way end.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost worker --skills-from examples/workers/words.sh
  milepost worker --skills-from 'node examples/workers/shots.mjs' --queue images --concurrency 4
  milepost worker --skills-from ./skills --server https://milepost.example.com")]
pub(crate) struct Worker {
    /// The program with the skills, as a shell runs it
    #[arg(long, value_name = "COMMAND")]
    skills_from: String,
    /// A queue to take tasks from; may be repeated [default: default]
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,
    /// Tasks at once, each in a process of its own [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: Option<u16>,
    /// How long tasks under way may take when the worker is told to end, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    grace_ms: u64,
    /// How long the program may take to stop a task that is cancelled, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    cancel_grace_ms: u64,
}

impl Worker {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let server = match context.target(Otherwise::Server).await? {
            Target::Server(server) => server,
            Target::Database(database) => return Err(no_server(&database.to_string()).into()),
        };
        let program = Program::start(&self.skills_from, Duration::from_millis(self.cancel_grace_ms)).await;
        let program = Arc::new(program.map_err(|error| bad_program(&self.skills_from, &error))?);
        let worker = self.worker(&server, &program)?;
        self.announce(&context, &server, &worker, program.skills());
        let worked = worker.run().await;
        program.stop().await;
        worked.map_err(|error| client::refusal(&server, error))?;
        Ok(ExitCode::SUCCESS)
    }

    fn worker(&self, server: &Server, program: &Arc<Program>) -> anyhow::Result<sdk::Worker> {
        let mut builder = sdk::Worker::builder(&server.url)
            .concurrency(self.concurrency())
            .grace(Duration::from_millis(self.grace_ms))
            .cancel_grace(program.patience());
        if let Some(token) = &server.token {
            builder = builder.token(token);
        }
        for queue in &self.queues {
            builder = builder.queue(queue);
        }
        for skill in program.skills() {
            let program = program.clone();
            // The input is in the task, which the program is given as it came.
            builder = builder.skill(skill, move |context: sdk::Context, _: Box<RawValue>| {
                let program = program.clone();
                async move { program.carry_out(context).await }
            });
        }
        builder.build().map_err(|_| no_skills(&self.skills_from).into())
    }

    fn concurrency(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.concurrency.map_or_else(cores, usize::from)
    }

    fn announce(&self, context: &Context, server: &Server, worker: &sdk::Worker, skills: &[String]) {
        let (url, id, concurrency) = (&server.url, worker.id(), self.concurrency());
        let queues = if self.queues.is_empty() { vec!["default".to_owned()] } else { self.queues.clone() };
        if context.is_json() {
            let ready = json!({
                "worker_id": id, "server": url, "queues": queues, "skills": skills, "concurrency": concurrency,
            });
            return crate::print_json(&ready.to_string());
        }
        crate::say(&format!("worker {id} for {url}, queue {}, {concurrency} at once", queues.join(", ")));
        crate::print_line(&format!("working with {}", skills.join(", ")));
    }
}

fn no_server(database: &str) -> Refusal {
    Refusal::no_server(format!(
        "a worker works for a server, and there is none with {database} open; start one with `milepost dev`, or name one with --server"
    ))
}

fn bad_program(command: &str, error: &anyhow::Error) -> Refusal {
    Refusal::new(
        "bad_program",
        format!("`{command}` does not work: {error:#}; docs/workers.md tells what it has to say"),
    )
}

fn no_skills(command: &str) -> Refusal {
    Refusal::new("no_skills", format!("`{command}` says that it has no skills; it has to name at least one"))
}
