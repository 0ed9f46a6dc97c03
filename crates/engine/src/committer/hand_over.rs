//! Steps go to workers: in the commit that made them ready where one waits, else when one comes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use milepost_core::event::{Lease, StepRef};
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::plan::{Plan, PlanStep, Runtime};
use milepost_core::run::{Command, RejectionKind, StepSlot};
use milepost_core::time::Timestamp;
use milepost_store::rows::{TaskRow, TaskSlot};

use super::decide::FollowUps;
use super::limits::LimitedTask;
use super::pending::Asking;
use super::{Committer, Message, Offer, Request, Waiting};
use crate::care::Standing;
use crate::error::EngineError;
use crate::executor::Executor;
pub(super) use crate::workers::Handed;

/// The queue of a step that names none.
const DEFAULT_QUEUE: &str = "default";

/// So many steps are handed out together at most, and so many at least, however full the batch is.
const TOGETHER: usize = 256;
pub(super) const A_FEW: usize = 4;

/// An offer, its worker, and what goes to it.
type Pair = (u64, Arc<str>, Waiting);

/// What each offer was given.
pub(super) type Given = HashMap<u64, Vec<Handed>>;

/// The offer that a step which is being decided goes to.
#[derive(Debug)]
pub(super) struct Handing {
    pub(super) offer: u64,
    pub(super) since: Instant,
    pub(super) slot: Option<StepSlot>,
}

/// Who carries steps out.
pub(super) struct Places {
    pub(super) executor: Executor,
}

impl Places {
    /// An executor of this process does it; otherwise a worker.
    pub(super) fn is_inline(&self, step: &PlanStep) -> bool {
        match step.runtime {
            Some(runtime) => runtime == Runtime::Inline,
            None => self.executor.knows(&step.skill),
        }
    }
}

impl Committer {
    pub(super) fn is_inline(&self, step: &PlanStep) -> bool {
        Places { executor: self.parts.executor.clone() }.is_inline(step)
    }

