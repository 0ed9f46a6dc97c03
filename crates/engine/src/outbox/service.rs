//! Carries out what the outbox holds: at once what this node wrote, by a sweep what is due or was left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use milepost_core::id::{NodeId, OutboxId};
use milepost_core::text;
use milepost_core::time::Timestamp;
use milepost_store::rows::{Claim, OutboxEnd, OutboxOutcome, OutboxRow};
use milepost_store::{Result, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::backoff::backoff_ms;
use super::{Letter, Message, OutboxConfig};
use crate::clock::Clock;
use crate::committer::{Inbox, Message as ToCommitter, Offer};
use crate::push::{self, Hosts, Pusher, Reported, Slot};
use crate::refused::refused_of;
use crate::supervisor::Pulse;
use crate::telemetry::metrics::Metrics;
use crate::workers::{Handed, next_offer};

/// How often the database is asked for what others left.
const SWEEP_MS: u64 = 5_000;
/// How long a claim lasts: longer than any try.
const CLAIM_MS: u64 = 11 * 60 * 1000;
const PAGE: u32 = 100;
/// When a row is looked at again that this Milepost does not understand.
const STRANGE_MS: u64 = 60_000;
/// The same for one of which nobody knows whether it was written.
const UNSURE_MS: u64 = 500;

/// Bytes of the last error of a delivery.
const MOST_ERROR: usize = 16 * 1024;

/// Of those that are tried again so many are remembered.
const WAITING: usize = 10_000;

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Nothing is left to do; the word is counted.
    Done(&'static str),
    Failed {
        error: String,
        not_before: Option<Timestamp>,
    },
    /// It was not tried, and there is no time left to do so.
    Late,
    /// It was not tried: not now.
    Postponed {
        until: Timestamp,
    },
    /// This engine is about to end.
    Left,
}

/// What the outbox is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pusher: Pusher,
    pub(crate) config: OutboxConfig,
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    parts: Parts,
    under_way: Mutex<JoinSet<()>>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    /// What became of claims, until that is written.
    ended: Vec<OutboxEnd>,
    /// What this node is going to try again.
    waiting: HashMap<OutboxId, Letter>,
    /// When to ask the database.
    next_look: Timestamp,
}

/// What the outbox turns to when it has rested.
enum Next {
    Look,
    TryPushes,
    HurryCancelled,
}

