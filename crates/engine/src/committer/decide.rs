//! Requests become decisions: the core decides, the batch takes it down, and what one run means for another follows.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::cache::Flight;
use milepost_core::event::Body;
use milepost_core::id::{NodeId, OrgId, RunId, SignalId, TaskId};
use milepost_core::json::Json;
use milepost_core::plan::PlanStep;
use milepost_core::run::{
    CHECKPOINT_FORMAT, CacheChange, ChildStart, Command, Context, Decision, Effect, Rejection, RejectionKind, Signal,
    TimerChange,
};
use milepost_core::status::RunStatus;
use milepost_store::StoreError;
use milepost_store::rows::{CheckpointRow, NewHead, SlotWrite, StatusWrite, TaskSlot, TaskWrite, TimerWrite};

use super::artifacts::Following;
use super::children::START_CHILD;
use super::dispatch::ReadyStep;
use super::flights;
use super::hand_over::{self, A_FEW, Handing, Places};
use super::load::{copy_of, runs_of};
use super::pending::{Asking, Decided, RunPending, With, carried_bytes};
use super::states::Entry;
use super::turns;
use super::{Accepted, Committer, Reply, Request, RequestKind};
use crate::error::EngineError;

/// Owns what waits for a node that can carry it out. No node has this number.
const NOBODY: NodeId = NodeId(0);

/// What one run's decision means for another, in the same commit.
#[derive(Debug)]
pub(super) enum FollowUp {
    Command { org: OrgId, run: RunId, command: Command, with: With },
    StartChild { org: OrgId, child: Box<ChildStart>, with: With },
    Missing { org: OrgId, run: RunId, seqs: Vec<u64> },
}

pub(super) type FollowUps = VecDeque<FollowUp>;

/// How soon what has to wait for a parked run is tried again.
const UNPARKED: Duration = Duration::from_secs(5);

/// Inputs of steps that are carried out in this process at once have about so many bytes at most.
const INLINE_BYTES: usize = 64 * 1024 * 1024;

/// With so many things that follow from decisions, these are seen to before more is decided.
const FOLLOW_UPS: usize = 8;

/// For so many plans it is remembered whether this node can run them.
const RUNNABLE_PLANS: usize = 10_000;

impl Committer {
    pub(super) async fn take(&mut self, requests: Vec<Request>) {
        match self.parts.care.is_active() {
            false => self.take_together(requests).await,
            // What is rarely done makes no call larger.
            true => Box::pin(self.take_with_care(requests)).await,
        }
    }

    /// Decides requests and all that follows from them.
    pub(super) async fn take_together(&mut self, requests: Vec<Request>) {
        self.ready.set_now(Instant::now());
        self.forget_outdated(&requests);
        let failed = self.load(runs_of(&requests)).await;
        let (mut follow_ups, mut ended) = (FollowUps::new(), Vec::new());
        self.pending.spent.go_on(self.parts.clock.now());
        let mut requests = requests.into_iter();
        for request in requests.by_ref() {
            self.ready.free(usize::from(request.frees_slot));
            self.pending.count_request();
            let run = request.kind.run();
            if let RequestKind::EndParked { org, run, signal } = request.kind {
                Box::pin(self.end_parked(org, run, signal, request.reply, &mut follow_ups)).await;
                continue;
            }
            self.decide_request(request, &failed, &mut follow_ups);
            ended.extend(self.states.has_ended(run).then_some(run));
            if self.pending.is_full() || follow_ups.len() >= FOLLOW_UPS {
                break;
            }
        }
        self.line_up_first(requests);
        // Not before all have been decided: several may be about one run.
        ended.into_iter().for_each(|run| self.states.forget_ended(run));
        self.follow(follow_ups).await;
    }

    /// Works off what decisions led to, then hands ready steps to the executor, until nothing is left.
    pub(super) async fn follow(&mut self, mut follow_ups: FollowUps) {
        loop {
            while let Some(next) = follow_ups.pop_front() {
                self.follow_one(next, &mut follow_ups).await;
            }
            let full = self.pending.is_full();
            if self.has_room_inline() && !(full && self.pending.dispatched) {
                self.dispatch(&mut follow_ups).await;
            } else if (full && self.pending.handed_over) || !self.hand_over(&mut follow_ups).await {
                break;
            }
        }
        self.unfinished = self.pending.is_full() && (self.has_room_inline() || self.lines.len() > 0);
        self.parts.telemetry.set_ready(self.ready.len() + self.lines.len() + self.parked.len());
        self.states.shrink();
    }