    /// Takes what it was told, and what has to be decided again.
    pub(super) async fn take_messages(&mut self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            match message {
                Message::Request(request) => self.line_up(request),
                Message::Exchange { results, offer } => {
                    results.into_iter().for_each(|result| self.line_up(result));
                    if let Some(offer) = offer {
                        self.impatient.extend((!offer.waits).then_some(offer.id));
                        self.offers.add(offer);
                    }
                }
                Message::Withdraw(offer) => drop(self.offers.remove(offer)),
                Message::Silent(worker) => self.offers.remove_of(&worker),
                Message::Waiting(waiting) => waiting.into_iter().for_each(|waiting| self.lines.push(waiting)),
                Message::TryParked => self.try_parked(),
                Message::Children { children, requests: waiting } => {
                    self.children_prepared(children);
                    waiting.into_iter().for_each(|request| self.line_up(request));
                }
                // It is looked at whenever something was taken.
                Message::TryPushes => {}
                Message::WantedQueues(reply) => {
                    let full = self.parked.queues();
                    let mut wanted = self.offers.wanted_queues();
                    wanted.retain(|queue| !full.contains(&**queue));
                    // Nobody may be there to hear it any more.
                    let _ = reply.send(wanted);
                }
            }
        }
        for request in std::mem::take(&mut self.again) {
            self.line_up(request);
        }
        self.take_turns().await;
        // What is ready may have to be run, or not: that is known when the batch goes off.
        if !self.pending.asking.iter().any(|ask| matches!(ask, Asking::Results { .. })) {
            self.let_go_impatient();
        }
    }

    /// Offers that do not wait and were given nothing. One that was given something is looked at again when it is known
    /// whether there was room.
    pub(super) fn let_go_impatient(&mut self) {
        let Committer { impatient, offers, .. } = self;
        impatient.retain(|id| !offers.let_go(*id));
    }

    /// Gives steps in line to workers that wait. Answers whether anything was tried.
    pub(super) async fn hand_over(&mut self, follow_ups: &mut FollowUps) -> bool {
        self.offer_pushes();
        let most = if self.pending.is_full() { A_FEW } else { TOGETHER };
        let mut pairs = Vec::new();
        while pairs.len() < most
            && let Some(pair) = self.offers.next(&mut self.lines)
        {
            pairs.push(pair);
        }
        self.pending.handed_over = true;
        let tried = !pairs.is_empty();
        let (together, alone) = self.apart(pairs, |(_, _, waiting)| waiting.run);
        let deed = |(_, _, waiting): &Pair| {
            let command = Command::Dispatch { step: waiting.step, worker: NodeId(0) };
            (waiting.org, waiting.run, command.deed())
        };
        self.take_care(together.iter().map(deed)).await;
        self.hand_over_together(together, follow_ups).await;
        for pair in alone {
            let (run, deed) = (pair.2.run, deed(&pair));
            if let Standing::Later = self.parts.care.standing(run) {
                self.offers.give_back(pair.0);
                self.wait_again(pair.2);
                continue;
            }
            self.take_care([deed.clone()]).await;
            self.hand_over_together(vec![pair], follow_ups).await;
            self.survived(run, &deed.2).await;
        }
        tried
    }

    async fn hand_over_together(&mut self, pairs: Vec<Pair>, follow_ups: &mut FollowUps) {
        let failed = self.load(pairs.iter().map(|(_, _, waiting)| (waiting.org, waiting.run)).collect()).await;
        let mut limited = Vec::new();
        for (nth, (offer, worker, waiting)) in pairs.into_iter().enumerate() {
            if nth >= A_FEW && self.pending.is_full() {
                self.offers.give_back(offer);
                self.lines.push(waiting);
                continue;
            }
            if failed.get(&waiting.run).is_some_and(|error| error.is_passing()) {
                self.offers.give_back(offer);
                self.wait_again(waiting);
                continue;
            }
            if self.is_limited(&waiting) {
                // Whether there is room is known in the transaction that takes it.
                limited.push(LimitedTask { offer, worker, waiting });
            } else {
                self.hand_one(offer, worker, waiting, follow_ups);
            }
        }
        if !limited.is_empty() {
            self.pending.asking.push(Asking::Limited(limited));
        }
    }

    /// Answers whether it was handed over.
    pub(super) fn hand_one(
        &mut self,
        offer: u64,
        worker: Arc<str>,
        waiting: Waiting,
        follow_ups: &mut FollowUps,
    ) -> bool {
        if self.is_out_of_line(&waiting) {
            self.offers.give_back(offer);
            self.again.push(Request::revive(waiting.org, waiting.run));
            return false;
        }
        self.handing = Some(Handing { offer, since: waiting.since, slot: waiting.slot.clone() });
        let lease = Lease { worker, nonce: crate::clock::entropy() };
        let command = Command::Lease { step: waiting.step, lease };
        let decided = self.decide_command(waiting.org, waiting.run, &command, None, follow_ups);
        let handed = self.handing.take().is_none();
        if !handed {
            self.offers.give_back(offer);
            self.not_handed(waiting, &decided.map(drop));
        }
        handed
    }

    /// A patch has brought the step into another line since it got in this one.
    fn is_out_of_line(&self, waiting: &Waiting) -> bool {
        let Some(entry) = self.states.peek(waiting.run).filter(|entry| entry.state.plan.after.is_some()) else {
            return false;
        };
        let Some(step) = entry.state.plan.steps.get(waiting.step.step as usize) else { return false };
        step.skill != waiting.skill || queue_of(step) != waiting.queue || self.is_inline(step)
    }

    /// The step is not ready by what is at hand. Another node may have gone on since that was read; once it was read again,
    /// the step is in line again or it is not for us to give.
    fn not_handed(&mut self, waiting: Waiting, decided: &Result<(), EngineError>) {
        let stale = matches!(decided, Err(EngineError::Rejected(rejection)) if rejection.kind == RejectionKind::Stale);
        let at_hand = self.states.peek(waiting.run).is_some_and(|entry| entry.busy == 0);
        if stale && at_hand && !waiting.reread {
            self.states.forget(waiting.run);
            self.lines.push(Waiting { reread: true, ..waiting });
        }
    }

    /// In a moment: the run cannot be read now.
    pub(super) fn wait_again(&self, waiting: Waiting) {
        let inbox = self.parts.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
            // After shutdown nobody hands anything over; the row is there.
            let _ = inbox.send(Message::Waiting(vec![waiting])).await;
        });
    }

    /// What a batch gave to workers is on disk; those it gave nothing after all wait on.
    pub(super) fn answer_offers(&mut self, offers: Vec<Offer>, mut given: Given) {
        for offer in offers {
            match given.remove(&offer.id) {
                Some(tasks) => {
                    if let Err(tasks) = offer.reply.send(tasks) {
                        self.take_back(tasks);
                    }
                }
                None if offer.waits && !offer.reply.is_closed() => self.offers.add(offer),
                None => {}
            }
        }
    }

    /// The worker is gone before it heard of them.
    fn take_back(&mut self, tasks: Vec<Handed>) {
        for handed in tasks {
            let command = Command::LoseLease { task: handed.task.task };
            self.again.push(Request::command(handed.org, handed.run, command));
        }
    }

    /// Another node has changed a run of which workers of this one have steps.
    pub(super) fn tell_leases(&self, run: RunId) {
        if let Some(entry) = self.states.peek(run) {
            self.parts.leases.compare(&entry.state);
        }
    }
}

/// The row of a step that waits for a worker.
pub(super) fn waiting_row(
    (org, run): (OrgId, RunId),
    plan: &Plan,
    step: StepRef,
    slot: Option<StepSlot>,
    priority: i32,
    node: NodeId,
    now: Timestamp,
) -> TaskRow {
    let planned = plan.step(step.step);
    TaskRow {
        task: TaskId::of(run, step),
        org,
        run,
        step,
        step_id: step.name(plan).into(),
        queue: queue_of(planned),
        skill: planned.skill.clone(),
        workflow: plan.name.clone(),
        priority,
        ready_at: now,
        node,
        since: now,
        slot: slot.map(|slot| TaskSlot { key: slot.key, limit: slot.limit }),
        lease: None,
    }
}

pub(crate) fn queue_of(step: &PlanStep) -> Arc<str> {
    match &step.push {
        Some(push) => push.queue(),
        None => step.queue.clone().unwrap_or_else(|| DEFAULT_QUEUE.into()),
    }
}

/// A row as it stands in line.
pub(crate) fn in_line(row: &TaskRow, since: Instant) -> Waiting {
    Waiting {
        task: row.task,
        org: row.org,
        run: row.run,
        step: row.step,
        queue: row.queue.clone(),
        skill: row.skill.clone(),
        workflow: row.workflow.clone(),
        priority: row.priority,
        ready_at: row.ready_at,
        slot: row.slot.as_ref().map(|slot| StepSlot { key: slot.key.clone(), limit: slot.limit }),
        since,
        reread: false,
    }
}
