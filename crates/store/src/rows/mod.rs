//! The rows that cross the seam between engine and database. Plain data: no rule about runs lives here.

mod artifacts;
mod cache;
mod definitions;
mod filter;
mod flights;
mod logs;
mod outbox;
mod secrets;
mod suspects;
mod tasks;
mod whole;

use std::sync::Arc;

use milepost_core::cache::Flight;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::request::{Asked, RequestDigest};
use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;

pub use artifacts::{ArtifactFilter, ArtifactPosition, ArtifactRow, ContentKey, ContentRow};
pub(crate) use cache::read_beyond;
pub use cache::{
    CacheWrite, EpochRow, FoundResult, KeptWrite, MissedWrite, PreimageRow, PreimageWrite, ResultAge, ResultFilter,
    ResultKey, ResultPosition, ResultRow, ResultStats,
};
pub use definitions::{
    BlobRow, ChainRow, DefinitionWrite, GarbageCount, MoveKind, MoveRow, RequestRow, RevisionKind, RevisionRow,
    StoredRevision, TagRow, TagWrite,
};
pub use filter::RunFilter;
pub(crate) use filter::Way;
pub use flights::{FlightRow, FlightWrite, Led};
pub use logs::{LogChunkRow, LogPosition};
pub use outbox::{Claim, OutboxCounts, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, OutboxState, OutboxWrite};
pub use secrets::{SealedRow, SecretPosition, SecretRow, SecretWrite};
pub use suspects::{MOST_CRASHES, Note, Stuck, SuspectRow, SuspectState, UnknownState, Watched};
pub use tasks::{
    LeaseExtension, LeaseRow, QueueCount, QueueRow, Rate, RateWrite, TaskLimits, TaskRow, TaskSlot, TaskWrite,
};
pub use whole::RunRows;

/// What one commit writes: changes to many runs, durable together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub writes: Vec<RunWrite>,
    /// Written by a transaction in which limits were asked for, whatever becomes of the runs.
    pub rates: Vec<RateWrite>,
}

/// The changes to one run. Written only if the run's `last_seq` is still `expected_seq`.
#[derive(Clone, Debug)]
pub struct RunWrite {
    pub org: OrgId,
    pub run: RunId,
    /// Writes with the same number are committed together or not at all (a child and its parent).
    pub group: u32,
    /// 0 for a run that does not exist yet.
    pub expected_seq: u64,
    /// `expected_seq` + number of events.
    pub last_seq: u64,
    pub head: HeadWrite,
    /// In order, gapless from `expected_seq` + 1. May be empty when only the owner changes.
    pub events: Vec<EventRow>,
    pub timers: Vec<TimerWrite>,
    /// No task twice.
    pub tasks: Vec<TaskWrite>,
    pub outbox: Vec<OutboxWrite>,
    pub slot: Option<SlotWrite>,
    pub checkpoint: Option<CheckpointRow>,
    /// What it does to results that are kept.
    pub cache: Option<Box<CacheWrite>>,
    /// What its events record.
    pub artifacts: Vec<ArtifactRow>,
}

#[derive(Clone, Debug)]
pub enum HeadWrite {
    /// A new run. The caller never sends two inserts for one run id.
    Insert(Box<NewHead>),
    /// `None` fields stay as they are; the common case changes nothing but `last_seq`.
    Update { status: Option<StatusWrite>, owner: Option<NodeId> },
    /// The same, and the run follows another plan from here on.
    Patch(Box<PatchedHead>),
}

#[derive(Clone, Debug)]
pub struct PatchedHead {
    pub plan_hash: Digest,
    pub status: Option<StatusWrite>,
    pub owner: Option<NodeId>,
}

#[derive(Clone, Debug)]
pub struct NewHead {
    pub workflow: Arc<str>,
    pub workflow_version: Arc<str>,
    pub plan_hash: Digest,
    pub request_id: Option<String>,
    /// What was asked for under the request id; unknown of runs that older releases started.
    pub asked: Option<Asked>,
    pub base_run: Option<RunId>,
    pub parent_run: Option<RunId>,
    pub priority: i32,
    pub created_at: Timestamp,
    pub status: StatusWrite,
    pub owner: Option<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    pub status: RunStatus,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerWrite {
    /// Armed by the event with this sequence number.
    Arm {
        seq: u64,
        due_at: Timestamp,
    },
    Disarm {
        seq: u64,
    },
}

/// A run's place under a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotWrite {
    Hold {
        key: String,
    },
    /// Turns into `Hold` by a later write of the same run. `limit` is kept so that a sweep can tell who may go on.
    Wait {
        key: String,
        limit: u32,
        priority: i32,
    },
    Release,
}

/// A run's state as of `seq`, so that loading it reads only what came after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRow {
    pub seq: u64,
    pub format: i16,
    pub state: Vec<u8>,
}

/// Whether one run's changes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    Written,
    /// Somebody else changed the run (or took its id or request id) since it was read. Nothing of its group was written.
    Conflict,
}

/// A run's head row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRow {
    pub org: OrgId,
    pub run: RunId,
    pub workflow: String,
    pub workflow_version: String,
    pub plan_hash: Digest,
    pub request_id: Option<String>,
    pub base_run: Option<RunId>,
    pub parent_run: Option<RunId>,
    pub priority: i32,
    pub status: RunStatus,
    pub last_seq: u64,
    pub owner: Option<NodeId>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// It is parked: nobody may load or decide it.
    pub stuck: Option<Stuck>,
}

