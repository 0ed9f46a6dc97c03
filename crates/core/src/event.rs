//! What can happen to a run. An event is a fact: past tense, never changed, applied in the order of `seq`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, Beyond};
use crate::cache::Trust;
use crate::hash::Digest;
use crate::id::{EventId, NodeId, OrgId, RunId, SignalId, TaskId};
use crate::json::Json;
use crate::plan::{Plan, Rebuild, StepIndex};
use crate::run::TaskRef;
use crate::status::{RunStatus, SkipReason};
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// A step of the plan, or one item of a `foreach` step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRef {
    pub step: StepIndex,
    pub item: Option<u32>,
}

impl StepRef {
    #[must_use]
    pub fn whole(step: StepIndex) -> StepRef {
        StepRef { step, item: None }
    }

    #[must_use]
    pub fn item(step: StepIndex, item: u32) -> StepRef {
        StepRef { step, item: Some(item) }
    }

    /// `shots` or `shots[3]`.
    #[must_use]
    pub fn name(self, plan: &Plan) -> String {
        let id = &plan.step(self.step).id;
        match self.item {
            None => id.to_string(),
            Some(item) => format!("{id}[{item}]"),
        }
    }

    /// The step that a name means in this plan. Whether an item exists is the run's to know.
    #[must_use]
    pub fn parse(name: &str, plan: &Plan) -> Option<StepRef> {
        match name.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')) {
            // `x[+1]` and `x[01]` name nothing: a sub-step has one name.
            Some((id, item)) => {
                let number: u32 = item.parse().ok()?;
                (number.to_string() == item).then_some(StepRef::item(plan.find(id)?, number))
            }
            None => plan.find(name).map(StepRef::whole),
        }
    }
}

/// A failure, of a step or of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    pub code: String,
    pub message: String,
    #[serde(default = "yes")]
    pub retryable: bool,
}

fn yes() -> bool {
    true
}

impl ErrorInfo {
    #[must_use]
    pub fn fatal(code: &str, message: impl Into<String>) -> ErrorInfo {
        ErrorInfo { code: code.to_owned(), message: message.into(), retryable: false }
    }

    #[must_use]
    pub fn retryable(code: &str, message: impl Into<String>) -> ErrorInfo {
        ErrorInfo { code: code.to_owned(), message: message.into(), retryable: true }
    }
}

/// One event of a run's log, in the form that the rules work on.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub seq: u64,
    pub at: Timestamp,
    pub step: Option<StepRef>,
    /// Of the step; 0 on events of the run.
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub signal: Option<SignalId>,
    /// The earlier event that led to this one, where it is not the one just before.
    pub parent: Option<u64>,
    /// Who had it happen, of events that somebody's word led to ([`Body::is_asked_for`]). Nothing depends on it.
    pub actor: Option<Arc<str>>,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// The first event of every run.
    RunQueued(Box<Queued>),
    RunApproved,
    /// By the engine that says so; older logs do not know which.
    RunStarted(Option<EngineRef>),
    RunPaused,
    RunResumed,
    RunCompleted,
    RunFailed {
        error: ErrorInfo,
    },
    RunCancelled {
        reason: String,
    },
    RunTerminated {
        reason: String,
    },
    /// A failed run goes on because one of its steps is tried again.
    RunReopened,
    /// History rotates: the state as of this event is kept in a checkpoint.
    RunContinued {
        count: u32,
    },
    /// The definition was changed: from here on the run follows another plan.
    RunPatched(Box<Patched>),
    StepStarted(Started),
    /// Without an output of its own: the list of its items' outputs, or what `beyond` says.
    StepCompleted {
        output: Option<Json>,
        beyond: Option<Box<Beyond>>,
    },
    StepFailed {
        error: ErrorInfo,
    },
    StepSkipped {
        reason: SkipReason,
    },
    /// Many steps that had not begun when the run stopped: each is skipped with the reason `run_stopped`.
    StepsSkipped {
        steps: Vec<StepIndex>,
    },
    /// Skipped with the reason `cache_hit`: the result was there.
    StepReused(Box<Reused>),
    /// The attempt in the event's `logical_attempt` begins at `retry_at`.
    StepRetryScheduled {
        retry_at: Timestamp,
        /// Steps that had been skipped for this failure and are open again.
        reset: Vec<StepIndex>,
        /// Asked for by an operator: attempts are counted anew.
        operator: bool,
    },
    /// Of the run, or of a step of it.
    ArtifactRecorded(Box<Artifact>),
    SignalAccepted {
        name: String,
        step: Option<StepRef>,
        payload: Json,
    },
    SignalRejected {
        name: String,
        reason: String,
        /// With the payload's digest, what tells it from another signal. Logs of earlier releases have neither.
        step: Option<StepRef>,
        payload: Option<Digest>,
    },
}

/// The process that began a run. A node has its id from when it starts to when it ends, so that names one life of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineRef {
    pub node: NodeId,
    /// What it ran: `milepost/0.1.0`.
    pub version: Arc<str>,
}

