//! Secrets, as the database has them: sealed. What is inside is the engine's to know.

use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;

/// A secret without what is secret about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    pub name: String,
    /// The number of the last version that was made, be it removed by now. Numbers are never used twice.
    pub last_version: u32,
    /// Who may have it; any if there is none.
    pub queues: Vec<String>,
    pub workflows: Vec<String>,
    /// The versions that are there, oldest first, with when they were made.
    pub versions: Vec<(u32, Timestamp)>,
}

/// One version of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRow {
    pub version: u32,
    /// Which key it is sealed with.
    pub key_id: String,
    pub nonce: Vec<u8>,
    pub ciphertext: Vec<u8>,
    pub created_at: Timestamp,
}

/// A new version of a secret, and who may have it from now on. Written only if `last_version` is still the one given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretWrite {
    pub name: String,
    /// 0 for a name that was never used.
    pub expected_version: u32,
    pub queues: Vec<String>,
    pub workflows: Vec<String>,
    /// Its number is one more than `expected_version`. Without it only who may have the secret changes.
    pub sealed: Option<SealedRow>,
}

/// Whose version it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretPosition {
    pub org: OrgId,
    pub name: String,
    pub version: u32,
}
