//! A run leaves files: with the outcome of a step, with a result that was there, or on their own.
//!
//! **Invariant:** of a kind and a step of a training a run has one artifact. The same again is the same; another is refused.

use std::collections::BTreeMap;

use super::state::RunState;
use super::step::stale;
use super::{Command, Decider, Rejection, RejectionKind, TaskRef};
use crate::artifact::{Artifact, Beyond, BlobRef};
use crate::event::{Body, ErrorInfo, Event, StepRef};
use crate::id::{ArtifactId, SignalId};

/// An artifact that is recorded on its own.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordArtifact {
    pub artifact: Artifact,
    /// The step that it belongs to.
    pub step: Option<String>,
    /// The same request again changes nothing.
    pub request: Option<SignalId>,
}

impl Decider<'_> {
    /// Records an artifact, whatever state the run is in: what is made of a run is often made after its end.
    pub(super) fn record(&mut self, record: RecordArtifact) -> Result<(), Rejection> {
        let RecordArtifact { artifact, step, request } = record;
        if request.map(|request| self.has_seen(request)).transpose()?.unwrap_or(false) {
            return Ok(());
        }
        let step = step.map(|name| self.state.find_step(&name)).transpose()?;
        if self.state.has_artifact(&artifact)? {
            return Ok(());
        }
        let (logical, engine) = step
            .and_then(|step| self.state.step(step))
            .map_or((0, 0), |state| (state.logical_attempt, state.engine_attempt));
        self.signal = request;
        self.emit(step, logical, engine, None, Body::ArtifactRecorded(Box::new(artifact)));
        self.signal = None;
        Ok(())
    }

    /// `Complete`, `Report` or `ChildEnded` of what leaves files.
    pub(super) fn complete_leaving(&mut self, outcome: Command, beyond: Beyond) -> Result<(), Rejection> {
        if let Command::ChildEnded { child, outcome } = outcome {
            self.beyond = Some(beyond);
            return self.child_ended(child, outcome);
        }
        let (task, reported) = match &outcome {
            Command::Complete { task, .. } => (*task, false),
            Command::Report { task, .. } => (*task, true),
            _ => return Err(stale("only an outcome leaves files")),
        };
        match self.state.new_artifacts(beyond.artifacts) {
            Ok((artifacts, recorded)) => self.beyond = Some(Beyond { artifacts, recorded, ..beyond }),
            // A worker is told and may report again; one that ended in this process has nobody to tell.
            Err(rejection) if reported && self.state.has_task(task) => return Err(rejection),
            Err(rejection) if !reported => return self.fail_leaving(task, rejection),
            Err(_) => {}
        }
        match outcome {
            Command::Complete { task, output } => self.complete(task, output),
            Command::Report { task, nonce, outcome } => self.report(task, nonce, outcome),
            _ => Ok(()),
        }
    }

    fn fail_leaving(&mut self, task: TaskRef, rejection: Rejection) -> Result<(), Rejection> {
        self.fail(task, ErrorInfo::fatal(rejection.code, rejection.message))
    }

    /// What a result that was there leaves to this run. `None`: it does not fit what the run has already.
    pub(super) fn inherited(&self, beyond: &Beyond) -> Option<Beyond> {
        let (mut artifacts, recorded) = self.state.new_artifacts(beyond.artifacts.clone()).ok()?;
        for artifact in &mut artifacts {
            artifact.id = ArtifactId(self.context.draw_run_id().0);
        }
        Some(Beyond { artifacts, recorded, ..beyond.clone() })
    }
}

impl Decider<'_> {
    /// How many bytes an output may have: one that is in the blob store already is not kept in the log.
    pub(super) fn most_output(&self) -> usize {
        let elsewhere = self.beyond.as_ref().is_some_and(|beyond| beyond.output_blob.is_some());
        let limits = self.context.limits;
        if elsewhere { limits.large_output_bytes.max(limits.output_bytes) } else { limits.output_bytes }
    }
}

impl RunState {
    /// Those that are not recorded yet, and those that are.
    fn new_artifacts(&self, artifacts: Vec<Artifact>) -> Result<(Vec<Artifact>, Vec<Artifact>), Rejection> {
        let mut new: Vec<Artifact> = Vec::with_capacity(artifacts.len());
        let mut recorded = Vec::new();
        let mut numbered: BTreeMap<(&str, i64), [u8; 16]> = BTreeMap::new();
        for artifact in &artifacts {
            let before =
                artifact.training_step.and_then(|step| numbered.insert((&artifact.kind, step), artifact.identity()));
            match before {
                Some(before) if before != artifact.identity() => return Err(exists(artifact)),
                Some(_) => {}
                None if self.has_artifact(artifact)? => recorded.push(artifact.clone()),
                None => new.push(artifact.clone()),
            }
        }
        Ok((new, recorded))
    }

    /// Whether the very artifact is recorded already.
    fn has_artifact(&self, artifact: &Artifact) -> Result<bool, Rejection> {
        let Some(step) = artifact.training_step else { return Ok(false) };
        match self.numbered.get(&(artifact.kind.clone(), step)) {
            None => Ok(false),
            Some(identity) if *identity == artifact.identity() => Ok(true),
            Some(_) => Err(exists(artifact)),
        }
    }

    pub(super) fn artifacts_recorded(&mut self, artifacts: &[Artifact]) {
        for artifact in artifacts {
            if let Some(step) = artifact.training_step {
                self.numbered.insert((artifact.kind.clone(), step), artifact.identity());
            }
        }
    }
}

fn exists(artifact: &Artifact) -> Rejection {
    let (kind, step) = (&artifact.kind, artifact.training_step.unwrap_or_default());
    let message = format!("the run has another {kind} of training step {step}; record this one under another step");
    Rejection::new(RejectionKind::Conflict, "artifact_exists", message)
}

impl Event {
    /// Where the output that it carries is, if that is too large for the log.
    #[must_use]
    pub fn output_blob(&self) -> Option<BlobRef> {
        match &self.body {
            Body::StepCompleted { beyond, .. } => beyond.as_ref()?.output_blob,
            Body::StepReused(reused) => reused.beyond.as_ref()?.output_blob,
            _ => None,
        }
    }

    /// The artifacts that it records, and the step that they belong to.
    #[must_use]
    pub fn artifacts(&self) -> (&[Artifact], Option<StepRef>) {
        let artifacts = match &self.body {
            Body::ArtifactRecorded(artifact) => std::slice::from_ref(&**artifact),
            Body::StepCompleted { beyond: Some(beyond), .. } => &beyond.artifacts,
            Body::StepReused(reused) => reused.beyond.as_ref().map_or(&[][..], |beyond| &beyond.artifacts),
            _ => &[],
        };
        (artifacts, self.step)
    }
}
