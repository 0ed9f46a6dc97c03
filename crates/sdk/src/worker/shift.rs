//! A worker at work: asks the pump what to do, makes its calls, and carries out the tasks that they bring.
//!
//! ```text
//!   server ◄── calls ──┐             ┌──► one tokio task per attempt
//!          ──answers──►  Shift, Pump  ◄── outcomes, lines, progress ──┘
//! ```
//!
//! **Invariant:** one task owns the pump; skills run in tasks of their own, and speak with it over a channel.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{AbortHandle, Abortable, Aborted, FuturesUnordered, StreamExt as _};
use reqwest::StatusCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::context::Stop;
use super::hand::carry_out;
use super::pump::{Call, CallId, Next, Pump, Ticket};
use super::said;
use super::skill::Skills;
use super::{Context, WorkerBuilder};
use crate::client::Client;
use crate::error::Error;
use crate::wire::{Answer, Directive, Heartbeat, Rejected, Task, TaskResult};

/// An answer may come so much later than the call waits.
const SLACK: Duration = Duration::from_secs(30);
/// Lines of all attempts in one call.
const LINE_BYTES: usize = 1024 * 1024;
/// After its grace a worker that stops still reports what has ended, for so long.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// What attempts tell.
enum Report {
    Ended(Ticket, Option<TaskResult>),
    Said(Ticket),
}

/// An attempt under way.
struct Running {
    context: Context,
    task: tokio::task::AbortHandle,
    paused_at: Option<Instant>,
}

/// A call under way.
struct Flying {
    begun: Instant,
    abort: AbortHandle,
    heartbeats: Vec<(Ticket, Heartbeat)>,
}

type Landed = (CallId, Result<Answer, Error>);

pub(super) struct Shift {
    client: Client,
    /// What every call begins with.
    head: String,
    skills: Skills,
    cancel_grace: Duration,
    pump: Pump,
    running: HashMap<Ticket, Running>,
    flying: HashMap<CallId, Flying>,
    calls: FuturesUnordered<BoxFuture<'static, Result<Landed, Aborted>>>,
    reports: UnboundedReceiver<Report>,
    reporter: UnboundedSender<Report>,
    /// Whoever watches knows that the server does not answer.
    lost: bool,
    /// It has left, and takes nothing that still comes.
    left: bool,
}

