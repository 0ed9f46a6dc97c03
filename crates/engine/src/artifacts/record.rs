//! An artifact is recorded on its own, by whoever has made something of a run.

use milepost_core::artifact::{Artifact, NewArtifact};
use milepost_core::id::{ArtifactId, RunId, SignalId};
use milepost_core::run::{Command, RecordArtifact, RejectionKind};
use milepost_store::rows::ArtifactRow;

use super::rejected;
use super::view::ArtifactView;
use crate::again::{Sent, SentAs};
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
        if let Some(id) = by_key
            && let Some(row) = self.store.artifacts().artifact(self.org, run, id).await?
        {
            return again(&row, &artifact.check(id, self.limits())?, step_id.as_deref());
        }
        let mut artifact = match (self.artifacts.admit(self.org, vec![artifact.clone()]).await, by_key) {
            (Ok(admitted), _) => admitted.into_iter().next().ok_or(EngineError::NoSuchRun(run))?,
            // Its content may have gone since it was recorded under this key, as its row has.
            (Err(error), Some(id)) => {
                return match self.artifact_on_record(run, id, step_id.as_deref()).await? {
                    Some(row) => again(&row, &artifact.check(id, self.limits())?, step_id.as_deref()),
                    None => Err(error),
                };
            }
            (Err(error), None) => return Err(error),
        };
        artifact.id = by_key.unwrap_or(artifact.id);
        let request = by_key.map(|id| SignalId(id.0));
        let command = RecordArtifact { artifact: artifact.clone(), step: step_id.clone(), request };
        let command = Command::Record(Box::new(command));
        let sent = self.send_if_new(run, command, SentAs::Artifact(artifact.id, step_id.as_deref())).await?;
        let existing = matches!(sent, Sent::Before);
        if existing {
            // Whoever recorded it may be on the way to the disk.
            self.inbox.caught_up().await;
            if by_key.is_some()
                && let Some(row) = self.artifact_on_record(run, artifact.id, step_id.as_deref()).await?
            {
                return again(&row, &artifact, step_id.as_deref());
            }
        }
        let row = match (existing, artifact.training_step) {
            (true, Some(step)) => self.store.artifacts().numbered(self.org, run, &artifact.kind, step).await?,
            _ => self.store.artifacts().artifact(self.org, run, artifact.id).await?,
        };
        match row {
            Some(row) => Ok(Recorded { artifact: ArtifactView::from(&row), existing }),
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
