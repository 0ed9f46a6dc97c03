//! One call of a worker: what it has done, what it has in hand, what it has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milepost_core::canonical::parse_strict;
use milepost_core::event::{Body, ErrorInfo, StepRef};
use milepost_core::hash::Digest;
use milepost_core::id::TaskId;
use milepost_core::json::Json;
use milepost_core::run::{Command, Outcome, Rejection, RejectionKind};
use milepost_core::text::check_name;
use milepost_core::time::Timestamp;
use milepost_store::StoreError;
use tokio::sync::oneshot;

use super::leases::Caller;
use super::secrets::redacted;
use super::{Handed, LeaseToken, WorkerTask};
use crate::committer::{Accepted, Inbox, Message, Offer, Request};
use crate::engine::Engine;
use crate::error::{EngineError, NOT_KEPT};
use crate::executor::{check_output, leaving};
use crate::secrets::Redactor;
use crate::skills::LogStream;

/// What a worker says and asks for.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// With a part that is new whenever it starts: who comes back under an old name must not be taken for the one who left.
    pub worker: Arc<str>,
    /// A hash of what only this worker knows, new whenever it starts: who says it is told what is new of the worker's leases.
    pub secret: Option<Digest>,
    pub queues: Vec<Arc<str>>,
    /// It serves all orgs of this installation, not only this engine's.
    pub every_org: bool,
    /// None: whatever is in the queues.
    pub skills: Option<Vec<Arc<str>>>,
    /// How many tasks it takes.
    pub capacity: usize,
    /// How long it waits when there is nothing.
    pub wait: Duration,
    pub results: Vec<WorkerResult>,
    pub heartbeats: Vec<Heartbeat>,
}

#[derive(Clone, Debug)]
pub struct WorkerResult {
    pub task: TaskId,
    pub token: String,
    pub outcome: Outcome,
    /// Files that it leaves, as they came; looked at only if it completed.
    pub artifacts: Vec<Json>,
    pub lines: Vec<WorkerLine>,
}

#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub task: TaskId,
    pub token: String,
    pub progress: Option<Json>,
    pub lines: Vec<WorkerLine>,
}

/// A line of an attempt's log.
#[derive(Clone, Debug)]
pub struct WorkerLine {
    pub stream: LogStream,
    pub text: String,
    pub at: Option<Timestamp>,
}

impl Exchange {
    /// A worker that only reports may have no name.
    fn check(&self, most_chars: usize) -> Result<(), Rejection> {
        let worker = Some(&self.worker).filter(|worker| !worker.is_empty()).map(|worker| ("the worker's name", worker));
        let queues = self.queues.iter().map(|queue| ("the name of a queue", queue));
        let skills = self.skills.iter().flatten().map(|skill| ("the name of a skill", skill));
        worker
            .into_iter()
            .chain(queues)
            .chain(skills)
            .try_for_each(|(what, name)| check_name(what, name, most_chars, "bad_name"))
    }
}

/// What a worker is answered.
#[derive(Clone, Debug, Default)]
pub struct Exchanged {
    pub tasks: Vec<WorkerTask>,
    pub directives: Vec<Directive>,
    pub rejected: Vec<RejectedItem>,
}

/// What a worker should do with something it has in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    pub token: LeaseToken,
    pub kind: DirectiveKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectiveKind {
    /// Stop, and say that it is cancelled.
    Cancel,
    /// The run is paused.
    Pause,
}

/// A result or a heartbeat that changed nothing.
#[derive(Clone, Debug)]
pub struct RejectedItem {
    pub task: TaskId,
    pub token: String,
    pub code: &'static str,
    pub message: String,
}

type ResultReply = oneshot::Receiver<Result<Accepted, EngineError>>;

/// A result that was sent to the committer.
struct Sent {
    task: TaskId,
    text: String,
    token: LeaseToken,
    completed: bool,
    reply: ResultReply,
}

