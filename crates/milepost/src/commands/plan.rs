//! `milepost plan`: what a run would do.

use std::process::ExitCode;

use clap::Args;
use milepost_core::json::Json;

use super::again::RebuildFlag;
use super::change::ChangeFlags;
use super::{read_json, source};
use crate::backend::{Access, Backend, NewRun, Subject, Update};
use crate::context::{Context, LimitFlags};
use crate::output::error::Refusal;
use crate::output::{self, print_json};
use crate::target::{Otherwise, Target};
use crate::wire::Planned;

/// Tell what a run would do, and why; nothing is run and nothing is stored.
///
/// Of a document, of a deployed workflow, or of an earlier run with changes. Everything is checked as at a start. What is
/// reused is told by the results that are there now; times are those of the last time.
///
/// Signs: ● runs, ○ reused, ? known when other steps have ended, – skipped, ✗ will fail.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost plan flow.yaml --payload '{\"topic\": \"tea\"}'
  milepost plan campaign.build -o json
  milepost plan --base-run last --change 'audio.update={\"prompt\": \"harp\"}'")]
pub(crate) struct Plan {
    /// A YAML or JSON document (`-` is standard input), or what was deployed: a name, or sha256:…
    #[arg(value_name = "FILE|REF", conflicts_with = "base_run")]
    subject: Option<String>,
    /// The run's payload: JSON, or @FILE
    #[arg(
        long,
        value_name = "JSON|@FILE",
        default_value = "{}",
        hide_default_value = true,
        conflicts_with = "base_run"
    )]
    payload: String,
    /// Instead: this run once more, with changes
    #[arg(long, value_name = "RUN")]
    base_run: Option<String>,
    #[command(flatten)]
    change: ChangeFlags,
    #[command(flatten)]
    again: RebuildFlag,
    /// Show every step, also where many alike follow each other
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    limits: LimitFlags,
}

impl Plan {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let planned = match (&self.subject, &self.base_run) {
            (Some(_), _) if !self.change.is_empty() => {
                let message =
                    "--change and --workflow go with --base-run; leave them out, or name the run that changes";
                return Err(Refusal::new("no_base_run", message).into());
            }
            (Some(subject), _) => self.of_subject(subject, &context).await?,
            (None, Some(base)) => self.of_update(base, &context).await?,
            (None, None) => {
                let message =
                    "nothing is named that could be planned; name a file, a workflow, or a run with --base-run";
                return Err(Refusal::new("nothing_to_plan", message).into());
            }
        };
        match context.is_json() {
            true => print_json(&planned)?,
            false => output::plan::print(&planned.value, self.all),
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn of_subject(&self, text: &str, context: &Context) -> anyhow::Result<crate::wire::Said<Planned>> {
        let limits = context.limits(&self.limits)?;
        let subject = source::subject(text, &limits)?;
        let payload = read_json("the payload", &self.payload)?;
        let is_file = source::is_file(text);
        let target = context.target(if is_file { Otherwise::Embedded } else { Otherwise::Server }).await?;
        // A file needs no database; where there is one, it may have results.
        let access = match &target {
            Target::Database(database) if is_file && database.is_missing() => Access::Nothing(limits),
            _ => Access::Write(limits),
        };
        let backend = Backend::open(target, access).await?;
        let planned = backend.plan(self.new_run(subject, payload)).await;
        backend.close().await;
        planned
    }

    async fn of_update(&self, base: &str, context: &Context) -> anyhow::Result<crate::wire::Said<Planned>> {
        let (changes, limits) = (self.change.read()?, context.limits(&self.limits)?);
        let definition = self.change.newer(&limits)?;
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Write(limits)).await?;
        let planned = match super::runs::resolve(&backend, base).await {
            Ok(base) => {
                let update = Subject::Update(Update { base, changes, definition });
                backend.plan(self.new_run(update, Json::trusted("{}"))).await
            }
            Err(error) => Err(error),
        };
        backend.close().await;
        planned
    }

    fn new_run(&self, subject: Subject, payload: Json) -> NewRun {
        NewRun { subject, payload, request_id: None, priority: 0, start_at: None, rebuild: self.again.read() }
    }
}
