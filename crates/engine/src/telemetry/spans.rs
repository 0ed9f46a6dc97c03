//! A run's log becomes spans: one for the run, one for each attempt of a step, with the times that the log has.

use std::collections::HashMap;
use std::sync::Arc;

use milepost_core::event::{Body, ErrorInfo, Event, Queued, Started, StepRef};
use milepost_core::id::RunId;
use milepost_core::plan::Plan;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_core::trace::{SpanId, TraceContext};

use super::otlp::{Attribute, Span, SpanEvent, Status};

/// More spans of one run are left out, and the run's own says how many.
pub(super) const MOST_SPANS: usize = 1000;
/// So many of a run's pauses, signals and so on are told.
const MOST_EVENTS: usize = 100;
/// As much of an error's message as a span quotes.
const QUOTED_CHARS: usize = 1000;

/// Reads one run's log, event by event, up to its end.
#[derive(Debug)]
pub(super) struct RunSpans {
    run: RunId,
    plan: Arc<Plan>,
    queued: Option<Box<Queued>>,
    /// The run's own span: when it began, and the reopening that it began with, if there was one.
    began: Timestamp,
    reopened_seq: Option<u64>,
    open: HashMap<StepRef, Open>,
    spans: Vec<Span>,
    left_out: u64,
    /// No span is left that a failure could take the place of.
    only_failures: bool,
    events: Vec<SpanEvent>,
    end: Option<(RunStatus, Timestamp, Option<ErrorInfo>, Option<String>)>,
}

/// An attempt that is under way.
#[derive(Debug)]
struct Open {
    since: Timestamp,
    logical_attempt: u32,
    engine_attempt: u32,
    started: Started,
}

/// How an attempt ended.
enum Outcome<'a> {
    Completed,
    Failed(&'a ErrorInfo),
    Skipped,
    /// Its node was gone; another attempt of the engine's took its place.
    Lost,
    /// Under way when the run ended.
    Unfinished,
}

impl RunSpans {
    pub(super) fn new(run: RunId, plan: Arc<Plan>) -> RunSpans {
        RunSpans {
            run,
            plan,
            queued: None,
            began: Timestamp(0),
            reopened_seq: None,
            open: HashMap::new(),
            spans: Vec::new(),
            left_out: 0,
            only_failures: false,
            events: Vec::new(),
            end: None,
        }
    }

    /// Whoever started the run asked for it not to be recorded. Known after the first event.
    pub(super) fn is_unwanted(&self) -> bool {
        self.queued.as_ref().and_then(|queued| queued.trace).is_some_and(|trace| !trace.is_sampled())
    }

    pub(super) fn apply(&mut self, event: Event) {
        let (at, seq) = (event.at, event.seq);
        match (event.body, event.step) {
            (Body::RunQueued(queued), _) => {
                self.began = at;
                self.queued = Some(queued);
            }
            (Body::StepStarted(started), Some(step)) => {
                let (logical_attempt, engine_attempt) = (event.logical_attempt, event.engine_attempt);
                self.open.insert(step, Open { since: at, logical_attempt, engine_attempt, started });
            }
            (Body::StepCompleted { .. }, Some(step)) => self.close(step, at, &Outcome::Completed),
            (Body::StepSkipped { .. } | Body::StepReused(_), Some(step)) => self.close(step, at, &Outcome::Skipped),
            (Body::StepFailed { error }, Some(step)) => {
                // One that could not even begin is an attempt, too: of no length.
                let (logical_attempt, engine_attempt) = (event.logical_attempt, event.engine_attempt);
                let started = Started::default();
                self.open.entry(step).or_insert(Open { since: at, logical_attempt, engine_attempt, started });
                self.close(step, at, &Outcome::Failed(&error));
            }
            (Body::StepRetryScheduled { .. }, Some(step)) => self.close(step, at, &Outcome::Lost),
            (Body::RunReopened, _) => self.reopen(at, seq),
            (Body::RunCompleted, _) => self.end = Some((RunStatus::Completed, at, None, None)),
            (Body::RunFailed { error }, _) => self.end = Some((RunStatus::Failed, at, Some(error), None)),
            (Body::RunCancelled { reason }, _) => self.end = Some((RunStatus::Cancelled, at, None, Some(reason))),
            (Body::RunTerminated { reason }, _) => self.end = Some((RunStatus::Terminated, at, None, Some(reason))),
            (body, _) => self.tell(at, &body),
        }
    }

    /// What came before the reopening was exported when the run ended that time.
    fn reopen(&mut self, at: Timestamp, seq: u64) {
        self.began = at;
        self.reopened_seq = Some(seq);
        self.end = None;
        (self.left_out, self.only_failures) = (0, false);
        self.spans.clear();
        self.events.clear();
    }

    fn tell(&mut self, at: Timestamp, body: &Body) {
        let attributes = match body {
            Body::SignalAccepted { name, .. } | Body::SignalRejected { name, .. } => {
                vec![Attribute::text("milepost.signal", quoted(name))]
            }
            Body::RunContinued { .. } => return,
            _ => Vec::new(),
        };
        if self.events.len() < MOST_EVENTS {
            self.events.push(SpanEvent { at, name: body.event_type(), attributes });
        }
    }

