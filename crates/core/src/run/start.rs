//! Starting: a run comes into being, and begins when nothing keeps it back (approval, `start_at`, room under its key).

use std::sync::Arc;

use serde_json::Value;

use super::evaluate::{KEY_BYTES, key_text};
use super::signal::check_actor;
use super::{Context, Decider, Decision, Effect, Rejection, RejectionKind, RunState};
use crate::cache::Trust;
use crate::canonical;
use crate::event::{BaseRun, Body, Event, ParentStep, Queued};
use crate::expression::{Budget, Scope, StepOutputs};
use crate::id::{OrgId, RunId};
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::{Concurrency, OnLimit, Plan, Rebuild, StepIndex};
use crate::request::RunRequest;
use crate::status::RunStatus;
use crate::text;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// A run that somebody wants.
#[derive(Clone, Debug)]
pub struct StartRun {
    pub org: OrgId,
    pub run: RunId,
    pub payload: Json,
    /// A request with an id, which may come again.
    pub request: Option<Box<RunRequest>>,
    pub priority: i32,
    pub start_at: Option<Timestamp>,
    pub parent: Option<ParentStep>,
    /// The trace of whoever asks for it; without one the run is a trace of its own.
    pub trace: Option<TraceContext>,
    /// Of an update run.
    pub base: Option<BaseRun>,
    /// Where its plan came from; for people to read.
    pub definition: Option<Json>,
    /// Whose results it may take.
    pub trust: Trust,
    /// Steps that run whatever is kept.
    pub rebuild: Option<Rebuild>,
    /// Who asks for it.
    pub submitted_by: Option<String>,
}

impl StartRun {
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request.as_ref().map(|request| &*request.id)
    }
}

/// How many runs hold a slot under this key?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotQuestion {
    pub key: String,
    pub limit: u32,
}

/// A start that passed every check at the door.
#[derive(Debug)]
pub struct Starting {
    pub(super) request: StartRun,
    pub(super) plan: Arc<Plan>,
    slot_key: Option<String>,
}

impl Starting {
    /// Checks what is cheap to check without the database. [`check_payload`] comes before it: it may take time.
    ///
    /// # Errors
    /// The concurrency key has no value, or a limit is passed.
    pub fn check(request: StartRun, plan: Arc<Plan>, context: &Context<'_>) -> Result<Starting, Rejection> {
        let limits = context.limits;
        check_actor(request.submitted_by.as_deref(), limits.name_chars)?;
        if let Some(id) = request.request_id() {
            text::check_name("the request id", id, limits.name_chars, "bad_request_id")?;
        }
        if let Some(parent) = request.parent.as_ref().filter(|parent| parent.depth > limits.child_depth) {
            return Err(invalid(
                "too_deep",
                format!(
                    "{} runs stand above this one, the limit is {}; does a workflow start itself?",
                    parent.depth, limits.child_depth
                ),
            ));
        }
        let slot_key = match &plan.concurrency {
            None => None,
            Some(concurrency) => {
                let payload = Arc::new(parse(&request.payload, limits)?);
                Some(evaluate_key(concurrency, &payload, &request, &plan, context)?)
            }
        };
        Ok(Starting { request, plan, slot_key })
    }

    /// The fact that the start depends on, if there is one.
    #[must_use]
    pub fn question(&self, now: Timestamp) -> Option<SlotQuestion> {
        let later = self.plan.approval || self.request.start_at.is_some_and(|at| at > now);
        match (&self.plan.concurrency, &self.slot_key) {
            (Some(concurrency), Some(key)) if !later => {
                Some(SlotQuestion { key: key.clone(), limit: concurrency.limit })
            }
            _ => None,
        }
    }

    /// Makes the run. `held` answers [`Starting::question`].
    ///
    /// # Errors
    /// There is no room under its key, and the document says `reject`.
    pub fn begin(self, held: Option<u32>, context: &Context<'_>) -> Result<(RunState, Decision), Rejection> {
        let Starting { request, plan, slot_key } = self;
        let room = match (&plan.concurrency, held) {
            (Some(concurrency), Some(held)) => has_room(concurrency, held, slot_key.as_deref())?,
            _ => true,
        };
        let free = room && !plan.approval;
        let (mut state, queued) = Starting::queue(request, plan, slot_key, free, context.now)?;
        let timers: Vec<Effect> = state.scratch.timer_changes.drain(..).map(Effect::Timer).collect();
        let mut decider = Decider::new(&mut state, context);
        decider.decision.events.push(queued);
        decider.decision.effects.extend(timers);
        decider.begin(held.is_some(), room);
        let decision = decider.finish()?;
        Ok((state, decision))
    }

