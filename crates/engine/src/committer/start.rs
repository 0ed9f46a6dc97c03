//! Starting runs: somebody's, or a step's that is a run of its own.

use std::sync::Arc;

use milepost_core::event::ErrorInfo;
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::run::{ChildOutcome, ChildStart, Command, Context, RunState, StartRun, Starting, check_payload};
use milepost_store::rows::{NewHead, StatusWrite};

use super::decide::{FollowUp, FollowUps};
use super::pending::{Asking, Decided, With};
use super::{Accepted, Committer, Reply, RequestKind};
use crate::definitions::definition_of;
use crate::error::EngineError;

impl Committer {
    /// A start is checked; one that depends on a fact of the database waits for the batch's transaction.
    pub(super) fn decide_start(
        &mut self,
        start: StartRun,
        plan: Arc<Plan>,
        reply: Option<Reply>,
        with: Option<With>,
        follow_ups: &mut FollowUps,
    ) {
        let kind = RequestKind::Start { start: Box::new(start.clone()), plan: plan.clone() };
        let asks_request = start.request.is_some();
        let (now, entropy) = (self.parts.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.parts.limits);
        let checked = check_payload(&plan, &start.payload, &self.parts.limits);
        let starting = match checked.and_then(|()| Starting::check(start, plan, &context)) {
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
        let (now, entropy) = (self.parts.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.parts.limits);
        match starting.begin(held, &context) {
            Ok((state, decision)) => {
                let (run, status, last_seq) = (state.run, state.status, state.last_seq);
                let head = Box::new(new_head(&state, &kind));
                self.states.insert_new(state);
                self.record(run, 0, decision, Some(head), follow_ups);
                match with {
                    // If this batch is lost, the parent decides again, and then there is another child.
                    Some(with) => self.pending.join(with.run, run),
                    None => self.note(kind, reply, Ok(Accepted { run, status, existing: false, last_seq })),
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

    pub(super) async fn start_child(&mut self, org: OrgId, child: ChildStart, with: With, follow_ups: &mut FollowUps) {
        let run = child.run;
        let plan = self.parts.plans.resolve(org, &child.reference).await;
        match plan.and_then(|(plan, target)| {
            crate::engine::check_skills(&plan, &self.parts.executor, self.parts.workers).map(|()| (plan, target))
        }) {
            Ok((plan, target)) => {
                self.parts.plans.ready_soon(org, &plan);
                let trust = match self.parts.plans.trust_in(org, &plan, &target).await {
                    Ok(trust) => trust,
                    Err(error) => return self.postpone(org, with.run, &error),
                };
                let start = StartRun {
                    org,
                    run,
                    payload: child.payload,
                    request: None,
                    priority: child.priority,
                    start_at: None,
                    parent: Some(child.parent),
                    trace: Some(child.trace),
                    base: None,
                    definition: Some(definition_of(&child.reference, &target, None)),
                    trust,
                    rebuild: None,
                };
                self.decide_start(start, plan, None, Some(with), follow_ups);
            }
            Err(error) if error.is_passing() => self.postpone(org, with.run, &error),
            Err(error) => follow_ups.push_back(child_not_started(org, run, with, &error)),
        }
    }
}

fn new_head(state: &RunState, kind: &RequestKind) -> NewHead {
    let RequestKind::Start { start, plan } = kind else { unreachable!("only a start makes a run") };
    NewHead {
        workflow: plan.name.clone(),
        workflow_version: plan.version.clone(),
        plan_hash: plan.hash,
        request_id: start.request_id().map(ToOwned::to_owned),
        asked: start.request.as_ref().map(|request| request.asked),
        base_run: start.base.as_ref().map(|base| base.run),
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
