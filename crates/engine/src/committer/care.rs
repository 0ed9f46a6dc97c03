//! Runs that may bring the process down: what is about to be decided is noted first, and suspects are decided one by one.
//!
//! A note names all runs under care that are decided next; the next note takes its place. So when the process dies, its note
//! says which runs it may have been, and if it names one only, which it was. Nothing of this happens in normal operation.
//!
//! **Invariant:** a suspect is loaded and decided while the note names it and no other.
//! **Invariant:** nothing is noted inside a transaction of questions: what is decided there is noted before.

use std::sync::Arc;

use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::run::{CacheChange, ChildOutcome, Command, Signal, end_unseen};
use milepost_core::status::RunStatus;
use milepost_store::rows::{HeadRow, Note, RunFilter, SlotWrite, StatusWrite, TaskWrite, TimerWrite};

use super::decide::{FollowUp, FollowUps, stop_signal};
use super::pending::{Asking, Decided, With};
use super::{Accepted, Committer, Reply, Request, RequestKind};
use crate::care::Standing;
use crate::error::EngineError;

/// A run that is about to be decided, and at what.
pub(super) type Deed = (OrgId, RunId, String);

/// So many children of a run that is ended unseen are ended with it at once.
const CHILDREN: u32 = 1000;

/// What this node has noted.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// There is anything.
    any: bool,
    /// A transaction is open: nothing else can be written now.
    in_transaction: bool,
}

impl RequestKind {
    /// What is to be decided of which run, if it is there already.
    fn deed(&self) -> Option<Deed> {
        match self {
            RequestKind::Start { .. } | RequestKind::Care { .. } | RequestKind::EndParked { .. } => None,
            RequestKind::Command { org, run, command } => Some((*org, *run, command.deed())),
            RequestKind::TrySlot { org, run } => Some((*org, *run, "take a slot".to_owned())),
            RequestKind::Look { org, run, .. } => Some((*org, *run, "look".to_owned())),
        }
    }
}

impl Committer {
    /// Decides requests, suspects after all others and by themselves. Those that did worst come last.
    pub(super) async fn take_with_care(&mut self, requests: Vec<Request>) {
        self.keep_under_care();
        let (mut together, mut alone) = (Vec::with_capacity(requests.len()), Vec::new());
        for request in requests {
            let Some(deed) = request.kind.deed() else {
                together.push(request);
                continue;
            };
            match self.parts.care.standing(request.kind.run()) {
                Standing::Free => together.push(request),
                Standing::Alone(crashes) => alone.push((crashes, deed, request)),
                Standing::Later => {
                    self.ready.free(usize::from(request.frees_slot));
                    self.later(Request { frees_slot: false, ..request });
                }
                Standing::Parked(error) => {
                    self.ready.free(usize::from(request.frees_slot));
                    if let Some(reply) = request.reply {
                        // A caller that no longer waits is no loss.
                        let _ = reply.send(Err(error));
                    }
                }
            }
        }
        self.take_care(together.iter().filter_map(|request| request.kind.deed())).await;
        self.take_together(together).await;
        alone.sort_by_key(|(crashes, ..)| *crashes);
        let mut alone = alone.into_iter();
        // One of them at least has its turn.
        for (_, deed, request) in alone.by_ref() {
            let run = deed.1;
            self.take_care([deed.clone()]).await;
            self.take_together(vec![request]).await;
            self.survived(run, &deed.2).await;
            if self.pending.is_full() {
                break;
            }
        }
        self.line_up_first(alone.map(|(.., request)| request));
        self.take_care([]).await;
    }

    /// Notes what is about to be decided, in place of what was: those of it that are under care.
    pub(super) async fn take_care(&mut self, deeds: impl IntoIterator<Item = Deed>) {
        if self.noted.in_transaction || (!self.noted.any && !self.parts.care.is_active()) {
            return;
        }
        let mut notes: Vec<Note> = Vec::new();
        for (org, run, deed) in deeds {
            let loaded_with_care = || self.states.peek(run).is_none_or(|entry| entry.with_care);
            if self.parts.care.notes(run, loaded_with_care) {
                notes.push(Note { org, run, deed });
            }
        }
        self.noted.any = !notes.is_empty();
        self.parts.care.deciding(notes).await;
    }