/// All that is needed to have a run's state again.
#[derive(Clone, Debug)]
pub struct LoadedRun {
    pub head: HeadRow,
    pub checkpoint: Option<CheckpointRow>,
    /// The events after the checkpoint, or all of them.
    pub tail: Vec<EventRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerRow {
    pub org: OrgId,
    pub run: RunId,
    pub seq: u64,
    pub due_at: Timestamp,
}

/// A run that waits for room under a concurrency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRow {
    pub org: OrgId,
    pub run: RunId,
    pub key: String,
    pub holding: bool,
    pub limit: Option<u32>,
    pub priority: i32,
}

/// A fact that must be true at commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// How many runs hold a slot under this key?
    SlotsHeld { org: OrgId, key: String },
    /// Which run of this workflow was started with this request id?
    RunOfRequest { org: OrgId, workflow: Arc<str>, request_id: String },
    /// What does this event of the run say?
    Event { org: OrgId, run: RunId, seq: u64 },
    /// May another task of this queue, with this concurrency key, go to a worker?
    Limits { org: OrgId, queue: Arc<str>, key: Option<Arc<str>> },
    /// Which of these results are there?
    Results {
        org: OrgId,
        keys: Vec<ResultKey>,
        /// For each key, in order, the hash of the output that the asker has: if it is that, it is not sent again. Those of
        /// the last keys may be left out.
        held: Vec<Option<Digest>>,
    },
    /// Which of these results are being made, for runs that have not ended? A write that begins to make one conflicts if
    /// somebody else has begun since.
    Flights { org: OrgId, keys: Vec<ResultKey> },
    /// How often were results of this workflow disowned?
    Epochs { org: OrgId, workflow: Arc<str> },
}

#[derive(Clone, Debug)]
pub enum Answer {
    SlotsHeld(u32),
    RunOfRequest(Option<RequestedRun>),
    Event(Option<EventRow>),
    Limits(TaskLimits),
    /// In the order of the keys.
    Results(Vec<Option<FoundResult>>),
    /// In the order of the keys.
    Flights(Vec<Option<Flight>>),
    Epochs(Vec<EpochRow>),
}

/// The run that a request id belongs to, and what was asked for then, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedRun {
    pub run: RunId,
    pub asked: Option<Asked>,
}

impl RequestedRun {
    /// From what a table has.
    pub(crate) fn read(run: RunId, version_hash: Option<Digest>, digest: Option<&[u8]>) -> RequestedRun {
        let digest = digest.and_then(RequestDigest::read);
        let asked = version_hash.zip(digest).map(|(version_hash, digest)| Asked { version_hash, digest });
        RequestedRun { run, asked }
    }
}

/// What the projector writes for one run.
#[derive(Clone, Debug)]
pub struct ProjectionWrite {
    pub org: OrgId,
    pub run: RunId,
    /// Written only if the projection stands exactly here (0: there is none yet).
    pub expected_seq: u64,
    pub snapshot: SnapshotRow,
    /// Inserted, or replacing the row of the same step.
    pub steps: Vec<StepRow>,
    /// Nothing is left to do for this run now: if its head is still at `snapshot.last_event_seq`, it has no owner any more.
    pub release: bool,
}

/// The run-level projection, which lists are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    pub org: OrgId,
    pub run: RunId,
    pub workflow: String,
    pub workflow_version: String,
    pub status: RunStatus,
    pub last_event_seq: u64,
    pub request_id: Option<String>,
    pub base_run: Option<RunId>,
    pub parent_run: Option<RunId>,
    pub priority: i32,
    pub steps_total: u32,
    pub steps_done: u32,
    pub steps_failed: u32,
    pub error: Option<Json>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    /// Who asked for it, if that is known.
    pub submitted_by: Option<String>,
    /// When the last event came about that is in here.
    pub updated_at: Timestamp,
    /// The node that began it.
    pub engine_node: Option<NodeId>,
}

impl SnapshotRow {
    /// Of rows from before this was kept: the last that is known of them.
    pub(crate) fn updated_or(
        updated_at: Option<Timestamp>,
        (created, started, completed): (Timestamp, Option<Timestamp>, Option<Timestamp>),
    ) -> Timestamp {
        updated_at.or(completed).or(started).unwrap_or(created)
    }
}

/// One step's projection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// `shots`, or `shots[3]` for a sub-step.
    pub step_id: String,
    pub skill: String,
    pub status: StepStatus,
    pub skip_reason: Option<milepost_core::status::SkipReason>,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub input_hash: Option<Digest>,
    /// Where the output is: the sequence number of the event that carries it.
    pub output_seq: Option<u64>,
    pub error: Option<Json>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// A change of a run's status, read from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionRow {
    pub seq: u64,
    pub from: Option<RunStatus>,
    pub to: RunStatus,
    pub signal: Option<SignalId>,
    /// Who had it happen; nobody, of what follows by itself.
    pub changed_by: Option<String>,
    pub at: Timestamp,
}

/// What `forget_runs` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    pub runs: u64,
    /// Runs that went before, of which the last rows went now.
    pub remains: u64,
    /// Partitions that were dropped, of all tables together.
    pub partitions: u32,
    /// There are runs left to forget, or remains of some.
    pub more: bool,
}

impl Forgotten {
    /// There is more, but somebody else is in the way.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.more && self.runs == 0 && self.remains == 0 && self.partitions == 0
    }
}

/// A problem that a look over the whole database found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogGap {
    pub org: OrgId,
    pub run: RunId,
    pub message: String,
}

/// One write call, kept so that a benchmark can send the same rows through the driver alone.
#[derive(Clone, Debug)]
pub enum Recorded {
    Commit(Arc<Batch>),
    Project(Vec<ProjectionWrite>),
}
