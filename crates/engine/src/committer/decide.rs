//! Requests become decisions: loads what is needed, lets the core decide, and follows what one run means for another.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use milepost_core::codec;
use milepost_core::event::{Body, ErrorInfo};
use milepost_core::id::{NodeId, OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::run::{
    CHECKPOINT_FORMAT, ChildOutcome, ChildStart, Command, Context, Decision, Effect, Rejection, RejectionKind,
    RunState, Signal, StartRun, Starting, TimerChange,
};
use milepost_core::status::RunStatus;
use milepost_store::StoreError;
use milepost_store::rows::{CheckpointRow, NewHead, SlotWrite, StatusWrite, TimerWrite};

use super::pending::{Asking, Decided, RunPending, With};
use super::states::restore;
use super::{Accepted, Committer, Reply, Request, RequestKind, dispatch};
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

type FollowUps = VecDeque<FollowUp>;

/// For so many plans it is remembered whether this node can run them.
const RUNNABLE_PLANS: usize = 10_000;

impl Committer {
    /// Decides requests and all that follows from them.
    pub(super) async fn take(&mut self, requests: &mut Vec<Request>) {
        self.forget_outdated(requests);
        let failed = self.load(runs_of(requests)).await;
        let mut follow_ups = FollowUps::new();
        for request in requests.drain(..) {
            self.ready.free(usize::from(request.frees_slot));
            self.pending.count_request();
            self.decide_request(request, &failed, &mut follow_ups);
        }
        self.follow(follow_ups).await;
    }

    /// Works off what decisions led to, then hands ready steps to the executor, until nothing is left.
    pub(super) async fn follow(&mut self, mut follow_ups: FollowUps) {
        loop {
            while let Some(next) = follow_ups.pop_front() {
                self.follow_one(next, &mut follow_ups).await;
            }
            if !self.ready.has_work() {
                break;
            }
            self.dispatch(&mut follow_ups).await;
        }
        self.states.shrink();
    }

    async fn follow_one(&mut self, next: FollowUp, follow_ups: &mut FollowUps) {
        match next {
            FollowUp::Command { with, .. } | FollowUp::StartChild { with, .. } if !self.pending.stands(with) => {
                // What it follows from is decided again, and then this is.
            }
            FollowUp::Command { org, run, command, with } => {
                let failed = self.load(vec![(org, run)]).await;
                match failed.get(&run).filter(|error| error.is_passing()) {
                    Some(error) => self.postpone(org, with.run, error),
                    None if self.decide_command(org, run, &command, None, follow_ups).is_ok() => {
                        self.pending.join(with.run, run);
                    }
                    // It does not fit, or it can never be read: that must not keep the other from going on.
                    None => {}
                }
            }
            FollowUp::StartChild { org, child, with } => self.start_child(org, *child, with, follow_ups).await,
            FollowUp::Missing { org, run, seqs } => self.learn(org, run, seqs, follow_ups).await,
        }
    }

    /// States that another node is known to have left behind are read again, if nothing of them is on its way.
    fn forget_outdated(&mut self, requests: &[Request]) {
        for request in requests {
            let Some(entry) = self.states.peek(request.kind.run()).filter(|entry| entry.busy == 0) else { continue };
            let outdated = match &request.kind {
                RequestKind::Command { command: Command::Adopt { lost: Some(_) }, .. } => true,
                RequestKind::Look { seq, .. } => entry.state.last_seq < *seq,
                _ => request.reread,
            };
            if outdated {
                self.states.forget(request.kind.run());
            }
        }
    }

    async fn dispatch(&mut self, follow_ups: &mut FollowUps) {
        let taken = self.ready.take();
        let failed = self.load(taken.iter().map(|ready| (ready.org, ready.run)).collect()).await;
        for ready in taken {
            if failed.get(&ready.run).is_some_and(|error| error.is_passing()) {
                self.later(Request::revive(ready.org, ready.run));
                continue;
            }
            if self.states.peek(ready.run).is_some_and(|entry| entry.elsewhere) {
                continue;
            }
            let command = Command::Dispatch { step: ready.step, worker: self.node };
            // Out of date if it does not fit: the run was paused, stopped or has moved on.
            let _ = self.decide_command(ready.org, ready.run, &command, None, follow_ups);
        }
    }

    /// Loads the states that are not at hand. Answers those that cannot be.
    pub(super) async fn load(&mut self, runs: Vec<(OrgId, RunId)>) -> HashMap<RunId, Arc<EngineError>> {
        let mut failed = HashMap::new();
        let mut missing: Vec<(OrgId, RunId)> = runs.into_iter().filter(|(_, run)| !self.states.has(*run)).collect();
        if missing.is_empty() {
            return failed;
        }
        missing.sort_unstable();
        missing.dedup();
        // What is read now of a run on its way to the disk is out of date in a moment.
        let on_its_way = self.on_its_way(&missing);
        if !on_its_way.is_empty() {
            missing.retain(|(_, run)| !on_its_way.contains(run));
            let error = Arc::new(EngineError::Store(StoreError::Unavailable("the run is being written".to_owned())));
            failed.extend(on_its_way.into_iter().map(|run| (run, error.clone())));
        }
        match self.store.load_runs(&missing).await {
            Ok(loaded) => {
                for loaded in loaded {
                    let run = loaded.head.run;
                    match self
                        .plans
                        .by_hash(loaded.head.org, loaded.head.plan_hash)
                        .await
                        .and_then(|plan| restore(&loaded, &plan))
                    {
                        Ok(state) => {
                            self.states.insert_loaded(state, &loaded.head, self.node);
                            self.carry_out_unsure(loaded.head.org, run, loaded.head.last_seq);
                            self.compare_with_known(loaded.head.org, run, loaded.head.last_seq);
                        }
                        Err(error) => {
                            tracing::error!(%run, %error, "a run cannot be loaded");
                            failed.insert(run, Arc::new(error));
                        }
                    }
                }
            }
            Err(error) => {
                tracing::error!(%error, "runs cannot be loaded");
                let error = Arc::new(EngineError::from(error));
                failed.extend(missing.into_iter().map(|(_, run)| (run, error.clone())));
            }
        }
        failed
    }

    /// Another node added to a run that this one has work of: what it stopped is stopped here, what it made ready is
    /// offered here.
    fn compare_with_known(&mut self, org: OrgId, run: RunId, last_seq: u64) {
        if self.known.get(&run).is_none_or(|known| *known == last_seq) {
            return;
        }
        let Some(entry) = self.states.peek(run) else { return };
        for task in self.executor.tasks_of(run) {
            if !dispatch::goes_on(&entry.state, task, &self.limits) {
                self.executor.cancel(org, run, task);
            }
        }
        if entry.elsewhere || !entry.state.needs_node() {
            self.known.remove(&run);
        } else {
            self.known.insert(run, last_seq);
            self.again.push(Request::revive(org, run));
        }
    }

    /// A batch of which nobody knew was written after all: what it handed out is carried out now.
    fn carry_out_unsure(&mut self, org: OrgId, run: RunId, last_seq: u64) {
        let Some(entry) = self.states.peek(run) else { return };
        // As long as the log has not moved, that batch may yet arrive.
        if self.unsure.get(&run).is_none_or(|unsure| unsure.expected_seq == last_seq) {
            return;
        }
        let Some(unsure) = self.unsure.remove(&run) else { return };
        let ours = entry.owner == Some(self.node);
        for task in unsure.tasks {
            if ours && dispatch::goes_on(&entry.state, task.task, &self.limits) {
                self.ready.occupy();
                self.executor.begin(org, run, &unsure.plan, task);
            }
        }
    }

    /// Those of the runs that are part of the batch on its way.
    fn on_its_way(&self, runs: &[(OrgId, RunId)]) -> HashSet<RunId> {
        let Some(flying) = &self.in_flight else { return HashSet::new() };
        let asked: HashSet<RunId> = runs.iter().map(|(_, run)| *run).collect();
        flying.runs().filter(|run| asked.contains(run)).collect()
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
            RequestKind::Start { start, plan } => self.decide_start(*start, plan, reply, None, follow_ups),
            RequestKind::TrySlot { org, run } => {
                if self.can_run(run) {
                    self.pending.asking.push(Asking::Slot { org, run });
                }
            }
            // Loading it was all.
            RequestKind::Look { .. } => {}
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
                let answer = self.decide_command(org, run, &command, None, follow_ups);
                // It does not fit what is at hand; but another node may have gone on since that was read.
                let at_hand = self.states.peek(run).is_some_and(|entry| entry.busy == 0);
                let kind = RequestKind::Command { org, run, command };
                if !reread && at_hand && matches!(answer, Err(EngineError::Rejected(_))) {
                    return self.again.push(Request { kind, reply, frees_slot: false, reread: true });
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
        let executor = &self.executor;
        *self.runnable.entry(plan.hash).or_insert_with(|| crate::engine::check_skills(&plan, executor).is_ok())
    }

    /// What nobody waits for must not be lost: an outcome is decided again when its run can be read.
    fn not_loaded(&mut self, request: Request, error: &EngineError) {
        let request = Request { frees_slot: false, ..request };
        if !self.on_its_way(&[(OrgId::DEFAULT, request.kind.run())]).is_empty() {
            return self.held.push(request);
        }
        match request.reply {
            Some(reply) => drop(reply.send(Err(copy_of(error)))),
            None => self.retry_later(request, error),
        }
    }

    /// The answer goes out with the batch if there is something to write, else at once.
    fn note(&mut self, kind: RequestKind, reply: Option<Reply>, answer: Result<Accepted, EngineError>) {
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
        let (now, entropy) = (self.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.limits);
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
                return Ok(Accepted { run, status: entry.state.status, existing: false });
            }
            (entry.elsewhere, entry.owned) = (false, false);
        }
        let expected_seq = entry.state.last_seq;
        let decision = match milepost_core::run::decide(&mut entry.state, command.clone(), &context) {
            Ok(decision) => decision,
            Err(rejection) => return Err(self.rejected(org, run, rejection)),
        };
        let status = entry.state.status;
        let refused = decision.events.iter().find_map(|event| match &event.body {
            Body::SignalRejected { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        let take_over = matches!(command, Command::Adopt { .. });
        if take_over || !decision.events.is_empty() || !decision.effects.is_empty() {
            self.record(run, expected_seq, decision, None, follow_ups);
        } else if !decision.missing.is_empty() {
            follow_ups.push_back(FollowUp::Missing { org, run, seqs: decision.missing });
        }
        match refused {
            Some(message) => Err(Rejection { kind: RejectionKind::Conflict, code: "signal_rejected", message }.into()),
            None => Ok(Accepted { run, status, existing: false }),
        }
    }

    fn rejected(&mut self, org: OrgId, run: RunId, rejection: Rejection) -> EngineError {
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
    fn record(
        &mut self,
        run: RunId,
        expected_seq: u64,
        decision: Decision,
        insert: Option<Box<NewHead>>,
        follow_ups: &mut FollowUps,
    ) {
        let can_run = self.can_run(run);
        let Some(entry) = self.states.get(run) else { return };
        let (org, plan, priority) = (entry.state.org, entry.state.plan.clone(), entry.state.priority);
        let with = With { run, generation: entry.generation };
        let mut waits_for_slot = false;
        let (pending, new) = self.pending.place(org, run, &plan, entry.generation, expected_seq);
        if new {
            entry.busy += 1;
        }
        if insert.is_some() {
            pending.insert = insert;
        }
        // Owned until it is projected: whatever this batch adds, somebody has to see to it.
        if !entry.owned && !entry.elsewhere {
            // One that can carry it out takes it from a node that never lived.
            pending.owner = Some(if can_run { self.node } else { NOBODY });
            // Without an event, a projector that is about to clear the owner would not notice: say it again next time.
            entry.owned = !decision.events.is_empty();
        }
        for event in &decision.events {
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
                // The node that has the run sees it when it looks.
                Effect::Ready { .. } if entry.elsewhere || !can_run => {}
                Effect::Ready { step } => self.ready.push(priority, org, run, step),
                Effect::Execute(task) => {
                    self.ready.occupy();
                    pending.execute.push(*task);
                }
                Effect::CancelTask { task } => pending.cancel.push(task),
                Effect::Timer(TimerChange::Arm { seq, due_at }) => pending.timers.push(TimerWrite::Arm { seq, due_at }),
                Effect::Timer(TimerChange::Disarm { seq }) => pending.timers.push(TimerWrite::Disarm { seq }),
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
        pending.at_rest = !entry.state.needs_node();
        if waits_for_slot {
            self.pending.asking.push(Asking::Slot { org, run });
        }
        if !decision.missing.is_empty() {
            follow_ups.push_back(FollowUp::Missing { org, run, seqs: decision.missing });
        }
    }

    /// Reads what a decision lacked, and goes on with it.
    async fn learn(&mut self, org: OrgId, run: RunId, mut seqs: Vec<u64>, follow_ups: &mut FollowUps) {
        seqs.sort_unstable();
        seqs.dedup();
        let rows = match self.store.events_at(org, run, &seqs).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(%run, %error, "events cannot be read");
                return self.postpone(org, run, &error.into());
            }
        };
        let mut learned = Vec::with_capacity(seqs.len());
        for row in rows {
            match codec::carried_value(&row) {
                Ok(Some(json)) => learned.push((row.seq, json)),
                Ok(None) => {}
                Err(error) => tracing::error!(%run, %error, "an event cannot be read"),
            }
        }
        if learned.len() < seqs.len() {
            // Going on would ask the same again; the run is read anew when something happens to it.
            let reason =
                format!("{} of {} events that a decision needs are not there", seqs.len() - learned.len(), seqs.len());
            tracing::error!(%run, reason, "a run cannot go on");
            return self.postpone(org, run, &EngineError::Corrupt { run, reason });
        }
        // A failure here is logged where it happens.
        let _ = self.decide_command(org, run, &Command::Continue, Some(learned), follow_ups);
    }

    /// A start is checked; one that depends on a fact of the database waits for the batch's transaction.
    fn decide_start(
        &mut self,
        start: StartRun,
        plan: Arc<Plan>,
        reply: Option<Reply>,
        with: Option<With>,
        follow_ups: &mut FollowUps,
    ) {
        let kind = RequestKind::Start { start: Box::new(start.clone()), plan: plan.clone() };
        let asks_request = start.request_id.is_some();
        let (now, entropy) = (self.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.limits);
        let starting = match Starting::check(start, plan, &context) {
            Ok(starting) => starting,
            Err(rejection) => return self.start_rejected(rejection.into(), kind, reply, with, follow_ups),
        };
        let slot = starting.question(now);
        if asks_request || slot.is_some() {
            self.pending.asking.push(Asking::Start { start: Box::new(starting), slot, kind, reply, with });
            return;
        }
        self.begin(starting, None, kind, reply, with, follow_ups);
    }

    pub(super) fn begin(
        &mut self,
        starting: Starting,
        held: Option<u32>,
        kind: RequestKind,
        reply: Option<Reply>,
        with: Option<With>,
        follow_ups: &mut FollowUps,
    ) {
        let (now, entropy) = (self.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.limits);
        match starting.begin(held, &context) {
            Ok((state, decision)) => {
                let (run, status) = (state.run, state.status);
                let head = Box::new(new_head(&state, &kind));
                self.states.insert_new(state);
                self.record(run, 0, decision, Some(head), follow_ups);
                match with {
                    // If this batch is lost, the parent decides again, and then there is another child.
                    Some(with) => self.pending.join(with.run, run),
                    None => self.note(kind, reply, Ok(Accepted { run, status, existing: false })),
                }
            }
            Err(rejection) => self.start_rejected(rejection.into(), kind, reply, with, follow_ups),
        }
    }

    /// A child that cannot be started fails its parent's step; another caller is told.
    fn start_rejected(
        &mut self,
        error: EngineError,
        kind: RequestKind,
        reply: Option<Reply>,
        with: Option<With>,
        follow_ups: &mut FollowUps,
    ) {
        if let (Some(with), RequestKind::Start { start, .. }) = (with, &kind) {
            follow_ups.push_back(child_not_started(start.org, start.run, with, &error));
        }
        Decided { kind, reply, answer: Err(error) }.tell();
    }

    async fn start_child(&mut self, org: OrgId, child: ChildStart, with: With, follow_ups: &mut FollowUps) {
        let run = child.run;
        let plan = self.plans.resolve(org, &child.reference).await;
        match plan.and_then(|plan| crate::engine::check_skills(&plan, &self.executor).map(|()| plan)) {
            Ok(plan) => {
                let start = StartRun {
                    org,
                    run,
                    payload: child.payload,
                    request_id: None,
                    priority: child.priority,
                    start_at: None,
                    parent: Some(child.parent),
                };
                self.decide_start(start, plan, None, Some(with), follow_ups);
            }
            Err(error) if error.is_passing() => self.postpone(org, with.run, &error),
            Err(error) => follow_ups.push_back(child_not_started(org, run, with, &error)),
        }
    }

    /// Takes a run out of the gathering batch, with those that stand or fall with it, and forgets their states; what was
    /// asked of them is decided again.
    pub(super) fn drop_pending(&mut self, run: RunId) {
        for dropped in self.remove_pending(run) {
            self.decide_again(dropped);
        }
    }

    fn remove_pending(&mut self, run: RunId) -> Vec<RunPending> {
        let dropped = self.pending.remove_group(run);
        self.states.forget(run);
        for pending in &dropped {
            self.states.forget(pending.run);
            self.ready.free(pending.execute.len());
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

    fn retry_later(&self, request: Request, error: &EngineError) {
        if error.is_passing() {
            self.later(request);
        }
    }
}

fn runs_of(requests: &[Request]) -> Vec<(OrgId, RunId)> {
    requests
        .iter()
        .filter_map(|request| match &request.kind {
            RequestKind::Command { org, run, .. }
            | RequestKind::TrySlot { org, run }
            | RequestKind::Look { org, run, .. } => Some((*org, *run)),
            RequestKind::Start { .. } | RequestKind::Care { .. } => None,
        })
        .collect()
}

fn new_head(state: &RunState, kind: &RequestKind) -> NewHead {
    let RequestKind::Start { start, plan } = kind else { unreachable!("only a start makes a run") };
    NewHead {
        workflow: plan.name.clone(),
        workflow_version: plan.version.clone(),
        plan_hash: plan.hash,
        request_id: start.request_id.clone(),
        base_run: None,
        parent_run: start.parent.as_ref().map(|parent| parent.run),
        priority: start.priority,
        created_at: state.created_at,
        status: StatusWrite { status: state.status, started_at: None, completed_at: None },
        owner: None,
    }
}

fn child_not_started(org: OrgId, child: RunId, parent: With, error: &EngineError) -> FollowUp {
    let error = ErrorInfo::fatal("child_not_started", format!("the child run could not be started: {error}"));
    let command = Command::ChildEnded { child, outcome: ChildOutcome::Failed { error } };
    FollowUp::Command { org, run: parent.run, command, with: parent }
}

/// The id is derived, so that stopping a child twice is one signal.
fn stop_signal(parent: RunId, child: RunId, terminate: bool) -> Command {
    let name = if terminate { "TERMINATE" } else { "CANCEL" };
    let digest =
        milepost_core::hash::Digest::of_parts([parent.0.as_bytes().as_slice(), child.0.as_bytes(), name.as_bytes()]);
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest.0[..16]);
    Command::Signal(Signal {
        id: SignalId(uuid::Builder::from_custom_bytes(bytes).into_uuid()),
        name: name.to_owned(),
        step: None,
        payload: Json::trusted(r#"{"reason":"its parent was stopped"}"#),
    })
}

/// An error for each of several callers.
fn copy_of(error: &EngineError) -> EngineError {
    match error {
        EngineError::Rejected(rejection) => EngineError::Rejected(rejection.clone()),
        EngineError::NoSuchRun(run) => EngineError::NoSuchRun(*run),
        EngineError::Corrupt { run, reason } => EngineError::Corrupt { run: *run, reason: reason.clone() },
        other => EngineError::Store(StoreError::Unavailable(other.to_string())),
    }
}
