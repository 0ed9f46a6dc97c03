//! Following a run to its end, for the verbs that wait for one.

use std::process::ExitCode;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::{self, print_json};
use crate::progress::{Ended, Follower, Interrupt, Outline};

/// Follows a run, with progress if there is an outline, and prints its outcome. Closes the backend. Answers the exit
/// status.
pub(super) async fn follow(
    backend: Backend,
    context: &Context,
    run: RunId,
    outline: Option<Outline>,
    interrupt: Interrupt,
) -> anyhow::Result<ExitCode> {
    let ended = Box::pin(Follower::new(&backend, run, outline, interrupt).follow()).await;
    let told = match &ended {
        Ok(Ended::Run) => tell_outcome(&backend, context, run).await,
        Ok(Ended::Left | Ended::LeftAtOnce) => {
            crate::say(&left(&backend, run, interrupt));
            Ok(ExitCode::FAILURE)
        }
        Err(_) => Ok(ExitCode::FAILURE),
    };
    match ended? {
        // What goes on here is dropped, as if the process had died.
        Ended::LeftAtOnce => drop(backend),
        Ended::Run | Ended::Left => backend.close().await,
    }
    told
}

async fn tell_outcome(backend: &Backend, context: &Context, run: RunId) -> anyhow::Result<ExitCode> {
    let view = backend.show(run).await?;
    match context.is_json() {
        true => print_json(&view)?,
        false => output::run::print_outcome(&view.value),
    }
    Ok(match view.value.summary.status {
        RunStatus::Completed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn left(backend: &Backend, run: RunId, interrupt: Interrupt) -> String {
    let flag = backend.as_flag();
    match (backend, interrupt) {
        (Backend::Local(_), Interrupt::Cancels) => {
            format!("left run {run} as it is; `milepost recover{flag}` goes on with it")
        }
        _ => format!("left run {run}, which goes on; `milepost runs watch {run}{flag}` follows it again"),
    }
}
