//! What steps wrote.

use milepost_core::id::{OrgId, RunId};

/// Some lines of one attempt. What they look like is the engine's to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunkRow {
    pub org: OrgId,
    pub run: RunId,
    pub step_id: String,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// The number of the first line, counted from 0 within the attempt.
    pub first_line: u32,
    pub lines: u32,
    pub content: Vec<u8>,
    /// Where the content is, in the blob store, if it is not here.
    pub blob: Option<String>,
}

/// Where a chunk stands among those of its run; chunks are read in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    pub step_id: String,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub first_line: u32,
}

impl LogChunkRow {
    #[must_use]
    pub fn position(&self) -> LogPosition {
        LogPosition {
            step_id: self.step_id.clone(),
            logical_attempt: self.logical_attempt,
            engine_attempt: self.engine_attempt,
            first_line: self.first_line,
        }
    }
}
