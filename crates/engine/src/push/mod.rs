//! Steps that are pushed: their tasks are POSTed to a URL, and the answer is the outcome, or says that it comes later.
//!
//! ```text
//!   a step in the line `push:host` ── room at the host ──► leased to the worker `push`, with a row in the outbox: one commit
//!                                                                                │
//!   outcome ──► committer ◄── answer ◄── POST, signed ◄── input, env, secrets ◄──┘  (again and again while the lease holds)
//! ```
//!
//! **Invariant:** what is secret is put together for the request and kept nowhere.
//! **Invariant:** nothing is sent for an attempt that is over.

mod answer;
mod body;
mod config;
mod hosts;
mod order;
mod sign;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use milepost_core::artifact::{Artifact, Beyond};
use milepost_core::event::{ErrorInfo, Lease};
use milepost_core::id::NodeId;
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Push;
use milepost_core::run::{Command, Outcome, Rejection, RejectionKind, Task};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::TaskRow;

use crate::artifacts::Artifacts;
use crate::clock::Clock;
use crate::committer::{Inbox, RequestKind, queue_of, restore};
use crate::egress::{explain, names_private_address};
use crate::error::EngineError;
use crate::executor::leaving;
use crate::outbox::{PushOrder, Tried};
use crate::plans::Plans;
use crate::reading::Reading;
use crate::room::{Place, Room};
use crate::secrets::{Redactor, Secrets};
use crate::skills::SkillError;
use crate::workers::{Handed, Leases, Redacting, Standing, WorkerTask};
use answer::Answer;
pub use config::PushConfig;
pub(crate) use hosts::{Hosts, Slot};
use sign::Delivery;

/// Who has the leases of steps that are pushed.
pub(crate) const WORKER: &str = "push";

/// What answers take together; one that is larger than the limits allow is never read to its end.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;
/// How long to wait when the database cannot be reached.
const STORE_AWAY: Duration = Duration::from_millis(250);

/// Sends tasks to where they are to be done.
#[derive(Debug)]
pub(crate) struct Pusher {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) plans: Arc<Plans>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) inbox: Inbox,
    pub(crate) leases: Arc<Leases>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) config: PushConfig,
    /// What answers take together until they are recorded, and what is read for inputs.
    pub(crate) answers: Room,
    /// Built at the first request: most programs never make one.
    pub(crate) client: OnceLock<Result<reqwest::Client, String>>,
}

/// A task that is about to be sent. Holds what is secret, for as long as it takes.
struct Request {
    task: WorkerTask,
    body: bytes::Bytes,
    /// What to sign it with.
    keys: Vec<String>,
    /// What takes all that is secret in it out of what is said of it.
    redactor: Redacting,
}

/// What an outcome came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Recorded,
    /// Another attempt has taken over, or the run has ended.
    Stale,
    /// This engine is about to end: somebody else has to see to it.
    Left,
}

/// For answers of which each may bring so large an output.
pub(crate) fn room_for_answers(most_output: usize) -> Room {
    Room::new(ANSWER_BYTES.max(2 * most_output))
}

impl Pusher {
    /// One try. What was given with it spares looking it up.
    pub(crate) async fn push(&self, order: &PushOrder, at_hand: Option<(Handed, Slot)>) -> Tried {
        match self.try_push(order, at_hand).await {
            Ok(tried) => tried,
            Err(EngineError::ShuttingDown) => Tried::Left,
            Err(error) => Tried::Failed { error: format!("the task cannot be read: {error}"), not_before: None },
        }
    }