impl Outbox {
    pub(crate) fn new(parts: Parts) -> Outbox {
        let state = State { ended: Vec::new(), waiting: HashMap::new(), next_look: Timestamp(i64::MIN) };
        let state = Mutex::new(state);
        Outbox { shared: Arc::new(Shared { parts, under_way: Mutex::default(), state, wake: Notify::new() }) }
    }

    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.shared.parts.pusher.hosts
    }

    /// An offer to take a step of this queue and push it. What it is given is sent at once.
    pub(crate) fn offer(&self, queue: Arc<str>, slot: Slot) -> Offer {
        let (reply, given) = oneshot::channel::<Vec<Handed>>();
        let shared = self.shared.clone();
        self.spawn(async move {
            if let Some(handed) = given.await.ok().and_then(|mut given| given.pop())
                && let Some(letter) = handed.letter()
            {
                shared.carry(letter, Some((handed, slot))).await;
            }
        });
        let (id, worker) = (next_offer(), push::WORKER.into());
        Offer { id, org: None, worker, queues: vec![queue], skills: None, room: 1, waits: false, reply }
    }

    /// Nobody knows whether the row was written. If it was, it is tried as any other that is due.
    pub(crate) fn unsure(&self, handed: &Handed) {
        let Some(letter) = handed.letter() else { return };
        let at = self.shared.parts.clock.now().plus_ms(UNSURE_MS);
        let outcome = OutboxOutcome::Again { at, attempts: 0, error: None };
        self.shared.end(OutboxEnd { id: letter.id, attempts: letter.attempts, outcome });
    }

    /// Something is due that was not before.
    pub(crate) fn look_now(&self) {
        self.shared.state().next_look = Timestamp(i64::MIN);
        self.shared.wake.notify_one();
    }

    /// How many tries are under way here.
    pub(crate) fn under_way(&self) -> usize {
        let mut under_way = self.shared.under_way();
        while under_way.try_join_next().is_some() {}
        under_way.len()
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut under_way = self.shared.under_way();
        while under_way.try_join_next().is_some() {}
        under_way.spawn(work);
    }

    /// Stops what is under way. Its rows stay claimed.
    pub(crate) fn abort_all(&self) {
        self.shared.under_way().abort_all();
    }

    /// The same, and what is claimed here is free for others.
    pub(crate) async fn leave(&self) {
        let mut under_way = std::mem::take(&mut *self.shared.under_way());
        let was_idle = under_way.is_empty();
        under_way.shutdown().await;
        let Parts { node, store, clock, .. } = &self.shared.parts;
        let left = async {
            self.settle().await?;
            if !was_idle {
                store.outbox().free_claims(*node, clock.now()).await?;
            }
            Ok::<_, milepost_store::StoreError>(())
        };
        if let Err(error) = left.await {
            tracing::warn!(%node, %error, "what is claimed of the outbox could not be given back");
        }
    }

    /// Takes down what ended and begins what is due. Answers when to look again.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<Timestamp> {
        self.settle().await?;
        if self.hosts().take_probe(now) {
            // When the engine is about to end, nobody begins anything.
            let _ = self.shared.parts.inbox.send(ToCommitter::TryPushes).await;
        }
        if self.shared.state().next_look <= now {
            self.look(now).await?;
        }
        let next = self.shared.state().next_look;
        Ok(self.hosts().next_probe().map_or(next, |probe| probe.min(next)))
    }

    async fn settle(&self) -> Result<()> {
        let ended = std::mem::take(&mut self.shared.state().ended);
        if ended.is_empty() {
            return Ok(());
        }
        let settled = match self.shared.parts.store.outbox().settle(self.shared.parts.node, &ended).await {
            Err(StoreError::Refused(reason)) => self.settle_apart(&ended, &reason).await,
            settled => settled,
        };
        if settled.is_err() {
            // What is settled twice changes nothing the second time.
            self.shared.state().ended.extend(ended);
        }
        settled
    }

    /// What the store will not have is settled without its text; the others as they are.
    async fn settle_apart(&self, ended: &[OutboxEnd], reason: &str) -> Result<()> {
        let Parts { node, store, .. } = &self.shared.parts;
        tracing::error!(reason, deliveries = ended.len(), "the database refused what became of deliveries");
        for place in refused_of(ended.len(), |part| store.outbox().settle(*node, &ended[part])).await? {
            let bare = without_text(&ended[place]);
            match store.outbox().settle(*node, std::slice::from_ref(&bare)).await {
                // Its claim runs out, and then it is tried again.
                Err(StoreError::Refused(reason)) => tracing::error!(reason, id = %bare.id, "a delivery is not settled"),
                settled => settled?,
            }
        }
        Ok(())
    }

    async fn look(&self, now: Timestamp) -> Result<()> {
        let Parts { node, store, .. } = &self.shared.parts;
        // First: what becomes due while this looks is not missed.
        self.shared.state().next_look = now.plus_ms(SWEEP_MS);
        let mut due = store.outbox().next_due().await;
        while due.as_ref().is_ok_and(|due| due.is_some_and(|due| due <= now)) {
            let claim = Claim { node: *node, until: now.plus_ms(CLAIM_MS) };
            match store.outbox().claim(claim, now, PAGE).await {
                Ok(rows) => {
                    let more = rows.len() == PAGE as usize;
                    rows.into_iter().for_each(|row| self.begin(row, now));
                    due = store.outbox().next_due().await;
                    if !more {
                        break;
                    }
                }
                Err(error) => due = Err(error),
            }
        }
        let mut state = self.shared.state();
        match due {
            // What is overdue is in the hands of another node at this moment.
            Ok(Some(due)) => state.next_look = state.next_look.min(due.max(now.plus_ms(250))),
            Ok(None) => {}
            Err(error) => {
                state.next_look = now;
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin(&self, row: OutboxRow, now: Timestamp) {
        self.shared.state().waiting.remove(&row.id);
        let Some(message) = Message::read(&row) else {
            tracing::warn!(id = %row.id, kind = %row.kind, "a row of the outbox cannot be read; a newer Milepost may have written it");
            let outcome = OutboxOutcome::Again {
                at: now.plus_ms(STRANGE_MS),
                attempts: row.attempts.saturating_sub(1),
                error: None,
            };
            return self.shared.end(OutboxEnd { id: row.id, attempts: row.attempts, outcome });
        };
        let OutboxRow { id, org, attempts, last_error, .. } = row;
        let letter = Letter { id, org, attempts, last_error, message };
        let shared = self.shared.clone();
        self.spawn(async move { shared.carry(letter, None).await });
    }

    /// What waits for its next try and is not wanted any more is told so at once.
    async fn hurry_cancelled(&self) {
        let Parts { store, clock, pusher, .. } = &self.shared.parts;
        let cancelled = |letter: &&Letter| match &letter.message {
            Message::Push(order) => pusher.is_cancelled(order),
        };
        let hurried: Vec<Letter> = self.shared.state().waiting.values().filter(cancelled).cloned().collect();
        for letter in &hurried {
            if let Err(error) = store.outbox().retry(letter.org, letter.id, clock.now()).await {
                tracing::warn!(%error, "the outbox cannot be written; what was cancelled is noticed at its next try");
            }
        }
        if !hurried.is_empty() {
            self.look_now();
        }
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        let Parts { clock, inbox, pusher, .. } = &self.shared.parts;
        let bell = pusher.leases.bell(&push::WORKER.into());
        loop {
            // Heard from here on: what is told while this is busy is not missed.
            let rings = bell.bell.notified();
            tokio::pin!(rings);
            rings.as_mut().enable();
            let now = clock.now();
            let wait = match self.run_once(now).await {
                Ok(next) => Duration::from_millis(next.ms_since(clock.now()).saturating_add(1)),
                Err(error) => {
                    tracing::warn!(%error, "the outbox cannot be read or written");
                    Duration::from_secs(1)
                }
            };
            let next = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => Next::Look,
                    () = self.shared.wake.notified() => Next::Look,
                    () = self.hosts().room.notified() => Next::TryPushes,
                    () = &mut rings => Next::HurryCancelled,
                    () = clock.set_from(now) => Next::Look,
                }
            };
            match pulse.rest(next).await {
                Next::Look => {}
                Next::TryPushes => drop(inbox.send(ToCommitter::TryPushes).await),
                Next::HurryCancelled => self.hurry_cancelled().await,
            }
        }
    }
}

