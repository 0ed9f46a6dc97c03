//! Files that a skill leaves. They are attached to the attempt's outcome if it succeeds.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use milepost_core::artifact::{Artifact, NewArtifact};
use milepost_core::id::OrgId;
use tokio::io::AsyncReadExt as _;

use super::{SkillContext, SkillError};
use crate::artifacts::Artifacts;
use crate::error::EngineError;

/// Read at once.
const PIECE: usize = 256 * 1024;

/// What an attempt leaves, and where its content goes.
#[derive(Clone)]
pub(crate) struct Files {
    pub(crate) org: OrgId,
    artifacts: Arc<Artifacts>,
    left: Arc<Mutex<Vec<Artifact>>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    pub(crate) fn new(org: OrgId, artifacts: Arc<Artifacts>) -> Files {
        Files { org, artifacts, left: Arc::default() }
    }

    pub(crate) fn take(&self) -> Vec<Artifact> {
        std::mem::take(&mut *self.left.lock().expect("no holder of this lock panics"))
    }

    /// Bytes that an output may have.
    pub(super) fn most_output(&self) -> usize {
        self.artifacts.most_output()
    }

    async fn attach(&self, new: NewArtifact) -> Result<Artifact, SkillError> {
        let admitted = self.artifacts.admit(self.org, vec![new]).await.map_err(said)?.pop();
        let artifact = admitted.ok_or_else(|| SkillError::fatal("bad_artifact", "there is nothing to attach"))?;
        self.left.lock().expect("no holder of this lock panics").push(artifact.clone());
        Ok(artifact)
    }
}

fn said(error: EngineError) -> SkillError {
    SkillError { code: error.code().to_owned(), retryable: error.is_passing(), message: error.to_string() }
}

impl SkillContext {
    /// Whether there is a place for files.
    #[must_use]
    pub fn takes_files(&self) -> bool {
        self.files.artifacts.has_place()
    }

    /// Attaches an artifact that is stored already: content by its hash, or a `uri` of somebody else's.
    ///
    /// # Errors
    /// It does not fit, or its content is not there.
    pub async fn attach(&self, artifact: NewArtifact) -> Result<Artifact, SkillError> {
        self.files.attach(artifact).await
    }

    /// Stores bytes and attaches them.
    ///
    /// # Errors
    /// They cannot be stored.
    pub async fn attach_bytes(
        &self,
        content: impl Into<Bytes> + Send,
        artifact: NewArtifact,
    ) -> Result<Artifact, SkillError> {
        let pieces = stream::iter([Ok::<Bytes, std::io::Error>(content.into())]);
        let stored = self.files.artifacts.upload(self.files.org, artifact.sha256, pieces).await.map_err(said)?;
        self.files.attach(NewArtifact { sha256: Some(stored.sha256), ..artifact }).await
    }

    /// Stores a file and attaches it, under the name that it has unless another is given.
    ///
    /// # Errors
    /// It cannot be read or stored.
    pub async fn attach_file(
        &self,
        path: impl AsRef<Path> + Send,
        artifact: NewArtifact,
    ) -> Result<Artifact, SkillError> {
        let path = path.as_ref();
        let unreadable = |error: std::io::Error| {
            SkillError::fatal("file_unreadable", format!("the file {} cannot be read: {error}", path.display()))
        };
        let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let pieces = stream::try_unfold(file, |mut file| async move {
            let mut piece = Vec::with_capacity(PIECE);
            let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
            Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
        });
        let stored = self.files.artifacts.upload(self.files.org, artifact.sha256, pieces).await.map_err(said)?;
        let name = || path.file_name().map(|name| name.to_string_lossy().into_owned());
        let filename = artifact.filename.clone().or_else(name);
        self.files.attach(NewArtifact { sha256: Some(stored.sha256), filename, ..artifact }).await
    }
}
