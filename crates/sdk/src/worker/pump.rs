//! When a worker calls the server, with what offer, and what it keeps until the server has it. Pure: time and chance come in,
//! calls come out.
//!
//! ```text
//!   outcomes ──┐                       ┌─ offers   free hands > 0, waits for tasks
//!   heartbeats ┼─► next(now) ─► call ──┼─ reports  offers nothing, waits for nothing
//!   answers ───┘                       └─ listens  all hands are full: waits for directives
//! ```
//!
//! **Invariant:** at most one call of each kind is under way, so that what comes meanwhile gathers for the next one.
//! **Invariant:** a call that offers nothing never waits while hands are free.
//! **Invariant:** an outcome is kept until a call that carried it was answered.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::wire::{Outcome, Rejected, TaskError, TaskResult};

/// So many tasks a call is answered with at most, and so many outcomes and heartbeats it has.
const MOST_TASKS: usize = 1000;
/// About so much a call carries at most; the server takes several times that.
const CALL_BYTES: usize = 1024 * 1024;
/// So long lines and progress wait for a call that goes out anyway.
const PATIENCE: Duration = Duration::from_millis(500);
/// A step of a paused run asks so often whether it may go on.
const PAUSED: Duration = Duration::from_secs(1);
/// Calls that wait and bring no tasks are not made more often, whatever the server answers.
const PACE: Duration = Duration::from_millis(50);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How a worker pumps.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Tasks at once.
    pub(crate) hands: usize,
    /// So long an offer waits for tasks.
    pub(crate) park: Duration,
    /// So long tasks that were just begun may end before the next call, so that it has their outcomes as well.
    pub(crate) moment: Duration,
}

/// A task that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// A call that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Has free hands, and waits for tasks.
    Offers,
    /// Has outcomes or heartbeats, and waits for nothing.
    Reports,
    /// Waits for directives.
    Listens,
}

/// What to do now.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Call(Call),
    /// Nothing until something happens, or until then.
    Wait(Option<Instant>),
    /// All is done, and the server has it.
    Over,
}

/// A call to be made. Its results are at `results_of`.
#[derive(Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    pub(crate) capacity: usize,
    pub(crate) wait: Duration,
    pub(crate) heartbeats: Vec<Ticket>,
}

#[derive(Debug)]
struct UnderWay {
    id: CallId,
    kind: Kind,
    begun: Instant,
    results: Vec<TaskResult>,
    heartbeats: Vec<Ticket>,
}

#[derive(Debug)]
struct Held {
    /// A heartbeat is sent at least this often.
    every: Duration,
    last: Instant,
    /// When the next one has to go; none once the attempt is no longer ours.
    due: Option<Instant>,
    /// There are lines or progress to be sent.
    said: bool,
    paused: bool,
    /// A heartbeat is on its way with a call that is answered at once. One that waits may take long, and says nothing then.
    riding: bool,
}

impl Held {
    fn interval(&self) -> Duration {
        if self.paused { self.every.min(PAUSED) } else { self.every }
    }

    /// Whether it goes along with a call that goes out anyway.
    fn rides(&self, now: Instant) -> bool {
        let early = |due: Instant| due > now && !self.said && now.duration_since(self.last) < self.interval() / 2;
        !self.riding && self.due.is_some_and(|due| !early(due))
    }
}

#[derive(Debug)]
pub(crate) struct Pump {
    settings: Settings,
    held: HashMap<Ticket, Held>,
    /// Outcomes that no call carries.
    waiting: VecDeque<TaskResult>,
    under_way: Vec<UnderWay>,
    /// Tasks that were just begun may end until then.
    moment: Option<Instant>,
    /// No heartbeat that is not on its way is due before this.
    quiet_until: Option<Instant>,
    /// No call waits before this.
    paced_until: Option<Instant>,
    /// Calls that failed, one after the other.
    failures: u32,
    not_before: Option<Instant>,
    /// What calls may carry, less where the server found one too large.
    call_bytes: usize,
    stopping: bool,
    last_id: u64,
}

impl Pump {
    pub(crate) fn new(settings: Settings) -> Pump {
        Pump {
            settings,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            moment: None,
            quiet_until: None,
            paced_until: None,
            failures: 0,
            not_before: None,
            call_bytes: CALL_BYTES,
            stopping: false,
            last_id: 0,
        }
    }

