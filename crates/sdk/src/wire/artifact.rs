//! Files that runs leave.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::RunId;

/// A file that a run left.
#[derive(Clone, Debug, Deserialize)]
pub struct Artifact {
    pub artifact_id: Uuid,
    pub run_id: RunId,
    pub step_id: Option<String>,
    pub skill: Option<String>,
    pub kind: String,
    pub uri: String,
    pub sha256: Option<String>,
    pub size_bytes: Option<u64>,
    pub media_type: Option<String>,
    pub filename: Option<String>,
    pub training_step: Option<i64>,
    #[serde(default)]
    pub metadata: Map<String, Value>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// A file to be recorded or attached: content that was uploaded, by its `sha256`, or a `uri` somewhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewArtifact {
    /// `custom`, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// A run has one artifact of a kind for each step of a training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_step: Option<i64>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl NewArtifact {
    /// One of this kind.
    #[must_use]
    pub fn kind(kind: impl Into<String>) -> NewArtifact {
        NewArtifact { kind: Some(kind.into()), ..NewArtifact::default() }
    }

    #[must_use]
    pub fn filename(self, name: impl Into<String>) -> NewArtifact {
        NewArtifact { filename: Some(name.into()), ..self }
    }

    #[must_use]
    pub fn media_type(self, media_type: impl Into<String>) -> NewArtifact {
        NewArtifact { media_type: Some(media_type.into()), ..self }
    }

    #[must_use]
    pub fn training_step(self, step: i64) -> NewArtifact {
        NewArtifact { training_step: Some(step), ..self }
    }

    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> NewArtifact {
        self.metadata.insert(name.into(), value.into());
        self
    }
}

/// Content that a server has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Blob {
    pub sha256: String,
    pub size_bytes: u64,
    pub uri: String,
}
