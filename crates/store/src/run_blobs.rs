//! Which runs may have something in the blob store.
//!
//! ```text
//!   note ─► put into the blob store ─► … ─► the run is forgotten (its note says gone) ─► blobs are removed ─► clear
//! ```
//!
//! **Invariant:** whatever is in the blob store is of a run that has a note. So what a run leaves there is found when it is
//! forgotten, whoever died in the middle of anything.

use std::fmt;

use async_trait::async_trait;
use milepost_core::id::{OrgId, RunId};

use crate::Result;

#[async_trait]
pub trait RunBlobs: Send + Sync + fmt::Debug {
    /// Notes that something of these runs is about to be put into the blob store. Once more is no change.
    async fn note(&self, runs: &[(OrgId, RunId)]) -> Result<()>;

    /// Runs with a note that are forgotten, in any order.
    async fn gone(&self, limit: u32) -> Result<Vec<(OrgId, RunId)>>;

    /// Nothing of these runs is in the blob store any more.
    async fn clear(&self, runs: &[(OrgId, RunId)]) -> Result<()>;
}
