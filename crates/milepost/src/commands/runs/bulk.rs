//! Words to one run, or to all that a filter finds: `pause`, `resume`, `cancel`, `terminate`, `retry`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use milepost_core::id::RunId;
use milepost_core::status::StepStatus;
use serde_json::{Value, json};

use super::filter::FilterFlags;
use super::signal::{self, PayloadFlag};
use super::{resolve, signal::say_who_goes_on};
pub(super) use crate::backend::Action;
use crate::backend::{Backend, BulkOrder, NewSignal};
use crate::commands::read_json;
use crate::context::Context;
use crate::output::error::Refusal;
use crate::output::{print_json, table};
use crate::wire::{Bulk, Run, Said};

#[derive(Debug, Args)]
pub(super) struct OneOrMany {
    /// The run: its id, the beginning of it, or `last`. Instead of it, a filter
    run: Option<String>,
    #[command(flatten)]
    payload: PayloadFlag,
    #[command(flatten)]
    many: Many,
}

#[derive(Debug, Args)]
pub(super) struct Retry {
    /// The run: its id, the beginning of it, or `last`. Instead of it, a filter
    run: Option<String>,
    /// Only this step, or this item of one, such as `shots[3]`; without it every failed step
    #[arg(long, value_name = "ID", requires = "run")]
    step: Option<String>,
    #[command(flatten)]
    payload: PayloadFlag,
    #[command(flatten)]
    many: Many,
}

/// All runs that fit.
#[derive(Debug, Args)]
#[command(next_help_heading = "Many runs at once")]
struct Many {
    #[command(flatten)]
    filter: FilterFlags,
    /// At most so many runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: Option<u32>,
    /// Only count the runs that are meant
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// What is meant, once the flags are understood.
enum Meant {
    One(String),
    Many,
}

impl OneOrMany {
    pub(super) async fn run(self, action: Action, context: Context) -> anyhow::Result<ExitCode> {
        match self.many.meant(self.run.as_ref(), action)? {
            Meant::One(run) => signal::send(&run, self.payload.signal(action.signal())?, &context).await,
            Meant::Many => self.many.run(action, &self.payload, &context).await,
        }
    }
}

impl Retry {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        match (self.many.meant(self.run.as_ref(), Action::Retry)?, self.step) {
            (Meant::One(run), None) => retry_all(&run, &self.payload, &context).await,
            (Meant::One(run), step_id) => {
                let signal = NewSignal { step_id, ..self.payload.signal(Action::Retry.signal())? };
                signal::send(&run, signal, &context).await
            }
            (Meant::Many, _) => self.many.run(Action::Retry, &self.payload, &context).await,
        }
    }
}

/// Every failed step of one run, one signal each. Items of a `foreach` step are tried again with their step.
async fn retry_all(run: &str, payload: &PayloadFlag, context: &Context) -> anyhow::Result<ExitCode> {
    let signal = payload.signal(Action::Retry.signal())?;
    let backend = signal::open(context).await?;
    let run = resolve(&backend, run).await?;
    let steps = failed_steps(&backend.show(run).await?.value);
    let sent = retry_steps(&backend, run, &steps, &signal).await;
    if let (Ok(status), false) = (&sent, steps.is_empty()) {
        match context.is_json() {
            true => print_json(&json!({ "accepted": true, "run_id": run, "status": status, "steps": steps }))?,
            false => {
                let status = table::run_status(*status);
                crate::print_line(&format!(
                    "{} is accepted for {}; run {run} is {status}",
                    signal.name,
                    steps.join(", ")
                ));
                say_who_goes_on(&backend);
            }
        }
    }
    backend.close().await;
    sent.map(|_| ExitCode::SUCCESS)
}

fn failed_steps(run: &Run) -> Vec<String> {
    let failed = run.steps.iter().filter(|step| step.status == StepStatus::Failed && !step.step_id.ends_with(']'));
    failed.map(|step| step.step_id.clone()).collect()
}

