//! Starting a run and waiting for it, the same for `run` and `rebuild`.

use std::process::ExitCode;

use clap::Args;
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::time::Timestamp;

use super::follow;
use crate::backend::{Access, Backend, Begun, NewRun, NewSignal, RunSettings, Subject};
use crate::context::{Context, LimitFlags};
use crate::output::print_json;
use crate::progress::{Interrupt, Outline};

#[derive(Debug, Args)]
pub(super) struct StartFlags {
    /// Show progress even with `-o json`
    #[arg(long)]
    watch: bool,
    /// Do not wait: print the run's id and leave the run to the server
    #[arg(long, conflicts_with = "watch")]
    detach: bool,
    /// The same id again gives the same run
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Higher goes first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N")]
    priority: i32,
    /// Start at this moment, such as 2030-01-31T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    start_at: Option<Timestamp>,
    /// Let `http` steps call loopback and private addresses; a server has its own setting
    #[arg(long)]
    allow_private_http: bool,
    /// Steps carried out at once; a server has its own setting
    #[arg(long, default_value_t = 64, value_name = "N")]
    concurrency: usize,
    #[command(flatten)]
    limits: LimitFlags,
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error| format!("{error}; write it as in 2030-01-31T10:00:00Z"))
}

impl StartFlags {
    pub(super) fn limits(&self, context: &Context) -> anyhow::Result<Limits> {
        context.limits(&self.limits)
    }

    pub(super) fn new_run(&self, subject: Subject, payload: Json) -> NewRun {
        let (request_id, priority, start_at) = (self.request_id.clone(), self.priority, self.start_at);
        NewRun { subject, payload, request_id, priority, start_at, rebuild: None }
    }

    /// What is needed of a database.
    pub(super) fn access(&self, context: &Context) -> anyhow::Result<Access> {
        let limits = self.limits(context)?;
        Ok(match self.detach {
            true => Access::Make(limits),
            false => Access::Run(RunSettings {
                limits,
                concurrency: self.concurrency,
                private_addresses: self.allow_private_http,
                logs: self.shows_progress(context),
            }),
        })
    }

    fn shows_progress(&self, context: &Context) -> bool {
        !context.is_json() || self.watch
    }

    /// Starts the run, sends it signals, and waits for its end unless it is to be left alone. Closes the backend.
    pub(super) async fn carry_out(
        &self,
        backend: Backend,
        context: &Context,
        new: NewRun,
        signals: Vec<NewSignal>,
    ) -> anyhow::Result<ExitCode> {
        let begun = match begin(&backend, new, signals).await {
            Ok(begun) => begun,
            Err(error) => {
                backend.close().await;
                return Err(error);
            }
        };
        if self.detach {
            return leave(backend, context, &begun).await;
        }
        if begun.existing && !context.is_json() {
            crate::say(&format!("run {} is there already, with the same request id", begun.said.value.run_id));
        }
        let outline = self.outline(&backend, context, &begun).await?;
        follow::follow(backend, context, begun.said.value.run_id, outline, Interrupt::Cancels).await
    }

    async fn outline(&self, backend: &Backend, context: &Context, begun: &Begun) -> anyhow::Result<Option<Outline>> {
        match &begun.outline {
            _ if !self.shows_progress(context) => Ok(None),
            Some(outline) => Ok(Some(outline.clone())),
            None => Ok(Some(backend.outline(begun.said.value.run_id).await?)),
        }
    }
}

async fn begin(backend: &Backend, new: NewRun, signals: Vec<NewSignal>) -> anyhow::Result<Begun> {
    let begun = backend.start(new).await?;
    for signal in signals {
        backend.signal(begun.said.value.run_id, signal).await?;
    }
    Ok(begun)
}

/// Prints the run's id and nothing else: what a script wants to have.
async fn leave(backend: Backend, context: &Context, begun: &Begun) -> anyhow::Result<ExitCode> {
    match context.is_json() {
        true => print_json(&begun.said)?,
        false => crate::print_line(&begun.said.value.run_id.to_string()),
    }
    if matches!(backend, Backend::Local(_)) && !context.is_json() {
        crate::say(&format!("no server runs it; `milepost recover{}` carries it out", backend.as_flag()));
    }
    backend.close().await;
    Ok(ExitCode::SUCCESS)
}
