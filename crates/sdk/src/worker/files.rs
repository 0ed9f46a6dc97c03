//! Files that a skill leaves. They go with the outcome of the attempt if it completes.

use std::path::Path;

use bytes::Bytes;

use super::{Context, SkillError};
use crate::client::Client;
use crate::error::Error;
use crate::wire::NewArtifact;

impl Context {
    /// Uploads a file piece by piece and attaches it, under its own name unless another is given. What the server has already is
    /// not sent.
    ///
    /// # Errors
    /// It cannot be read, or the server does not take it.
    pub async fn upload_file(&self, path: impl AsRef<Path>, artifact: NewArtifact) -> Result<NewArtifact, SkillError> {
        let path = path.as_ref();
        let stored = self.client()?.upload_file(path).await.map_err(failed)?;
        let name = || path.file_name().map(|name| name.to_string_lossy().into_owned());
        let filename = artifact.filename.clone().or_else(name);
        let (sha256, size_bytes) = (Some(stored.sha256), Some(stored.size_bytes));
        Ok(self.attach(NewArtifact { sha256, size_bytes, filename, ..artifact }))
    }

    /// Uploads bytes and attaches them.
    ///
    /// # Errors
    /// The server does not take them.
    pub async fn upload_bytes(
        &self,
        content: impl Into<Bytes>,
        artifact: NewArtifact,
    ) -> Result<NewArtifact, SkillError> {
        let stored = self.client()?.upload_bytes(content).await.map_err(failed)?;
        let (sha256, size_bytes) = (Some(stored.sha256), Some(stored.size_bytes));
        Ok(self.attach(NewArtifact { sha256, size_bytes, ..artifact }))
    }

    /// Attaches what is stored already: content by its hash, or a `uri` somewhere else.
    pub fn attach(&self, artifact: NewArtifact) -> NewArtifact {
        self.left().push(artifact.clone());
        artifact
    }

    /// Records an artifact at once, so that it stays if the attempt fails: for checkpoints. One that was attached is not
    /// recorded twice.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn record(&self, artifact: &NewArtifact) -> Result<(), SkillError> {
        self.client()?.record_artifact(self.run_id(), Some(self.step_id()), artifact).await.map_err(failed)?;
        self.left().retain(|attached| attached != artifact);
        Ok(())
    }

    /// Downloads content by its hash into a file, and compares. Answers how many bytes it has.
    ///
    /// # Errors
    /// There is none, or the file cannot be written.
    pub async fn download(&self, sha256: &str, to: impl AsRef<Path>) -> Result<u64, SkillError> {
        self.client()?.download_blob(sha256, to).await.map_err(failed)
    }

    fn client(&self) -> Result<&Client, SkillError> {
        self.server().ok_or_else(|| SkillError::fatal("no_server", "this attempt has no server for its files"))
    }
}

/// In the server's own words, where it refused.
fn failed(error: Error) -> SkillError {
    let code = error.code().unwrap_or("transfer_failed").to_owned();
    SkillError { code, retryable: error.may_pass(), message: error.to_string() }
}