async fn retry_steps(
    backend: &Backend,
    run: RunId,
    steps: &[String],
    signal: &NewSignal,
) -> anyhow::Result<milepost_core::status::RunStatus> {
    let mut status = None;
    for step in steps {
        let signal = NewSignal { step_id: Some(step.clone()), ..NewSignal::new(&signal.name, signal.payload.clone()) };
        status = Some(backend.signal(run, signal).await?.value.status);
    }
    status.ok_or_else(|| {
        let message = format!("run {run} has no failed step; `milepost runs show {run}` tells how its steps stand");
        Refusal::new("nothing_failed", message).into()
    })
}

impl Many {
    fn meant(&self, run: Option<&String>, action: Action) -> anyhow::Result<Meant> {
        let verb = action.verb();
        match (run, self.filter.is_empty()) {
            (Some(run), true) if !self.dry_run && self.limit.is_none() => Ok(Meant::One(run.clone())),
            (None, false) => Ok(Meant::Many),
            (Some(_), _) => Err(Refusal::new(
                "run_and_filter",
                "a run and a filter mean different things; give the run alone, or the filter without it",
            )
            .into()),
            (None, true) => Err(Refusal::new(
                "no_run",
                format!(
                    "no run is named; name one, as in `milepost runs {verb} last`, or say which, as in --status running"
                ),
            )
            .into()),
        }
    }

    async fn run(&self, action: Action, payload: &PayloadFlag, context: &Context) -> anyhow::Result<ExitCode> {
        let reason = reason(payload)?;
        if !self.dry_run && !self.yes && !std::io::stdin().is_terminal() {
            let message = "this may concern many runs, and nobody is there to be asked; count them with --dry-run, then say --yes";
            return Err(Refusal::new("needs_yes", message).into());
        }
        let backend = signal::open(context).await?;
        let filter = self.filter.read(&backend).await?;
        let order = BulkOrder { action, filter, dry_run: self.dry_run, limit: self.limit, reason };
        let done = self.ask_and_do(&backend, order).await;
        if let Ok(Some(bulk)) = &done {
            tell(&backend, context, action, bulk)?;
        }
        backend.close().await;
        Ok(if done?.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// `None`: the person said no.
    async fn ask_and_do(&self, backend: &Backend, order: BulkOrder) -> anyhow::Result<Option<Said<Bulk>>> {
        if !self.dry_run && !self.yes {
            let count = backend.bulk(&BulkOrder { dry_run: true, ..order.clone() }).await?;
            if count.value.matched > 0 && !confirmed(order.action, &count.value)? {
                return Ok(None);
            }
        }
        Ok(Some(backend.bulk(&order).await?))
    }
}

/// What goes with each signal. A filter's runs get the reason of the payload.
fn reason(payload: &PayloadFlag) -> anyhow::Result<Option<String>> {
    let payload = read_json("the payload", &payload.payload)?.to_value();
    match &payload {
        Value::Object(fields) if fields.keys().all(|key| key == "reason") => {
            Ok(fields.get("reason").and_then(Value::as_str).map(ToOwned::to_owned))
        }
        _ => {
            Err(Refusal::new("bad_payload", "with a filter the payload is {\"reason\": \"…\"}; leave out the rest")
                .into())
        }
    }
}

fn confirmed(action: Action, count: &Bulk) -> anyhow::Result<bool> {
    let more = if count.more { " and more" } else { "" };
    let mut err = std::io::stderr();
    let _ = write!(err, "{} {} runs{more}? [y/N] ", action.verb(), count.matched);
    let _ = err.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn tell(backend: &Backend, context: &Context, action: Action, bulk: &Said<Bulk>) -> anyhow::Result<()> {
    if context.is_json() {
        return print_json(bulk);
    }
    let (bulk, signal) = (&bulk.value, action.signal());
    let more = if bulk.more { "; there are more" } else { "" };
    if bulk.dry_run {
        crate::print_line(&format!("{} runs would get {signal}{more}", bulk.matched));
        return Ok(());
    }
    for refused in &bulk.rejected {
        crate::print_line(&format!("run {}: {}: {}", refused.run_id, refused.code, refused.message));
    }
    crate::print_line(&format!("{signal} is accepted by {} of {} runs{more}", bulk.accepted, bulk.matched));
    if bulk.accepted > 0 {
        say_who_goes_on(backend);
    }
    Ok(())
}
