//! The part of a store that keeps secrets, sealed: it neither seals nor opens them.
//!
//! **Invariant:** the number of a version is never used twice, not even when all versions were removed.

use std::fmt;

use async_trait::async_trait;
use milepost_core::id::OrgId;

use crate::Result;
use crate::rows::{SealedRow, SecretPosition, SecretRow, SecretWrite};

#[async_trait]
pub trait SecretStore: Send + Sync + fmt::Debug {
    /// Adds a version, or changes who may have the secret. Answers whether it was still as expected; if not, nothing is
    /// changed.
    async fn put(&self, org: OrgId, write: &SecretWrite) -> Result<bool>;

    /// A secret and one of its versions: the one asked for, or the newest. One whose versions were all removed is still
    /// known by its name.
    async fn get(&self, org: OrgId, name: &str, version: Option<u32>)
    -> Result<Option<(SecretRow, Option<SealedRow>)>>;

    /// Those that have a version, in the order of the bytes of their names, after `after`.
    async fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>>;

    /// Removes one version, or all of them and with them who may have the secret. Answers whether there was any.
    async fn remove(&self, org: OrgId, name: &str, version: Option<u32>) -> Result<bool>;

    /// Versions that are sealed with another key than this one, of all orgs, in order.
    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<&SecretPosition>,
        limit: u32,
    ) -> Result<Vec<(SecretPosition, SealedRow)>>;

    /// Seals a version anew, if it still has this nonce.
    async fn reseal(&self, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool>;
}
