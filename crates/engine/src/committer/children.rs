//! Child runs are prepared beside the committer: their reference is resolved, their plan compiled, their payload checked. None
//! of that has a bound that the committer could wait for.
//!
//! ```text
//!   decision of the parent ──► StartChild, not prepared ──► the decision is taken back, its requests are held
//!                                                                  │ beside the committer
//!   decided again, and now its children are prepared ◄── Message::Children
//! ```
//!
//! A child that starts children of its own in its very first decision would be another run, with another id, each time all of
//! this is decided again. So it is only queued with its parent, and goes on by a timer once it is on disk.
//!
//! **Invariant:** nothing of the parent's decision is written before its children can be started with it, in one commit. If
//! this process dies meanwhile, whoever takes the parent over decides it anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use milepost_core::cache::Trust;
use milepost_core::event::{ErrorInfo, ParentStep};
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::run::{ChildOutcome, ChildStart, Command, StartRun};

use super::decide::{FollowUp, FollowUps};
use super::load::copy_of;
use super::pending::{Decided, With};
use super::self_patch::Preparer;
use super::{Committer, Message, Request, RequestKind};
use crate::engine::check_skills;
use crate::error::EngineError;
use crate::work::{WorkError, check_payload};

/// When the store could not be asked, it is asked again.
const RETRY: Duration = Duration::from_millis(250);
/// What was prepared and not asked for by then is prepared anew: the reference may mean something else.
const KEPT: Duration = Duration::from_secs(60);

/// What is noted of a run for which this is done.
pub(super) const START_CHILD: &str = "start a child";

/// Which step of which run starts it: its attempt.
type Place = (RunId, String, u32);

/// A child that a decision waits for.
#[derive(Debug)]
pub(crate) struct PreparedChild {
    place: Place,
    reference: String,
    payload: Digest,
    ready: Result<ReadyChild, Arc<EngineError>>,
    /// It begins once it is on disk.
    begins_later: bool,
}

#[derive(Clone, Debug)]
struct ReadyChild {
    plan: Arc<Plan>,
    definition: Json,
    trust: Trust,
}

/// Children that decisions wait for, until these are made again.
#[derive(Debug, Default)]
pub(super) struct PreparedChildren(HashMap<Place, (Instant, PreparedChild)>);

impl PreparedChildren {
    fn add(&mut self, children: Vec<PreparedChild>) {
        let now = Instant::now();
        self.0.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        self.0.extend(children.into_iter().map(|child| (child.place.clone(), (now, child))));
    }

    fn has(&self, child: &ChildStart) -> bool {
        let prepared = self.0.get(&place_of(child)).map(|(_, prepared)| prepared);
        prepared.is_some_and(|found| found.reference == child.reference && found.payload == digest_of(&child.payload))
    }
}

fn place_of(child: &ChildStart) -> Place {
    place(&child.parent)
}

fn place(parent: &ParentStep) -> Place {
    (parent.run, parent.step.clone(), parent.logical_attempt)
}

fn digest_of(payload: &Json) -> Digest {
    Digest::of(payload.as_str().as_bytes())
}

impl Committer {
    /// Starts the children of one decision, or has them prepared.
    pub(super) fn start_children(
        &mut self,
        org: OrgId,
        first: Box<ChildStart>,
        with: With,
        follow_ups: &mut FollowUps,
    ) {
        let mut children = vec![first];
        // All that one decision starts is prepared at once: it waits for all of them.
        for follow_up in std::mem::take(follow_ups) {
            match follow_up {
                FollowUp::StartChild { child, with: its, .. } if its == with => children.push(child),
                other => follow_ups.push_back(other),
            }
        }
        if children.iter().all(|child| self.prepared.has(child)) {
            for child in children {
                self.start_child(org, *child, with, follow_ups);
            }
            return;
        }
        let begins_later = self.begins_later(with.run);
        let requests = self.hold_back(with.run);
        if begins_later {
            return self.again.extend(requests);
        }
        let (preparer, inbox, care) = (self.preparer(), self.parts.inbox.clone(), self.parts.care.clone());
        tokio::spawn(async move {
            let preparing = care.prepare(org, with.run, START_CHILD).await;
            let prepared = preparer.children(org, &children).await;
            drop(preparing);
            match prepared {
                // After shutdown there is nobody to take it.
                Ok(children) => drop(inbox.send(Message::Children { children, requests }).await),
                Err(error) => {
                    tracing::warn!(run = %with.run, %error, "child runs cannot be prepared now");
                    let (asked, others): (Vec<_>, Vec<_>) =
                        requests.into_iter().partition(|request| request.reply.is_some());
                    for reply in asked.into_iter().filter_map(|request| request.reply) {
                        // A caller that no longer waits is no loss.
                        let _ = reply.send(Err(copy_of(&error)));
                    }
                    tokio::time::sleep(RETRY).await;
                    for request in others {
                        inbox.report(request).await;
                    }
                }
            }
        });
    }