    /// What to do now. Asked again after each call that is begun, until it says to wait.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if self.is_over() {
            return Next::Over;
        }
        if let Some(moment) = self.not_before.filter(|moment| *moment > now) {
            return Next::Wait(Some(moment));
        }
        self.look_at_heartbeats(now);
        match self.wanted(now) {
            Some(kind) => Next::Call(self.begin(kind, now)),
            None => Next::Wait(self.wake(now)),
        }
    }

    fn wanted(&self, now: Instant) -> Option<Kind> {
        let has_results = !self.waiting.is_empty();
        let may_wait = [self.moment, self.paced_until].iter().flatten().all(|moment| *moment <= now);
        if self.free() > 0 && !self.has(Kind::Offers) && (has_results || may_wait) {
            return Some(Kind::Offers);
        }
        let is_due = self.quiet_until.is_some_and(|moment| moment <= now);
        let may_listen = may_wait && self.free() == 0 && !self.has(Kind::Listens) && !self.held.is_empty();
        match has_results || is_due {
            _ if may_listen && !has_results => Some(Kind::Listens),
            true => (!self.has(Kind::Reports)).then_some(Kind::Reports),
            false => None,
        }
    }

    /// Hands that may be offered.
    fn free(&self) -> usize {
        if self.stopping { 0 } else { self.settings.hands.saturating_sub(self.held.len()) }
    }

    fn has(&self, kind: Kind) -> bool {
        self.under_way.iter().any(|call| call.kind == kind)
    }

    /// When to look again. Never a moment that has passed: whatever is due then waits for a call under way.
    fn wake(&self, now: Instant) -> Option<Instant> {
        let moments = [self.moment, self.paced_until, self.quiet_until];
        moments.into_iter().flatten().filter(|moment| *moment > now).min()
    }

    /// Looks at the heartbeats when one may be due, and not each time.
    fn look_at_heartbeats(&mut self, now: Instant) {
        if self.quiet_until.is_some_and(|moment| moment <= now) {
            self.quiet_until = self.next_heartbeat();
        }
    }

    fn next_heartbeat(&self) -> Option<Instant> {
        self.held.values().filter(|held| !held.riding).filter_map(|held| held.due).min()
    }

    fn not_quiet_beyond(&mut self, due: Instant) {
        self.quiet_until = Some(self.quiet_until.map_or(due, |moment| moment.min(due)));
    }

    fn begin(&mut self, kind: Kind, now: Instant) -> Call {
        let id = CallId(self.new_id());
        let heartbeats = self.take_heartbeats(kind, now);
        let results = if kind == Kind::Listens { Vec::new() } else { self.take_results() };
        let capacity = if kind == Kind::Offers { self.free().min(MOST_TASKS) } else { 0 };
        let wait = match kind {
            Kind::Offers => self.settings.park,
            Kind::Reports => Duration::ZERO,
            // Until the next heartbeat, which then needs no call of its own.
            Kind::Listens => {
                let due = self.held.values().filter_map(|held| held.due).min();
                let wait = due.map_or(self.settings.park, |due| due.saturating_duration_since(now));
                wait.clamp(PACE, self.settings.park)
            }
        };
        self.moment = None;
        self.under_way.push(UnderWay { id, kind, begun: now, results, heartbeats: heartbeats.clone() });
        Call { id, capacity, wait, heartbeats }
    }

    fn take_heartbeats(&mut self, kind: Kind, now: Instant) -> Vec<Ticket> {
        let mut taken: Vec<Ticket> = Vec::new();
        for (ticket, held) in self.held.iter_mut().filter(|(_, held)| held.rides(now)).take(MOST_TASKS) {
            taken.push(*ticket);
            (held.riding, held.said, held.last) = (kind == Kind::Reports, false, now);
            held.due = Some(now + held.interval());
        }
        if !taken.is_empty() {
            taken.sort_unstable();
            self.quiet_until = self.next_heartbeat();
        }
        taken
    }

    fn take_results(&mut self) -> Vec<TaskResult> {
        let mut bytes = 0;
        let fit = self.waiting.iter().take_while(|result| {
            let first = bytes == 0;
            bytes += result.bytes();
            first || bytes <= self.call_bytes
        });
        let count = fit.take(MOST_TASKS).count();
        self.waiting.drain(..count).collect()
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The results that a call carries.
    pub(crate) fn results_of(&self, call: CallId) -> &[TaskResult] {
        self.under_way.iter().find(|other| other.id == call).map_or(&[], |call| &call.results)
    }

    /// A call was answered, with so many tasks: the server has what it carried, except what it rejected.
    pub(crate) fn answered(&mut self, call: CallId, tasks: usize, rejected: &[Rejected]) {
        let Some(call) = self.end(call) else { return };
        (self.failures, self.not_before) = (0, None);
        if tasks == 0 && call.kind != Kind::Reports {
            self.paced_until = Some(call.begun + PACE);
        }
        for result in call.results {
            let is =
                |rejected: &&Rejected| rejected.task_id == result.task_id && rejected.lease_token == result.lease_token;
            if let Some(rejected) = rejected.iter().find(is) {
                self.waiting.extend(told_otherwise(result, rejected));
            }
        }
    }

    /// Whether or not a call reached the server is not known: the next one says the same again, after a while.
    ///
    /// `chance` is between 0 and 1; workers that lost the same server come back at different moments.
    pub(crate) fn failed(&mut self, call: CallId, now: Instant, retry_after: Option<Duration>, chance: f64) {
        let Some(call) = self.end(call) else { return };
        let longest = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        let wait = longest.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0).max(retry_after.unwrap_or_default());
        self.failures = self.failures.saturating_add(1);
        self.not_before = self.not_before.max(Some(now + wait));
        self.take_back(call, now);
    }

    /// The server found a call too large. The next one carries less; an outcome that is too large by itself fails.
    pub(crate) fn too_large(&mut self, call: CallId, now: Instant) {
        if self.results_of(call).is_empty() {
            return self.failed(call, now, None, 1.0);
        }
        let Some(mut call) = self.end(call) else { return };
        match call.results.as_mut_slice() {
            [only] => {
                only.lines.clear();
                let message = "the output is larger than the server takes; store it elsewhere and give a reference";
                only.outcome = Outcome::Failed { error: fatal("output_too_large", message) };
            }
            several => self.call_bytes = several.iter().map(TaskResult::bytes).sum::<usize>() / 2,
        }
        self.take_back(call, now);
    }

    /// A call that was begun is not waited for any more.
    pub(crate) fn abandoned(&mut self, call: CallId, now: Instant) {
        if let Some(call) = self.end(call) {
            self.take_back(call, now);
        }
    }

    fn end(&mut self, call: CallId) -> Option<UnderWay> {
        let at = self.under_way.iter().position(|other| other.id == call)?;
        let call = self.under_way.swap_remove(at);
        for ticket in &call.heartbeats {
            if let Some(held) = self.held.get_mut(ticket) {
                held.riding = false;
                let due = held.due;
                due.into_iter().for_each(|due| self.not_quiet_beyond(due));
            }
        }
        Some(call)
    }

    fn take_back(&mut self, call: UnderWay, now: Instant) {
        for result in call.results.into_iter().rev() {
            self.waiting.push_front(result);
        }
        for ticket in call.heartbeats {
            self.say_by(ticket, now);
        }
    }

    /// A task was taken; it wants a heartbeat at least this often.
    pub(crate) fn took(&mut self, now: Instant, heartbeat: Duration) -> Ticket {
        let ticket = Ticket(self.new_id());
        // Somewhat more often than it must be: calls take their time, too.
        let every = heartbeat.mul_f64(0.8).max(Duration::from_millis(10));
        let due = now + every;
        self.held.insert(ticket, Held { every, last: now, due: Some(due), said: false, paused: false, riding: false });
        self.not_quiet_beyond(due);
        self.moment = Some(now + self.settings.moment);
        ticket
    }

    /// A task has ended. Nothing is reported of one that was no longer ours.
    pub(crate) fn ended(&mut self, ticket: Ticket, result: Option<TaskResult>) {
        if self.held.remove(&ticket).is_some() {
            self.waiting.extend(result);
        }
        if self.held.is_empty() {
            self.quiet_until = None;
        }
    }

    /// A task has lines or progress to be sent.
    pub(crate) fn said(&mut self, ticket: Ticket, now: Instant) {
        self.say_by(ticket, now + PATIENCE);
    }

    fn say_by(&mut self, ticket: Ticket, moment: Instant) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        held.said = true;
        self.due_by(ticket, moment);
    }

    fn due_by(&mut self, ticket: Ticket, moment: Instant) {
        if let Some(due) = self.held.get_mut(&ticket).and_then(|held| held.due.as_mut()) {
            *due = moment.min(*due);
            self.not_quiet_beyond(moment);
        }
    }

    /// Whether the run of a task is paused: then the server is asked more often whether it still is.
    pub(crate) fn paused(&mut self, ticket: Ticket, paused: bool) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        held.paused = paused;
        let moment = held.last + held.interval();
        self.due_by(ticket, moment);
    }

    /// Somebody else has this task: no more heartbeats. The hand is free when it has ended.
    pub(crate) fn disowned(&mut self, ticket: Ticket) {
        if let Some(held) = self.held.get_mut(&ticket) {
            held.due = None;
        }
    }

    /// Nothing more is taken. Answers the call that offers hands, which is not to be waited for any more.
    pub(crate) fn stop(&mut self) -> Option<CallId> {
        self.stopping = true;
        self.under_way.iter().find(|call| call.kind == Kind::Offers).map(|call| call.id)
    }

    /// Tasks that are still held are left to other workers.
    pub(crate) fn leave(&mut self) {
        self.held.clear();
    }

    fn is_over(&self) -> bool {
        let carries = |call: &UnderWay| !call.results.is_empty();
        self.stopping && self.held.is_empty() && self.waiting.is_empty() && !self.under_way.iter().any(carries)
    }
}

/// What is said instead of a result that the server did not take.
fn told_otherwise(result: TaskResult, rejected: &Rejected) -> Option<TaskResult> {
    let completed = matches!(result.outcome, Outcome::Completed { .. });
    // What was uploaded and is gone may be there after another attempt.
    let retryable = rejected.code == "artifact_missing";
    let error = TaskError { retryable, ..fatal(&rejected.code, &rejected.message) };
    let outcome = Outcome::Failed { error };
    let instead = || TaskResult { outcome, artifacts: Vec::new(), lines: Vec::new(), ..result };
    (completed && !rejected.is_stale()).then(instead)
}

fn fatal(code: &str, message: &str) -> TaskError {
    TaskError { code: code.to_owned(), message: message.to_owned(), retryable: false }
}

#[cfg(test)]
mod tests;