impl Shared {
    fn under_way(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.under_way.lock().expect("no holder of this lock panics")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// One try, and what follows from it.
    async fn carry(&self, letter: Letter, at_hand: Option<(Handed, Slot)>) {
        let Message::Push(order) = &letter.message;
        let tried = self.parts.pusher.push(order, at_hand).await;
        let outcome = match tried {
            Tried::Left => return,
            Tried::Done(result) => self.done(result),
            Tried::Postponed { until } => self.again(&letter, until, letter.attempts.saturating_sub(1), None),
            Tried::Late => {
                let error = letter.last_error.clone();
                let error = error.unwrap_or_else(|| "the time was over before it could be tried".to_owned());
                match self.give_up(&letter, letter.attempts.saturating_sub(1), &error).await {
                    None => return,
                    Some(_) => self.done("expired"),
                }
            }
            Tried::Failed { error, not_before } => match self.failed(&letter, error, not_before).await {
                None => return,
                Some(outcome) => outcome,
            },
        };
        self.end(OutboxEnd { id: letter.id, attempts: letter.attempts, outcome });
    }

    fn done(&self, result: &'static str) -> OutboxOutcome {
        self.parts.metrics.delivered(result);
        OutboxOutcome::Done
    }

    fn again(&self, letter: &Letter, at: Timestamp, attempts: u32, error: Option<String>) -> OutboxOutcome {
        // What another node claims stays in here: should that ever be much, a cancelled one is noticed at its next try.
        if self.state().waiting.len() > WAITING {
            self.state().waiting.clear();
        }
        let waiting =
            Letter { attempts, last_error: error.clone().or_else(|| letter.last_error.clone()), ..letter.clone() };
        self.state().waiting.insert(letter.id, waiting);
        OutboxOutcome::Again { at, attempts, error }
    }

    /// Nothing, when the engine is about to end.
    async fn failed(&self, letter: &Letter, error: String, not_before: Option<Timestamp>) -> Option<OutboxOutcome> {
        let error = text::clean(error, MOST_ERROR);
        let now = self.parts.clock.now();
        let at = now.plus_ms(backoff_ms(letter.attempts, crate::clock::entropy()));
        let at = not_before.map_or(at, |not_before| at.max(not_before));
        let Message::Push(order) = &letter.message;
        let spent = letter.attempts >= self.parts.config.max_tries;
        let late = self.parts.pusher.give_up_at(order).is_some_and(|end| at >= end);
        if !spent && !late {
            tracing::debug!(id = %letter.id, tries = letter.attempts, error, "a delivery failed and is tried again");
            self.parts.metrics.delivered("retried");
            return Some(self.again(letter, at, letter.attempts, Some(error)));
        }
        let wanted = self.give_up(letter, letter.attempts, &error).await?;
        if !spent || !wanted {
            return Some(self.done("expired"));
        }
        tracing::warn!(id = %letter.id, run = %order.token.run, tries = letter.attempts, error, "a delivery was given up");
        self.parts.metrics.delivered("dead");
        Some(OutboxOutcome::Dead { at: now, error })
    }

    /// Whoever waits for it is told. Answers whether somebody did; nothing, when the engine is about to end.
    async fn give_up(&self, letter: &Letter, tries: u32, error: &str) -> Option<bool> {
        let Message::Push(order) = &letter.message;
        match self.parts.pusher.give_up(order, tries, error).await {
            Reported::Recorded => Some(true),
            Reported::Stale => Some(false),
            Reported::Left => None,
        }
    }

    fn end(&self, end: OutboxEnd) {
        let mut state = self.state();
        if let OutboxOutcome::Again { at, .. } = end.outcome {
            state.next_look = state.next_look.min(at);
        }
        state.ended.push(end);
        drop(state);
        self.wake.notify_one();
    }
}

/// The same outcome, without what somebody else said.
fn without_text(end: &OutboxEnd) -> OutboxEnd {
    let outcome = match &end.outcome {
        OutboxOutcome::Again { at, attempts, .. } => OutboxOutcome::Again { at: *at, attempts: *attempts, error: None },
        OutboxOutcome::Dead { at, .. } => {
            OutboxOutcome::Dead { at: *at, error: "the database does not take the last error".to_owned() }
        }
        OutboxOutcome::Done => OutboxOutcome::Done,
    };
    OutboxEnd { outcome, ..end.clone() }
}
