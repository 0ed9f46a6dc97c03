//! What a run may do. `decide` turns a command into events, and the events change the state through `apply`; both are
//! pure. One file per thing a run can do.
//!
//! ```text
//!   command ──► decide ──► events ──► apply ──► state ──► what else follows? ──► …
//!                  │
//!                  ├──► effects: values the engine carries out after (or in) the commit
//!                  └──► questions: facts that are missing; answered with `learn`, then `Command::Continue`
//! ```
//!
//! **Invariant:** the state changes only through `apply`, so folding the log gives the state that deciding left.
//! **Invariant:** a decision that was rejected emitted nothing.

mod apply;
mod artifact;
mod attempts;
mod cache;
mod checkpoint;
mod child;
mod evaluate;
mod facts;
mod finish;
mod flight;
mod foreach;
mod items;
mod lease;
mod look;
mod operator;
mod patch;
mod patched;
mod preview;
mod ready;
mod recover;
mod retry;
mod self_patch;
mod signal;
mod start;
mod state;
mod step;
mod stop;
mod timer;
mod upstream;
mod wait;
mod waiting;
mod weigh;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::Arc;

use crate::artifact::Beyond;
use crate::cache::Flight;
use crate::event::{Body, EngineRef, ErrorInfo, Event, Lease, StepRef};
use crate::id::{NodeId, RunId, SignalId};
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::{CacheScope, Plan, StepIndex};
use crate::secret::Placeholders;
use crate::time::Timestamp;
use crate::trace::TraceContext;

pub use apply::Illegal;
pub use artifact::RecordArtifact;
pub use attempts::{Attempt, AttemptStatus, attempts};
pub use cache::{CacheChange, CacheQuestions, Kept, Lookup};
pub use checkpoint::{CHECKPOINT_FORMAT, UnreadableCheckpoint};
pub use look::{ItemCounts, ResolvedInput, unknown_step};
pub use patch::{PatchEffects, PatchRun};
pub use preview::{ItemsPreview, Preview, StepOutlook, StepPreview, WhyRun};
pub use signal::payload_digest;
pub use start::{SlotQuestion, StartRun, Starting, check_payload};
pub use state::{RunState, TimerChange};
pub use stop::end_unseen;
pub use waiting::WaitsFor;

/// Something that is to happen to a run.
#[derive(Clone, Debug)]
pub enum Command {
    /// An executor has room for this ready step.
    Dispatch {
        step: StepRef,
        worker: NodeId,
    },
    /// A worker is given this ready step.
    Lease {
        step: StepRef,
        lease: Lease,
    },
    /// A worker says how its attempt ended. Said again, it changes nothing.
    Report {
        task: TaskRef,
        nonce: u64,
        outcome: Outcome,
    },
    /// The worker that had the attempt is gone, or never got it.
    LoseLease {
        task: TaskRef,
    },
    Complete {
        task: TaskRef,
        output: Json,
    },
    Fail {
        task: TaskRef,
        error: ErrorInfo,
    },
    FireTimer {
        seq: u64,
    },
    Signal(Signal),
    /// A signal that counts only if the run still stands at this event.
    SignalAt {
        signal: Signal,
        expected_seq: u64,
    },
    ChildEnded {
        child: RunId,
        outcome: ChildOutcome,
    },
    /// So many runs hold a slot under this run's concurrency key.
    SlotsHeld {
        held: u32,
    },
    /// This node takes the run over from one that is gone; `None` when nobody had it.
    Adopt {
        lost: Option<NodeId>,
    },
    /// The definition is to be another from here on.
    Patch(Box<PatchRun>),
    /// `Complete` or `Report` of an attempt that returned a patch, with the plan that the patch makes, or why it makes none.
    Patching {
        outcome: Box<Command>,
        plan: Result<Arc<Plan>, String>,
    },
    /// `Complete` or `Report` of an attempt that leaves files, or `ChildEnded` of a run with a large output.
    Leaving {
        outcome: Box<Command>,
        beyond: Box<Beyond>,
    },
    /// A file is there that belongs to the run.
    Record(Box<RecordArtifact>),
    /// A `Signal`, `SignalAt` or `Record` whose id the log does not have: it was looked for.
    Unseen(Box<Command>),
    /// The missing facts are there now.
    Continue,
}

impl Command {
    /// Whether it has an id, and changes nothing when it comes again.
    #[must_use]
    pub fn has_id(&self) -> bool {
        matches!(
            self,
            Command::Signal(_) | Command::SignalAt { .. } | Command::Patch(_) | Command::Record(_) | Command::Unseen(_)
        )
    }