    async fn follow_one(&mut self, next: FollowUp, follow_ups: &mut FollowUps) {
        match next {
            FollowUp::Command { with, .. } | FollowUp::StartChild { with, .. } if !self.pending.stands(with) => {
                // What it follows from is decided again, and then this is.
            }
            FollowUp::Command { org, run, command, with } => {
                let command = match self.with_large_output(org, command) {
                    Following::Decide(command) => command,
                    Following::Store(output) => return self.store_first(org, with.run, output),
                };
                self.take_care([(org, run, command.deed())]).await;
                match self.decide_with(org, run, &command, with, follow_ups).await {
                    Ok(()) => {}
                    // That is known in a moment: nobody need be told to come again.
                    Err(_) if self.is_on_its_way(run) => {
                        let requests = self.hold_back(with.run);
                        self.held.extend(requests);
                    }
                    Err(error) => self.postpone(org, with.run, &error),
                }
            }
            FollowUp::StartChild { org, child, with } => {
                self.take_care([(org, with.run, START_CHILD.to_owned())]).await;
                self.start_children(org, child, with, follow_ups);
            }
            FollowUp::Missing { org, run, seqs } => {
                self.take_care([(org, run, Command::Continue.deed())]).await;
                self.learn(org, run, seqs, follow_ups).await;
            }
        }
    }

    /// Decides what follows for a run from the decision about another. An error: not now, and so that decision must wait.
    async fn decide_with(
        &mut self,
        org: OrgId,
        run: RunId,
        command: &Command,
        with: With,
        follow_ups: &mut FollowUps,
    ) -> Result<(), EngineError> {
        let mut reread = false;
        loop {
            let failed = self.load(vec![(org, run)]).await;
            let waits = |error: &EngineError| error.is_passing() || matches!(error, EngineError::Stuck { .. });
            if let Some(error) = failed.get(&run).filter(|error| waits(error)) {
                return Err(copy_of(error));
            }
            if self.decide_command(org, run, command, None, follow_ups).is_ok() || self.pending.get(run).is_some() {
                // Both are written or neither: if another node went on with this run meanwhile, all of it is decided again.
                self.pending.join(with.run, run);
                return Ok(());
            }
            if self.is_on_its_way(run) {
                return Err(StoreError::Unavailable("whether the run went on is not known yet".to_owned()).into());
            }
            if reread {
                // It does not fit, or it can never be read: that must not keep the other from going on.
                return Ok(());
            }
            // It does not fit what is at hand; but another node may have gone on since that was read.
            self.states.forget(run);
            reread = true;
        }
    }

    /// A step waits for an executor, and there is room for it.
    fn has_room_inline(&self) -> bool {
        self.ready.has_work() && self.has_bytes_inline()
    }

    /// What has been handed out and not begun yet is bounded by what a batch may cost.
    fn has_bytes_inline(&self) -> bool {
        self.parts.executor.input_bytes() < INLINE_BYTES
    }

    async fn dispatch(&mut self, follow_ups: &mut FollowUps) {
        let most = if self.pending.is_full() { A_FEW } else { usize::MAX };
        let taken = self.ready.take(most);
        self.pending.dispatched = true;
        let (together, alone) = self.apart(taken, |ready| ready.run);
        let node = self.parts.node;
        let deed =
            |ready: &ReadyStep| (ready.org, ready.run, Command::Dispatch { step: ready.step, worker: node }.deed());
        self.take_care(together.iter().map(deed)).await;
        self.dispatch_together(together, follow_ups).await;
        for ready in alone {
            let (run, deed) = (ready.run, deed(&ready));
            self.take_care([deed.clone()]).await;
            self.dispatch_together(vec![ready], follow_ups).await;
            self.survived(run, &deed.2).await;
        }
    }