    async fn try_push(&self, order: &PushOrder, at_hand: Option<(Handed, Slot)>) -> Result<Tried, EngineError> {
        let Some(standing) = self.standing(order).await? else { return Ok(Tried::Done("stale")) };
        if standing.cancelled {
            return Ok(self.cancelled(order).await);
        }
        let now = self.clock.now();
        if standing.give_up_at() <= now {
            return Ok(Tried::Late);
        }
        let (handed, _slot) = match at_hand {
            Some(at_hand) => at_hand,
            None => {
                let slot = match self.hosts.enter(&order.host, now) {
                    Ok(slot) => slot,
                    Err(until) => return Ok(Tried::Postponed { until }),
                };
                let Some(handed) = self.load(order, &standing).await? else { return Ok(Tried::Done("stale")) };
                (handed, slot)
            }
        };
        let Some(push) = handed.plan.step(handed.task.index).push.clone() else { return Ok(Tried::Done("stale")) };
        let time = Duration::from_millis(push.timeout_ms.min(standing.give_up_at().ms_since(now)));
        let request = match self.request(handed, &push).await {
            Ok(request) => request,
            // Whoever keeps the secrets may be back in a moment.
            Err(error) if error.retryable => return Ok(Tried::Failed { error: error.message, not_before: None }),
            Err(error) => {
                let reported = self.report(order, Outcome::Failed(error.into())).await;
                return Ok(done(reported, "failed"));
            }
        };
        let mut place = Place::default();
        let answer = tokio::select! {
            answer = self.send(&push, &request, time, &mut place) => answer,
            stopped = self.stopped(order) => return Ok(stopped),
        };
        if let Answer::Again { host_failed: true, .. } = &answer {
            self.hosts.failed(&order.host, self.clock.now());
        } else {
            self.hosts.answered(&order.host);
        }
        Ok(match answer {
            Answer::Later => {
                // From now on the receiver has to say that it lives.
                self.leases.extend(&order.token, self.clock.now());
                Tried::Done("accepted")
            }
            Answer::Again { error, not_before, .. } => Tried::Failed { error, not_before },
            Answer::Ended(outcome, artifacts) => {
                let redactor = request.redactor.as_deref();
                let (outcome, artifacts) = self.with_files(order, outcome, &artifacts, redactor).await?;
                let kept = match &outcome {
                    Outcome::Completed(output) => self.artifacts.keep_output(order.token.org, output).await?,
                    Outcome::Failed(_) => None,
                };
                let result = if matches!(outcome, Outcome::Completed(_)) { "completed" } else { "failed" };
                done(self.report_leaving(order, outcome, artifacts, kept).await, result)
            }
        })
    }

    /// The lease as it stands; nothing when it is over. From now on this node watches it.
    async fn standing(&self, order: &PushOrder) -> Result<Option<Standing>, EngineError> {
        let now = self.clock.now();
        if let Some(standing) = self.leases.standing(&order.token) {
            return Ok(Some(standing));
        }
        if !self.leases.watch_here(&*self.store, self.node, &order.token, now).await? {
            return Ok(None);
        }
        Ok(self.leases.standing(&order.token))
    }

    /// When a try has to have come to something.
    pub(crate) fn give_up_at(&self, order: &PushOrder) -> Option<Timestamp> {
        self.leases.standing(&order.token).map(|standing| standing.give_up_at())
    }

    /// Whether the run does not want the attempt any more.
    pub(crate) fn is_cancelled(&self, order: &PushOrder) -> bool {
        self.leases.standing(&order.token).is_some_and(|standing| standing.cancelled)
    }

    /// Waits until nobody wants an answer any more.
    async fn stopped(&self, order: &PushOrder) -> Tried {
        let bell = self.leases.bell(&WORKER.into());
        loop {
            let rings = bell.bell.notified();
            tokio::pin!(rings);
            rings.as_mut().enable();
            match self.leases.standing(&order.token) {
                Some(standing) if standing.cancelled => return self.cancelled(order).await,
                Some(_) => {}
                // It is over, or a receiver that is at it has talked to another node.
                None if self.is_over(order).await => return Tried::Done("stale"),
                None => {}
            }
            rings.await;
        }
    }

    async fn is_over(&self, order: &PushOrder) -> bool {
        let rows = self.store.tasks(order.token.org, &[order.token.task_id()]).await;
        let holds = |row: &TaskRow| row.lease.as_ref().is_some_and(|lease| lease.nonce == order.token.nonce);
        rows.is_ok_and(|rows| !rows.iter().any(holds))
    }