    /// The event at which the run has to stand.
    #[must_use]
    pub fn expected_seq(&self) -> Option<u64> {
        match self {
            Command::SignalAt { expected_seq, .. } => Some(*expected_seq),
            Command::Patch(patch) => patch.expected_seq,
            Command::Unseen(command) => command.expected_seq(),
            _ => None,
        }
    }

    /// What it asks for, in a few words: the same for the same thing asked again, whoever asks.
    #[must_use]
    pub fn deed(&self) -> String {
        let of = |word: &str, step: &StepRef| match step.item {
            None => format!("{word} step #{}", step.step),
            Some(item) => format!("{word} step #{}[{item}]", step.step),
        };
        match self {
            Command::Dispatch { step, .. } | Command::Lease { step, .. } => of("begin", step),
            Command::Report { task, .. } | Command::Complete { task, .. } | Command::Fail { task, .. } => {
                of("end", &task.step)
            }
            Command::LoseLease { task } => of("lose", &task.step),
            Command::FireTimer { seq } => format!("fire timer {seq}"),
            Command::Signal(signal) | Command::SignalAt { signal, .. } => format!("take {}", signal.name),
            Command::ChildEnded { child, .. } => format!("hear of child {child}"),
            Command::SlotsHeld { .. } => "take a slot".to_owned(),
            Command::Adopt { .. } => "adopt".to_owned(),
            Command::Patch(_) => "patch".to_owned(),
            Command::Patching { outcome, .. } | Command::Leaving { outcome, .. } => outcome.deed(),
            Command::Record(_) => "record a file".to_owned(),
            Command::Unseen(command) => command.deed(),
            Command::Continue => "continue".to_owned(),
        }
    }

    /// How the attempt ends instead, if this says that it ended well and that cannot be kept.
    #[must_use]
    pub fn failed(&self, error: impl FnOnce() -> ErrorInfo) -> Option<Command> {
        match self {
            Command::Complete { task, .. } => Some(Command::Fail { task: *task, error: error() }),
            Command::Report { task, nonce, outcome: Outcome::Completed(_) } => {
                Some(Command::Report { task: *task, nonce: *nonce, outcome: Outcome::Failed(error()) })
            }
            Command::Leaving { outcome, .. } | Command::Patching { outcome, .. } => outcome.failed(error),
            _ => None,
        }
    }
}

/// One attempt of one step, as its executor knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskRef {
    pub step: StepRef,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Completed(Json),
    Failed(ErrorInfo),
}

#[derive(Clone, Debug)]
pub struct Signal {
    pub id: SignalId,
    /// `PAUSE`, `RESUME`, …, or a name of the user's own.
    pub name: String,
    pub step: Option<String>,
    pub payload: Json,
    /// Who sends it.
    pub actor: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ChildOutcome {
    Completed {
        output: Json,
    },
    Failed {
        error: ErrorInfo,
    },
    /// Cancelled or terminated.
    Stopped,
}

/// What the engine has to do once the events are written (or, where it writes rows, in the same commit).
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Give this step to an executor that has room.
    Ready {
        step: StepRef,
        /// Only so many workers may have tasks with this key.
        slot: Option<StepSlot>,
    },
    Execute(Box<Task>),
    /// Give it to the worker that the lease names.
    HandOver {
        task: Box<Task>,
        lease: Lease,
    },
    /// The step is neither in line nor in a worker's hands any more.
    Gone {
        step: StepRef,
        /// A worker had it.
        leased: bool,
    },
    CancelTask {
        task: TaskRef,
    },
    Timer(TimerChange),
    Cache(CacheChange),
    /// The step is not to be begun: somebody else makes its result. It asks again (`Adopt`) when that flight is over.
    Await {
        step: StepRef,
        scope: CacheScope,
        flight: Flight,
    },
    StartChild(Box<ChildStart>),
    StopChild {
        child: RunId,
        terminate: bool,
    },
    NotifyParent {
        parent: RunId,
        outcome: ChildOutcome,
    },
    HoldSlot,
    WaitForSlot {
        limit: u32,
    },
    ReleaseSlot,
    Checkpoint {
        seq: u64,
        state: Vec<u8>,
    },
}

/// A step's concurrency key, evaluated, and how many tasks may be under way with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSlot {
    pub key: Arc<str>,
    pub limit: u32,
}