    /// The time after a crash is over. What is under way of the runs that were loaded in it may yet do harm.
    fn keep_under_care(&self) {
        if self.parts.care.has_calmed_down() {
            self.parts.care.keep_under_care(self.states.with_care());
        }
    }

    /// Takes apart those that are to be decided alone.
    pub(super) fn apart<T>(&self, all: Vec<T>, run: impl Fn(&T) -> RunId) -> (Vec<T>, Vec<T>) {
        if !self.parts.care.is_active() {
            return (all, Vec::new());
        }
        all.into_iter().partition(|one| !self.parts.care.suspects(run(one)))
    }

    /// A suspect was decided and the process lives. What was taken back, or asks something first, is not decided yet.
    pub(super) async fn survived(&mut self, run: RunId, deed: &str) {
        let asks =
            self.pending.asking.iter().any(|ask| matches!(ask, Asking::Results { run: asks, .. } if *asks == run));
        let Some(pending) = self.pending.get(run).filter(|_| !asks) else { return };
        let ended = pending.status.as_ref().is_some_and(|to| to.status.is_terminal());
        if self.noted.in_transaction {
            // Nothing else can be written before that is over, and this is not urgent.
            let (care, deed) = (self.parts.care.clone(), deed.to_owned());
            tokio::spawn(async move { care.survived(run, &deed, ended).await });
        } else {
            self.parts.care.survived(run, deed, ended).await;
        }
    }

    /// Before a transaction is opened: notes who asks. Answers the questions that have to wait, so that a suspect asks alone.
    pub(super) async fn take_care_of_questions(&mut self) -> Vec<Asking> {
        let mut held_back = Vec::new();
        if self.parts.care.is_active() {
            let suspects = |ask: &Asking| of(ask).is_some_and(|(_, run, _)| self.parts.care.suspects(run));
            let asking = std::mem::take(&mut self.pending.asking);
            let (mut alone, together): (Vec<Asking>, Vec<Asking>) = asking.into_iter().partition(suspects);
            if together.is_empty() {
                held_back = alone.split_off(alone.len().min(1));
                self.pending.asking = alone;
            } else {
                held_back = alone;
                self.pending.asking = together;
            }
        }
        let deeds: Vec<Deed> = self.pending.asking.iter().flat_map(deeds_of).collect();
        self.take_care(deeds).await;
        self.noted.in_transaction = true;
        held_back
    }

    /// The transaction is over.
    pub(super) async fn care_is_taken(&mut self, held_back: Vec<Asking>) {
        self.noted.in_transaction = false;
        self.pending.asking.extend(held_back);
        self.take_care([]).await;
    }

