//! `milepost secrets set`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use milepost_engine::secrets::cut_line_break;

use crate::backend::{Backend, NewSecret};
use crate::commands::read_text;
use crate::context::Context;
use crate::output::error::Refusal;
use crate::output::print_json;

/// Keep a value under a name.
///
/// The value comes from a file or from standard input, never from the command line, which others on the machine can see. One
/// line break at its end is cut. A new value is a new version; those before stay, and `secret://NAME@2` means one of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets set audio/api-key < key.txt
  milepost secrets set audio/api-key --value-file key.txt --queue audio --workflow campaign.build
  pass show api-key | milepost secrets set audio/api-key")]
pub(super) struct Set {
    /// Its name: letters, digits, `_`, `-`, `.`, and `/` between parts
    name: String,
    /// The file with the value; `-` is standard input
    #[arg(long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    value_file: String,
    /// Only tasks of this queue may have it, `inline` for steps that a server carries out; may be repeated
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Only runs of this workflow may have it; may be repeated
    #[arg(long = "workflow", value_name = "NAME")]
    workflows: Vec<String>,
    /// Anybody may have it; without this and the two before, it is as it was
    #[arg(long, conflicts_with_all = ["queues", "workflows"])]
    unrestricted: bool,
}

impl Set {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let only = |names: Vec<String>| (self.unrestricted || !names.is_empty()).then_some(names);
        let new = NewSecret {
            value: read_value(&self.value_file)?,
            name: self.name,
            queues: only(self.queues),
            workflows: only(self.workflows),
        };
        let set = backend.set_secret(&new).await?;
        match context.is_json() {
            true => print_json(&set)?,
            false => crate::print_line(&format!("{} has version {}", set.value.name, set.value.version)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read_value(path: &str) -> anyhow::Result<String> {
    if path == "-" && std::io::stdin().is_terminal() {
        crate::say("the value (it is not shown):");
        let typed = console::Term::stderr().read_secure_line();
        return typed.map_err(|error| Refusal::new("unreadable_file", format!("nothing was read: {error}")).into());
    }
    Ok(cut_line_break(&read_text(path)?).to_owned())
}
