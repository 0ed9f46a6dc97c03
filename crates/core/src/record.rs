//! The stored form of an event: what a row of `run_events` holds. Carries a format version; [`crate::event`] is the form
//! the rules work on, and [`crate::codec`] turns one into the other.

use std::borrow::Cow;
use std::sync::Arc;

use crate::hash::Digest;
use crate::id::SignalId;
use crate::json::Json;
use crate::time::Timestamp;

/// The format in which this release writes events.
pub const EVENT_FORMAT: i16 = 1;

/// One row of the log. Its run is known from where it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub seq: u64,
    pub format: i16,
    pub event_type: Cow<'static, str>,
    /// `shots`, or `shots[3]` for a sub-step.
    pub step_id: Option<Arc<str>>,
    pub logical_attempt: Option<u32>,
    pub engine_attempt: Option<u32>,
    pub data: Json,
    pub idempotency_key: Digest,
    pub signal: Option<SignalId>,
    /// The earlier event of the same run that led to this one.
    pub parent_seq: Option<u64>,
    pub emitted_at: Timestamp,
    /// When the commit that holds it was put together.
    pub persisted_at: Timestamp,
}
