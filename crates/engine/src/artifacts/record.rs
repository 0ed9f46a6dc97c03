//! An artifact is recorded on its own, by whoever has made something of a run.

use milepost_core::artifact::{Artifact, NewArtifact};
use milepost_core::id::{ArtifactId, RunId, SignalId};
use milepost_core::run::{Command, RecordArtifact, RejectionKind};
use milepost_store::rows::ArtifactRow;

use super::rejected;
use super::view::ArtifactView;
use crate::committer::RequestKind;
use crate::engine::Engine;
use crate::error::EngineError;

/// What is to be recorded.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    pub artifact: NewArtifact,
    pub step_id: Option<String>,
    /// The same key again is the same request.
    pub key: Option<String>,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub artifact: ArtifactView,
    /// It was there before.
    pub existing: bool,
}

impl Engine {
    /// Records an artifact of a run, open or ended. Returns when it is on disk. The same content of the same kind and step of
    /// a training is recorded once.
    ///
    /// # Errors
    /// There is no such run or step, it does not fit, or its content is not there.
    pub async fn record_artifact(&self, run: RunId, record: NewRecord) -> Result<Recorded, EngineError> {
        let NewRecord { artifact, step_id, key } = record;
        let by_key = key.map(|key| ArtifactId::of_request(run, &key));
        self.head(run).await?;
        let admitted = self.artifacts.admit(self.org, vec![artifact]).await?.pop();
        let Some(mut artifact) = admitted else { return Err(EngineError::NoSuchRun(run)) };
        if let Some(id) = by_key {
            if let Some(row) = self.store.artifacts().artifact(self.org, run, id).await? {
                return again(&row, &artifact, step_id.as_deref());
            }
            artifact.id = id;
        }
        let request = by_key.map(|id| SignalId(id.0));
        let command = RecordArtifact { artifact: artifact.clone(), step: step_id.clone(), request };
        let command = Command::Record(Box::new(command));
        let accepted = self.inbox.ask(RequestKind::Command { org: self.org, run, command }).await?;
        if accepted.existing {
            // Whoever recorded it may be on the way to the disk.
            self.inbox.caught_up().await;
        }
        let row = match (accepted.existing, artifact.training_step) {
            (true, Some(step)) => self.store.artifacts().numbered(self.org, run, &artifact.kind, step).await?,
            _ => self.store.artifacts().artifact(self.org, run, artifact.id).await?,
        };
        match row {
            Some(row) if accepted.existing && by_key == Some(row.artifact.id) => {
                again(&row, &artifact, step_id.as_deref())
            }
            Some(row) => Ok(Recorded { artifact: ArtifactView::from(&row), existing: accepted.existing }),
            None => {
                let message = "that artifact was recorded before and has expired; record it as another one";
                Err(rejected(RejectionKind::Conflict, "artifact_expired", message))
            }
        }
    }
}

/// A key that comes again must come with the same.
fn again(row: &ArtifactRow, artifact: &Artifact, step_id: Option<&str>) -> Result<Recorded, EngineError> {
    let same = row.artifact.identity() == artifact.identity()
        && (&row.artifact.kind, row.artifact.training_step) == (&artifact.kind, artifact.training_step)
        && row.step_id.as_deref() == step_id;
    if same {
        return Ok(Recorded { artifact: ArtifactView::from(row), existing: true });
    }
    let id = row.artifact.id;
    let message =
        format!("this Idempotency-Key recorded artifact {id}, which is another one; use a new key for a new one");
    Err(rejected(RejectionKind::Invalid, "idempotency_key_reused", message))
}