    async fn dispatch_together(&mut self, taken: Vec<ReadyStep>, follow_ups: &mut FollowUps) {
        let failed = self.load(taken.iter().map(|ready| (ready.org, ready.run)).collect()).await;
        for (nth, ready) in taken.into_iter().enumerate() {
            if (nth >= A_FEW && self.pending.is_full()) || !self.has_bytes_inline() {
                self.ready.put_back(ready);
                continue;
            }
            if failed.get(&ready.run).is_some_and(|error| error.is_passing()) {
                self.later(Request::revive(ready.org, ready.run));
                continue;
            }
            let not_here = |entry: &Entry| {
                let planned = |step: &PlanStep| step.removed || !self.is_inline(step);
                // A patch may have brought it to workers since it got in line here.
                entry.elsewhere || (entry.state.plan.after.is_some() && planned(entry.state.plan.step(ready.step.step)))
            };
            if self.states.peek(ready.run).is_some_and(not_here) {
                continue;
            }
            let command = Command::Dispatch { step: ready.step, worker: self.parts.node };
            // Out of date if it does not fit: the run was paused, stopped or has moved on.
            let _ = self.decide_command(ready.org, ready.run, &command, None, follow_ups);
            if let Some(pending) = self.pending.get(ready.run) {
                pending.handed_out(ready.since);
            }
        }
    }

    fn decide_request(
        &mut self,
        request: Request,
        failed: &HashMap<RunId, Arc<EngineError>>,
        follow_ups: &mut FollowUps,
    ) {
        let run = request.kind.run();
        if let Some(error) = failed.get(&run) {
            return self.not_loaded(request, error);
        }
        let Request { kind, reply, reread, .. } = request;
        match kind {
            RequestKind::Start { start, plan, at } => self.decide_start(*start, plan, reply, (at, None), follow_ups),
            RequestKind::TrySlot { org, run } => {
                if self.can_run(run) {
                    self.pending.asking.push(Asking::Slot { org, run });
                }
            }
            RequestKind::Look { run, .. } => self.tell_leases(run),
            // It is not loaded: see `end_parked`.
            RequestKind::EndParked { .. } => {}
            RequestKind::Care { org, run } => {
                if !self.known.contains_key(&run) {
                    self.again.push(Request::revive(org, run));
                }
            }
            RequestKind::Command { org, run, command } => {
                // What this node cannot carry out is left to one that can.
                if matches!(command, Command::Adopt { .. } | Command::FireTimer { .. }) && !self.can_run(run) {
                    return;
                }
                let command = self.going_on(run, command);
                let answer = self.decide_command(org, run, &command, None, follow_ups);
                if let Some(ops) = self.returned_patch.take() {
                    return self.prepare_patch(org, run, command, reply, ops);
                }
                // It does not fit what is at hand; but another node may have gone on since that was read.
                let at_hand = self.states.peek(run).is_some_and(|entry| entry.busy == 0);
                let kind = RequestKind::Command { org, run, command };
                let unfit = matches!(answer, Err(EngineError::Rejected(_) | EngineError::Moved { .. }));
                if !reread && at_hand && unfit {
                    return self.again.push(Request { kind, reply, frees_slot: false, reread: true });
                }
                if matches!(answer, Err(EngineError::Moved { .. })) && self.is_on_its_way(run) {
                    // Whether it went on is known when that batch has arrived.
                    return self.held.push(Request { kind, reply, frees_slot: false, reread });
                }
                self.note(kind, reply, answer);
            }
        }
    }

    /// Whether this node has all the skills that the run's plan names.
    fn can_run(&mut self, run: RunId) -> bool {
        let Some(plan) = self.states.get(run).map(|entry| entry.state.plan.clone()) else { return true };
        if self.runnable.len() > RUNNABLE_PLANS {
            self.runnable.clear();
        }
        let executor = &self.parts.executor;
        let workers = self.parts.workers;
        *self.runnable.entry(plan.hash).or_insert_with(|| crate::engine::check_skills(&plan, executor, workers).is_ok())
    }

    /// The answer goes out with the batch if there is something to write, else at once.
    pub(super) fn note(&mut self, kind: RequestKind, reply: Option<Reply>, answer: Result<Accepted, EngineError>) {
        let run = kind.run();
        let decided = Decided { kind, reply, answer };
        match self.pending.get(run) {
            Some(pending) => pending.decided.push(decided),
            None => decided.tell(),
        }
    }

