//! Rows of the artifacts that events record, and outputs of child runs that are too large for a log.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::event::Event;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::run::{ChildOutcome, Command};
use milepost_store::rows::{ArtifactPosition, ArtifactRow};

use super::Committer;
use crate::executor::leaving;

/// When the blob store could not be reached, it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What is to be done with a command that follows from another run.
pub(super) enum Following {
    Decide(Command),
    /// This output has to be stored first.
    Store(Json),
}

impl Committer {
    /// The output of a child run that is too large for its parent's log is stored before the parent is told.
    pub(super) fn with_large_output(&self, org: OrgId, command: Command) -> Following {
        let artifacts = &self.parts.artifacts;
        match &command {
            Command::ChildEnded { outcome: ChildOutcome::Completed { output }, .. } if artifacts.is_large(output) => {
                match artifacts.kept_output(org, output) {
                    None => Following::Store(output.clone()),
                    kept => Following::Decide(leaving(command, Vec::new(), kept)),
                }
            }
            _ => Following::Decide(command),
        }
    }

    /// Takes a run out of the gathering batch, with those that stand or fall with it, until an output is stored; then all that
    /// was asked of them is decided again. Nobody else waits: the batch's transaction may be open.
    pub(super) fn store_first(&mut self, org: OrgId, run: RunId, output: Json) {
        let requests = self.hold_back(run);
        let (artifacts, inbox) = (self.parts.artifacts.clone(), self.parts.inbox.clone());
        tokio::spawn(async move {
            while let Err(error) = artifacts.keep_output(org, &output).await {
                tracing::warn!(%run, %error, "the output of a run cannot be stored now; its parent waits");
                tokio::time::sleep(RETRY).await;
            }
            for request in requests {
                inbox.report(request).await;
            }
        });
    }
}

pub(crate) fn rows(events: &[Event], run: RunId, plan: &Plan) -> Vec<ArtifactRow> {
    events.iter().flat_map(|event| rows_of(event, run, plan)).collect()
}

fn rows_of(event: &Event, run: RunId, plan: &Plan) -> Vec<ArtifactRow> {
    let (artifacts, step) = event.artifacts();
    if artifacts.is_empty() {
        return Vec::new();
    }
    let step_id: Option<Arc<str>> = step.map(|step| step.name(plan).into());
    let skill = step.map(|step| plan.step(step.step).skill.clone());
    let row = |(place, artifact): (u32, _)| ArtifactRow {
        run,
        position: ArtifactPosition { seq: event.seq, place },
        step_id: step_id.clone(),
        skill: skill.clone(),
        artifact: Clone::clone(artifact),
        created_at: event.at,
    };
    (0..).zip(artifacts).map(row).collect()
}