/// What a run is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    pub org: OrgId,
    pub plan_hash: Digest,
    pub payload: Json,
    pub status: RunStatus,
    pub request_id: Option<String>,
    pub priority: i32,
    pub start_at: Option<Timestamp>,
    /// The evaluated concurrency key.
    pub slot_key: Option<String>,
    pub parent: Option<ParentStep>,
    /// The trace of whoever started the run.
    pub trace: Option<TraceContext>,
    pub base: Option<BaseRun>,
    /// Where the plan came from; for people to read.
    pub definition: Option<Json>,
    /// Whose results it may take.
    pub trust: Trust,
    /// Steps that run whatever is kept.
    pub rebuild: Option<Rebuild>,
    /// Who asked for it.
    pub submitted_by: Option<String>,
}

/// The run that an update run goes back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseRun {
    pub run: RunId,
    /// The types of the changes, in order.
    pub changes: Vec<String>,
}

/// The step of another run that a child run answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStep {
    pub run: RunId,
    pub step: String,
    pub logical_attempt: u32,
    /// How many runs are above this one.
    pub depth: u32,
}

/// A change of a run's definition, and what it means for its steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Patched {
    /// The plan that the run had.
    pub before: Digest,
    /// The plan that it has now.
    pub plan: Digest,
    /// RFC 6902, as it was given. An undone patch needs none.
    pub ops: Option<Json>,
    pub message: Option<String>,
    /// The step whose output had the patch in it.
    pub step: Option<StepRef>,
    /// The patch that this one takes back.
    pub undoes: Option<SignalId>,
    pub added: Vec<StepIndex>,
    pub changed: Vec<StepIndex>,
    pub removed: Vec<SetBack>,
    /// Those of `removed` that had ended: what they did is in the log, and nobody sees their output any more.
    pub orphaned: Vec<StepIndex>,
    /// Had ended, and run again.
    pub rerun: Vec<SetBack>,
    /// Had been skipped for a failure that holds them back no more.
    pub reset: Vec<StepIndex>,
    /// Steps of the plan that it has now.
    pub steps_total: u32,
}

/// A step that stands as if it had never begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetBack {
    pub step: StepIndex,
    /// How many items it had.
    pub items: u32,
}

/// How a step began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// The node whose executor has it.
    pub worker: Option<NodeId>,
    /// The worker that was given it, and what its answer is compared with.
    pub lease: Option<LeaseHolder>,
    /// A `foreach` step: how many items.
    pub items: Option<u32>,
    /// A `workflow` step: its child run.
    pub child: Option<RunId>,
    /// A `wait` step: the signal's name.
    pub waits_for: Option<String>,
    /// When a timer ends it: the end of a `sleep`, or the time limit of a step that has no executor.
    pub due_at: Option<Timestamp>,
    pub input_hash: Option<Digest>,
    /// Its result is kept under this key.
    pub cache_key: Option<Digest>,
}

/// A result that a step has without having run. It is copied into the event: the run is read like any other, and lasts
/// longer than whoever made the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reused {
    pub key: Digest,
    pub input_hash: Digest,
    /// In the blob store if there is none: then `beyond` says where.
    pub output: Option<Json>,
    /// The run that made it.
    pub run: RunId,
    /// That run's event.
    pub seq: u64,
    /// Files that it leaves to this run.
    pub beyond: Option<Box<Beyond>>,
}

/// A step in the hands of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name, with a part that is new whenever it starts.
    pub worker: Arc<str>,
    /// What its answer must carry. The log, which others read, has a [`LeaseProof`] instead.
    pub nonce: u64,
}

/// A lease as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    pub worker: Arc<str>,
    pub proof: LeaseProof,
}

/// Tells the holder of a lease from everybody else who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseProof {
    /// The beginning of a hash over run, attempt and nonce.
    Hash(u64),
    /// The nonce itself, as logs had it before.
    Nonce(u64),
}