    /// What is to be done, worked out again: inputs are not stored, the values they are made of are.
    async fn load(&self, order: &PushOrder, standing: &Standing) -> Result<Option<Handed>, EngineError> {
        let token = &order.token;
        let org = token.org;
        let Some(loaded) = self.store.load_runs(&[(org, token.run)]).await?.into_iter().next() else { return Ok(None) };
        let mut state = restore(&loaded, &self.plans).await?;
        let plan = state.plan.clone();
        if !state.wants(token.task) {
            return Ok(None);
        }
        let step = token.task.step;
        let limits = self.limits.for_what_was_let_in();
        let mut reading = Reading::new(&self.artifacts, &self.answers, &self.limits);
        let input = reading.ask(&mut state, |state| state.resolved_input(step, &limits)).await?;
        let Some(input) = input else { return Ok(None) };
        let task = Task {
            task: token.task,
            index: step.step,
            step_id: step.name(&plan),
            input: input.json,
            // Receivers are given secrets by name.
            placeholders: Default::default(),
            trace: state.trace,
        };
        let lease = Lease { worker: WORKER.into(), nonce: token.nonce };
        let (run, priority, now) = (token.run, state.priority, self.clock.now());
        let handed = Handed::new(org, run, &plan, task, lease, priority, now);
        Ok(Some(Handed { expires_at: standing.expires_at, ..handed }))
    }

    /// The task with all that its receiver needs.
    async fn request(&self, handed: Handed, push: &Push) -> Result<Request, SkillError> {
        let (plan, org, token) = (handed.plan.clone(), handed.org, handed.token());
        let step = plan.step(handed.task.index);
        let (workflow, queue) = (&*plan.name, &*queue_of(step));
        let env = self.secrets.env_of(step)?;
        let secrets = self.secrets.resolve(org, workflow, queue, &step.secrets).await?;
        let named: Vec<_> =
            push.signing_secrets.iter().map(|reference| (reference.clone(), reference.clone())).collect();
        let keys: Vec<String> = match named.is_empty() {
            true => {
                let host = host_of(&push.url);
                self.config.signing_secrets.iter().map(|key| sign::key_of_host(key, &host)).collect()
            }
            false => {
                let keys = self.secrets.resolve(org, workflow, queue, &named).await?;
                keys.iter().map(|key| key.value.expose().to_owned()).collect()
            }
        };
        let redactor = secrets.redactor_with(keys.iter().map(|key| ("signing_secret", key.as_str()))).map(Arc::new);
        self.leases.set_redactor(&token, &redactor);
        let given = secrets.iter().map(|secret| (secret.name.to_string(), secret.value.expose().to_owned())).collect();
        let task = handed.into_task(env, given);
        Ok(Request { body: body::of(&task), task, keys, redactor })
    }

    async fn send(&self, push: &Push, request: &Request, time: Duration, place: &mut Place) -> Answer {
        let Request { task, body, keys, redactor } = request;
        let refused =
            |code: &str, message: String| Answer::Ended(Outcome::Failed(ErrorInfo::fatal(code, message)), Vec::new());
        let url = match reqwest::Url::parse(&push.url) {
            Ok(url) => url,
            Err(error) => return refused("push_rejected", format!("`{}` is no URL: {error}", push.url)),
        };
        if let Some(message) = url.host_str().and_then(|host| self.config.egress.private_literal(host)) {
            return refused("private_address", message);
        }
        let client = self.client.get_or_init(|| self.config.egress.client());
        let again = |error: String| Answer::Again { error, not_before: None, host_failed: true };
        let client = match client {
            Ok(client) => client,
            Err(error) => return again(error.clone()),
        };
        let id = uuid::Uuid::now_v7();
        let unix_seconds = self.clock.now().0 / 1_000_000;
        let signature = Delivery { id, unix_seconds, url: url.as_str(), body }.signature(keys);
        let mut request = client
            .post(url)
            .timeout(time)
            .header("content-type", "application/json")
            .header(sign::DELIVERY, id.to_string())
            .header("milepost-task-id", task.task.to_string())
            .header("idempotency-key", format!("{}/{}/{}", task.task, task.logical_attempt, task.engine_attempt))
            .header("traceparent", &task.traceparent);
        if let Some(signature) = signature {
            request = request.header(sign::HEADER, signature);
        }
        match request.body(body.clone()).send().await {
            Ok(response) => {
                let limits = (&self.limits, self.artifacts.most_output());
                let room = (&self.answers, place);
                Answer::read(response, self.clock.now(), limits, redactor.as_deref(), room).await
            }
            Err(error) if error.is_timeout() => again(format!("no answer within {} ms", time.as_millis())),
            Err(error) => match explain(error) {
                message if names_private_address(&message) => refused("private_address", message),
                message => again(message),
            },
        }
    }