    /// The state after the first event, and the event. One that is not `free` is pending.
    pub(super) fn queue(
        request: StartRun,
        plan: Arc<Plan>,
        slot_key: Option<String>,
        free: bool,
        now: Timestamp,
    ) -> Result<(RunState, Event), Rejection> {
        let queued = Event {
            seq: 1,
            at: now,
            step: None,
            logical_attempt: 0,
            engine_attempt: 0,
            signal: None,
            parent: None,
            actor: None,
            body: Body::RunQueued(Box::new(Queued {
                org: request.org,
                plan_hash: plan.hash,
                payload: request.payload,
                status: if free { RunStatus::Queued } else { RunStatus::Pending },
                request_id: request.request.map(|request| request.id),
                priority: request.priority,
                start_at: request.start_at.filter(|at| *at > now),
                slot_key,
                parent: request.parent,
                trace: request.trace,
                base: request.base,
                definition: request.definition,
                trust: request.trust,
                rebuild: request.rebuild,
                submitted_by: request.submitted_by,
            })),
        };
        let bug = |error: super::Illegal| Rejection::new(RejectionKind::Bug, "internal", error.to_string());
        let state = RunState::begin(request.run, plan, &queued).map_err(bug)?;
        Ok((state, queued))
    }
}

impl Decider<'_> {
    /// Right after the first event: starts, or notes what it waits for.
    fn begin(&mut self, asked: bool, room: bool) {
        if !room {
            self.wait_for_slot();
        } else if self.state.may_start(self.context.now) && (asked || self.state.slot_key.is_none()) {
            self.start();
        }
    }

    fn start(&mut self) {
        if self.state.slot_key.is_some() {
            self.effect(Effect::HoldSlot);
        }
        self.emit_run(Body::RunStarted(self.context.engine.cloned()));
    }

    fn wait_for_slot(&mut self) {
        if let Some(concurrency) = &self.state.plan.clone().concurrency {
            self.effect(Effect::WaitForSlot { limit: concurrency.limit });
        }
    }

    /// What keeps the run back has gone: starts it, or gets in line under its key.
    pub(super) fn start_if_possible(&mut self) {
        if !self.state.may_start(self.context.now) {
            return;
        }
        if self.state.slot_key.is_some() {
            self.wait_for_slot();
        } else {
            self.start();
        }
    }

    /// Somebody counted who holds a slot under this run's key.
    pub(super) fn slots_held(&mut self, held: u32) -> Result<(), Rejection> {
        if !self.state.waits_for_slot(self.context.now) {
            return Err(Rejection::new(RejectionKind::Stale, "not_waiting", "the run does not wait for a slot"));
        }
        if self.state.plan.concurrency.as_ref().is_some_and(|concurrency| held < concurrency.limit) {
            self.start();
        }
        Ok(())
    }
}

fn has_room(concurrency: &Concurrency, held: u32, key: Option<&str>) -> Result<bool, Rejection> {
    if held < concurrency.limit {
        return Ok(true);
    }
    match concurrency.on_limit {
        OnLimit::Queue => Ok(false),
        OnLimit::Reject => Err(Rejection::new(
            RejectionKind::Limited,
            "concurrency_limit",
            format!(
                "{held} runs are under way with the concurrency key `{}`, the limit is {}; try again when one has ended",
                key.unwrap_or_default(),
                concurrency.limit
            ),
        )),
    }
}

/// Checks a payload: its size, that it is JSON as we take it, and that it is what `params` asks for. The time that takes
/// depends on the schema, so a caller does it where nobody waits for it.
///
/// # Errors
/// Says what is wrong with the payload.
pub fn check_payload(plan: &Plan, payload: &Json, limits: &Limits) -> Result<(), Rejection> {
    if payload.len() > limits.payload_bytes {
        return Err(invalid(
            "payload_too_large",
            format!(
                "the payload has {} bytes, the limit is {}; store the data elsewhere and pass a reference to it",
                payload.len(),
                limits.payload_bytes
            ),
        ));
    }
    let payload = parse(payload, limits)?;
    let Some(schema) = &plan.params else { return Ok(()) };
    let problems = schema.check(&payload);
    if problems.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
    Err(invalid("payload_invalid", format!("the payload is not what `params` asks for: {}", list.join("; "))))
}

fn parse(payload: &Json, limits: &Limits) -> Result<Value, Rejection> {
    canonical::parse_within(payload.as_str(), limits)
        .map_err(|error| invalid("bad_payload", format!("the payload: {error}")))
}

struct NoSteps;

impl StepOutputs for NoSteps {
    fn output(&self, _: StepIndex) -> Option<&Arc<Value>> {
        None
    }
}

fn evaluate_key(
    concurrency: &Concurrency,
    payload: &Arc<Value>,
    request: &StartRun,
    plan: &Plan,
    context: &Context<'_>,
) -> Result<String, Rejection> {
    let run = Arc::new(serde_json::json!({
        "id": request.run, "workflow": &*plan.name, "version": &*plan.version, "priority": request.priority,
        "org": request.org.slug(),
        "tenant": request.org.slug(),
    }));
    let budget = Budget::new(KEY_BYTES, context.limits);
    let scope = Scope { payload, run: &run, steps: &NoSteps, item: None, index: None, budget: &budget };
    let value = concurrency.key.render(&scope).map_err(|error| {
        let code = if error.too_large { "bad_concurrency_key" } else { "expression_failed" };
        invalid(code, format!("the concurrency key: {}", error.message))
    })?;
    key_text(&value, context.limits).map_err(|message| invalid("bad_concurrency_key", message))
}

fn invalid(code: &'static str, message: impl Into<String>) -> Rejection {
    Rejection::new(RejectionKind::Invalid, code, message)
}