/// A step's attempt, ready to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub task: TaskRef,
    pub index: StepIndex,
    /// `shots[3]`.
    pub step_id: String,
    pub input: Json,
    /// Where the document wrote that secrets are to be put into the input.
    pub placeholders: Placeholders,
    /// The trace of whoever started the run.
    pub trace: Option<TraceContext>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChildStart {
    pub run: RunId,
    pub reference: String,
    pub payload: Json,
    pub priority: i32,
    pub parent: crate::event::ParentStep,
    /// The parent's trace goes on in the child, below the step that starts it.
    pub trace: TraceContext,
}

/// What a command led to.
#[derive(Debug, Default)]
pub struct Decision {
    pub events: Vec<Event>,
    pub effects: Vec<Effect>,
    /// Sequence numbers of events whose content is needed before this can be committed.
    pub missing: Vec<u64>,
    /// What must be known of results that are kept; decided again with `Command::Continue`.
    pub cache: CacheQuestions,
    /// Steps are ready that were not looked at, as looking at the others was work enough for one decision: to be decided
    /// again with `Command::Continue`, when this is written. Not if something is asked: its answer leads on.
    pub more: bool,
    /// The attempt returned this patch: nothing was decided, as the plan that it makes is needed first
    /// ([`Command::Patching`]).
    pub patch: Option<Json>,
}

/// Why a command was not carried out. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    pub kind: RejectionKind,
    /// Stable, for programs.
    pub code: &'static str,
    /// Says what is wrong and what to do.
    pub message: String,
}

/// Cut by what the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionKind {
    /// Correct it and send it again.
    Invalid,
    NotFound,
    /// It does not fit the run as it stands now.
    Conflict,
    /// Too much at once: try again later.
    Limited,
    /// An outcome of an attempt that is no longer this one's: drop it.
    Stale,
    /// A rule was broken in here. The state is worth nothing any more.
    Bug,
}

impl Rejection {
    /// The code of a command that named the event at which the run had to stand.
    pub const MOVED: &'static str = "precondition_failed";
    /// The code of what has an id that the state may have forgotten: the log has to be searched for it.
    pub const UNSURE: &'static str = "id_unsure";
    /// The code of a patch that was made for a plan which the run no longer has.
    pub const PLAN_MOVED: &'static str = "plan_moved";

    pub(crate) fn new(kind: RejectionKind, code: &'static str, message: impl Into<String>) -> Rejection {
        Rejection { kind, code, message: message.into() }
    }
}

/// What comes in with a command: the time, randomness and the settings.
#[derive(Debug)]
pub struct Context<'a> {
    pub now: Timestamp,
    pub limits: &'a Limits,
    /// Who decides, for the log.
    engine: Option<&'a EngineRef>,
    entropy: Cell<u64>,
}

