//! `milepost runs signal` and its short forms: a word to one run.
//!
//! What was sent is on disk when the command ends. Whoever runs the run goes on with it.

use std::process::ExitCode;

use clap::Args;
use milepost_core::id::SignalId;

use super::resolve;
use crate::backend::{Access, Backend, NewSignal};
use crate::commands::read_json;
use crate::context::Context;
use crate::output::{print_json, table};
use crate::target::Otherwise;
use crate::wire::{Accepted, Said};

/// A signal without parameters of its own.
#[derive(Debug, Args)]
pub(super) struct Plain {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    #[command(flatten)]
    payload: PayloadFlag,
}

/// A signal about one step.
#[derive(Debug, Args)]
pub(super) struct OfStep {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// The step, or one item of it, such as `shots[3]`
    #[arg(long, value_name = "ID")]
    step: String,
    #[command(flatten)]
    payload: PayloadFlag,
}

/// A signal by its name.
#[derive(Debug, Args)]
pub(super) struct Named {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// The signal's name: the one a `wait` step waits for, or PAUSE, RESUME, CANCEL, …
    name: String,
    /// Only for this step
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// The signal's own id; the same id again is the same signal
    #[arg(long, value_name = "UUID")]
    signal_id: Option<uuid::Uuid>,
    #[command(flatten)]
    payload: PayloadFlag,
}

#[derive(Debug, Args)]
pub(super) struct PayloadFlag {
    /// What goes with it, such as {"reason": "…"}: JSON, or @FILE; the output of a step that waits for it
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    pub(super) payload: String,
}

impl PayloadFlag {
    pub(super) fn signal(&self, name: &str) -> anyhow::Result<NewSignal> {
        Ok(NewSignal::new(name, read_json("the payload", &self.payload)?))
    }
}

impl Plain {
    pub(super) async fn run(self, name: &str, context: Context) -> anyhow::Result<ExitCode> {
        send(&self.run, self.payload.signal(name)?, &context).await
    }
}

impl OfStep {
    pub(super) async fn run(self, name: &str, context: Context) -> anyhow::Result<ExitCode> {
        let signal = NewSignal { step_id: Some(self.step), ..self.payload.signal(name)? };
        send(&self.run, signal, &context).await
    }
}

impl Named {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let mut signal = NewSignal { step_id: self.step, ..self.payload.signal(&self.name)? };
        if let Some(id) = self.signal_id {
            signal.signal_id = SignalId(id);
        }
        send(&self.run, signal, &context).await
    }
}

/// Sends one signal to one run, and tells what came of it.
pub(super) async fn send(run: &str, signal: NewSignal, context: &Context) -> anyhow::Result<ExitCode> {
    let backend = open(context).await?;
    let run = resolve(&backend, run).await?;
    let name = signal.name.clone();
    let sent = backend.signal(run, signal).await;
    if let Ok(accepted) = &sent {
        tell(&backend, context, &name, accepted)?;
    }
    backend.close().await;
    sent.map(|_| ExitCode::SUCCESS)
}

/// Where words to runs go.
pub(super) async fn open(context: &Context) -> anyhow::Result<Backend> {
    let target = context.target(Otherwise::Server).await?;
    Backend::open(target, Access::Write(context.default_limits().clone())).await
}

fn tell(backend: &Backend, context: &Context, name: &str, accepted: &Said<Accepted>) -> anyhow::Result<()> {
    if context.is_json() {
        return print_json(accepted);
    }
    let Accepted { run_id, status } = accepted.value;
    crate::print_line(&format!("{name} is accepted; run {run_id} is {}", table::run_status(status)));
    if !status.is_terminal() {
        say_who_goes_on(backend);
    }
    Ok(())
}

/// A database carries nothing out; a server does.
pub(super) fn say_who_goes_on(backend: &Backend) {
    if matches!(backend, Backend::Local(_)) {
        let flag = backend.as_flag();
        crate::say(&format!(
            "the process that has the run goes on with it; where there is none, `milepost recover{flag}` does"
        ));
    }
}
