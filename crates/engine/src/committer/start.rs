//! Starting runs: somebody's, or a step's that is a run of its own.

use std::sync::Arc;

use milepost_core::plan::Plan;
use milepost_core::run::{Context, RunState, StartRun, Starting};
use milepost_core::time::Timestamp;
use milepost_store::rows::{NewHead, StatusWrite};

use super::children::child_not_started;
use super::decide::FollowUps;
use super::pending::{Asking, Decided, With};
use super::turns;
use super::{Accepted, Committer, Reply, RequestKind};
use crate::error::EngineError;

impl Committer {
    /// A start whose payload was checked before; one that depends on a fact of the database waits for the batch's transaction.
    pub(super) fn decide_start(
        &mut self,
        start: StartRun,
        plan: Arc<Plan>,
        reply: Option<Reply>,
        (at, with): (Option<Timestamp>, Option<With>),
        follow_ups: &mut FollowUps,
    ) {
        let kind = RequestKind::Start { start: Box::new(start.clone()), plan: plan.clone(), at };
        let asks_request = start.request.is_some();
        let (now, entropy) = (self.parts.clock.now(), self.next_entropy());
        let context = Context::new(now, entropy, &self.parts.limits).of(&self.parts.engine);
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
        let at = match &kind {
            RequestKind::Start { at, .. } => *at,
            _ => None,
        };
        let (now, entropy) = (at.unwrap_or_else(|| self.parts.clock.now()), self.next_entropy());
        let context = Context::new(now, entropy, &self.parts.limits).of(&self.parts.engine);
        match starting.begin(held, &context) {
            Ok((state, decision)) => {
                let (run, status, last_seq) = (state.run, state.status, state.last_seq);
                let head = Box::new(new_head(&state, &kind));
                self.states.insert_new(state);
                if let Some(entry) = self.states.get(run) {
                    turns::pay(&mut self.pending.spent, &mut self.turns, entry, now);
                }
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
}

fn new_head(state: &RunState, kind: &RequestKind) -> NewHead {
    let RequestKind::Start { start, plan, .. } = kind else { unreachable!("only a start makes a run") };
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
