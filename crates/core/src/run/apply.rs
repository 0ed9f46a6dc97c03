//! `apply`: one event changes the state. Replaying a log and deciding use this same function.

use std::sync::Arc;

use super::cache::Begun;
use super::state::{
    Buffered, Failure, Phase, REMEMBERED_SIGNALS, RunState, Running, RunningKind, StepState, Timer, TimerChange,
    TimerPurpose,
};
use crate::event::{Body, ErrorInfo, Event, Started, StepRef};
use crate::id::RunId;
use crate::json::Json;
use crate::plan::{Action, Plan, StepIndex};
use crate::status::{SkipReason, StepStatus};
use crate::time::Timestamp;

/// The state keeps, and an error that ends a run quotes, at most this much of a step's.
const QUOTED_CHARS: usize = 1000;

/// The log says something that cannot follow what it said before.
#[derive(Debug, thiserror::Error)]
#[error("event {seq} ({event_type}) cannot follow: {reason}")]
pub struct Illegal {
    seq: u64,
    event_type: &'static str,
    reason: String,
}

impl RunState {
    /// The state after a run's first event.
    ///
    /// # Errors
    /// It is not a `RunQueued` with sequence number 1.
    pub fn begin(run: RunId, plan: Arc<Plan>, event: &Event) -> Result<RunState, Illegal> {
        let Body::RunQueued(queued) = &event.body else {
            return Err(illegal(event, "a log begins with RunQueued"));
        };
        if event.seq != 1 {
            return Err(illegal(event, "a log begins with 1"));
        }
        let mut state = RunState::new(run, plan, queued, event.at);
        state.learn(1, queued.payload.clone());
        state.bytes_since_continue = event.body.size();
        if let Some(due_at) = queued.start_at {
            state.arm(1, due_at, TimerPurpose::StartAt);
        }
        Ok(state)
    }

    /// # Errors
    /// The event cannot follow; the state is then worth nothing and must be dropped.
    pub fn apply(&mut self, event: &Event) -> Result<(), Illegal> {
        if event.seq != self.last_seq + 1 {
            return Err(illegal(event, format!("the event before it is {}", self.last_seq)));
        }
        if let Some(next) = event.body.run_status() {
            if !self.status.may_become(next) {
                return Err(illegal(event, format!("a run that is {} does not become {next}", self.status)));
            }
            self.status = next;
        }
        match (&event.body, event.step) {
            (Body::RunStarted(_), None) => self.run_started(),
            (Body::RunApproved | Body::RunPaused | Body::RunResumed, None) => {}
            (Body::RunReopened, None) => self.run_reopened(event),
            (Body::RunCompleted, None) => self.disarm_all(),
            (Body::RunFailed { .. }, None) => self.run_failed(),
            (Body::RunCancelled { .. } | Body::RunTerminated { .. }, None) => self.run_stopped(),
            (Body::RunContinued { count }, None) => self.run_continued(*count),
            (Body::RunPatched(patched), None) => self.run_patched(event, patched)?,
            (Body::SignalRejected { .. }, None) => self.remember_signal(event),
            (Body::SignalAccepted { name, step, payload }, None) => {
                self.remember_signal(event);
                self.signal_accepted(event, name, *step, payload);
                self.learn(event.seq, payload.clone());
            }
            (Body::StepStarted(started), Some(step)) => self.step_started(event, step, started)?,
            (Body::StepCompleted { output, .. }, Some(step)) => {
                self.step_completed(event, step)?;
                if let Some(output) = output {
                    self.learn(event.seq, output.clone());
                }
            }
            (Body::ArtifactRecorded(_), step) => {
                self.remember_id(event);
                if step.is_some_and(|step| self.step(step).is_none()) {
                    return Err(illegal(event, "there is no such step"));
                }
            }
            (Body::StepFailed { error }, Some(step)) => {
                self.step_failed(event, step)?;
                if self.first_failure.is_none() {
                    self.first_failure = Some(Failure { seq: event.seq, step, error: quoted(error) });
                }
            }
            (Body::StepSkipped { reason }, Some(step)) => self.step_skipped(event, step, *reason)?,
            (Body::StepsSkipped { steps }, None) => self.steps_skipped(event, steps)?,
            (Body::StepReused(reused), Some(step)) => {
                self.step_skipped(event, step, SkipReason::CacheHit)?;
                self.step_mut(step).expect("it was just looked at").output_seq = event.seq;
                if let Some(output) = &reused.output {
                    self.learn(event.seq, output.clone());
                }
            }
            (Body::StepRetryScheduled { retry_at, reset, operator }, Some(step)) => {
                self.retry_scheduled(event, step, *retry_at, *operator)?;
                for reset in reset {
                    self.reset(event, *reset)?;
                }
            }
            _ => return Err(illegal(event, "it does not fit a run in this state")),
        }
        self.artifacts_recorded(event.artifacts().0);
        self.artifacts_left(event);
        self.last_seq = event.seq;
        self.bytes_since_continue += event.body.size();
        Ok(())
    }

