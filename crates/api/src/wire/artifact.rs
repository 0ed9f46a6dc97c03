//! Files that runs leave.

use milepost_core::json::Json;
use milepost_engine::artifacts::{ArtifactView, Uploaded};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;

/// A file that a run left.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Artifact {
    artifact_id: Uuid,
    run_id: Uuid,
    /// The step that left it; none if it is of the run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
    /// `checkpoint`, `policy`, `replay`, `evaluation`, `log_bundle`, `custom`, `output`, or any other name.
    kind: String,
    /// `milepost://blobs/sha256/…` is content of this server.
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    /// A run has one artifact of a kind for each step of a training.
    #[serde(skip_serializing_if = "Option::is_none")]
    training_step: Option<i64>,
    #[schema(value_type = Any)]
    metadata: Json,
    #[schema(format = DateTime)]
    created_at: String,
    /// It is removed then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

impl From<ArtifactView> for Artifact {
    fn from(artifact: ArtifactView) -> Artifact {
        Artifact {
            artifact_id: artifact.artifact_id.0,
            run_id: artifact.run_id.0,
            step_id: artifact.step_id,
            skill: artifact.skill,
            kind: artifact.kind,
            uri: artifact.uri,
            sha256: artifact.sha256.map(|hash| hash.to_string()),
            size_bytes: artifact.size_bytes,
            media_type: artifact.media_type,
            filename: artifact.filename,
            training_step: artifact.training_step,
            metadata: artifact.metadata,
            created_at: artifact.created_at.to_string(),
            expires_at: artifact.expires_at.map(|at| at.to_string()),
        }
    }
}

/// A file to be recorded: content that was uploaded, by its `sha256`, or a `uri` somewhere else.
#[derive(Debug, ToSchema)]
#[schema(example = json!({"kind": "checkpoint", "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "filename": "model.bin", "training_step": 1000}))]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct NewArtifact {
    #[schema(default = "custom", min_length = 1, max_length = 255)]
    kind: Option<String>,
    /// Where the content is, if it is not here.
    #[schema(max_length = 2048)]
    uri: Option<String>,
    /// 64 hexadecimal digits.
    sha256: Option<String>,
    /// Compared with what was uploaded.
    #[schema(minimum = 0)]
    size_bytes: Option<u64>,
    #[schema(min_length = 1, max_length = 255)]
    media_type: Option<String>,
    #[schema(min_length = 1, max_length = 255)]
    filename: Option<String>,
    training_step: Option<i64>,
    #[schema(value_type = Option<Any>)]
    metadata: Option<Json>,
    /// When it is removed; otherwise the server's settings say how long its kind is kept.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// Content of this server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct BlobRef {
    sha256: String,
    size_bytes: u64,
}

impl From<milepost_core::artifact::BlobRef> for BlobRef {
    fn from(blob: milepost_core::artifact::BlobRef) -> BlobRef {
        BlobRef { sha256: blob.sha256.to_string(), size_bytes: blob.size_bytes }
    }
}

/// Content that is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoredBlob {
    sha256: String,
    size_bytes: u64,
    uri: String,
}

impl From<Uploaded> for StoredBlob {
    fn from(stored: Uploaded) -> StoredBlob {
        StoredBlob { sha256: stored.sha256.to_string(), size_bytes: stored.size_bytes, uri: stored.uri() }
    }
}

/// An address that lets whoever has it do one thing, for a while.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Presigned {
    pub(crate) url: String,
    pub(crate) method: &'static str,
    /// To be sent with it.
    pub(crate) headers: std::collections::BTreeMap<String, String>,
    #[schema(format = DateTime)]
    pub(crate) expires_at: String,
}
