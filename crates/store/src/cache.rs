//! The part of a store that keeps results of steps. They come in with [`crate::rows::RunWrite`] and are looked up with
//! [`crate::rows::Question::Results`]; here they are looked at and taken away.
//!
//! **Invariant:** a result is found by its whole key and by its org; nothing tells one org what another has.

use std::fmt;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use crate::Result;
use crate::rows::{
    EpochRow, FoundResult, PreimageRow, ResultAge, ResultFilter, ResultKey, ResultPosition, ResultRow, ResultStats,
};

/// Is told what was found of what he asked last (nothing at first), in order; says what else he wants: of each list of keys
/// the first that has a result. Nothing: that was all.
pub type Asker = Box<dyn FnMut(Vec<Option<FoundResult>>) -> Vec<Vec<ResultKey>> + Send>;

#[async_trait]
pub trait CacheStore: Send + Sync + fmt::Debug {
    /// Results in the order of their positions, after the one given, which is of the same list.
    async fn results(
        &self,
        org: OrgId,
        filter: &ResultFilter,
        after: Option<&ResultPosition>,
        limit: u32,
    ) -> Result<Vec<ResultRow>>;

    /// The first characters of a result's output, as text.
    async fn output(&self, org: OrgId, key: &ResultKey, chars: u32) -> Result<Option<String>>;

    /// What they come to, step by step, by workflow and step. Filters by keys find no misses: those have no key.
    async fn result_stats(&self, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>>;

    /// Removes at most `limit` results, to be called until it removes fewer. Answers how many went.
    async fn evict(&self, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64>;

    /// Results of all orgs by their places, after the one given, with when they were last of use. For a reader: it may walk
    /// over all there are, so no commit waits for it.
    async fn ages(&self, after: Option<(OrgId, ResultKey)>, limit: u32) -> Result<Vec<ResultAge>>;

    /// Removes those of these results that nobody has taken or made since. Answers how many went.
    async fn evict_unused(&self, unused: &[ResultAge]) -> Result<u64>;

    /// What a key is made of.
    async fn preimage(&self, org: OrgId, key: Digest) -> Result<Option<Json>>;

    /// What a step began with lately, the newest first.
    async fn preimages(&self, org: OrgId, workflow: &str, step: &str, limit: u32) -> Result<Vec<PreimageRow>>;

    /// Answers one who asks for results again and again, as what he asks next follows from what was found. Counts no hit.
    async fn converse(&self, org: OrgId, asker: Asker) -> Result<()>;

    /// Removes pre-images from before this moment that no result has: at most `limit`, to be called until it removes fewer.
    async fn forget_preimages(&self, before: Timestamp, limit: u32) -> Result<u64>;

    /// From now on nobody finds what is kept of a workflow, or of one of its steps. Answers its epoch.
    async fn disown(&self, org: OrgId, workflow: &str, step: Option<&str>) -> Result<u64>;

    /// Of a workflow and its steps, as far as any were disowned; the workflow first.
    async fn epochs(&self, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>>;
}