    fn run_started(&mut self) {
        self.disarm_all();
        for index in 0..self.steps.len() {
            // An operator may have skipped it before the start.
            if self.steps[index].open == 0 && self.steps[index].phase == Phase::Pending {
                self.make_ready(StepRef::whole(index as StepIndex));
            }
        }
    }

    /// What waited for a retry is in line again should the run be reopened.
    fn run_failed(&mut self) {
        let waiting = std::mem::take(&mut self.backoff);
        self.disarm_all();
        for step in waiting.into_keys() {
            self.make_ready(step);
        }
    }

    /// A failure from before the reopening, should the run end for it once more, is told from the first time by when it
    /// was taken up again.
    fn run_reopened(&mut self, event: &Event) {
        if let Some(failure) = &mut self.first_failure {
            failure.seq = event.seq;
        }
    }

    fn run_stopped(&mut self) {
        self.disarm_all();
        // One whose retry is due is in line while its timer is armed.
        let waiting = std::mem::take(&mut self.backoff).into_keys().chain(std::mem::take(&mut self.ready));
        self.scratch.gone.extend(waiting.map(|step| (step, false)));
        self.scratch.awaited.clear();
        for step in self.running.keys().copied().collect::<Vec<_>>() {
            self.remove_running(step);
        }
        self.stopping = true;
    }

    fn run_continued(&mut self, count: u32) {
        self.continues = count;
        self.steps_since_continue = 0;
        self.bytes_since_continue = 0;
    }

    pub(super) fn remember_id(&mut self, event: &Event) {
        if let Some(signal) = event.signal {
            if self.seen_signals.len() == REMEMBERED_SIGNALS {
                self.seen_signals.pop_front();
            }
            self.seen_signals.push_back(signal);
        }
    }

    fn remember_signal(&mut self, event: &Event) {
        self.remember_id(event);
        while self.signal_times.front().is_some_and(|at| event.at.ms_since(*at) >= 60_000) {
            self.signal_times.pop_front();
        }
        self.signal_times.push_back(event.at);
    }

    fn signal_accepted(&mut self, event: &Event, name: &str, step: Option<StepRef>, payload: &Json) {
        match super::signal::Verb::of(name) {
            Some(super::signal::Verb::Cancel) => {
                self.stopping = true;
                self.stop_reason = super::stop::reason_of(payload);
            }
            Some(_) => {}
            None => self.inbox.entry(name.to_owned()).or_default().push_back(Buffered { seq: event.seq, step }),
        }
    }

