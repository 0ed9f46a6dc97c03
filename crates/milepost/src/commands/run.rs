//! `milepost run`: runs a document or a workflow to its end, here or on a server.

use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;

use super::again::RebuildFlag;
use super::start::StartFlags;
use super::{read_json, source};
use crate::backend::{Backend, NewRun, NewSignal};
use crate::context::Context;
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
    /// Send a signal right after the start; may be repeated
    #[arg(long = "signal", value_name = "NAME[=JSON]")]
    signals: Vec<SignalFlag>,
    #[command(flatten)]
    again: RebuildFlag,
    #[command(flatten)]
    start: StartFlags,
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

impl Run {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        // All that can be refused is refused before anybody is asked.
        let subject = source::subject(&self.subject, &self.start.limits(&context)?)?;
        let new = self.start.new_run(subject, read_json("the payload", &self.payload)?);
        let new = NewRun { rebuild: self.again.read(), ..new };
        let signals = self.signals()?;
        let otherwise = if source::is_file(&self.subject) { Otherwise::Embedded } else { Otherwise::Server };
        let backend = Backend::open(context.target(otherwise).await?, self.start.access(&context)?).await?;
        self.start.carry_out(backend, &context, new, signals).await
    }

    fn signals(&self) -> anyhow::Result<Vec<NewSignal>> {
        let read = |flag: &SignalFlag| {
            let payload = read_json(&format!("the payload of the signal {}", flag.name), &flag.payload)?;
            Ok(NewSignal::new(&flag.name, payload))
        };
        self.signals.iter().map(read).collect()
    }
}
