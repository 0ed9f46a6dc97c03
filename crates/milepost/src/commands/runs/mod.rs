//! `milepost runs`: what there is of runs, and words to them.

mod artifacts;
mod bulk;
mod events;
mod explain;
mod filter;
mod list;
mod logs;
mod patch;
mod show;
mod signal;
mod watch;
mod which;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::context::Context;
pub(super) use which::resolve;

/// List runs, show one, follow one, send signals.
///
/// RUN is a run's id, the beginning of it if that is unique, or `last`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs list --status failed
  milepost runs show last
  milepost runs watch last
  milepost runs signal last approved --payload '{\"by\": \"Ada\"}'")]
pub(crate) struct Runs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Events(events::Events),
    Logs(logs::ShowLogs),
    Explain(explain::Explain),
    Artifacts(artifacts::ShowArtifacts),
    /// Send a signal: the one a `wait` step waits for, or any other
    #[command(after_help = "Examples:
  milepost runs signal last approved
  milepost runs signal 0198 approved --payload '{\"by\": \"Ada\"}'
  milepost runs signal last approved --payload @answer.json --step sign_off")]
    Signal(signal::Named),
    /// Start no more steps of a run, or of all that a filter finds; steps under way end
    #[command(after_help = "Examples:
  milepost runs pause last
  milepost runs pause --status running --workflow campaign.build --dry-run")]
    Pause(bulk::OneOrMany),
    /// Go on with a paused run, or with all that a filter finds
    #[command(after_help = "Examples:
  milepost runs resume last
  milepost runs resume --status paused --yes")]
    Resume(bulk::OneOrMany),
    /// End a run, or all that a filter finds, in good order: steps under way are stopped
    #[command(after_help = "Examples:
  milepost runs cancel last
  milepost runs cancel --status running --workflow campaign.build --since 2h")]
    Cancel(bulk::OneOrMany),
    /// End a run, or all that a filter finds, at once
    #[command(after_help = "Examples:
  milepost runs terminate last --payload '{\"reason\": \"it hangs\"}'
  milepost runs terminate --status running --until 7d --yes")]
    Terminate(bulk::OneOrMany),
    /// Let a run start that waits for approval
    #[command(after_help = "Examples:\n  milepost runs approve last\n  milepost runs approve 0198c0de -o json")]
    Approve(signal::Plain),
    /// Refuse a run that waits for approval; it ends as cancelled
    #[command(
        after_help = "Examples:\n  milepost runs reject last\n  milepost runs reject last --payload '{\"reason\": \"too dear\"}'"
    )]
    Reject(signal::Plain),
    /// Try failed steps again: of a run, or of all that a filter finds; a failed run goes on
    #[command(after_help = "Examples:
  milepost runs retry last
  milepost runs retry last --step cut
  milepost runs retry --status failed --workflow campaign.build --since 1d --yes")]
    Retry(bulk::Retry),
    /// Skip a step, and what depends on it
    #[command(
        after_help = "Examples:\n  milepost runs skip last --step cut\n  milepost runs skip last --step 'shots[3]'"
    )]
    Skip(signal::OfStep),
    Patch(patch::Patch),
}

impl Runs {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::List(list) => list.run(context).await,
            Verb::Show(show) => show.run(context).await,
            Verb::Watch(watch) => watch.run(context).await,
            Verb::Events(events) => events.run(context).await,
            Verb::Logs(logs) => logs.run(context).await,
            Verb::Explain(explain) => explain.run(context).await,
            Verb::Artifacts(artifacts) => artifacts.run(context).await,
            Verb::Signal(named) => named.run(context).await,
            Verb::Pause(which) => which.run(bulk::Action::Pause, context).await,
            Verb::Resume(which) => which.run(bulk::Action::Resume, context).await,
            Verb::Cancel(which) => which.run(bulk::Action::Cancel, context).await,
            Verb::Terminate(which) => which.run(bulk::Action::Terminate, context).await,
            Verb::Approve(plain) => plain.run("APPROVE", context).await,
            Verb::Reject(plain) => plain.run("REJECT", context).await,
            Verb::Retry(retry) => retry.run(context).await,
            Verb::Skip(of_step) => of_step.run("SKIP_STEP", context).await,
            Verb::Patch(patch) => patch.run(context).await,
        }
    }
}
