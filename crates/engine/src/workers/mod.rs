//! Workers: processes that carry steps out and talk to any node.
//!
//! ```text
//!   worker ── exchange ──► results and offer ──► committer ──► one commit: outcomes, and the next steps with their leases
//!      ▲                                             │
//!      └──────────── tasks, directives ◄── leases ◄──┘      keeper: leases that nobody extends are lost
//! ```
//!
//! A lease is watched by one node, in memory: heartbeats cost no commit. The row in the database says which node that is;
//! when a worker talks to another one, the lease moves there, and when a node dies, another takes over what it watched.

mod exchange;
mod handed;
mod keeper;
mod leases;
mod puller;
mod queues;
mod secrets;
mod seen;
mod single;
mod token;

pub(crate) use exchange::next_offer;
pub use exchange::{Directive, DirectiveKind, Exchange, Exchanged, Heartbeat, RejectedItem, WorkerLine, WorkerResult};
pub(crate) use handed::Handed;
pub(crate) use keeper::LeaseKeeper;
pub(crate) use leases::{Leases, Redacting, Standing};
pub use milepost_core::run::Outcome;
pub(crate) use puller::Puller;
pub use queues::{QueueState, Rate, list_queues};
pub(crate) use secrets::redacted;
pub(crate) use seen::SeenWorkers;
pub use single::{Beat, TaskState};
pub use token::LeaseToken;

use milepost_core::id::{OrgId, RunId, TaskId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use std::sync::Arc;

/// A step as a worker is given it.
#[derive(Clone, Debug)]
pub struct WorkerTask {
    pub task: TaskId,
    pub org: OrgId,
    pub run: RunId,
    pub step_id: String,
    pub skill: Arc<str>,
    pub input: Json,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub token: LeaseToken,
    pub lease_expires_at: Timestamp,
    /// How often the worker should say that it lives.
    pub heartbeat_ms: u64,
    pub timeout_ms: Option<u64>,
    /// Name and value.
    pub env: Vec<(String, String)>,
    pub secrets: Vec<(String, String)>,
    pub workflow: Arc<str>,
    pub workflow_version: Arc<str>,
    pub queue: Arc<str>,
    pub priority: i32,
    pub traceparent: String,
}
