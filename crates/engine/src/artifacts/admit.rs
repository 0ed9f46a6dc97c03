//! What is reported is looked at before it goes into the log: it fits, and content of ours is there.

use milepost_core::artifact::{Artifact, Beyond, NewArtifact};
use milepost_core::cache::Cached;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId};
use milepost_core::json::Json;
use milepost_core::run::RejectionKind;
use milepost_core::time::Timestamp;
use uuid::Uuid;

use super::{Artifacts, rejected};
use crate::error::EngineError;
use crate::secrets::Redactor;

/// Content that was used longer ago is used again before somebody names it. Far less than the time of grace.
const FRESH_MS: u64 = 10 * 60 * 1000;

/// A result that was found, looked at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Whole(Cached),
    /// A file that it names is gone.
    Damaged,
}

impl Kept {
    pub(crate) fn whole(self) -> Option<Cached> {
        match self {
            Kept::Whole(cached) => Some(cached),
            Kept::Damaged => None,
        }
    }
}

/// An artifact as it came over the wire.
pub(crate) fn read(json: &Json) -> Result<NewArtifact, EngineError> {
    serde_json::from_str(json.as_str()).map_err(|error| {
        let message = format!("an artifact does not fit: {error}; see /docs for what it has");
        rejected(RejectionKind::Invalid, "bad_artifact", message)
    })
}

impl Artifacts {
    /// What is recorded of artifacts that are reported together.
    ///
    /// # Errors
    /// One of them does not fit, or its content is not there.
    pub(crate) async fn admit(&self, org: OrgId, new: Vec<NewArtifact>) -> Result<Vec<Artifact>, EngineError> {
        let mut artifacts = Vec::with_capacity(new.len());
        for new in new {
            artifacts.push(new.check(ArtifactId(Uuid::now_v7()), &self.limits)?);
        }
        self.check_size(&artifacts)?;
        self.check_content(org, &mut artifacts).await?;
        let now = self.clock.now();
        for artifact in &mut artifacts {
            artifact.expires_at = artifact.expires_at.or_else(|| self.expires_at(&artifact.kind, now));
        }
        Ok(artifacts)
    }

    /// The same of artifacts as they came over the wire.
    pub(crate) async fn admit_json(
        &self,
        org: OrgId,
        new: &[Json],
        redactor: Option<&Redactor>,
    ) -> Result<Vec<Artifact>, EngineError> {
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let clean = |json: &Json| match redactor.and_then(|redactor| redactor.json(json.as_str())) {
            Some(redacted) => read(&Json::trusted(redacted)),
            None => read(json),
        };
        let new = new.iter().map(clean).collect::<Result<_, _>>()?;
        self.admit(org, new).await
    }

    /// References go into the log, and there is no more room for them than for an output.
    fn check_size(&self, artifacts: &[Artifact]) -> Result<(), EngineError> {
        let size: usize = artifacts.iter().map(|artifact| 200 + artifact.uri.len() + artifact.metadata.len()).sum();
        let most = self.limits.output_bytes;
        if size <= most {
            return Ok(());
        }
        let message =
            format!("{} artifacts at once have more than {most} bytes; record some on their own", artifacts.len());
        Err(rejected(RejectionKind::Invalid, "too_many_artifacts", message))
    }

    /// Content of ours must be there, as large as it is said to be.
    async fn check_content(&self, org: OrgId, artifacts: &mut [Artifact]) -> Result<(), EngineError> {
        let mut hashes: Vec<Digest> = artifacts.iter().filter_map(Artifact::blob).collect();
        if hashes.is_empty() {
            return Ok(());
        }
        hashes.sort_unstable();
        hashes.dedup();
        let now = self.clock.now();
        let mut rows = self.store.artifacts().contents(org, &hashes).await?;
        let is_old = |used_at: Timestamp| now.ms_since(used_at) > FRESH_MS;
        if rows.iter().any(|row| is_old(row.used_at)) {
            rows = self.store.artifacts().touch_contents(org, &hashes, now).await?;
        }
        let there = self.with_content(rows).await?;
        for artifact in artifacts {
            let Some(hash) = artifact.blob() else { continue };
            let size = there.get(&hash).map(|row| row.size_bytes);
            let message = match (size, artifact.size_bytes) {
                (None, _) => format!("there is no file sha256:{hash}; upload it (PUT /api/v1/blobs/sha256:{hash})"),
                (Some(size), Some(said)) if size != said => {
                    format!("the file sha256:{hash} has {size} bytes, not {said}; correct `size_bytes` or leave it out")
                }
                (Some(size), _) => {
                    artifact.size_bytes = Some(size);
                    continue;
                }
            };
            let message = format!("{message}, then report again");
            return Err(rejected(RejectionKind::Conflict, "artifact_missing", message));
        }
        Ok(())
    }

    /// Which of the results that were found have all their files: what made the others has to run again.
    pub(crate) async fn with_files(&self, org: OrgId, found: Vec<Option<Cached>>) -> Vec<Option<Kept>> {
        let files =
            |cached: &Option<Cached>| cached.as_ref().and_then(|cached| cached.beyond.as_ref()).map(|b| b.blobs());
        let mut hashes: Vec<Digest> = found.iter().filter_map(files).flatten().collect();
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.is_empty() {
            return found.into_iter().map(|cached| cached.map(Kept::Whole)).collect();
        }
        let there = match self.store.artifacts().contents(org, &hashes).await {
            Ok(rows) => self.with_content(rows).await.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "whether files of results are there cannot be found out; their steps run");
                Default::default()
            }
        };
        let now = self.clock.now();
        let whole = |cached: Cached| match cached.beyond {
            Some(beyond) if !beyond.blobs().iter().all(|hash| there.contains_key(hash)) => None,
            Some(beyond) => {
                self.renewed(*beyond, now).map(|beyond| Cached { beyond: Some(Box::new(beyond)), ..cached })
            }
            None => Some(cached),
        };
        let looked_at = |cached: Cached| whole(cached).map_or(Kept::Damaged, Kept::Whole);
        found.into_iter().map(|cached| cached.map(looked_at)).collect()
    }

    /// What a result leaves to the run that takes it is kept from now on. `None`: some of it has expired.
    fn renewed(&self, mut beyond: Beyond, now: Timestamp) -> Option<Beyond> {
        for artifact in &mut beyond.artifacts {
            artifact.expires_at = self.expires_at(&artifact.kind, now).or(artifact.expires_at);
        }
        let expired = beyond.artifacts.iter().any(|artifact| artifact.expires_at.is_some_and(|at| at <= now));
        (!expired).then_some(beyond)
    }
}
