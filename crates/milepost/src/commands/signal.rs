//! `milepost runs signal` and its short forms: a word to a run, through the database.
//!
//! What was sent is on disk when the command ends. A process that runs this database's runs goes on with it.

use std::process::ExitCode;

use clap::Args;
use milepost_core::id::RunId;
use milepost_core::run::Signal;
use milepost_engine::{Config, Engine};
use serde_json::json;

use super::read_json;
use super::runs::resolve;
use crate::context::Context;
use crate::output::{print_json, table};

/// A signal without parameters of its own.
#[derive(Debug, Args)]
pub(crate) struct Plain {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// What goes with it, such as {"reason": "…"}: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    payload: String,
}

/// A signal about one step.
#[derive(Debug, Args)]
pub(crate) struct OfStep {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// The step, or one item of it, such as `shots[3]`
    #[arg(long, value_name = "ID")]
    step: String,
    /// What goes with it: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    payload: String,
}

/// A signal by its name.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// The signal's name: the one a `wait` step waits for, or PAUSE, RESUME, CANCEL, …
    name: String,
    /// What goes with it: JSON, or @FILE; the output of the step that waits
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    payload: String,
    /// Only for this step
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// The signal's own id; the same id again is the same signal
    #[arg(long, value_name = "UUID")]
    signal_id: Option<uuid::Uuid>,
}

impl Plain {
    pub(super) async fn send(self, name: &str, context: Context) -> anyhow::Result<ExitCode> {
        let named = Named { run: self.run, name: name.to_owned(), payload: self.payload, step: None, signal_id: None };
        named.send(context).await
    }
}

impl OfStep {
    pub(super) async fn send(self, name: &str, context: Context) -> anyhow::Result<ExitCode> {
        let (run, name, step) = (self.run, name.to_owned(), Some(self.step));
        Named { run, name, payload: self.payload, step, signal_id: None }.send(context).await
    }
}

impl Named {
    pub(super) async fn send(self, context: Context) -> anyhow::Result<ExitCode> {
        let payload = read_json("the payload", &self.payload)?;
        let store = context.database.open_existing().await?;
        let run = resolve(&store, &self.run).await?;
        let mut signal = Signal { payload, step: self.step, ..Engine::new_signal(&self.name) };
        if let Some(id) = self.signal_id {
            signal.id = milepost_core::id::SignalId(id);
        }
        let config = super::run::config(&context.database, context.default_limits().clone(), false, None);
        let engine = Engine::open_with(store, Config { takes_steps: false, ..config }).await?;
        let sent = engine.signal(run, signal).await;
        engine.shutdown().await;
        tell(&context, run, &self.name, sent?)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn tell(context: &Context, run: RunId, name: &str, accepted: milepost_engine::Accepted) -> anyhow::Result<()> {
    if context.is_json() {
        return print_json(&json!({ "accepted": true, "run_id": run, "status": accepted.status }));
    }
    crate::print_line(&format!("{name} is accepted; run {run} is {}", table::run_status(accepted.status)));
    if !accepted.status.is_terminal() {
        let flag = context.database.as_flag();
        crate::say(&format!(
            "the process that has the run goes on with it; where there is none, `milepost recover{flag}` does"
        ));
    }
    Ok(())
}
