//! `milepost run`: runs a document or a workflow to its end, here or on a server.

use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::time::Timestamp;

use super::{follow, read_json, source};
use crate::backend::{Access, Backend, Begun, NewRun, NewSignal, RunSettings};
use crate::context::{Context, LimitFlags};
use crate::output::print_json;
use crate::progress::{Interrupt, Outline};
use crate::target::Otherwise;

/// Run a document, or a workflow that was deployed, and wait for its end.
///
/// On the server if there is one (`--server`, or one that has this folder's database open), else here, on an engine in
/// this process. A file may hold several YAML documents: the first is run, the others are deployed by name, so that
/// `workflow` steps find them. Ctrl-C cancels the run; a second one leaves at once.
///
/// Progress goes to standard error: a tree on a terminal, plain lines elsewhere. The outcome goes to standard output;
/// with `-o json` that is one JSON object, the run, and there is no progress unless `--watch` asks for it.
///
/// Exit status: 0 the run completed; 1 it failed, was cancelled or terminated, or was left; 2 it was not started; 3 no
/// server answered.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost run flow.yaml
  milepost run flow.yaml --payload '{\"topic\": \"tea\"}' -o json
  milepost run flow.yaml --payload @payload.json --signal 'approved={\"by\": \"Ada\"}'
  milepost run campaign.build --server http://127.0.0.1:7400 --detach
  generate-flow | milepost run - --db /tmp/try.db")]
pub(crate) struct Run {
    /// A YAML or JSON document (`-` is standard input), or what was deployed: a name, or sha256:…
    #[arg(value_name = "FILE|REF")]
    subject: String,
    /// The run's payload: JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE", default_value = "{}", hide_default_value = true)]
    payload: String,
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
    /// Send a signal right after the start; may be repeated
    #[arg(long = "signal", value_name = "NAME[=JSON]")]
    signals: Vec<SignalFlag>,
    /// Let `http` steps call loopback and private addresses; a server has its own setting
    #[arg(long)]
    allow_private_http: bool,
    /// Steps carried out at once; a server has its own setting
    #[arg(long, default_value_t = 64, value_name = "N")]
    concurrency: usize,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Clone, Debug)]
struct SignalFlag {
    name: String,
    payload: String,
}

impl FromStr for SignalFlag {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<SignalFlag, Self::Err> {
        let (name, payload) = text.split_once('=').unwrap_or((text, "{}"));
        Ok(SignalFlag { name: name.to_owned(), payload: payload.to_owned() })
    }
}

fn parse_time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|error| format!("{error}; write it as in 2030-01-31T10:00:00Z"))
}

impl Run {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let limits = context.limits(&self.limits)?;
        // All that can be refused is refused before anybody is asked.
        let (new, signals) = (self.new_run(&limits)?, self.signals()?);
        let otherwise = if source::is_file(&self.subject) { Otherwise::Embedded } else { Otherwise::Server };
        let target = context.target(otherwise).await?;
        let backend = Backend::open(target, self.access(limits, &context)).await?;
        let begun = match begin(&backend, new, signals).await {
            Ok(begun) => begun,
            Err(error) => {
                backend.close().await;
                return Err(error);
            }
        };
        if self.detach {
            return leave(backend, &context, &begun).await;
        }
        if begun.existing && !context.is_json() {
            crate::say(&format!("run {} is there already, with the same request id", begun.said.value.run_id));
        }
        let outline = self.outline(&backend, &context, &begun).await?;
        follow::follow(backend, &context, begun.said.value.run_id, outline, Interrupt::Cancels).await
    }

    fn shows_progress(&self, context: &Context) -> bool {
        !context.is_json() || self.watch
    }

    fn access(&self, limits: Limits, context: &Context) -> Access {
        match self.detach {
            true => Access::Make(limits),
            false => Access::Run(RunSettings {
                limits,
                concurrency: self.concurrency,
                private_addresses: self.allow_private_http,
                logs: self.shows_progress(context),
            }),
        }
    }

    async fn outline(&self, backend: &Backend, context: &Context, begun: &Begun) -> anyhow::Result<Option<Outline>> {
        match &begun.outline {
            _ if !self.shows_progress(context) => Ok(None),
            Some(outline) => Ok(Some(outline.clone())),
            None => Ok(Some(backend.outline(begun.said.value.run_id).await?)),
        }
    }

    fn new_run(&self, limits: &Limits) -> anyhow::Result<NewRun> {
        Ok(NewRun {
            subject: source::subject(&self.subject, limits)?,
            payload: read_json("the payload", &self.payload)?,
            request_id: self.request_id.clone(),
            priority: self.priority,
            start_at: self.start_at,
        })
    }

    fn signals(&self) -> anyhow::Result<Vec<NewSignal>> {
        let read = |flag: &SignalFlag| {
            let payload: Json = read_json(&format!("the payload of the signal {}", flag.name), &flag.payload)?;
            Ok(NewSignal::new(&flag.name, payload))
        };
        self.signals.iter().map(read).collect()
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
