//! The committer: commands for many runs are decided together and written in one transaction.
//!
//! ```text
//!   callers, executor, timers, reaper, workers
//!        │ Message (bounded queue: callers wait when it is full)
//!        ▼
//!   take ──► load states ──► decide/apply ──► pending batch ──► store.commit ──► answer, execute, project, tell
//!                 ▲                                │    (while one batch is on its way, the next one gathers)
//!                 └────── compare-and-swap lost: forget the state, decide again
//! ```
//!
//! **Invariant:** one task owns all run states; nothing else changes them.
//! **Invariant:** effects outside the database happen only after the commit that holds their events.

mod artifacts;
mod care;
mod children;
mod commit;
mod decide;
mod dispatch;
mod flights;
mod hand_over;
mod hot;
mod limits;
mod lines;
mod load;
mod offers;
mod pending;
mod pushes;
mod results;
mod self_patch;
mod start;
mod states;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::event::EngineRef;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::{Plan, StepIndex};
use milepost_core::run::{Command, Signal, StartRun};
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use tokio::sync::{mpsc, oneshot};

use crate::artifacts::Artifacts;
use crate::cache::Hot;
use crate::care::Care;
use crate::clock::Clock;
use crate::error::EngineError;
use crate::executor::Executor;
use crate::flights::Flights;
use crate::outbox::Outbox;
use crate::plans::Plans;
use crate::projector::{Committed, ProjectorHandle};
use crate::secrets::Secrets;
use crate::supervisor::Pulse;
use crate::telemetry::Telemetry;
use crate::timers::TimerHandle;
use crate::watch::Watchers;
use crate::work::Work;
use crate::workers::Leases;

pub(crate) use artifacts::rows as artifact_rows;
use care::Noted;
use children::{PreparedChild, PreparedChildren};
use commit::InFlight;
use dispatch::ReadyQueue;
use hand_over::Handing;
pub(crate) use hand_over::{in_line, queue_of};
use hot::AtHand;
pub(crate) use limits::LimitedQueues;
use limits::Parked;
use lines::Lines;
pub(crate) use lines::Waiting;
pub(crate) use offers::Offer;
use offers::Offers;
use pending::{Asking, Pending, Unsure};
use states::States;
pub(crate) use states::{restore, restore_with};
use turns::{MOST_WAITING, Turns};

/// Requests that may wait in line; callers beyond that wait themselves.
const QUEUE: usize = 4096;
/// A batch that has grown to this many requests takes no more until it is on its way.
const BATCH_REQUESTS: usize = 1024;

/// Something to be decided and written.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    pub(crate) reply: Option<Reply>,
    /// An executor has room again.
    pub(crate) frees_slot: bool,
    /// The run's state was read anew for this; if it does not fit now, it does not fit.
    pub(crate) reread: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum RequestKind {
    Start {
        start: Box<StartRun>,
        plan: Arc<Plan>,
        /// When it was decided first, if that was taken back.
        at: Option<Timestamp>,
    },
    Command {
        org: OrgId,
        run: RunId,
        command: Command,
    },
    /// See whether there is room under the run's concurrency key.
    TrySlot {
        org: OrgId,
        run: RunId,
    },
    /// The head row has said for some time that this node has something to do for the run.
    Care {
        org: OrgId,
        run: RunId,
    },
    /// The log of a run that this node has work of goes up to here: another node has added to it, perhaps.
    Look {
        org: OrgId,
        run: RunId,
        seq: u64,
    },
    /// End a run that is parked, without looking at its plan.
    EndParked {
        org: OrgId,
        run: RunId,
        signal: Signal,
    },
}

impl RequestKind {
    fn run(&self) -> RunId {
        match self {
            RequestKind::Start { start, .. } => start.run,
            RequestKind::Command { run, .. }
            | RequestKind::TrySlot { run, .. }
            | RequestKind::Care { run, .. }
            | RequestKind::Look { run, .. }
            | RequestKind::EndParked { run, .. } => *run,
        }
    }
}

impl RequestKind {
    /// A run of a node that is gone.
    fn takes_over(&self) -> bool {
        matches!(self, RequestKind::Command { command: Command::Adopt { lost: Some(_) }, .. })
    }
}

pub(crate) type Reply = oneshot::Sender<Result<Accepted, EngineError>>;

/// What was asked for is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub run: RunId,
    pub status: RunStatus,
    /// A run with the same request id, or the same signal, was there already; nothing was written.
    pub existing: bool,
    /// The run's last event when that was written.
    pub last_seq: u64,
}

impl Request {
    pub(crate) fn command(org: OrgId, run: RunId, command: Command) -> Request {
        Request::of(RequestKind::Command { org, run, command })
    }

    fn of(kind: RequestKind) -> Request {
        Request { kind, reply: None, frees_slot: false, reread: false }
    }

