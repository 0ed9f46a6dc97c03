//! The part of a store that keeps what commits ask for beyond the database. Rows come in with [`crate::rows::RunWrite`].
//!
//! **Invariant:** rows are found by when they are due, never by the order in which they were written: commits arrive in any
//! order, and who remembers how far he was misses those that come late.

use std::fmt;

use async_trait::async_trait;
use milepost_core::id::{NodeId, OrgId, OutboxId};
use milepost_core::time::Timestamp;

use crate::Result;
use crate::rows::{Claim, OutboxCounts, OutboxEnd, OutboxFilter, OutboxRow};

#[async_trait]
pub trait OutboxStore: Send + Sync + fmt::Debug {
    /// Claims what is due, those due first before the others: what waits, and what somebody claimed whose time is up. Each
    /// row is given to one caller. Counts a try.
    async fn claim(&self, claim: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>>;

    /// When there is something to claim. Reads one entry of an index.
    async fn next_due(&self) -> Result<Option<Timestamp>>;

    /// Takes down what became of this node's claims. One that is no longer its own is left alone.
    async fn settle(&self, node: NodeId, ends: &[OutboxEnd]) -> Result<()>;

    /// What a node claimed that is gone is due now. Answers how much that is.
    async fn free_claims(&self, gone: NodeId, now: Timestamp) -> Result<u64>;

    async fn get(&self, org: OrgId, id: OutboxId) -> Result<Option<OutboxRow>>;

    /// In the order of their ids, after the one given.
    async fn list(
        &self,
        org: OrgId,
        filter: OutboxFilter,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<OutboxRow>>;

    /// Makes a row that waits due now; a dead letter waits again, its tries counted anew. One that is under way stays so.
    async fn retry(&self, org: OrgId, id: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>>;

    /// Removes a dead letter. Answers whether there was one.
    async fn discard(&self, org: OrgId, id: OutboxId) -> Result<bool>;

    async fn counts(&self) -> Result<OutboxCounts>;

    /// Removes dead letters that were given up before this moment. Answers how many.
    async fn forget_dead(&self, before: Timestamp) -> Result<u64>;
}