impl Shift {
    pub(super) fn new(worker: WorkerBuilder, worker_id: &str) -> Result<Shift, Error> {
        let mut client = Client::new(&worker.url)?;
        if let Some(token) = worker.token {
            client = client.with_token(token);
        }
        let names = serde_json::to_string(&worker.skills.names())?;
        // Others know the name of a worker; who says this as well is the worker itself.
        let secret = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let (id, queues) = (serde_json::to_string(worker_id)?, serde_json::to_string(&worker.queues)?);
        let (reporter, reports) = unbounded_channel();
        Ok(Shift {
            client,
            head: format!(r#"{{"worker_id":{id},"worker_secret":"{secret}","queues":{queues},"skills":{names}"#),
            skills: worker.skills,
            cancel_grace: worker.cancel_grace,
            pump: Pump::new(worker.pump),
            running: HashMap::new(),
            flying: HashMap::new(),
            calls: FuturesUnordered::new(),
            reports,
            reporter,
            lost: false,
            left: false,
        })
    }

    /// Works until it is told to stop; then lets what runs end, until it has to hurry.
    pub(super) async fn work(
        mut self,
        stop: impl Future<Output = ()>,
        hurry: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.work_until(stop).await?;
        if let Some(offer) = self.pump.stop() {
            self.abandon(offer);
        }
        let ended = self.work_until(hurry).await?;
        if !ended {
            tracing::warn!(tasks = self.running.len(), "tasks have not ended in time; they are left to other workers");
            self.pump.leave();
            self.left = true;
            self.running.drain().for_each(|(_, running)| running.task.abort());
            self.work_until(tokio::time::sleep(LAST_REPORTS)).await?;
        }
        Ok(())
    }

    /// Answers whether all is done.
    async fn work_until(&mut self, stop: impl Future<Output = ()>) -> Result<bool, Error> {
        tokio::pin!(stop);
        loop {
            let wake = loop {
                match self.pump.next(Instant::now()) {
                    Next::Call(call) => self.make(call),
                    Next::Wait(moment) => break moment,
                    Next::Over => return Ok(true),
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return Ok(false),
                Some(landed) = self.calls.next() => {
                    if let Ok((call, answer)) = landed {
                        self.landed(call, answer)?;
                    }
                }
                Some(report) = self.reports.recv() => self.hear(report).await,
                () = sleep_until(wake) => {}
            }
        }
    }

    fn make(&mut self, call: Call) {
        let heartbeats = self.heartbeats(&call);
        let body = self.body(&call, &heartbeats);
        let (abort, registration) = AbortHandle::new_pair();
        self.flying.insert(call.id, Flying { begun: Instant::now(), abort, heartbeats });
        let (client, within) = (self.client.clone(), call.wait + SLACK);
        let flight = async move {
            let answer = match body {
                Ok(body) => client.exchange(body, within).await,
                Err(error) => Err(error),
            };
            (call.id, answer)
        };
        self.calls.push(Box::pin(Abortable::new(flight, registration)));
    }

    fn heartbeats(&mut self, call: &Call) -> Vec<(Ticket, Heartbeat)> {
        let mut room = LINE_BYTES;
        let mut heartbeats = Vec::with_capacity(call.heartbeats.len());
        for ticket in &call.heartbeats {
            let Some(running) = self.running.get(ticket) else { continue };
            let ((progress, lines), has_more) = {
                let mut said = running.context.said();
                (said.take(room), said.has_more())
            };
            room = room.saturating_sub(lines.iter().map(said::weight).sum());
            if has_more {
                self.pump.said(*ticket, Instant::now());
            }
            let Task { task_id, lease_token, .. } = running.context.task();
            let (task_id, lease_token) = (task_id.clone(), lease_token.clone());
            heartbeats.push((*ticket, Heartbeat { task_id, lease_token, progress, lines }));
        }
        heartbeats
    }

    /// The body, written in one go.
    fn body(&self, call: &Call, heartbeats: &[(Ticket, Heartbeat)]) -> Result<Vec<u8>, Error> {
        let results = self.pump.results_of(call.id);
        let mut body = Vec::with_capacity(self.head.len() + 100 + results.iter().map(TaskResult::bytes).sum::<usize>());
        body.extend_from_slice(self.head.as_bytes());
        let (capacity, wait) = (call.capacity, call.wait.as_millis());
        body.extend_from_slice(format!(r#","capacity":{capacity},"wait_ms":{wait}"#).as_bytes());
        if !results.is_empty() {
            body.extend_from_slice(br#","results":"#);
            serde_json::to_writer(&mut body, results)?;
        }
        if !heartbeats.is_empty() {
            body.extend_from_slice(br#","heartbeats":"#);
            let heartbeats: Vec<&Heartbeat> = heartbeats.iter().map(|(_, heartbeat)| heartbeat).collect();
            serde_json::to_writer(&mut body, &heartbeats)?;
        }
        body.push(b'}');
        Ok(body)
    }

    fn landed(&mut self, call: CallId, answer: Result<Answer, Error>) -> Result<(), Error> {
        let Some(flying) = self.flying.remove(&call) else { return Ok(()) };
        match answer {
            Ok(answer) => self.answered(call, &flying, answer),
            Err(Error::Refused(problem)) if problem.status == StatusCode::PAYLOAD_TOO_LARGE.as_u16() => {
                self.give_back(flying);
                self.pump.too_large(call, Instant::now());
            }
            Err(error) if error.may_pass() || is_conflict(&error) => self.failed(call, flying, &error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn answered(&mut self, call: CallId, flying: &Flying, answer: Answer) {
        if std::mem::take(&mut self.lost) {
            tracing::info!("the server is back");
        }
        self.pump.answered(call, answer.tasks.len(), &answer.rejected);
        self.no_longer_paused(flying, &answer.directives);
        answer.directives.into_iter().for_each(|directive| self.follow(directive));
        answer.rejected.iter().for_each(|rejected| self.disown(rejected));
        if !self.left {
            answer.tasks.into_iter().for_each(|task| self.begin(task));
        }
    }

    fn failed(&mut self, call: CallId, flying: Flying, error: &Error) {
        if !std::mem::replace(&mut self.lost, true) {
            tracing::warn!(%error, "the server does not answer; trying again");
        }
        self.give_back(flying);
        let retry_after = match error {
            Error::Refused(problem) => problem.retry_after,
            _ => None,
        };
        self.pump.failed(call, Instant::now(), retry_after, chance());
    }

    fn abandon(&mut self, call: CallId) {
        if let Some(flying) = self.flying.remove(&call) {
            flying.abort.abort();
            self.give_back(flying);
        }
        self.pump.abandoned(call, Instant::now());
    }

    fn give_back(&mut self, flying: Flying) {
        for (ticket, heartbeat) in flying.heartbeats {
            if let Some(running) = self.running.get(&ticket) {
                running.context.said().give_back(heartbeat.progress, heartbeat.lines);
            }
        }
    }

    fn begin(&mut self, task: Task) {
        let ticket = self.pump.took(Instant::now(), Duration::from_millis(task.heartbeat_ms));
        let skill = self.skills.get(&task.skill).cloned();
        let reporter = self.reporter.clone();
        let context = Context::new(task, Some(self.client.clone()), move || drop(reporter.send(Report::Said(ticket))));
        let (reporter, grace) = (self.reporter.clone(), self.cancel_grace);
        let given = context.clone();
        let task = tokio::spawn(async move {
            let result = carry_out(given, skill, grace).await;
            // A worker that left does not listen any more.
            let _ = reporter.send(Report::Ended(ticket, result));
        });
        self.running.insert(ticket, Running { context, task: task.abort_handle(), paused_at: None });
    }

    /// Takes in a report, and all that came with it.
    async fn hear(&mut self, report: Report) {
        self.take_in(report);
        // Tasks that were begun together mostly end together: whoever is ready gets a turn, so that one call has them all.
        tokio::task::yield_now().await;
        while let Ok(report) = self.reports.try_recv() {
            self.take_in(report);
        }
    }

    fn take_in(&mut self, report: Report) {
        match report {
            Report::Ended(ticket, result) => {
                self.running.remove(&ticket);
                self.pump.ended(ticket, result);
            }
            Report::Said(ticket) => self.pump.said(ticket, Instant::now()),
        }
    }

    /// What is under way of a task. One that was lost and came back is there twice, and the later one counts.
    fn find(&self, is: impl Fn(&Task) -> bool) -> Option<Ticket> {
        self.running.iter().filter(|(_, running)| is(running.context.task())).map(|(ticket, _)| *ticket).max()
    }

    fn follow(&mut self, directive: Directive) {
        let Some(ticket) = self.find(|task| task.task_id == directive.task_id) else { return };
        let Some(running) = self.running.get_mut(&ticket) else { return };
        match directive.kind.as_str() {
            "cancel" => running.context.stop(Stop::Cancelled),
            "pause" => {
                running.paused_at = Some(Instant::now());
                running.context.pause(true);
                self.pump.paused(ticket, true);
            }
            "tune" => running.context.tune(&directive.path, directive.value),
            // One that a later release has.
            _ => {}
        }
    }

    /// A heartbeat that is not answered with `pause` says that the run goes on, unless it was sent before the pause.
    fn no_longer_paused(&mut self, flying: &Flying, directives: &[Directive]) {
        for (ticket, heartbeat) in &flying.heartbeats {
            let pauses = |one: &Directive| one.kind == "pause" && one.task_id == heartbeat.task_id;
            let Some(running) = self.running.get_mut(ticket) else { continue };
            if running.paused_at.is_some_and(|moment| moment < flying.begun) && !directives.iter().any(pauses) {
                running.paused_at = None;
                running.context.pause(false);
                self.pump.paused(*ticket, false);
            }
        }
    }

    /// Somebody else has the attempt: the skill is told to end, and nothing is reported. It goes on where only what it said was
    /// refused.
    fn disown(&mut self, rejected: &Rejected) {
        let is = |task: &Task| task.task_id == rejected.task_id && task.lease_token == rejected.lease_token;
        let Some(ticket) = self.find(is) else { return };
        if !rejected.ends_the_attempt() {
            let Rejected { task_id, code, message, .. } = rejected;
            tracing::warn!(task_id, code, message, "the server does not take what an attempt says of itself");
            return;
        }
        if let Some(running) = self.running.get(&ticket) {
            tracing::warn!(task = ?running.context, code = rejected.code, "the attempt is no longer this worker's");
            running.context.stop(Stop::Disowned);
            self.pump.disowned(ticket);
        }
    }
}

impl Drop for Shift {
    /// Whatever ends the shift ends its tasks.
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

impl Client {
    /// The one call of a worker.
    async fn exchange(&self, body: Vec<u8>, within: Duration) -> Result<Answer, Error> {
        let answer = self.post_bytes(&["worker", "exchange"], body, within).await?;
        serde_json::from_slice(&answer).map_err(|error| Error::unreadable(self.url(), &error))
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Refused(problem) if problem.status == StatusCode::CONFLICT.as_u16())
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// Between 0 and 1.
fn chance() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}