    /// Offers again all that is ready, if nobody else has the run.
    pub(crate) fn revive(org: OrgId, run: RunId) -> Request {
        Request::command(org, run, Command::Adopt { lost: None })
    }

    /// How a task ended.
    pub(crate) fn outcome(org: OrgId, run: RunId, command: Command) -> Request {
        Request { frees_slot: true, ..Request::command(org, run, command) }
    }

    pub(crate) fn try_slot(org: OrgId, run: RunId) -> Request {
        Request::of(RequestKind::TrySlot { org, run })
    }

    pub(crate) fn care(org: OrgId, run: RunId) -> Request {
        Request::of(RequestKind::Care { org, run })
    }

    pub(crate) fn look(org: OrgId, run: RunId, seq: u64) -> Request {
        Request::of(RequestKind::Look { org, run, seq })
    }
}

/// What the committer is told.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    /// What a worker says and what it has room for: decided together, so that what its results make ready may be its own.
    Exchange {
        results: Vec<Request>,
        offer: Option<Offer>,
    },
    /// Nobody waits for this offer's answer any more.
    Withdraw(u64),
    /// This worker let a lease run out: what it offers may be as dead as it seems to be. If it lives, it calls again.
    Silent(Arc<str>),
    /// Steps that waited elsewhere are in line here now.
    Waiting(Vec<Waiting>),
    /// What found no room under a limit may find some now.
    TryParked,
    /// The same for what found no room at its host.
    TryPushes,
    /// Child runs can be started now; what waited for them is decided again.
    Children {
        children: Vec<PreparedChild>,
        requests: Vec<Request>,
    },
    /// From which queues do workers take?
    WantedQueues(oneshot::Sender<std::collections::BTreeSet<String>>),
}

/// Where requests are put in.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    sender: mpsc::Sender<Message>,
    marks: mpsc::UnboundedSender<Mark>,
}

/// Where requests come out.
pub(crate) struct Requests {
    requests: mpsc::Receiver<Message>,
    marks: mpsc::UnboundedReceiver<Mark>,
}

/// Somebody who waits until the batch on its way has been handed on.
type Mark = oneshot::Sender<()>;

impl Inbox {
    pub(crate) fn new() -> (Inbox, Requests) {
        let (sender, requests) = mpsc::channel(QUEUE);
        let (mark, marks) = mpsc::unbounded_channel();
        (Inbox { sender, marks: mark }, Requests { requests, marks })
    }

    /// Waits until what is in the database now has been handed to the projector: who saw it there may be first.
    pub(crate) async fn caught_up(&self) {
        let (mark, passed) = oneshot::channel();
        if self.marks.send(mark).is_ok() {
            let _ = passed.await;
        }
    }

    /// Puts a request in line and waits until it is written.
    pub(crate) async fn ask(&self, kind: RequestKind) -> Result<Accepted, EngineError> {
        let (reply, answer) = oneshot::channel();
        let request = Request { reply: Some(reply), ..Request::of(kind) };
        self.send(Message::Request(request)).await?;
        answer.await.map_err(|_| EngineError::ShuttingDown)?
    }

    /// Requests that wait in line.
    pub(crate) fn depth(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Puts a request in line. After shutdown there is nobody to take it; recovery will see to the run.
    pub(crate) async fn report(&self, request: Request) {
        let _ = self.sender.send(Message::Request(request)).await;
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), EngineError> {
        self.sender.send(message).await.map_err(|_| EngineError::ShuttingDown)
    }

    /// Says it if there is room in line.
    pub(crate) fn try_send(&self, message: Message) {
        let _ = self.sender.try_send(message);
    }
}

pub(crate) struct Committer {
    parts: Parts,
    states: States,
    pending: Pending,
    in_flight: Option<InFlight>,
    ready: ReadyQueue,
    /// What waits for workers, and the workers that wait for it.
    lines: Lines,
    offers: Offers,
    /// Offers that are for what there is now.
    impatient: Vec<u64>,
    /// Whom the step goes to that is being decided.
    handing: Option<Handing>,
    /// The patch that the attempt returned whose outcome is being decided: the plan that it makes is needed first.
    returned_patch: Option<Json>,
    /// Child runs that can be started.
    prepared: PreparedChildren,
    /// What finds no room under a limit.
    parked: Parked,
    /// Requests that have to be decided again.
    again: Vec<Request>,
    /// Requests that wait for their turn.
    turns: Turns,
    /// Questions that wait for the next batch.
    asking_later: Vec<Asking>,
    /// The batch was full before all steps that could begin had begun.
    unfinished: bool,
    /// Commits for which the projector had no room.
    unprojected: Vec<Committed>,
    /// Who waits for the batch on its way, and for whom it has arrived.
    marks: Vec<Mark>,
    passed: Vec<Mark>,
    /// By plan: whether this node has all its skills.
    runnable: HashMap<Digest, bool>,
    /// Outputs of results that Redis had.
    at_hand: AtHand,
    /// By plan: the steps whose results depend on variables or secrets.
    surrounded: HashMap<Digest, Arc<[StepIndex]>>,
    /// The flights that the gathering batch begins.
    begun: flights::Begun,
    /// Requests for runs that cannot be read before the batch on its way has arrived.
    held: Vec<Request>,
    /// Steps handed out by batches of which nobody knows whether they were written.
    unsure: HashMap<RunId, Unsure>,
    /// Runs that this node has work of: up to where it has written or read their logs.
    known: HashMap<RunId, u64>,
    /// What is about to be decided, as the database knows it.
    noted: Noted,
    entropy: u64,
}

/// What a committer is made of.
pub(crate) struct Parts {
    pub(crate) node: NodeId,
    /// The same for the log.
    pub(crate) engine: EngineRef,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) plans: Arc<Plans>,
    pub(crate) work: Work,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) executor: Executor,
    pub(crate) leases: Arc<Leases>,
    pub(crate) flights: Flights,
    pub(crate) care: Care,
    pub(crate) outbox: Outbox,
    pub(crate) limited_queues: LimitedQueues,
    /// Steps may wait for workers.
    pub(crate) workers: bool,
    pub(crate) projector: ProjectorHandle,
    pub(crate) timers: TimerHandle,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) telemetry: Telemetry,
    pub(crate) hot: Hot,
    pub(crate) inbox: Inbox,
    pub(crate) inline_concurrency: usize,
    pub(crate) cached_bytes: usize,
}