impl Engine {
    /// Takes what a worker says and gives it what it has room for. Results are on disk when this returns; one bad item
    /// spoils nothing. Waits no longer than `until`.
    ///
    /// # Errors
    /// The engine is about to end, or the store cannot be written.
    pub async fn exchange(
        &self,
        mut exchange: Exchange,
        until: impl Future<Output = ()>,
    ) -> Result<Exchanged, EngineError> {
        exchange.check(self.limits().name_chars)?;
        let mut answer = Exchanged::default();
        let every_org = exchange.every_org;
        let shown = self.take_heartbeats(std::mem::take(&mut exchange.heartbeats), every_org, &mut answer).await?;
        let caller = Caller { worker: exchange.worker.clone(), secret: exchange.secret, shown };
        if let Some(secret) = caller.secret.filter(|_| !caller.shown.is_empty()) {
            self.leases.own(caller.shown.iter().copied(), secret);
        }
        let mut requests = Vec::with_capacity(exchange.results.len());
        let mut sent = Vec::with_capacity(exchange.results.len());
        // What cannot be taken now is said again by its worker, with all that is in this call; the rest of it counts.
        let mut later = None;
        for result in std::mem::take(&mut exchange.results) {
            match self.result(result, every_org, &mut answer).await {
                Ok(Some((request, result))) => {
                    requests.push(request);
                    sent.push(result);
                }
                Ok(None) => {}
                Err(error) if error.is_passing() => later = Some(error),
                Err(error) => return Err(error),
            }
        }
        self.seen_workers.note(&exchange, self.clock.now());
        let bell = self.leases.bell(&exchange.worker);
        // Heard from here on: what is told between a look at the news and the wait is not missed.
        let rings = bell.bell.notified();
        tokio::pin!(rings);
        rings.as_mut().enable();
        let at_once = exchange.wait.is_zero();
        let (offer, offered) = if exchange.capacity > 0 && later.is_none() {
            let (offer, offered) = Offered::new(self, &exchange);
            (Some(offer), Some(offered))
        } else {
            (None, None)
        };
        if !requests.is_empty() || offer.is_some() {
            self.inbox.send(Message::Exchange { results: requests, offer }).await?;
        }
        for sent in sent {
            self.hear(sent, &mut answer).await?;
        }
        if let Some(error) = later {
            return Err(error);
        }
        answer.directives.extend(self.leases.news(&caller));
        let has_news = !answer.directives.is_empty();
        let wait = async {
            if has_news {
                return;
            }
            let over = tokio::time::sleep(exchange.wait);
            tokio::pin!(over, until);
            loop {
                tokio::select! {
                    () = &mut rings => {}
                    () = &mut until => return,
                    () = &mut over => return,
                }
                // Everybody who calls under this name hears the bell.
                rings.set(bell.bell.notified());
                rings.as_mut().enable();
                if self.leases.has_news(&caller) {
                    return;
                }
            }
        };
        let handed = match offered {
            // What there is comes with the commit, or nothing does.
            Some(offered) if at_once => offered.given().await,
            Some(offered) => offered.given_before(wait).await,
            None if at_once => Vec::new(),
            None => {
                wait.await;
                Vec::new()
            }
        };
        if let Some(secret) = caller.secret.filter(|_| !handed.is_empty()) {
            self.leases.own(handed.iter().map(Handed::token), secret);
        }
        answer.directives.extend(self.leases.news(&caller));
        for handed in handed {
            answer.tasks.extend(self.for_worker(handed).await);
        }
        Ok(answer)
    }

    /// Whose word it is. A token of another org is answered as one that is over.
    fn read_token(&self, task: TaskId, text: &str, every_org: bool, answer: &mut Exchanged) -> Option<LeaseToken> {
        let bad = |message: String| RejectedItem { task, token: text.to_owned(), code: "bad_lease_token", message };
        match text.parse::<LeaseToken>() {
            Ok(token) if token.task_id() != task => {
                answer.rejected.push(bad("the lease token belongs to another task; send each with its own".to_owned()));
                None
            }
            Ok(token) if token.org != self.org && !every_org => {
                answer.rejected.push(stale(task, text.to_owned()));
                None
            }
            Ok(token) => Some(token),
            Err(error) => {
                answer.rejected.push(bad(error.to_string()));
                None
            }
        }
    }

    /// Lets leases go on: those whose tokens were right. What another node watched is watched here from now on.
    async fn take_heartbeats(
        &self,
        heartbeats: Vec<Heartbeat>,
        every_org: bool,
        answer: &mut Exchanged,
    ) -> Result<Vec<LeaseToken>, EngineError> {
        let mut shown = Vec::with_capacity(heartbeats.len());
        for heartbeat in heartbeats {
            let Heartbeat { task, token: text, progress, lines } = heartbeat;
            let Some(token) = self.read_token(task, &text, every_org, answer) else { continue };
            if !self.extend(&token).await? {
                answer.rejected.push(stale(task, text));
                continue;
            }
            shown.push(token);
            match self.take_news(&token, progress, lines).await {
                Ok(()) => {}
                // The lease goes on whatever its worker says.
                Err(EngineError::Rejected(Rejection { code, message, .. })) => {
                    answer.rejected.push(RejectedItem { task, token: text, code, message });
                }
                Err(error) => return Err(error),
            }
            answer.directives.extend(self.leases.directive(&token));
        }
        Ok(shown)
    }

