//! The part of a store that knows which files runs left, and where their content is.
//!
//! ```text
//!   note the key ─► put into the blob store ─► name it (the note goes) ─► artifacts name its hash, with their events
//!                                                      │
//!                     nobody has named the hash for a while: the row goes, the key is noted ─► blob removed ─► note cleared
//! ```
//!
//! **Invariant:** whatever is in the blob store for artifacts is under a key that a row names or that has a note. A key is
//! used once, so removing what one row named takes nothing from another.
//! **Invariant:** who is about to name content has uploaded or touched it just before, so what is named then is not loose.

use std::fmt;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::time::Timestamp;

use crate::Result;
use crate::rows::{ArtifactFilter, ArtifactPosition, ArtifactRow, ContentKey, ContentRow};

#[async_trait]
pub trait ArtifactStore: Send + Sync + fmt::Debug {
    /// Artifacts of a run in the order of their positions, after the one given.
    async fn artifacts(
        &self,
        org: OrgId,
        run: RunId,
        filter: &ArtifactFilter,
        after: Option<ArtifactPosition>,
        limit: u32,
    ) -> Result<Vec<ArtifactRow>>;

    async fn artifact(&self, org: OrgId, run: RunId, id: ArtifactId) -> Result<Option<ArtifactRow>>;

    /// The artifact of this kind that was made at this step of a training.
    async fn numbered(&self, org: OrgId, run: RunId, kind: &str, training_step: i64) -> Result<Option<ArtifactRow>>;

    /// Of which type some artifact says that this content is.
    async fn media_type(&self, org: OrgId, sha256: Digest) -> Result<Option<String>>;

    /// Removes artifacts that have expired: at most `limit`, to be called until it removes fewer. Answers how many went.
    async fn forget_expired(&self, now: Timestamp, limit: u32) -> Result<u64>;

    /// Notes that something is about to be put under a key of the blob store; once more, that it still is.
    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()>;

    /// Content, as far as it is there, in any order.
    async fn contents(&self, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>>;

    /// Names content that was put into the blob store, if there is none with that hash, or if it is where `instead_of` says;
    /// answers whether it was. Its note goes; what it takes the place of is noted.
    async fn name_content(&self, org: OrgId, content: &ContentRow, instead_of: Option<&str>) -> Result<bool>;

    /// Says that somebody is about to name this content. Answers what is there.
    async fn touch_contents(&self, org: OrgId, hashes: &[Digest], now: Timestamp) -> Result<Vec<ContentRow>>;

    /// Content that nobody has used since before this moment and nobody names, in order, after the one given.
    async fn loose_contents(
        &self,
        before: Timestamp,
        after: Option<ContentKey>,
        limit: u32,
    ) -> Result<Vec<(OrgId, ContentRow)>>;

    /// Removes those of them that still nobody names, and notes their keys. Answers how many went, and their bytes.
    async fn remove_contents(&self, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)>;

    /// Keys noted before this moment.
    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>>;

    /// Nothing is under this key any more.
    async fn clear_key(&self, key: &str) -> Result<()>;
}