impl<'a> Context<'a> {
    #[must_use]
    pub fn new(now: Timestamp, entropy: u64, limits: &'a Limits) -> Context<'a> {
        Context { now, limits, engine: None, entropy: Cell::new(entropy) }
    }

    /// The same, of this engine.
    #[must_use]
    pub fn of(self, engine: &'a EngineRef) -> Context<'a> {
        Context { engine: Some(engine), ..self }
    }

    /// The next number drawn from the entropy that came in (splitmix64).
    fn draw(&self) -> u64 {
        let next = self.entropy.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.entropy.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A new UUIDv7. The twelve bits after the milliseconds are their fraction, so that of two runs started one after
    /// the other the second has the greater id.
    #[must_use]
    pub fn draw_run_id(&self) -> RunId {
        let us = u64::try_from(self.now.0).unwrap_or(0);
        let (ms, fraction) = (us / 1000, us % 1000 * 4096 / 1000);
        let mut random = [0_u8; 10];
        random[..2].copy_from_slice(&(fraction as u16).to_be_bytes());
        random[2..].copy_from_slice(&self.draw().to_be_bytes());
        RunId(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid())
    }
}

/// Decides what a command does to a run.
///
/// # Errors
/// The command does not fit; nothing was changed (unless the kind is `Bug`).
pub fn decide(state: &mut RunState, command: Command, context: &Context<'_>) -> Result<Decision, Rejection> {
    if !matches!(command, Command::Continue) {
        state.forget_answers();
    }
    let mut decider = Decider::new(state, context);
    let command = match command {
        Command::Unseen(command) => {
            decider.unseen = true;
            *command
        }
        other => other,
    };
    match command {
        Command::Unseen(_) => return Err(Rejection::new(RejectionKind::Bug, "internal", "a command is wrapped twice")),
        Command::Dispatch { step, worker } => decider.dispatch(step, worker)?,
        Command::Lease { step, lease } => decider.lease(step, lease)?,
        Command::Report { task, nonce, outcome } => decider.report(task, nonce, outcome)?,
        Command::LoseLease { task } => decider.lose_lease(task)?,
        Command::Complete { task, output } => decider.complete(task, output)?,
        Command::Fail { task, error } => decider.fail(task, error)?,
        Command::FireTimer { seq } => decider.fire_timer(seq)?,
        Command::Signal(signal) => decider.signal(signal)?,
        Command::SignalAt { signal, expected_seq } => decider.signal_at(signal, expected_seq)?,
        Command::ChildEnded { child, outcome } => decider.child_ended(child, outcome)?,
        Command::SlotsHeld { held } => decider.slots_held(held)?,
        Command::Adopt { lost } => decider.adopt(lost),
        Command::Patch(patch) => decider.patch(*patch)?,
        Command::Patching { outcome, plan } => decider.complete_patching(*outcome, plan)?,
        Command::Leaving { outcome, beyond } => decider.complete_leaving(*outcome, *beyond)?,
        Command::Record(record) => decider.record(*record)?,
        Command::Continue => decider.unblock(),
    }
    decider.finish()
}

/// Gathers what one command leads to. The state it holds is changed only by the events it emits.
struct Decider<'a> {
    state: &'a mut RunState,
    context: &'a Context<'a>,
    decision: Decision,
    /// The signal that this is about.
    signal: Option<SignalId>,
    /// Who sent it.
    actor: Option<Arc<str>>,
    /// What became of the patch that the attempt returned.
    prepared: Option<Result<Arc<Plan>, String>>,
    /// What the attempt leaves beyond its output.
    beyond: Option<Beyond>,
    /// The log was searched for the id of this, and does not have it.
    unseen: bool,
    /// Steps could begin when this was begun.
    moved: bool,
    broken: Option<Illegal>,
}

impl<'a> Decider<'a> {
    fn new(state: &'a mut RunState, context: &'a Context<'a>) -> Decider<'a> {
        let (decision, moved) = (Decision::default(), state.moves());
        state.scratch.spent = 0;
        Decider {
            state,
            context,
            decision,
            signal: None,
            actor: None,
            prepared: None,
            beyond: None,
            unseen: false,
            moved,
            broken: None,
        }
    }

    /// Follows up on all that became ready, ends the run if it is over, rotates its history if it is long.
    fn finish(mut self) -> Result<Decision, Rejection> {
        self.advance();
        if self.decision.missing.is_empty() {
            self.settle();
        }
        if self.decision.missing.is_empty() {
            self.rotate_history();
        }
        self.land_if_held_up();
        self.decision.missing.sort_unstable();
        self.decision.missing.dedup();
        self.state.forget_large_values();
        let asks = !self.decision.missing.is_empty() || !self.decision.cache.is_empty();
        self.decision.more = !asks && self.state.goes_on();
        if let Some(illegal) = self.broken {
            return Err(Rejection::new(RejectionKind::Bug, "internal", illegal.to_string()));
        }
        Ok(self.decision)
    }

    fn emit_run(&mut self, body: Body) {
        self.emit(None, 0, 0, None, body);
    }

    fn emit_step(&mut self, step: StepRef, logical_attempt: u32, engine_attempt: u32, body: Body) {
        self.emit(Some(step), logical_attempt, engine_attempt, None, body);
    }

    fn emit(
        &mut self,
        step: Option<StepRef>,
        logical_attempt: u32,
        engine_attempt: u32,
        parent: Option<u64>,
        body: Body,
    ) {
        let event = Event {
            seq: self.state.last_seq + 1,
            at: self.context.now,
            step,
            logical_attempt,
            engine_attempt,
            signal: self.signal,
            parent,
            actor: self.actor.clone().filter(|_| body.is_asked_for()),
            body,
        };
        if self.broken.is_some() {
            return;
        }
        let lands = step.filter(|_| self.lands(step, &event.body));
        match self.state.apply(&event) {
            Ok(()) => self.decision.events.push(event),
            Err(illegal) => self.broken = Some(illegal),
        }
        self.decision.effects.extend(lands.map(|step| Effect::Cache(CacheChange::Land { step })));
        let changes = self.state.scratch.timer_changes.drain(..).map(Effect::Timer);
        self.decision.effects.extend(changes);
        let gone = self.state.scratch.gone.drain(..).map(|(step, leased)| Effect::Gone { step, leased });
        self.decision.effects.extend(gone);
    }

    fn effect(&mut self, effect: Effect) {
        self.decision.effects.push(effect);
    }
}