    fn step_started(&mut self, event: &Event, step: StepRef, started: &Started) -> Result<(), Illegal> {
        self.expect(event, step, StepStatus::Running)?;
        self.ready.remove(&step);
        self.end_backoff(step);
        let state = self.step_mut(step).expect("it was just looked at");
        state.phase = Phase::Running;
        state.logical_attempt = event.logical_attempt;
        state.engine_attempt = event.engine_attempt;
        let kind = self.running_kind(event, step, started);
        if kind == RunningKind::Items {
            self.expand(step.step, started.items.unwrap_or(0));
        } else if let Some(items) = step.item.and_then(|_| self.items.get_mut(&step.step)) {
            items.running += 1;
        }
        let timer = started.due_at.map(|due_at| {
            self.arm(event.seq, due_at, TimerPurpose::End(step));
            event.seq
        });
        let begun = started.cache_key.map(|key| Begun { key, at: event.at });
        self.insert_running(step, Running { kind, timer, begun });
        Ok(())
    }

    fn running_kind(&self, event: &Event, step: StepRef, started: &Started) -> RunningKind {
        if started.items.is_some() {
            return RunningKind::Items;
        }
        match self.plan.step(step.step).action {
            Action::Task => match &started.lease {
                Some(lease) => RunningKind::Leased { proof: lease.proof },
                None => RunningKind::Task { worker: started.worker },
            },
            Action::Sleep => RunningKind::Sleep,
            Action::Wait => {
                RunningKind::Wait { signal: started.waits_for.clone().unwrap_or_default(), since: event.seq }
            }
            Action::Child => RunningKind::Child { run: started.child.unwrap_or(self.run) },
        }
    }

    /// Makes the items of a `foreach` step, or, when it is tried again, opens those that failed.
    fn expand(&mut self, step: StepIndex, count: u32) {
        let items = self.items.entry(step).or_default();
        items.steps.resize(count as usize, StepState::new(0));
        let mut fresh = Vec::new();
        for (item, state) in items.steps.iter_mut().enumerate() {
            match state.phase {
                Phase::Completed | Phase::Skipped(_) => continue,
                Phase::Failed => {
                    items.failed -= 1;
                    self.failures -= 1;
                    state.spent = state.logical_attempt;
                }
                _ => {}
            }
            fresh.push(StepRef::item(step, item as u32));
        }
        items.unfinished = fresh.len() as u32;
        self.acknowledged = self.acknowledged.min(self.failures);
        for step in fresh {
            self.make_ready(step);
        }
    }

    fn step_completed(&mut self, event: &Event, step: StepRef) -> Result<(), Illegal> {
        self.expect(event, step, StepStatus::Completed)?;
        self.take_awaited_signal(event, step);
        self.end(step, Phase::Completed, attempts_of(event));
        self.step_mut(step).expect("it was just looked at").output_seq = event.seq;
        if step.item.is_none() {
            self.satisfy_dependents(step.step);
        }
        Ok(())
    }

    /// A `wait` step that ends well has taken the signal that its event names as its cause.
    fn take_awaited_signal(&mut self, event: &Event, step: StepRef) {
        let Some(RunningKind::Wait { signal, .. }) = self.running.get(&step).map(|running| &running.kind) else {
            return;
        };
        if let Some(line) = self.inbox.get_mut(signal) {
            line.retain(|buffered| Some(buffered.seq) != event.parent);
            if line.is_empty() {
                let signal = signal.clone();
                self.inbox.remove(&signal);
            }
        }
    }

    fn step_failed(&mut self, event: &Event, step: StepRef) -> Result<(), Illegal> {
        self.expect(event, step, StepStatus::Failed)?;
        self.end(step, Phase::Failed, attempts_of(event));
        self.failures += 1;
        if let Some(items) = step.item.and_then(|_| self.items.get_mut(&step.step)) {
            items.failed += 1;
        }
        Ok(())
    }

    fn step_skipped(&mut self, event: &Event, step: StepRef, reason: SkipReason) -> Result<(), Illegal> {
        self.expect(event, step, StepStatus::Skipped)?;
        self.end(step, Phase::Skipped(reason), attempts_of(event));
        if reason.satisfies() && step.item.is_none() {
            self.satisfy_dependents(step.step);
        }
        Ok(())
    }