    /// Whether the run is a child that is not on disk yet; then it is noted that it begins once it is.
    fn begins_later(&mut self, run: RunId) -> bool {
        let is_new = self.pending.get(run).is_some_and(|pending| pending.insert.is_some());
        let parent = self.states.peek(run).and_then(|entry| entry.state.parent.as_ref()).map(place);
        match parent.filter(|_| is_new).and_then(|place| self.prepared.0.get_mut(&place)) {
            Some((_, prepared)) => {
                prepared.begins_later = true;
                true
            }
            None => false,
        }
    }

    /// Children are there; what waited for them is decided again.
    pub(super) fn children_prepared(&mut self, children: Vec<PreparedChild>) {
        self.prepared.add(children);
    }

    fn start_child(&mut self, org: OrgId, child: ChildStart, with: With, follow_ups: &mut FollowUps) {
        let Some((_, prepared)) = self.prepared.0.get(&place_of(&child)) else { return };
        let ReadyChild { plan, definition, trust } = match prepared.ready.clone() {
            Ok(ready) => ready,
            Err(error) => return follow_ups.push_back(child_not_started(org, child.run, with, &error)),
        };
        let start_at = prepared.begins_later.then(|| self.parts.clock.now().plus_ms(1));
        let start = StartRun {
            org,
            run: child.run,
            payload: child.payload,
            request: None,
            priority: child.priority,
            start_at,
            parent: Some(child.parent),
            trace: Some(child.trace),
            base: None,
            definition: Some(definition),
            trust,
            rebuild: None,
            // Its parent did.
            submitted_by: None,
        };
        self.decide_start(start, plan, None, (None, Some(with)), follow_ups);
    }

    /// Takes a run out of the gathering batch, with those that stand or fall with it. Answers what has to be decided again
    /// once that for which it waits is there.
    pub(super) fn hold_back(&mut self, run: RunId) -> Vec<Request> {
        let mut requests = Vec::new();
        for dropped in self.remove_pending(run) {
            // What its expressions see of a run stays as it was.
            let began = dropped.events.first().map(|event| event.at);
            for mut request in dropped.decided.into_iter().map(Decided::again) {
                if let RequestKind::Start { at, .. } = &mut request.kind {
                    *at = at.or(began);
                }
                requests.push(request);
            }
            if dropped.insert.is_none() {
                requests.push(Request::revive(dropped.org, dropped.run));
            }
        }
        requests
    }
}

impl Preparer {
    /// # Errors
    /// Not now: the store cannot be asked, or too much is being checked.
    async fn children(&self, org: OrgId, children: &[Box<ChildStart>]) -> Result<Vec<PreparedChild>, EngineError> {
        let mut known: HashMap<&str, Result<ReadyChild, Arc<EngineError>>> = HashMap::new();
        let mut prepared = Vec::with_capacity(children.len());
        for child in children {
            let reference = child.reference.as_str();
            if !known.contains_key(reference) {
                known.insert(reference, lasting(self.resolve(org, reference)).await?);
            }
            let ready = match known[reference].clone() {
                Ok(ready) => {
                    let checked = check_payload(&self.work, &ready.plan, &child.payload, &self.limits);
                    lasting(checked).await?.map(|()| ready)
                }
                Err(error) => Err(error),
            };
            let (place, reference, payload) = (place_of(child), reference.to_owned(), digest_of(&child.payload));
            prepared.push(PreparedChild { place, reference, payload, ready, begins_later: false });
        }
        Ok(prepared)
    }

    async fn resolve(&self, org: OrgId, reference: &str) -> Result<ReadyChild, EngineError> {
        let (plan, target) = self.plans.resolve(org, reference).await?;
        check_skills(&plan, &self.executor, self.workers)?;
        let trust = self.plans.trust_in(org, &plan, &target).await?;
        // Whatever happens before the snapshot is made, the tag's revision has the document.
        self.plans.ready_soon(org, &plan);
        let definition = self.plans.definition_of(org, reference, (&plan, &target), None).await?;
        Ok(ReadyChild { definition, plan, trust })
    }
}

/// What cannot be done ever is an answer; so is a panic.
async fn lasting<T>(
    work: impl Future<Output = Result<T, EngineError>>,
) -> Result<Result<T, Arc<EngineError>>, EngineError> {
    match std::panic::AssertUnwindSafe(work).catch_unwind().await {
        Ok(Err(error)) if error.is_passing() => Err(error),
        Ok(answer) => Ok(answer.map_err(Arc::new)),
        Err(_) => Ok(Err(Arc::new(WorkError::Panicked.into()))),
    }
}

pub(super) fn child_not_started(org: OrgId, child: RunId, parent: With, error: &EngineError) -> FollowUp {
    let error = ErrorInfo::fatal("child_not_started", format!("the child run could not be started: {error}"));
    let command = Command::ChildEnded { child, outcome: ChildOutcome::Failed { error } };
    FollowUp::Command { org, run: parent.run, command, with: parent }
}
