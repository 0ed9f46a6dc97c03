//! An artifact as somebody outside sees it.

use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use milepost_store::rows::ArtifactRow;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactView {
    pub artifact_id: ArtifactId,
    pub run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    pub kind: String,
    pub uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_step: Option<i64>,
    pub metadata: Json,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl From<&ArtifactRow> for ArtifactView {
    fn from(row: &ArtifactRow) -> ArtifactView {
        let artifact = &row.artifact;
        ArtifactView {
            artifact_id: artifact.id,
            run_id: row.run,
            step_id: row.step_id.as_deref().map(ToOwned::to_owned),
            skill: row.skill.as_deref().map(ToOwned::to_owned),
            kind: artifact.kind.clone(),
            uri: artifact.uri.clone(),
            sha256: artifact.sha256,
            size_bytes: artifact.size_bytes,
            media_type: artifact.media_type.clone(),
            filename: artifact.filename.clone(),
            training_step: artifact.training_step,
            metadata: artifact.metadata.clone(),
            created_at: row.created_at,
            expires_at: artifact.expires_at,
        }
    }
}
