//! The part of the seam that knows which runs may bring a process down.
//!
//! ```text
//!   note ─► load, decide ─► note nothing               (in a time after a crash, and for suspects)
//!             └─► the process dies, and its note stands ─► charge ─► suspected ─► stuck
//!                                                                       └─► acquit
//! ```
//!
//! **Invariant:** a note that was written is there when its process has died, however it died; the loss of power may take it.
//! **Invariant:** a run is charged only by a note that names it and no other.

use std::fmt;

use async_trait::async_trait;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;

use crate::Result;
use crate::rows::{Note, SuspectRow, Watched};

/// A crash is remembered for so long.
pub(crate) const CRASH_MEMORY_MS: u64 = 10 * 60 * 1000;

#[async_trait]
pub trait SuspectStore: Send + Sync + fmt::Debug {
    /// Says what this node is about to load and decide, in place of what it said before. A node that was never heard of says
    /// nothing.
    async fn note(&self, node: NodeId, notes: &[Note]) -> Result<()>;

    /// Holds what a dead node was about to decide against those runs, and takes its note away. A run that is parked by
    /// that has no owner any more and makes no result that others wait for. Answers the runs that were named, as they
    /// stand now. A node that left is charged with nothing.
    async fn charge(&self, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>>;

    /// What this node has to know of the others, and of all suspects.
    async fn watch(&self, node: NodeId, now: Timestamp) -> Result<Watched>;

    /// All that something is held against, of all orgs, in order of (org, run).
    async fn suspects(&self) -> Result<Vec<SuspectRow>>;

    /// Nothing is held against these runs any more, except against those that are parked.
    async fn acquit(&self, runs: &[(OrgId, RunId)]) -> Result<()>;

    /// The run may be decided again, with care, and nothing counts against it any more. Its owner is the one that it had, or node
    /// 0, which is always dead: somebody adopts it. Answers whether it was parked.
    async fn release(&self, org: OrgId, run: RunId) -> Result<bool>;

    /// A parked run has ended: it is never decided again. Answers whether it was parked.
    async fn close(&self, org: OrgId, run: RunId) -> Result<bool>;
}