    /// The run has stopped, and these had not begun. Their attempts stay what they are.
    fn steps_skipped(&mut self, event: &Event, steps: &[StepIndex]) -> Result<(), Illegal> {
        for step in steps {
            let step = StepRef::whole(*step);
            self.expect(event, step, StepStatus::Skipped)?;
            let state = self.steps[step.step as usize];
            self.end(step, Phase::Skipped(SkipReason::RunStopped), (state.logical_attempt, state.engine_attempt));
        }
        Ok(())
    }

    /// What all endings of a step have in common.
    fn end(&mut self, step: StepRef, phase: Phase, attempts: (u32, u32)) {
        self.stop_waiting(step);
        self.scratch.cache.remove(&step);
        let was_active = self.stop_running(step);
        let state = self.step_mut(step).expect("the caller looked at it");
        state.phase = phase;
        (state.logical_attempt, state.engine_attempt) = attempts;
        self.steps_since_continue += 1;
        match step.item.and_then(|_| self.items.get_mut(&step.step)) {
            Some(items) => {
                items.unfinished -= 1;
                items.running -= u32::from(was_active);
            }
            None => {
                self.unfinished -= 1;
                self.put_items_away(step.step);
            }
        }
    }

    /// Items that have not ended when their step has are out of line until it is tried again.
    fn put_items_away(&mut self, step: StepIndex) {
        self.scratch.items.remove(&step);
        let Some(items) = self.items.get_mut(&step).filter(|items| items.unfinished > 0) else { return };
        let mut waiting = Vec::new();
        for (item, state) in items.steps.iter_mut().enumerate() {
            if matches!(state.phase, Phase::Ready | Phase::Backoff) {
                state.phase = Phase::Pending;
                waiting.push(StepRef::item(step, item as u32));
            }
        }
        for item in waiting {
            self.stop_waiting(item);
        }
    }

    /// Answers whether the step was among the active ones.
    fn stop_running(&mut self, step: StepRef) -> bool {
        let Some(running) = self.remove_running(step) else { return false };
        if let Some(seq) = running.timer {
            self.disarm(seq);
        }
        running.kind != RunningKind::Items
    }

    fn retry_scheduled(
        &mut self,
        event: &Event,
        step: StepRef,
        retry_at: Timestamp,
        operator: bool,
    ) -> Result<(), Illegal> {
        self.expect(event, step, StepStatus::Pending)?;
        let state = self.step_mut(step).expect("it was just looked at");
        let lost = state.phase == Phase::Running;
        if operator {
            state.spent = state.logical_attempt;
        }
        state.logical_attempt = event.logical_attempt;
        // Where the attempt itself goes on, the event says which hand it is in next.
        state.engine_attempt = event.engine_attempt.saturating_sub(1);
        if lost {
            let was_active = self.stop_running(step);
            if let Some(items) = step.item.and_then(|_| self.items.get_mut(&step.step)) {
                items.running -= u32::from(was_active);
            }
        } else {
            self.reopen(step);
            if operator {
                self.acknowledged = self.failures;
            }
        }
        if retry_at > event.at {
            self.step_mut(step).expect("it was just looked at").phase = Phase::Backoff;
            self.arm(event.seq, retry_at, TimerPurpose::Retry(step));
            self.backoff.insert(step, event.seq);
        } else {
            self.make_ready(step);
        }
        Ok(())
    }

    fn reopen(&mut self, step: StepRef) {
        self.failures -= 1;
        match step.item.and_then(|_| self.items.get_mut(&step.step)) {
            Some(items) => {
                items.failed -= 1;
                items.unfinished += 1;
            }
            None => self.unfinished += 1,
        }
        let covers = |failure: &Failure| failure.step == step || StepRef::whole(failure.step.step) == step;
        if self.first_failure.as_ref().is_some_and(covers) {
            self.first_failure = None;
        }
    }