    /// The run was stopped, or the attempt took too long: nobody waits for its answer.
    async fn cancelled(&self, order: &PushOrder) -> Tried {
        let error = ErrorInfo::fatal("cancelled", "the run was stopped");
        done(self.report(order, Outcome::Failed(error)).await, "cancelled")
    }

    /// The receiver could not be told: the attempt fails.
    pub(crate) async fn give_up(&self, order: &PushOrder, tries: u32, error: &str) -> Reported {
        let tries = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
        let message = format!("it was tried {tries} to push the step to {}, the last time: {error}", order.url);
        self.report(order, Outcome::Failed(ErrorInfo::retryable("push_failed", message))).await
    }

    /// What is recorded of the files that an answer names. A receiver cannot be asked to say it again: where one is not there
    /// the attempt has failed.
    async fn with_files(
        &self,
        order: &PushOrder,
        outcome: Outcome,
        artifacts: &[Json],
        redactor: Option<&Redactor>,
    ) -> Result<(Outcome, Vec<Artifact>), EngineError> {
        match self.artifacts.admit_json(order.token.org, artifacts, redactor).await {
            Ok(artifacts) => Ok((outcome, artifacts)),
            Err(EngineError::Rejected(Rejection { code, message, .. })) => {
                Ok((Outcome::Failed(ErrorInfo::retryable(code, message)), Vec::new()))
            }
            Err(error) => Err(error),
        }
    }

    async fn report(&self, order: &PushOrder, outcome: Outcome) -> Reported {
        self.report_leaving(order, outcome, Vec::new(), None).await
    }

    /// On disk when this returns, unless the attempt is over or the engine ends.
    async fn report_leaving(
        &self,
        order: &PushOrder,
        mut outcome: Outcome,
        mut artifacts: Vec<Artifact>,
        mut kept: Option<Beyond>,
    ) -> Reported {
        let token = &order.token;
        loop {
            let command = Command::Report { task: token.task, nonce: token.nonce, outcome: outcome.clone() };
            let command = leaving(command, artifacts.clone(), kept.clone());
            let stale = |error: &EngineError| {
                matches!(error, EngineError::NoSuchRun(_) | EngineError::Stuck { .. })
                    || matches!(error, EngineError::Rejected(Rejection { kind: RejectionKind::Stale, .. }))
            };
            match self.inbox.ask(RequestKind::Command { org: token.org, run: token.run, command }).await {
                Ok(_) => return Reported::Recorded,
                Err(EngineError::ShuttingDown) => return Reported::Left,
                Err(error) if stale(&error) => return Reported::Stale,
                Err(error) if error.is_passing() => tokio::time::sleep(STORE_AWAY).await,
                Err(EngineError::Rejected(Rejection { code, message, .. })) if !artifacts.is_empty() => {
                    outcome = Outcome::Failed(ErrorInfo::fatal(code, message));
                    artifacts.clear();
                    kept = None;
                }
                Err(error) => {
                    tracing::error!(run = %token.run, %error, "the outcome of a step that was pushed cannot be recorded");
                    return Reported::Stale;
                }
            }
        }
    }
}

/// The host that a request goes to, with its port unless that is the usual one.
fn host_of(url: &str) -> String {
    let Ok(url) = reqwest::Url::parse(url) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn done(reported: Reported, result: &'static str) -> Tried {
    match reported {
        Reported::Recorded => Tried::Done(result),
        Reported::Stale => Tried::Done("stale"),
        Reported::Left => Tried::Left,
    }
}