    fn close(&mut self, step: StepRef, at: Timestamp, outcome: &Outcome<'_>) {
        let Some(open) = self.open.remove(&step) else { return };
        let failed = matches!(outcome, Outcome::Failed(_) | Outcome::Lost);
        // The run's own span is one of them.
        if self.spans.len() + 1 < MOST_SPANS {
            self.spans.push(self.attempt(step, &open, at, outcome));
            return;
        }
        self.left_out += 1;
        if !failed || self.only_failures {
            return;
        }
        // What went wrong is what people look for.
        match self.spans.iter().rposition(|span| !span.status.is_error()) {
            Some(place) => self.spans[place] = self.attempt(step, &open, at, outcome),
            None => self.only_failures = true,
        }
    }

    fn attempt(&self, step: StepRef, open: &Open, at: Timestamp, outcome: &Outcome<'_>) -> Span {
        let name = step.name(&self.plan);
        let id = SpanId::of_attempt(self.run, &name, open.logical_attempt, open.engine_attempt);
        let mut span = Span::new(self.context().trace_id, id, name.clone(), open.since, at);
        span.parent_span_id = Some(self.parent_of(step));
        span.attributes = vec![
            Attribute::text("milepost.run_id", self.run.to_string()),
            Attribute::text("milepost.step_id", name),
            Attribute::text("milepost.skill", &*self.plan.step(step.step).skill),
            Attribute::number("milepost.logical_attempt", open.logical_attempt),
            Attribute::number("milepost.engine_attempt", open.engine_attempt),
            Attribute::text("milepost.outcome", outcome.word()),
        ];
        let started = &open.started;
        span.attributes.extend(started.worker.map(|node| Attribute::text("milepost.node", node.to_string())));
        span.attributes.extend(started.items.map(|items| Attribute::number("milepost.items", items)));
        span.attributes.extend(started.child.map(|child| Attribute::text("milepost.child_run_id", child.to_string())));
        span.attributes
            .extend(started.waits_for.as_deref().map(|name| Attribute::text("milepost.signal", quoted(name))));
        outcome.mark(&mut span);
        span
    }

    /// Items of a `foreach` step are parts of it.
    fn parent_of(&self, step: StepRef) -> SpanId {
        let whole = StepRef::whole(step.step);
        match self.open.get(&whole).filter(|_| step.item.is_some()) {
            Some(open) => {
                SpanId::of_attempt(self.run, &whole.name(&self.plan), open.logical_attempt, open.engine_attempt)
            }
            None => self.own_span(),
        }
    }

    fn own_span(&self) -> SpanId {
        match self.reopened_seq {
            None => SpanId::of_run(self.run),
            Some(seq) => SpanId::of_reopened(self.run, seq),
        }
    }

    fn context(&self) -> TraceContext {
        let caller = self.queued.as_ref().and_then(|queued| queued.trace);
        TraceContext::of_span(self.run, caller, self.own_span())
    }

    /// The spans, the run's own first; none if the log did not come to an end.
    pub(super) fn finish(mut self) -> Vec<Span> {
        let Some((status, at, error, reason)) = self.end.take() else { return Vec::new() };
        let unfinished: Vec<StepRef> = self.open.keys().copied().collect();
        for step in unfinished {
            self.close(step, at, &Outcome::Unfinished);
        }
        let mut spans = vec![self.whole(status, at, error.as_ref(), reason)];
        spans.append(&mut self.spans);
        spans
    }

    fn whole(&mut self, status: RunStatus, at: Timestamp, error: Option<&ErrorInfo>, reason: Option<String>) -> Span {
        let mut span = Span::new(self.context().trace_id, self.own_span(), self.plan.name.to_string(), self.began, at);
        span.attributes = vec![
            Attribute::text("milepost.run_id", self.run.to_string()),
            Attribute::text("milepost.workflow", &*self.plan.name),
            Attribute::text("milepost.workflow_version", &*self.plan.version),
            Attribute::text("milepost.status", status.as_str()),
        ];
        let queued = self.queued.take();
        let caller = queued.as_ref().and_then(|queued| queued.trace).map(|trace| trace.parent_id);
        // Where nobody called, the parts of a reopened run hang together by its first one.
        span.parent_span_id = caller.or_else(|| self.reopened_seq.map(|_| SpanId::of_run(self.run)));
        let request_id = queued.as_ref().and_then(|queued| queued.request_id.clone());
        let parent = queued.as_ref().and_then(|queued| queued.parent.as_ref()).map(|parent| parent.run.to_string());
        span.attributes.extend(request_id.map(|id| Attribute::text("milepost.request_id", id)));
        span.attributes.extend(parent.map(|run| Attribute::text("milepost.parent_run_id", run)));
        span.attributes.extend(reason.map(|reason| Attribute::text("milepost.reason", reason)));
        if self.left_out > 0 {
            span.attributes.push(Attribute::number("milepost.spans_left_out", self.left_out));
        }
        span.events = std::mem::take(&mut self.events);
        match error {
            Some(error) => mark_error(&mut span, error),
            None if status == RunStatus::Completed => span.status = Status::ok(),
            None => {}
        }
        span
    }
}

impl Outcome<'_> {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Skipped => "skipped",
            Outcome::Lost => "lost",
            Outcome::Unfinished => "unfinished",
        }
    }

    fn mark(&self, span: &mut Span) {
        match self {
            Outcome::Completed => span.status = Status::ok(),
            Outcome::Failed(error) => mark_error(span, error),
            Outcome::Lost => mark_error(span, &ErrorInfo::retryable("worker_lost", "its node was gone")),
            Outcome::Skipped | Outcome::Unfinished => {}
        }
    }
}

fn mark_error(span: &mut Span, error: &ErrorInfo) {
    span.attributes.push(Attribute::text("error.type", error.code.clone()));
    span.status = Status::error(quoted(&error.message));
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_CHARS).collect()
}