impl LeaseProof {
    #[must_use]
    pub fn new(run: RunId, task: TaskRef, nonce: u64) -> LeaseProof {
        let TaskRef { step, logical_attempt, engine_attempt } = task;
        // No item has the last number.
        let numbers = [step.step, step.item.unwrap_or(u32::MAX), logical_attempt, engine_attempt];
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        let hash = Digest::of_parts([b"milepost lease".as_slice(), run.0.as_bytes(), &numbers, &nonce.to_be_bytes()]);
        LeaseProof::Hash(hash.0.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Whether somebody who says this nonce has the lease of this attempt.
    #[must_use]
    pub fn is_of(self, run: RunId, task: TaskRef, nonce: u64) -> bool {
        match self {
            LeaseProof::Hash(_) => self == LeaseProof::new(run, task, nonce),
            LeaseProof::Nonce(known) => known == nonce,
        }
    }
}

impl Body {
    #[must_use]
    pub fn event_type(&self) -> &'static str {
        match self {
            Body::RunQueued(_) => "RunQueued",
            Body::RunApproved => "RunApproved",
            Body::RunStarted(_) => "RunStarted",
            Body::RunPaused => "RunPaused",
            Body::RunResumed => "RunResumed",
            Body::RunCompleted => "RunCompleted",
            Body::RunFailed { .. } => "RunFailed",
            Body::RunCancelled { .. } => "RunCancelled",
            Body::RunTerminated { .. } => "RunTerminated",
            Body::RunReopened => "RunReopened",
            Body::RunContinued { .. } => "RunContinued",
            Body::RunPatched(_) => "RunPatched",
            Body::StepStarted(_) => "StepStarted",
            Body::StepCompleted { .. } => "StepCompleted",
            Body::StepFailed { .. } => "StepFailed",
            Body::StepSkipped { .. } | Body::StepsSkipped { .. } | Body::StepReused(_) => "StepSkipped",
            Body::StepRetryScheduled { .. } => "StepRetryScheduled",
            Body::ArtifactRecorded(_) => "ArtifactRecorded",
            Body::SignalAccepted { .. } => "SignalAccepted",
            Body::SignalRejected { .. } => "SignalRejected",
        }
    }

    /// Whether an event like this may be what somebody asked for, and says who it was. Others follow from what is there.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        use Body as B;
        matches!(
            self,
            B::SignalAccepted { .. }
                | B::SignalRejected { .. }
                | B::RunApproved
                | B::RunPaused
                | B::RunResumed
                | B::RunReopened
                | B::RunCancelled { .. }
                | B::RunTerminated { .. }
                | B::RunPatched(_)
        )
    }

    /// The status this event gives its run, if it gives one.
    #[must_use]
    pub fn run_status(&self) -> Option<RunStatus> {
        match self {
            Body::RunQueued(queued) => Some(queued.status),
            Body::RunApproved => Some(RunStatus::Approved),
            Body::RunStarted(_) | Body::RunResumed | Body::RunReopened => Some(RunStatus::Running),
            Body::RunPaused => Some(RunStatus::Paused),
            Body::RunCompleted => Some(RunStatus::Completed),
            Body::RunFailed { .. } => Some(RunStatus::Failed),
            Body::RunCancelled { .. } => Some(RunStatus::Cancelled),
            Body::RunTerminated { .. } => Some(RunStatus::Terminated),
            _ => None,
        }
    }

    /// Roughly how many bytes the event takes in the log.
    #[must_use]
    pub fn size(&self) -> u64 {
        let variable = match self {
            Body::RunQueued(queued) => queued.payload.len(),
            Body::StepCompleted { output, beyond } => carried(output.as_ref(), beyond.as_deref()),
            Body::StepReused(reused) => carried(reused.output.as_ref(), reused.beyond.as_deref()),
            Body::ArtifactRecorded(artifact) => 200 + artifact.metadata.len(),
            Body::SignalAccepted { payload, .. } => payload.len(),
            Body::RunFailed { error } | Body::StepFailed { error } => error.message.len(),
            Body::StepRetryScheduled { reset: steps, .. } | Body::StepsSkipped { steps } => steps.len() * 16,
            Body::RunPatched(patched) => patched.size(),
            _ => 0,
        };
        128 + variable as u64
    }
}

fn carried(output: Option<&Json>, beyond: Option<&Beyond>) -> usize {
    output.map_or(0, Json::len) + beyond.map_or(0, Beyond::size)
}

impl Patched {
    fn size(&self) -> usize {
        let steps = self.added.len() + self.changed.len() + self.removed.len() + self.rerun.len() + self.reset.len();
        self.ops.as_ref().map_or(0, Json::len) + steps * 16
    }
}

impl SignalId {
    /// Of the patch that an attempt returned. Derived, so that an attempt has one, however often it is told of.
    #[must_use]
    pub fn of_self_patch(run: RunId, step: &str, logical_attempt: u32) -> SignalId {
        let attempt = logical_attempt.to_be_bytes();
        let parts = [b"milepost.self_patch".as_slice(), run.0.as_bytes(), step.as_bytes(), &attempt];
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&Digest::of_parts(parts).0[..16]);
        SignalId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl TaskId {
    /// Derived, so that nobody has to remember it: all attempts of a step are one task. Looks like a UUIDv7 of the moment
    /// its run was made, so tasks of one run lie side by side.
    #[must_use]
    pub fn of(run: RunId, step: StepRef) -> TaskId {
        let item = step.item.map_or(0, |item| u64::from(item) + 1);
        let parts = [b"milepost.task".as_slice(), run.0.as_bytes(), &step.step.to_be_bytes(), &item.to_be_bytes()];
        let digest = Digest::of_parts(parts);
        let mut bytes = *run.0.as_bytes();
        bytes[8..].copy_from_slice(&digest.0[..8]);
        TaskId(uuid::Builder::from_bytes(bytes).with_variant(uuid::Variant::RFC4122).into_uuid())
    }
}

impl EventId {
    /// Derived, so that it is unique because (run, seq) is, and costs no index.
    #[must_use]
    pub fn of(run: RunId, seq: u64) -> EventId {
        let digest = Digest::of_parts([b"milepost.event".as_slice(), run.0.as_bytes(), &seq.to_be_bytes()]);
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&digest.0[..16]);
        EventId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}