impl Committer {
    pub(crate) fn new(parts: Parts) -> Committer {
        Committer {
            states: States::new(parts.cached_bytes),
            pending: Pending::default(),
            in_flight: None,
            ready: ReadyQueue::new(parts.inline_concurrency),
            lines: Lines::default(),
            offers: Offers::default(),
            impatient: Vec::new(),
            handing: None,
            returned_patch: None,
            prepared: PreparedChildren::default(),
            parked: Parked::default(),
            again: Vec::new(),
            turns: Turns::default(),
            asking_later: Vec::new(),
            unfinished: false,
            unprojected: Vec::new(),
            marks: Vec::new(),
            passed: Vec::new(),
            runnable: HashMap::new(),
            at_hand: AtHand::default(),
            surrounded: HashMap::new(),
            begun: HashMap::new(),
            held: Vec::new(),
            unsure: HashMap::new(),
            known: HashMap::new(),
            noted: Noted::default(),
            entropy: crate::clock::entropy(),
            parts,
        }
    }

    /// Runs until told to stop; then writes what was taken and ends.
    pub(crate) async fn run(mut self, requests: Requests, mut stop: oneshot::Receiver<()>, pulse: Arc<Pulse>) {
        let Requests { mut requests, mut marks } = requests;
        let mut messages = Vec::with_capacity(BATCH_REQUESTS);
        let mut stopping = false;
        loop {
            let has_room =
                !self.pending.is_full() && self.pending.requests() < BATCH_REQUESTS && self.turns.len() < MOST_WAITING;
            // What is to be decided, and a batch that could not go with the last one, wait for nobody. A full batch waits until
            // it can go.
            let can_wait = !self.has_to_do()
                && self.unprojected.is_empty()
                && (self.in_flight.is_some() || self.pending.is_empty());
            tokio::select! {
                biased;
                done = commit::done(&mut self.in_flight) => self.committed(done),
                Some(mark) = marks.recv() => self.marks.push(mark),
                () = pulse.asked() => {}
                _ = &mut stop, if !stopping => stopping = true,
                count = requests.recv_many(&mut messages, BATCH_REQUESTS), if !stopping && has_room => {
                    if count == 0 {
                        stopping = true;
                    }
                }
                () = std::future::ready(()), if !can_wait => {}
            }
            for committed in self.unprojected.drain(..) {
                self.parts.projector.committed(committed).await;
            }
            if self.in_flight.is_none() {
                self.passed.append(&mut self.marks);
                // Not while a batch is on its way: a store that never answers is silence, too.
                pulse.answer();
            }
            for mark in self.passed.drain(..) {
                // One that no longer waits is no loss.
                let _ = mark.send(());
            }
            if !messages.is_empty() || self.has_to_do() {
                self.take_messages(&mut messages).await;
            }
            if self.pending.is_empty() {
                // Requests that left nothing to write fill no batch.
                self.pending.count_anew();
            }
            if self.in_flight.is_none() && !self.pending.is_empty() {
                self.send().await;
            }
            let done = self.again.is_empty() && self.turns.is_empty() && self.unprojected.is_empty();
            let done = done && self.pending.is_empty();
            if stopping && self.in_flight.is_none() && done {
                return;
            }
        }
    }
    /// Something is to be decided, and the gathering batch has room for it.
    fn has_to_do(&self) -> bool {
        let something = self.unfinished || !self.again.is_empty() || !self.turns.is_empty();
        something && !self.pending.is_full()
    }
}
