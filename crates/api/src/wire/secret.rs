//! A secret without what is secret about it.

use milepost_core::time::Timestamp;
use milepost_store::rows::SecretRow;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Secret {
    pub(crate) name: String,
    /// The newest.
    version: u32,
    /// All that are there, oldest first.
    versions: Vec<SecretVersion>,
    /// Only tasks of these queues may have it; any if there is none.
    queues: Vec<String>,
    /// Only runs of these workflows may have it; any if there is none.
    workflows: Vec<String>,
    /// When the newest version was made.
    #[schema(format = DateTime)]
    created_at: String,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct SecretVersion {
    version: u32,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<SecretRow> for Secret {
    fn from(row: SecretRow) -> Secret {
        let (version, created_at) = row.versions.last().copied().unwrap_or((row.last_version, Timestamp(0)));
        let of = |(version, at): (u32, Timestamp)| SecretVersion { version, created_at: at.to_string() };
        Secret {
            name: row.name,
            version,
            versions: row.versions.into_iter().map(of).collect(),
            queues: row.queues,
            workflows: row.workflows,
            created_at: created_at.to_string(),
        }
    }
}