    pub(super) fn decide_command(
        &mut self,
        org: OrgId,
        run: RunId,
        command: &Command,
        learned: Option<Vec<(u64, Json)>>,
        follow_ups: &mut FollowUps,
    ) -> Result<Accepted, EngineError> {
        let (now, entropy) = (self.parts.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.parts.limits).of(&self.parts.engine);
        let Some(entry) = self.states.get(run).filter(|entry| entry.state.org == org) else {
            self.unsure.remove(&run);
            return Err(EngineError::NoSuchRun(run));
        };
        for (seq, json) in learned.into_iter().flatten() {
            entry.state.learn(seq, json);
        }
        if let Command::Adopt { lost } = command {
            if entry.elsewhere && *lost != entry.owner {
                // Somebody who lives has it.
                let (status, last_seq) = (entry.state.status, entry.state.last_seq);
                return Ok(Accepted { run, status, existing: false, last_seq });
            }
            (entry.elsewhere, entry.owned, entry.may_wait) = (false, false, false);
        }
        let expected_seq = entry.state.last_seq;
        let due_at = match command {
            Command::FireTimer { seq } => entry.state.timer_due(*seq),
            _ => None,
        };
        let decided = milepost_core::run::decide(&mut entry.state, command.clone(), &context);
        turns::pay(&mut self.pending.spent, &mut self.turns, entry, now);
        let decision = match decided {
            Ok(decision) => decision,
            Err(rejection) => return Err(self.rejected(org, run, command, expected_seq, rejection)),
        };
        let (status, last_seq) = (entry.state.status, entry.state.last_seq);
        self.returned_patch.clone_from(&decision.patch);
        // A signal that is new leaves an event, whatever becomes of it.
        let existing = command.has_id() && decision.events.is_empty();
        let refused = decision.events.iter().find_map(|event| match &event.body {
            Body::SignalRejected { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        let take_over = matches!(command, Command::Adopt { .. });
        if take_over || !decision.events.is_empty() || !decision.effects.is_empty() {
            // A timer that rings again and again, because its run is paused, is late only when it moves something.
            if let Some(due_at) = due_at {
                self.parts.telemetry.metrics.timers_late.record(now.ms_since(due_at) as f64 / 1000.0);
            }
            self.record(run, expected_seq, decision, None, follow_ups);
        } else {
            if !decision.missing.is_empty() {
                follow_ups.push_back(FollowUp::Missing { org, run, seqs: decision.missing });
            }
            self.ask_results(org, run, decision.cache);
            if decision.more {
                self.go_on(org, run);
            }
        }
        match refused {
            Some(message) => Err(Rejection { kind: RejectionKind::Conflict, code: "signal_rejected", message }.into()),
            None => Ok(Accepted { run, status, existing, last_seq }),
        }
    }

    fn rejected(
        &mut self,
        org: OrgId,
        run: RunId,
        command: &Command,
        last_seq: u64,
        rejection: Rejection,
    ) -> EngineError {
        if let Some(expected) = command.expected_seq().filter(|_| rejection.code == Rejection::MOVED) {
            return EngineError::Moved { run, expected, last_seq };
        }
        if rejection.kind == RejectionKind::Bug {
            tracing::error!(%run, reason = rejection.message, "a rule of the engine was broken; the run is read again");
            // Not at once: if the rule is broken again, this must not keep all other runs from going on.
            self.postpone(org, run, &StoreError::Unavailable(rejection.message.clone()).into());
        }
        rejection.into()
    }

    pub(super) fn next_entropy(&mut self) -> u64 {
        self.entropy = self.entropy.wrapping_add(0xD1B5_4A32_D192_ED03);
        self.entropy
    }

    /// Puts a decision into the batch.
    pub(super) fn record(
        &mut self,
        run: RunId,
        expected_seq: u64,
        decision: Decision,
        insert: Option<Box<NewHead>>,
        follow_ups: &mut FollowUps,
    ) {
        let can_run = self.can_run(run);
        let now = self.parts.clock.now();
        let places = Places { executor: self.parts.executor.clone() };
        self.pending.spent.add(decision.events.iter().map(|event| carried_bytes(&event.body)).sum(), now);
        let Some(entry) = self.states.get(run) else { return };
        let (org, plan, priority) = (entry.state.org, entry.state.plan.clone(), entry.state.priority);
        let with = With { run, generation: entry.generation };
        let mut waits_for_slot = false;
        let mut awaited = Vec::new();
        let (pending, new) = self.pending.place(org, run, &plan, entry.generation, expected_seq);
        if new {
            entry.busy += 1;
        }
        if insert.is_some() {
            pending.insert = insert;
        }
        let patched = decision.events.iter().any(|event| matches!(event.body, Body::RunPatched(_)));
        if patched {
            // It knows all steps that the events before it are about.
            pending.plan = plan.clone();
            pending.patched = true;
        }
        // Owned until it is projected: whatever this batch adds, somebody has to see to it.
        if !entry.owned && !entry.elsewhere {
            // One that can carry it out takes it from a node that never lived.
            pending.owner = Some(if can_run { self.parts.node } else { NOBODY });
            // Without an event, a projector that is about to clear the owner would not notice: say it again next time.
            entry.owned = !decision.events.is_empty();
        }
        for event in &decision.events {
            if let Body::StepReused(reused) = &event.body {
                pending.reused_bytes += reused.output.as_ref().map_or(0, Json::len);
            }
            if let Some(status) = event.body.run_status() {
                if status == RunStatus::Running && entry.started_at.is_none() {
                    entry.started_at = Some(event.at);
                }
                let completed_at = status.is_terminal().then_some(event.at);
                pending.status = Some(StatusWrite { status, started_at: entry.started_at, completed_at });
            }
        }
        pending.events.extend(decision.events);
        for effect in decision.effects {
            match effect {
                Effect::Ready { step, slot } if can_run && !places.is_inline(plan.step(step.step)) => {
                    let row = hand_over::waiting_row((org, run), &plan, step, slot, priority, self.parts.node, now);
                    entry.in_line = true;
                    self.lines.push(hand_over::in_line(&row, self.ready.now()));
                    pending.tasks.insert(row.task, TaskWrite::Put(Box::new(row)));
                }
                // The node that has the run sees it when it looks.
                Effect::Ready { .. } if entry.elsewhere || !can_run => {}
                Effect::Ready { step, .. } => {
                    entry.inline = true;
                    self.ready.push(priority, (org, run), step, &mut entry.turn);
                }
                Effect::HandOver { task, lease } => {
                    let handed = hand_over::Handed::new(org, run, &plan, *task, lease, priority, now);
                    let mut row = handed.row(self.parts.node, now);
                    pending.outbox.extend(handed.outbox_write(self.parts.node, now));
                    if let Some(Handing { offer, since, slot }) = self.handing.take() {
                        row.slot = slot.map(|slot| TaskSlot { key: slot.key, limit: slot.limit });
                        pending.hand_over.push((offer, handed));
                        pending.ready_since.push(since);
                    }
                    pending.tasks.insert(row.task, TaskWrite::Put(Box::new(row)));
                }
                Effect::Gone { step, leased } => {
                    let task = TaskId::of(run, step);
                    if patched {
                        self.lines.remove(task);
                    }
                    // A patch may have brought what was in line for a worker to an executor of this process.
                    if leased || patched || !places.is_inline(plan.step(step.step)) {
                        pending.tasks.insert(task, TaskWrite::Delete(task));
                    }
                }
                Effect::Execute(task) => {
                    self.ready.occupy();
                    pending.execute.push(*task);
                }
                Effect::CancelTask { task } => pending.cancel.push(task),
                Effect::Timer(TimerChange::Arm { seq, due_at }) => pending.timers.push(TimerWrite::Arm { seq, due_at }),
                Effect::Timer(TimerChange::Disarm { seq }) => pending.timers.push(TimerWrite::Disarm { seq }),
                Effect::Cache(change) => {
                    if let CacheChange::Lead { key, scope, step, .. } = change {
                        self.begun.insert((org, flights::place(run, key, scope)), Flight { key, run, step });
                    }
                    for key in pending.change_results(change, now) {
                        self.begun.remove(&(org, key));
                    }
                }
                Effect::Await { step, scope, flight } => awaited.push((step, scope, flight)),
                Effect::StartChild(child) => follow_ups.push_back(FollowUp::StartChild { org, child, with }),
                Effect::StopChild { child, terminate } => {
                    follow_ups.push_back(FollowUp::Command {
                        org,
                        run: child,
                        command: stop_signal(run, child, terminate),
                        with,
                    });
                }
                Effect::NotifyParent { parent, outcome } => {
                    let command = Command::ChildEnded { child: run, outcome };
                    follow_ups.push_back(FollowUp::Command { org, run: parent, command, with });
                }
                Effect::HoldSlot => pending.slot = entry.state.slot_key.clone().map(|key| SlotWrite::Hold { key }),
                Effect::WaitForSlot { limit } => {
                    pending.slot = entry.state.slot_key.clone().map(|key| SlotWrite::Wait { key, limit, priority });
                    // One that comes to wait later than at its start has not asked yet.
                    waits_for_slot = pending.insert.is_none();
                }
                Effect::ReleaseSlot => {
                    pending.slot = Some(SlotWrite::Release);
                    pending.freed_key = entry.state.slot_key.clone();
                }
                Effect::Checkpoint { seq, state } => {
                    pending.checkpoint = Some(CheckpointRow { seq, format: CHECKPOINT_FORMAT, state });
                }
            }
        }
        if entry.in_line && !entry.state.moves() {
            // Paused, stopped or failed: nothing begins until it moves again, and then all of it is offered anew.
            entry.in_line = false;
            for step in entry.state.ready_steps().filter(|step| !places.is_inline(plan.step(step.step))) {
                let task = TaskId::of(run, step);
                pending.tasks.insert(task, TaskWrite::Withdraw(task));
            }
        }
        entry.asking = !decision.cache.is_empty();
        pending.at_rest = entry.at_rest();
        if entry.waits || !awaited.is_empty() {
            self.remember_waiting(org, run, awaited);
        }
        if waits_for_slot {
            self.pending.asking.push(Asking::Slot { org, run });
        }
        if !decision.missing.is_empty() {
            follow_ups.push_back(FollowUp::Missing { org, run, seqs: decision.missing });
        }
        self.ask_results(org, run, decision.cache);
        if decision.more {
            self.go_on(org, run);
        }
    }

    /// The rest of a decision that was work enough for one commit goes with the next.
    fn go_on(&mut self, org: OrgId, run: RunId) {
        self.set_asking(run, true);
        self.again.push(Request::command(org, run, Command::Continue));
    }

    /// What a run that goes on is told: all of it is looked at if it was read anew since then.
    fn going_on(&mut self, run: RunId, command: Command) -> Command {
        if !matches!(command, Command::Continue) {
            return command;
        }
        self.set_asking(run, false);
        match self.states.peek(run) {
            Some(entry) if entry.state.goes_on() => command,
            _ => Command::Adopt { lost: None },
        }
    }

    /// Takes a run out of the gathering batch, with those that stand or fall with it, and forgets their states; what was
    /// asked of them is decided again.
    pub(super) fn drop_pending(&mut self, run: RunId) {
        for dropped in self.remove_pending(run) {
            self.decide_again(dropped);
        }
    }

    pub(super) fn remove_pending(&mut self, run: RunId) -> Vec<RunPending> {
        let dropped = self.pending.remove_group(run);
        self.states.forget(run);
        for pending in &dropped {
            self.states.forget(pending.run);
            self.ready.free(pending.execute.len());
            pending.hand_over.iter().for_each(|(offer, _)| self.offers.give_back(*offer));
            self.wake_unwritten(pending);
        }
        dropped
    }

    /// All that a part of a batch was made of: what was asked, and ready steps that had been handed out.
    pub(super) fn decide_again(&mut self, dropped: RunPending) {
        self.again.extend(dropped.decided.into_iter().map(Decided::again));
        if dropped.insert.is_none() {
            self.again.push(Request::revive(dropped.org, dropped.run));
        }
    }

    /// A decision cannot be completed now. It is taken back with all that belongs to it: callers are told, what nobody
    /// waits for is tried again.
    pub(super) fn postpone(&mut self, org: OrgId, run: RunId, error: &EngineError) {
        let dropped = self.remove_pending(run);
        for pending in dropped {
            for decided in pending.decided {
                match decided.reply {
                    Some(_) => decided.fail(copy_of(error)),
                    None => self.retry_later(decided.again(), error),
                }
            }
            if pending.insert.is_none() && pending.run != run {
                self.retry_later(Request::revive(pending.org, pending.run), error);
            }
        }
        self.retry_later(Request::revive(org, run), error);
    }

    pub(super) fn retry_later(&self, request: Request, error: &EngineError) {
        if let EngineError::Stuck { .. } = error {
            // Somebody outside has to act first.
            self.after(UNPARKED, request);
        } else if error.is_passing() {
            self.later(request);
        }
    }
}

/// The id is derived, so that stopping a child twice is one signal.
pub(super) fn stop_signal(parent: RunId, child: RunId, terminate: bool) -> Command {
    let name = if terminate { "TERMINATE" } else { "CANCEL" };
    let digest =
        milepost_core::hash::Digest::of_parts([parent.0.as_bytes().as_slice(), child.0.as_bytes(), name.as_bytes()]);
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest.0[..16]);
    // Nobody is there to search the log for it: a parent stops a child once, and what has ended takes no signal.
    Command::Unseen(Box::new(Command::Signal(Signal {
        id: SignalId(uuid::Builder::from_custom_bytes(bytes).into_uuid()),
        name: name.to_owned(),
        step: None,
        payload: Json::trusted(r#"{"reason":"its parent was stopped"}"#),
        actor: None,
    })))
}