    /// Ends a parked run without loading it: what is known of it beside its state is enough to leave nothing behind.
    pub(super) async fn end_parked(
        &mut self,
        org: OrgId,
        run: RunId,
        signal: Signal,
        reply: Option<Reply>,
        follow_ups: &mut FollowUps,
    ) {
        let kind = RequestKind::EndParked { org, run, signal: signal.clone() };
        if self.is_on_its_way(run) || self.pending.get(run).is_some() {
            return self.held.push(Request { reply, ..Request::of(kind) });
        }
        let left = match self.left_by(org, run).await {
            Ok(left) => left,
            Err(error) => return Decided { kind, reply, answer: Err(error) }.tell(),
        };
        let Left { head, plan, timers, tasks, holds_slot, children } = left;
        let now = self.parts.clock.now();
        let events = end_unseen(head.last_seq, &signal, now);
        let last_seq = head.last_seq + events.len() as u64;
        // No state has this number.
        let with = With { run, generation: 0 };
        let (pending, _) = self.pending.place(org, run, &plan, with.generation, head.last_seq);
        let status = RunStatus::Terminated;
        pending.status = Some(StatusWrite { status, started_at: head.started_at, completed_at: Some(now) });
        pending.events = events;
        pending.timers = timers;
        pending.tasks = tasks.into_iter().map(|task| (task.task(), task)).collect();
        pending.slot = holds_slot.as_ref().map(|_| SlotWrite::Release);
        pending.freed_key = holds_slot;
        pending.change_results(CacheChange::RunEnded, now);
        pending.at_rest = true;
        let answer = Ok(Accepted { run, status, existing: false, last_seq });
        pending.decided.push(Decided { kind, reply, answer });
        for child in children {
            let command = stop_signal(run, child, true);
            follow_ups.push_back(FollowUp::Command { org, run: child, command, with });
        }
        if let Some(parent) = head.parent_run {
            let command = Command::ChildEnded { child: run, outcome: ChildOutcome::Stopped };
            follow_ups.push_back(FollowUp::Command { org, run: parent, command, with });
        }
    }

    async fn left_by(&mut self, org: OrgId, run: RunId) -> Result<Left, EngineError> {
        let store = &self.parts.store;
        let head = store.head(org, run).await?.ok_or(EngineError::NoSuchRun(run))?;
        if head.stuck.is_none() || head.status.is_terminal() {
            crate::care::refuse_parked(&head)?;
            // Somebody has said meanwhile that it may be decided.
            return Err(milepost_store::StoreError::Unavailable("the run is not parked any more".to_owned()).into());
        }
        let projected = store.snapshot(org, run).await?.is_some_and(|row| row.last_event_seq == head.last_seq);
        let plan = match projected {
            true => {
                let (name, version) = (head.workflow.as_str().into(), head.workflow_version.as_str().into());
                Arc::new(Plan::unseen(head.plan_hash, name, version))
            }
            // Its projection has to be brought up to date, which needs the names of its steps.
            false => self.parts.plans.by_hash(org, head.plan_hash).await?,
        };
        let timers = store.timers_of(org, run).await?.iter().map(|row| TimerWrite::Disarm { seq: row.seq }).collect();
        let tasks = store.tasks_of(org, run).await?.iter().map(|row| TaskWrite::Delete(row.task)).collect();
        let holds_slot = store.slot_of(org, run).await?.map(|slot| slot.key);
        let statuses = RunStatus::ALL.iter().copied().filter(|status| !status.is_terminal()).collect();
        let filter = RunFilter { statuses, parent_run: Some(run), limit: CHILDREN, ..RunFilter::default() };
        let children = store.list_runs(org, &filter).await?.iter().map(|row| row.run).collect();
        Ok(Left { head, plan, timers, tasks, holds_slot, children })
    }
}

/// What there is of a parked run beside its log.
struct Left {
    head: HeadRow,
    plan: Arc<Plan>,
    timers: Vec<TimerWrite>,
    tasks: Vec<TaskWrite>,
    holds_slot: Option<String>,
    children: Vec<RunId>,
}

/// Who asks, if it is one run.
fn of(ask: &Asking) -> Option<Deed> {
    match ask {
        Asking::Slot { org, run } => Some((*org, *run, "take a slot".to_owned())),
        Asking::Results { org, run, .. } => Some((*org, *run, "take results".to_owned())),
        Asking::Start { .. } | Asking::Limited(_) => None,
    }
}

fn deeds_of(ask: &Asking) -> Vec<Deed> {
    match ask {
        Asking::Limited(tasks) => {
            let command = |step| Command::Dispatch { step, worker: milepost_core::id::NodeId(0) }.deed();
            let deed =
                |task: &super::limits::LimitedTask| (task.waiting.org, task.waiting.run, command(task.waiting.step));
            tasks.iter().map(deed).collect()
        }
        ask => of(ask).into_iter().collect(),
    }
}
