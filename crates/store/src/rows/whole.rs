//! One run as somebody who looks at it needs it.

use milepost_core::record::EventRow;

use super::{ArtifactRow, HeadRow, SnapshotRow, StepRow};

/// What is needed to show a run, all of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRows {
    pub head: HeadRow,
    /// As [`crate::Store::projection`] gives it.
    pub projection: Option<(SnapshotRow, Vec<StepRow>)>,
    /// The log after the projection, in order; the first [`RunRows::TAIL`] of it.
    pub tail: Vec<EventRow>,
    /// Of the log up to the projection, in any order: the first event, and those that carry the outputs of its steps; the
    /// first [`RunRows::CARRYING`] of them.
    pub carrying: Vec<EventRow>,
    /// How many events its log holds; fewer than the head says if there is a gap.
    pub events: u64,
    /// Where it is noted that its log has a gap, if it is.
    pub stale_from: Option<u64>,
    /// Files that it left, in order.
    pub artifacts: Vec<ArtifactRow>,
}

impl RunRows {
    /// More of the log than this is read page by page.
    pub const TAIL: u32 = 200;
    /// More outputs than this are read by whoever wants them.
    pub const CARRYING: usize = 64;
}