    /// Opens a step that had been skipped because one before it failed, or because its run stopped.
    fn reset(&mut self, event: &Event, step: StepIndex) -> Result<(), Illegal> {
        self.expect(event, StepRef::whole(step), StepStatus::Pending)?;
        let state = &mut self.steps[step as usize];
        state.phase = Phase::Pending;
        let is_next = state.open == 0;
        self.unfinished += 1;
        if is_next {
            self.make_ready(StepRef::whole(step));
        }
        Ok(())
    }

    fn satisfy_dependents(&mut self, step: StepIndex) {
        let plan = self.plan.clone();
        for dependent in &plan.step(step).dependents {
            let state = &mut self.steps[*dependent as usize];
            state.open -= 1;
            if state.open == 0 && state.phase == Phase::Pending {
                self.make_ready(StepRef::whole(*dependent));
            }
        }
    }

    /// Its turn has come: the dependencies are satisfied, or an attempt is to be made again.
    pub(super) fn make_ready(&mut self, step: StepRef) {
        let state = self.step_mut(step).expect("the caller looked at it");
        state.phase = Phase::Ready;
        self.ready.insert(step);
        self.scratch.fresh.push(step);
    }

    /// It will not begin after all.
    pub(super) fn leave_line(&mut self, step: StepRef) {
        if self.ready.remove(&step) {
            self.scratch.gone.push((step, false));
        }
    }

    /// It is not in line, nor will it be when its retry is due. (One whose retry is due is in line while its timer is armed.)
    pub(super) fn stop_waiting(&mut self, step: StepRef) {
        if self.backoff.contains_key(&step) {
            self.scratch.gone.push((step, false));
        }
        self.leave_line(step);
        self.end_backoff(step);
        self.scratch.awaited.remove(&step);
    }

    pub(super) fn end_backoff(&mut self, step: StepRef) {
        if let Some(seq) = self.backoff.remove(&step) {
            self.disarm(seq);
        }
    }

    fn arm(&mut self, seq: u64, due_at: Timestamp, purpose: TimerPurpose) {
        self.timers.insert(seq, Timer { due_at, purpose });
        self.scratch.timer_changes.push(TimerChange::Arm { seq, due_at });
    }

    fn disarm(&mut self, seq: u64) {
        if self.timers.remove(&seq).is_some() {
            self.scratch.timer_changes.push(TimerChange::Disarm { seq });
        }
    }

    fn disarm_all(&mut self) {
        let seqs: Vec<u64> = self.timers.keys().copied().collect();
        for seq in seqs {
            self.disarm(seq);
        }
    }

    /// The transition table of steps allows what the event says.
    fn expect(&self, event: &Event, step: StepRef, next: StepStatus) -> Result<(), Illegal> {
        match self.step(step) {
            Some(state) if state.phase.status().may_become(next) => Ok(()),
            Some(state) => Err(illegal(event, format!("a step that is {:?} does not become {next}", state.phase))),
            None => Err(illegal(event, "it has no such step")),
        }
    }

    /// Forgets what replaying left behind: nobody has to act on what happened before.
    pub(super) fn settle_scratch(&mut self) {
        self.scratch.fresh.clear();
        self.scratch.blocked.clear();
        self.scratch.unasked.clear();
        self.scratch.postponed.clear();
        self.scratch.timer_changes.clear();
        self.scratch.gone.clear();
    }
}

fn attempts_of(event: &Event) -> (u32, u32) {
    (event.logical_attempt, event.engine_attempt)
}

/// As much of an error as the state keeps and the run's own error quotes.
fn quoted(error: &ErrorInfo) -> ErrorInfo {
    let message = error.message.chars().take(QUOTED_CHARS).collect();
    ErrorInfo { code: error.code.clone(), message, retryable: error.retryable }
}

pub(super) fn illegal(event: &Event, reason: impl Into<String>) -> Illegal {
    Illegal { seq: event.seq, event_type: event.body.event_type(), reason: reason.into() }
}