    /// Whether the lease goes on.
    async fn extend(&self, token: &LeaseToken) -> Result<bool, EngineError> {
        let now = self.clock.now();
        if self.leases.extend(token, now).is_some() {
            return Ok(true);
        }
        Ok(self.watch_here(token).await? && self.leases.extend(token, now).is_some())
    }

    /// Keeps what an attempt says of itself, without what is secret in it.
    async fn take_news(
        &self,
        token: &LeaseToken,
        progress: Option<Json>,
        lines: Vec<WorkerLine>,
    ) -> Result<(), EngineError> {
        if progress.is_none() && lines.is_empty() {
            return Ok(());
        }
        let redactor = self.redactor(token).await?;
        self.say(token, lines, redactor.as_deref());
        let Some(progress) = progress else { return Ok(()) };
        self.check_progress(&progress)?;
        let redacted = redactor.and_then(|redactor| redactor.json(progress.as_str()));
        self.leases.set_progress(token, redacted.map_or(progress, Json::trusted));
        Ok(())
    }

    fn check_progress(&self, progress: &Json) -> Result<(), Rejection> {
        let refused = |code, message| Rejection { kind: RejectionKind::Invalid, code, message };
        let most = self.limits().progress_bytes;
        if progress.len() > most {
            let message = format!(
                "the progress has {} bytes, the limit is {most} (progress_bytes); tell less, or write it into the log",
                progress.len()
            );
            return Err(refused("progress_too_large", message));
        }
        match parse_strict(progress.as_str(), self.limits().json_depth) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused("bad_progress", format!("the progress: {error}"))),
        }
    }

    /// A lease that another node watched, or one that died. Answers whether there is one.
    async fn watch_here(&self, token: &LeaseToken) -> Result<bool, EngineError> {
        Ok(self.leases.watch_here(&*self.store, self.node(), token, self.clock.now()).await?)
    }

    fn say(&self, token: &LeaseToken, lines: Vec<WorkerLine>, redactor: Option<&Redactor>) {
        if lines.is_empty() {
            return;
        }
        let Some(log) = self.leases.log(token) else { return };
        for line in lines {
            let text = match redactor {
                Some(redactor) => redactor.text(line.text),
                None => line.text,
            };
            log.say_at(line.at, line.stream, text);
        }
    }

    async fn result(
        &self,
        result: WorkerResult,
        every_org: bool,
        answer: &mut Exchanged,
    ) -> Result<Option<(Request, Sent)>, EngineError> {
        let WorkerResult { task, token: text, mut outcome, artifacts, mut lines } = result;
        let Some(token) = self.read_token(task, &text, every_org, answer) else { return Ok(None) };
        if !lines.is_empty() && self.leases.log(&token).is_none() {
            self.watch_here(&token).await?;
        }
        let redactor = match self.redactor(&token).await {
            Ok(redactor) => redactor,
            // There may be secrets in what it says, and nobody here can tell which.
            Err(EngineError::Rejected(Rejection { code, message, .. })) => {
                outcome = Outcome::Failed(ErrorInfo::retryable(code, message));
                lines.clear();
                None
            }
            Err(error) => return Err(error),
        };
        self.say(&token, lines, redactor.as_deref());
        let outcome = match outcome {
            Outcome::Completed(output) => match check_output(&output, self.limits(), self.artifacts.most_output()) {
                Ok(()) => Outcome::Completed(output),
                Err(error) => Outcome::Failed(error.into()),
            },
            failed @ Outcome::Failed(_) => failed,
        };
        let outcome = match &redactor {
            Some(redactor) => redacted(outcome, redactor),
            None => outcome,
        };
        let completed = matches!(outcome, Outcome::Completed(_));
        // Few have any: what that takes is not part of every call.
        let admitted = match completed && !artifacts.is_empty() {
            true => Box::pin(self.artifacts.admit_json(token.org, &artifacts, redactor.as_deref())).await,
            false => Ok(Vec::new()),
        };
        let artifacts = match admitted {
            Ok(artifacts) => artifacts,
            // The outcome is not lost: its worker may put right what is wrong, and say it again.
            Err(EngineError::Rejected(Rejection { code, message, .. })) => {
                answer.rejected.push(RejectedItem { task, token: text, code, message });
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (reply, receiver) = oneshot::channel();
        let kept = match &outcome {
            Outcome::Completed(output) if self.artifacts.is_large(output) => {
                Box::pin(self.artifacts.keep_output(token.org, output)).await?
            }
            _ => None,
        };
        let command = leaving(Command::Report { task: token.task, nonce: token.nonce, outcome }, artifacts, kept);
        let request = Request { reply: Some(reply), ..Request::command(token.org, token.run, command) };
        Ok(Some((request, Sent { task, text, token, completed, reply: receiver })))
    }

    /// What became of a result.
    async fn hear(&self, sent: Sent, answer: &mut Exchanged) -> Result<(), EngineError> {
        let Sent { task, text, token, completed, reply } = sent;
        match reply.await.map_err(|_| EngineError::ShuttingDown)? {
            Ok(_) => {}
            Err(EngineError::Rejected(rejection)) if rejection.kind == RejectionKind::Stale => {
                if !self.was_recorded(&token, completed).await? {
                    answer.rejected.push(stale(task, text));
                }
            }
            Err(EngineError::Rejected(Rejection { code, message, .. })) => {
                answer.rejected.push(RejectedItem { task, token: text, code, message });
            }
            Err(EngineError::NoSuchRun(_)) => answer.rejected.push(stale(task, text)),
            // Once the run goes on, the step is carried out again.
            Err(error @ EngineError::Stuck { .. }) => {
                let (code, message) = (error.code(), error.to_string());
                answer.rejected.push(RejectedItem { task, token: text, code, message });
            }
            // Said again, it would be refused again.
            Err(error @ EngineError::Store(StoreError::Refused(_))) => {
                let (code, message) = (error.code(), NOT_KEPT.to_owned());
                answer.rejected.push(RejectedItem { task, token: text, code, message });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The very attempt has ended as its worker says: the answer to the first time was lost.
    async fn was_recorded(&self, token: &LeaseToken, completed: bool) -> Result<bool, EngineError> {
        let Some(head) = self.store.head(token.org, token.run).await? else { return Ok(false) };
        let plan = self.plans.by_hash(token.org, head.plan_hash).await?;
        if token.task.step.step as usize >= plan.steps.len() {
            return Ok(false);
        }
        let events = self.events_of(&head, &plan, token.task.step).await?;
        let step: Option<StepRef> = Some(token.task.step);
        Ok(events.iter().any(|event| {
            let same = event.step == step
                && event.logical_attempt == token.task.logical_attempt
                && event.engine_attempt == token.task.engine_attempt;
            match event.body {
                Body::StepCompleted { .. } => same && completed,
                Body::StepFailed { .. } => same && !completed,
                _ => false,
            }
        }))
    }
}

fn stale(task: TaskId, token: String) -> RejectedItem {
    let message = "another attempt has taken over, or the run has ended; drop this one".to_owned();
    RejectedItem { task, token, code: "stale_attempt", message }
}

static OFFERS: AtomicU64 = AtomicU64::new(1);

/// The number of an offer.
pub(crate) fn next_offer() -> u64 {
    OFFERS.fetch_add(1, Ordering::Relaxed)
}

/// An offer whose answer is waited for. When it is dropped, what was given meanwhile goes to somebody else.
struct Offered {
    id: u64,
    inbox: Inbox,
    answer: oneshot::Receiver<Vec<Handed>>,
}

impl Offered {
    fn new(engine: &Engine, exchange: &Exchange) -> (Offer, Offered) {
        let (reply, answer) = oneshot::channel();
        let id = next_offer();
        let offer = Offer {
            id,
            org: (!exchange.every_org).then_some(engine.org),
            worker: exchange.worker.clone(),
            queues: exchange.queues.clone(),
            skills: exchange.skills.clone(),
            room: exchange.capacity,
            waits: !exchange.wait.is_zero(),
            reply,
        };
        (offer, Offered { id, inbox: engine.inbox.clone(), answer })
    }

    async fn given(mut self) -> Vec<Handed> {
        (&mut self.answer).await.unwrap_or_default()
    }

    async fn given_before(mut self, end: impl Future<Output = ()>) -> Vec<Handed> {
        tokio::select! {
            biased;
            given = &mut self.answer => given.unwrap_or_default(),
            () = end => self.withdraw(),
        }
    }

    /// What was given in the last moment is not lost.
    fn withdraw(&mut self) -> Vec<Handed> {
        self.answer.close();
        self.answer.try_recv().unwrap_or_default()
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        for handed in self.withdraw() {
            let command = Command::LoseLease { task: handed.task.task };
            self.inbox.try_send(Message::Request(Request::command(handed.org, handed.run, command)));
        }
        self.inbox.try_send(Message::Withdraw(self.id));
    }
}
