//! What commits ask for beyond the database: written with them, carried out after them, kept when it was given up.

use std::sync::Arc;

use milepost_core::id::{NodeId, OrgId, OutboxId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

/// A new row. The node that writes it begins with it at once, so it is claimed from the first moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxWrite {
    pub id: OutboxId,
    /// What is to be done; the engine knows the words.
    pub kind: Arc<str>,
    pub payload: Json,
    pub claim: Claim,
    pub created_at: Timestamp,
}

/// Who carries it out, and until when nobody else begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub node: NodeId,
    pub until: Timestamp,
}

/// A row of the outbox, or a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    pub id: OutboxId,
    pub org: OrgId,
    /// Whose commit asked for it.
    pub run: RunId,
    pub kind: Arc<str>,
    pub payload: Json,
    /// Tries, the one under way among them.
    pub attempts: u32,
    pub state: OutboxState,
    /// Why the last try did not succeed.
    pub last_error: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxState {
    /// Until its time has come.
    Waiting {
        available_at: Timestamp,
    },
    Claimed(Claim),
    /// Given up then.
    Dead {
        died_at: Timestamp,
    },
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEnd {
    pub id: OutboxId,
    /// As it was claimed: what somebody else has claimed since is left alone.
    pub attempts: u32,
    pub outcome: OutboxOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxOutcome {
    /// The row goes.
    Done,
    /// Once more, not before that.
    Again {
        at: Timestamp,
        /// Tries that count.
        attempts: u32,
        /// `None` leaves the last one.
        error: Option<String>,
    },
    /// Becomes a dead letter.
    Dead { at: Timestamp, error: String },
}

/// Which rows a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutboxFilter {
    All,
    Pending,
    Dead,
}

/// How many there are, of all orgs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    pub pending: u64,
    pub dead: u64,
    /// When the first of those that are pending is due, or its claim ends.
    pub next_due: Option<Timestamp>,
}
