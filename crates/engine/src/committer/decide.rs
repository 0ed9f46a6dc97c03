//! Requests become decisions: loads what is needed, lets the core decide, and follows what one run means for another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use milepost_core::codec;
use milepost_core::event::{Body, ErrorInfo};
use milepost_core::id::{OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::run::{
    CHECKPOINT_FORMAT, ChildOutcome, ChildStart, Command, Context, Decision, Effect, Rejection, RejectionKind,
    RunState, Signal, StartRun, Starting, TimerChange,
};
use milepost_core::status::RunStatus;
use milepost_store::rows::{CheckpointRow, NewHead, SlotWrite, StatusWrite, TimerWrite};

use super::pending::{Asking, Decided};
use super::states::restore;
use super::{Accepted, Committer, Reply, Request, RequestKind};
use crate::error::EngineError;

/// What one run's decision means for another, in the same commit.
#[derive(Debug)]
pub(super) enum FollowUp {
    Command { org: OrgId, run: RunId, command: Command, with: RunId },
    StartChild { org: OrgId, child: Box<ChildStart> },
    Missing { org: OrgId, run: RunId, seqs: Vec<u64> },
}

type FollowUps = VecDeque<FollowUp>;

/// For so many plans it is remembered whether this node can run them.
const RUNNABLE_PLANS: usize = 10_000;

impl Committer {
    /// Decides requests and all that follows from them.
    pub(super) async fn take(&mut self, requests: &mut Vec<Request>) {
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
            FollowUp::Command { org, run, command, with } => {
                let failed = self.load(vec![(org, run)]).await;
                if failed.is_empty() && self.decide_command(org, run, &command, None, follow_ups).is_ok() {
                    self.pending.join(with, run);
                }
            }
            FollowUp::StartChild { org, child } => self.start_child(org, *child, follow_ups).await,
            FollowUp::Missing { org, run, seqs } => self.learn(org, run, seqs, follow_ups).await,
        }
    }

    async fn dispatch(&mut self, follow_ups: &mut FollowUps) {
        let taken = self.ready.take();
        let failed = self.load(taken.iter().map(|ready| (ready.org, ready.run)).collect()).await;
        for ready in taken {
            if failed.contains_key(&ready.run) {
                continue;
            }
            let command = Command::Dispatch { step: ready.step, worker: self.node };
            // Out of date if it does not fit: the run was paused, stopped or has moved on.
            let _ = self.decide_command(ready.org, ready.run, &command, None, follow_ups);
        }
    }

    /// Loads the states that are not at hand. Answers those that cannot be.
    async fn load(&mut self, runs: Vec<(OrgId, RunId)>) -> HashMap<RunId, Arc<EngineError>> {
        let mut failed = HashMap::new();
        let mut missing: Vec<(OrgId, RunId)> = runs.into_iter().filter(|(_, run)| !self.states.has(*run)).collect();
        if missing.is_empty() {
            return failed;
        }
        missing.sort_unstable();
        missing.dedup();
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
                        Ok(state) => self.states.insert_loaded(state, &loaded.head, self.node),
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

    fn decide_request(
        &mut self,
        request: Request,
        failed: &HashMap<RunId, Arc<EngineError>>,
        follow_ups: &mut FollowUps,
    ) {
        let Request { kind, reply, .. } = request;
        match kind {
            RequestKind::Start { start, plan } => self.decide_start(*start, plan, reply, None, follow_ups),
            RequestKind::TrySlot { org, run } => {
                if !failed.contains_key(&run) && self.can_run(run) {
                    self.pending.asking.push(Asking::Slot { org, run });
                }
            }
            RequestKind::Command { org, run, command } => {
                if let Some(error) = failed.get(&run) {
                    // What nobody waits for must not be lost: an outcome is decided again when its run can be read.
                    return match reply {
                        Some(reply) => drop(reply.send(Err(copy_of(error)))),
                        None => self.retry_later(Request::command(org, run, command), error),
                    };
                }
                // What this node cannot carry out is left to one that can.
                if matches!(command, Command::Adopt { .. } | Command::FireTimer { .. }) && !self.can_run(run) {
                    return;
                }
                let answer = self.decide_command(org, run, &command, None, follow_ups);
                self.note(RequestKind::Command { org, run, command }, reply, answer);
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

    /// The answer goes out with the batch if there is something to write, else at once.
    fn note(&mut self, kind: RequestKind, reply: Option<Reply>, answer: Result<Accepted, EngineError>) {
        let run = match &kind {
            RequestKind::Command { run, .. } | RequestKind::TrySlot { run, .. } => *run,
            RequestKind::Start { start, .. } => start.run,
        };
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
        let entry = self.states.get(run).filter(|entry| entry.state.org == org).ok_or(EngineError::NoSuchRun(run))?;
        for (seq, json) in learned.into_iter().flatten() {
            entry.state.learn(seq, json);
        }
        let expected_seq = entry.state.last_seq;
        let decision = match milepost_core::run::decide(&mut entry.state, command.clone(), &context) {
            Ok(decision) => decision,
            Err(rejection) => return Err(self.rejected(run, rejection)),
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

    fn rejected(&mut self, run: RunId, rejection: Rejection) -> EngineError {
        if rejection.kind == RejectionKind::Bug {
            tracing::error!(%run, reason = rejection.message, "a rule of the engine was broken; the run is read again");
            self.drop_pending(run);
            self.states.forget(run);
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
        let Some(entry) = self.states.get(run) else { return };
        let (org, plan, priority) = (entry.state.org, entry.state.plan.clone(), entry.state.priority);
        let (pending, new) = self.pending.place(org, run, &plan, expected_seq);
        if new {
            entry.busy += 1;
        }
        if insert.is_some() {
            pending.insert = insert;
        }
        // Owned until it is projected: whatever this batch adds, somebody has to see to it.
        if !entry.owned {
            entry.owned = true;
            pending.owner = Some(self.node);
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
                Effect::Ready { step } => self.ready.push(priority, org, run, step),
                Effect::Execute(task) => {
                    self.ready.occupy();
                    pending.execute.push(*task);
                }
                Effect::CancelTask { task } => pending.cancel.push(task),
                Effect::Timer(TimerChange::Arm { seq, due_at }) => pending.timers.push(TimerWrite::Arm { seq, due_at }),
                Effect::Timer(TimerChange::Disarm { seq }) => pending.timers.push(TimerWrite::Disarm { seq }),
                Effect::StartChild(child) => follow_ups.push_back(FollowUp::StartChild { org, child }),
                Effect::StopChild { child, terminate } => {
                    follow_ups.push_back(FollowUp::Command {
                        org,
                        run: child,
                        command: stop_signal(run, child, terminate),
                        with: run,
                    });
                }
                Effect::NotifyParent { parent, outcome } => {
                    let command = Command::ChildEnded { child: run, outcome };
                    follow_ups.push_back(FollowUp::Command { org, run: parent, command, with: run });
                }
                Effect::HoldSlot => pending.slot = entry.state.slot_key.clone().map(|key| SlotWrite::Hold { key }),
                Effect::WaitForSlot { limit } => {
                    pending.slot = entry.state.slot_key.clone().map(|key| SlotWrite::Wait { key, limit, priority });
                    // One that comes to wait later than at its start has not asked yet.
                    if pending.insert.is_none() {
                        self.pending.asking.push(Asking::Slot { org, run });
                        return self.record_rest(run, follow_ups, decision.missing);
                    }
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
        self.record_rest(run, follow_ups, decision.missing);
    }

    fn record_rest(&mut self, run: RunId, follow_ups: &mut FollowUps, missing: Vec<u64>) {
        let Some(entry) = self.states.get(run) else { return };
        if !missing.is_empty() {
            follow_ups.push_back(FollowUp::Missing { org: entry.state.org, run, seqs: missing });
        }
        let at_rest = !entry.state.needs_node();
        if let Some(pending) = self.pending.get(run) {
            pending.at_rest = at_rest;
        }
    }

    /// Reads what a decision lacked, and goes on with it.
    async fn learn(&mut self, org: OrgId, run: RunId, mut seqs: Vec<u64>, follow_ups: &mut FollowUps) {
        seqs.sort_unstable();
        seqs.dedup();
        let mut learned = Vec::with_capacity(seqs.len());
        match self.store.events_at(org, run, &seqs).await {
            Ok(rows) => {
                for row in rows {
                    match codec::carried_value(&row) {
                        Ok(Some(json)) => learned.push((row.seq, json)),
                        Ok(None) => {}
                        Err(error) => tracing::error!(%run, %error, "an event cannot be read"),
                    }
                }
            }
            Err(error) => tracing::error!(%run, %error, "events cannot be read"),
        }
        if learned.len() < seqs.len() {
            // Going on would ask the same again; the run is read anew when something happens to it.
            tracing::error!(%run, wanted = seqs.len(), found = learned.len(), "events that a decision needs are not there");
            self.drop_pending(run);
            self.states.forget(run);
            return;
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
        with: Option<RunId>,
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
        with: Option<RunId>,
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
                if let Some(with) = with {
                    self.pending.join(with, run);
                }
                self.note(kind, reply, Ok(Accepted { run, status, existing: false }));
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
        with: Option<RunId>,
        follow_ups: &mut FollowUps,
    ) {
        if let (Some(parent), RequestKind::Start { start, .. }) = (with, &kind) {
            follow_ups.push_back(child_not_started(start.org, start.run, parent, &error));
        }
        Decided { kind, reply, answer: Err(error) }.tell();
    }

    async fn start_child(&mut self, org: OrgId, child: ChildStart, follow_ups: &mut FollowUps) {
        let (run, parent) = (child.run, child.parent.run);
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
                self.decide_start(start, plan, None, Some(parent), follow_ups);
            }
            Err(error) => follow_ups.push_back(child_not_started(org, run, parent, &error)),
        }
    }

    /// Takes a run out of the gathering batch; what was asked of it is decided again.
    pub(super) fn drop_pending(&mut self, run: RunId) {
        if let Some(pending) = self.pending.remove(run) {
            self.ready.free(pending.execute.len());
            let again = pending.decided.into_iter().filter(|decided| decided.answer.is_ok());
            self.again.extend(again.map(Decided::again));
        }
    }

    fn retry_later(&self, request: Request, error: &EngineError) {
        if matches!(error, EngineError::Corrupt { .. } | EngineError::NoSuchRun(_)) {
            return;
        }
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            inbox.report(request).await;
        });
    }
}

fn runs_of(requests: &[Request]) -> Vec<(OrgId, RunId)> {
    requests
        .iter()
        .filter_map(|request| match &request.kind {
            RequestKind::Command { org, run, .. } | RequestKind::TrySlot { org, run } => Some((*org, *run)),
            RequestKind::Start { .. } => None,
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

fn child_not_started(org: OrgId, child: RunId, parent: RunId, error: &EngineError) -> FollowUp {
    let error = ErrorInfo::fatal("child_not_started", format!("the child run could not be started: {error}"));
    let command = Command::ChildEnded { child, outcome: ChildOutcome::Failed { error } };
    FollowUp::Command { org, run: parent, command, with: parent }
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
        other => EngineError::Store(milepost_store::StoreError::Unavailable(other.to_string())),
    }
}
