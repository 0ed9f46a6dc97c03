//! The outbox: what commits ask for beyond the database. Its rows are written with them and carried out after them, at
//! least once each.
//!
//! ```text
//!   committer ── row, claimed by this node, in the commit ──► store
//!       │                                                       │ sweep: what is due, what dead nodes had claimed
//!       └── told when it is written ──► outbox ◄────────────────┘
//!                                         │ carry: one try
//!                                         └──► done: the row goes │ failed: again, later │ tries used up: a dead letter
//! ```
//!
//! **Invariant:** a row goes only when its deed is done, or is no longer wanted.
//! **Invariant:** idle, this costs one look at one index entry every few seconds.

mod backoff;
mod message;
mod service;
mod view;

pub(crate) use message::{Letter, Message, PushOrder};
pub(crate) use service::{Outbox, Parts, Tried};
pub use view::{OutboxItem, OutboxStatus, Retried, list_outbox};

/// How often a deed is tried.
#[derive(Clone, Copy, Debug)]
pub struct OutboxConfig {
    /// Then it becomes a dead letter.
    pub max_tries: u32,
}

impl Default for OutboxConfig {
    fn default() -> OutboxConfig {
        OutboxConfig { max_tries: 12 }
    }
}
