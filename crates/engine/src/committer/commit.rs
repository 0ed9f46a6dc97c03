//! The batch goes to the store, and what follows when it is there, or is not.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use milepost_core::event::{ErrorInfo, Event};
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::record::EventRow;
use milepost_core::run::{Command, Rejection};
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::{Answer, Batch, Question, RequestedRun, TimerWrite, WriteResult};
use milepost_store::{Store, StoreError, Transaction};

use super::hand_over::Given;
use super::hot::Patience;
use super::pending::{Asking, Decided, RunPending, Unsure};
use super::{Accepted, Committer, Offer, Request};
use crate::error::EngineError;
use crate::projector::Committed;
use crate::refused::refused_of;

/// A batch on its way to the disk.
pub(super) struct InFlight {
    result: BoxFuture<'static, Result<Vec<Wrote>, StoreError>>,
    runs: Vec<RunPending>,
    /// Workers that it gives something.
    offers: Vec<Offer>,
    since: Instant,
    persisted_at: Timestamp,
}

impl InFlight {
    pub(super) fn runs(&self) -> impl Iterator<Item = RunId> {
        self.runs.iter().map(|run| run.run)
    }

    pub(super) fn events_of(&self, run: RunId) -> impl Iterator<Item = &Event> {
        self.runs.iter().filter(move |pending| pending.run == run).flat_map(|pending| &pending.events)
    }
}

/// What became of a batch.
pub(super) struct Done {
    result: Result<Vec<Wrote>, StoreError>,
    runs: Vec<RunPending>,
    offers: Vec<Offer>,
    /// When it was put together.
    persisted_at: Timestamp,
    /// When it was sent.
    since: Instant,
}

/// Waits for the batch on its way; for ever if there is none.
pub(super) async fn done(in_flight: &mut Option<InFlight>) -> Done {
    match in_flight {
        None => std::future::pending().await,
        Some(flying) => {
            let result = (&mut flying.result).await;
            let (persisted_at, since) = (flying.persisted_at, flying.since);
            let (runs, offers) = in_flight.take().map(|flying| (flying.runs, flying.offers)).unwrap_or_default();
            Done { result, runs, offers, persisted_at, since }
        }
    }
}

impl Committer {
    /// Sends the gathered batch off. Questions are answered first, inside its transaction.
    pub(super) async fn send(&mut self) {
        if !self.pending.asking.is_empty() {
            return self.send_with_questions().await;
        }
        let persisted_at = self.parts.clock.now();
        let (batch, runs) = self.pending.close(persisted_at);
        self.turns.batch += 1;
        let (store, batch) = (self.parts.store.clone(), Arc::new(batch));
        let result = Box::pin(async move { commit_apart(&*store, batch).await });
        let offers = self.offers.take_given();
        self.in_flight = Some(InFlight { result, runs, offers, persisted_at, since: Instant::now() });
    }

    async fn send_with_questions(&mut self) {
        if !self.parts.care.is_active() {
            self.send_asking().await;
            return self.pending.asking.append(&mut self.asking_later);
        }
        let held_back = self.take_care_of_questions().await;
        self.send_asking().await;
        self.care_is_taken(held_back).await;
        self.pending.asking.append(&mut self.asking_later);
    }

    async fn send_asking(&mut self) {
        let since = Instant::now();
        // What questions lead to is bounded by itself: they have waited.
        self.pending.count_anew();
        let mut patience = self.patience();
        let (asking, questions) = self.take_asking(&mut patience).await;
        let mut asked = Asked { asking, questions };
        let (mut transaction, answers) = match self.ask(&mut asked).await {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(node = %self.parts.node, %error, "questions cannot be answered");
                self.fail_asking(asked.asking, &error);
                return self.let_go_impatient();
            }
        };
        let Asked { asking, questions } = asked;
        let mut taken = Taken::default();
        self.decide_asking(asking, &questions, answers, &mut taken).await;
        // What was decided may ask in turn: a child with a key of its own must be written together with its parent.
        loop {
            self.put_off_asking();
            if self.pending.asking.is_empty() {
                break;
            }
            let (asking, questions) = self.take_asking(&mut patience).await;
            match transaction.ask(questions.iter().flatten().cloned().collect()).await {
                Ok(answers) => self.decide_asking(asking, &questions, answers, &mut taken).await,
                Err(error) => {
                    tracing::warn!(node = %self.parts.node, %error, "questions cannot be answered");
                    drop(transaction);
                    // Those that asked come again in a moment. All others do so at once: a transaction in which something
                    // went wrong writes nothing.
                    self.fail_asking(asking, &StoreError::Unavailable(error.to_string()));
                    while let Some(run) = self.pending.runs.first().map(|pending| pending.run) {
                        self.drop_pending(run);
                    }
                    self.begun.clear();
                    self.forget_hot();
                    return self.let_go_impatient();
                }
            }
        }
        self.forget_hot();
        self.let_go_impatient();
        let persisted_at = self.parts.clock.now();
        let (batch, runs) = self.pending.close(persisted_at);
        self.turns.batch += 1;
        self.begun.clear();
        let result = commit_in(transaction, &*self.parts.store, Arc::new(batch)).await;
        let offers = self.offers.take_given();
        self.committed(Done { result, runs, offers, persisted_at, since });
    }

    /// Opens the batch's transaction. If the store refuses a question, whoever asks it is told, and the others ask again.
    async fn ask(&mut self, asked: &mut Asked) -> Result<(Box<dyn Transaction>, Vec<Answer>), StoreError> {
        let all = |asked: &Asked| asked.questions.iter().flatten().cloned().collect();
        let refused = match self.parts.store.ask(all(asked)).await {
            Err(StoreError::Refused(reason)) => reason,
            answered => return answered,
        };
        tracing::error!(reason = refused, asking = asked.asking.len(), "the database refused a question");
        let store = self.parts.store.clone();
        let guilty = refused_of(asked.asking.len(), |range| {
            let questions: Vec<Question> = asked.questions[range].iter().flatten().cloned().collect();
            let store = store.clone();
            async move { store.ask(questions).await.map(drop) }
        })
        .await?;
        let taken_out = asked.take(&guilty);
        self.fail_asking(taken_out, &StoreError::Refused(refused));
        self.parts.store.ask(all(asked)).await
    }

    /// In a full batch nothing more is asked but what belongs to it.
    fn put_off_asking(&mut self) {
        if self.pending.is_full() {
            let asking = std::mem::take(&mut self.pending.asking);
            let (later, now) = asking.into_iter().partition::<Vec<Asking>, _>(Asking::can_wait);
            self.asking_later.extend(later);
            self.pending.asking = now;
        }
    }

    fn questions(&mut self, ask: &Asking) -> Vec<Question> {
        match ask {
            Asking::Start { slot, kind, .. } => {
                let super::RequestKind::Start { start, plan, .. } = kind else { return Vec::new() };
                let request = start.request_id().map(|request_id| Question::RunOfRequest {
                    org: start.org,
                    workflow: plan.name.clone(),
                    request_id: request_id.to_owned(),
                });
                let slot = slot.as_ref().map(|slot| Question::SlotsHeld { org: start.org, key: slot.key.clone() });
                request.into_iter().chain(slot).collect()
            }
            Asking::Slot { org, run } => {
                let key = self.states.get(*run).and_then(|entry| entry.state.slot_key.clone());
                key.map(|key| Question::SlotsHeld { org: *org, key }).into_iter().collect()
            }
            Asking::Limited(tasks) => Committer::limit_questions(tasks),
            Asking::Results { org, run, questions } => self.result_questions(*org, *run, questions),
        }
    }

    /// What asks, and for each what it asks. The runs that ask have to be at hand.
    async fn take_asking(&mut self, patience: &mut Patience) -> (Vec<Asking>, Vec<Vec<Question>>) {
        let asking = std::mem::take(&mut self.pending.asking);
        let runs = asking.iter().filter_map(|ask| match ask {
            Asking::Slot { org, run } => Some((*org, *run)),
            Asking::Start { .. } | Asking::Limited(_) | Asking::Results { .. } => None,
        });
        // One that cannot be read is asked for again by the sweep.
        self.load(runs.collect()).await;
        let mut questions: Vec<Vec<Question>> = asking.iter().map(|ask| self.questions(ask)).collect();
        self.fetch_hot(&mut questions, patience).await;
        (asking, questions)
    }

    /// Decides what asked, in order; each sees what those before it took.
    async fn decide_asking(
        &mut self,
        asking: Vec<Asking>,
        questions: &[Vec<Question>],
        answers: Vec<Answer>,
        taken: &mut Taken,
    ) {
        self.pending.spent.go_on(self.parts.clock.now());
        let mut answers = answers.into_iter();
        let mut follow_ups = std::collections::VecDeque::new();
        for (nth, (ask, questions)) in asking.into_iter().zip(questions).enumerate() {
            if nth > 0 && self.pending.is_full() && ask.can_wait() {
                // Asked again, as the answer may be another one then.
                answers.by_ref().take(questions.len()).for_each(drop);
                self.asking_later.push(ask);
                continue;
            }
            if let Asking::Limited(tasks) = ask {
                let answers = answers.by_ref().take(questions.len()).collect();
                self.decide_limited(tasks, questions, answers, &mut follow_ups).await;
                continue;
            }
            if let Asking::Results { org, run, questions: asked } = ask {
                let answers = answers.by_ref().take(questions.len()).collect();
                self.decide_results(org, run, asked, answers, &mut follow_ups).await;
                continue;
            }
            let facts = Facts::of(questions, answers.by_ref().take(questions.len()));
            match ask {
                Asking::Limited(_) | Asking::Results { .. } => {}
                Asking::Start { with: Some(with), .. } if !self.pending.stands(with) => {}
                Asking::Start { start, slot, kind, reply, with } => {
                    let super::RequestKind::Start { start: asked, plan, .. } = &kind else { continue };
                    let (org, run) = (asked.org, asked.run);
                    let request = asked.request_id().map(|id| (org, plan.name.clone(), id.to_owned()));
                    let asked = asked.request.as_ref().map(|request| request.asked);
                    if let Some(existing) = facts.run_of_request {
                        self.answer_existing(org, existing, kind, reply).await;
                        continue;
                    }
                    let in_batch = request.as_ref().and_then(|request| taken.requests.get(request)).copied();
                    if let Some(first) = in_batch
                        && let Some(pending) = self.pending.get(first.run)
                    {
                        if let Err(rejection) = same_request(&kind, &first) {
                            Decided { kind, reply, answer: Err(rejection.into()) }.tell();
                            continue;
                        }
                        // Told when that run is written.
                        let status = pending.status.as_ref().map_or(RunStatus::Queued, |status| status.status);
                        let (run, last_seq) = (pending.run, pending.last_seq());
                        let answer = Ok(Accepted { run, status, existing: true, last_seq });
                        pending.decided.push(Decided { kind, reply, answer });
                        continue;
                    }
                    let held = slot.as_ref().map(|slot| facts.slots_held + taken.slots(org, &slot.key));
                    self.begin(*start, held, kind, reply, with, &mut follow_ups);
                    if self.pending.get(run).is_none() {
                        continue;
                    }
                    taken.requests.extend(request.map(|request| (request, RequestedRun { run, asked })));
                    if let (Some(slot), Some(held)) = (slot, held)
                        && held < slot.limit
                    {
                        *taken.slots.entry((org, slot.key)).or_default() += 1;
                    }
                }
                Asking::Slot { org, run } => {
                    let Some(key) = self.states.get(run).and_then(|entry| entry.state.slot_key.clone()) else {
                        continue;
                    };
                    let held = facts.slots_held + taken.slots(org, &key);
                    let before = self.pending.get(run).map_or(0, |pending| pending.events.len());
                    let decided = self.decide_command(org, run, &Command::SlotsHeld { held }, None, &mut follow_ups);
                    let Some(pending) = self.pending.get(run).filter(|pending| pending.events.len() > before) else {
                        continue;
                    };
                    *taken.slots.entry((org, key)).or_default() += 1;
                    let kind = super::RequestKind::TrySlot { org, run };
                    pending.decided.push(Decided { kind, reply: None, answer: decided });
                }
            }
        }
        self.follow(follow_ups).await;
    }

    /// The same request again: the same run, and nothing is written. Another one is refused.
    async fn answer_existing(
        &mut self,
        org: OrgId,
        first: RequestedRun,
        kind: super::RequestKind,
        reply: Option<super::Reply>,
    ) {
        if let Err(rejection) = same_request(&kind, &first) {
            return Decided { kind, reply, answer: Err(rejection.into()) }.tell();
        }
        let run = first.run;
        let cached = self.states.get(run).map(|entry| (entry.state.status, entry.state.last_seq));
        let stands = match cached {
            Some(stands) => Ok(stands),
            None => match self.parts.store.head(org, run).await {
                Ok(Some(head)) => Ok((head.status, head.last_seq)),
                Ok(None) => Err(EngineError::NoSuchRun(run)),
                Err(error) => Err(error.into()),
            },
        };
        let answer = stands.map(|(status, last_seq)| Accepted { run, status, existing: true, last_seq });
        Decided { kind, reply, answer }.tell();
    }

    fn fail_asking(&mut self, asking: Vec<Asking>, error: &StoreError) {
        for ask in asking {
            match ask {
                Asking::Start { with: Some(with), kind, .. } => {
                    let super::RequestKind::Start { start, .. } = &kind else { continue };
                    // Its parent is not at fault, and must not stand still for ever.
                    self.postpone(start.org, with.run, &StoreError::Unavailable(error.to_string()).into());
                }
                Asking::Start { kind, reply, .. } => Decided { kind, reply, answer: Err(copy(error).into()) }.tell(),
                Asking::Slot { org, run } => self.later(Request::try_slot(org, run)),
                Asking::Results { org, run, .. } => {
                    self.set_asking(run, false);
                    self.later(Request::revive(org, run));
                }
                Asking::Limited(tasks) => {
                    for task in tasks {
                        self.offers.give_back(task.offer);
                        self.wait_again(task.waiting);
                    }
                }
            }
        }
    }

    /// A batch has ended.
    pub(super) fn committed(&mut self, done: Done) {
        let Done { result, runs, offers, persisted_at, since } = done;
        let mut given = HashMap::new();
        let now = Instant::now();
        self.count_commit(&runs, now - since);
        self.passed.append(&mut self.marks);
        self.again.append(&mut self.held);
        match result {
            Ok(results) => {
                let mut news = Vec::with_capacity(runs.len());
                for (run, result) in runs.into_iter().zip(results) {
                    match result {
                        Wrote::Written => {
                            self.count_written(&run, now);
                            news.push(self.written(run, persisted_at, &mut given));
                        }
                        Wrote::Conflict => self.conflicted(run),
                        Wrote::Refused => self.refused(run),
                        Wrote::Unknown => self.failed(run, &StoreError::Unavailable("try again".to_owned())),
                    }
                }
                // Only now: whoever hears of one run and flushes the projector finds the whole batch there.
                news.into_iter().for_each(|news| self.tell(news));
            }
            Err(error) => {
                tracing::error!(node = %self.parts.node, %error, runs = runs.len(), "a batch could not be written");
                for run in runs {
                    self.failed(run, &error);
                }
            }
        }
        self.answer_offers(offers, given);
    }

    fn count_commit(&self, runs: &[RunPending], took: Duration) {
        let metrics = &self.parts.telemetry.metrics;
        metrics.commits.increment(1);
        metrics.commit_seconds.record(took);
        metrics.batch_runs.record(runs.len() as f64);
        metrics.batch_events.record(runs.iter().map(|run| run.events.len()).sum::<usize>() as f64);
    }

    fn count_written(&self, run: &RunPending, now: Instant) {
        let telemetry = &self.parts.telemetry;
        telemetry.written(run.org, run.run, &run.plan, &run.events);
        for since in &run.ready_since {
            telemetry.metrics.ready_to_started.record(now - *since);
        }
        if run.decided.iter().any(|decided| decided.kind.takes_over()) {
            telemetry.metrics.adopted.increment(1);
        }
    }

    fn written(&mut self, run: RunPending, persisted_at: Timestamp, given: &mut Given) -> News {
        let (org, id, last_seq) = (run.org, run.run, run.last_seq());
        self.put_hot(&run);
        // If there is more to come, that was decided in the belief that this node owns the run.
        let at_rest = run.at_rest && self.pending.get(id).is_none();
        let entry = self.states.get(id);
        let elsewhere = entry.as_ref().is_some_and(|entry| entry.elsewhere);
        if let Some(entry) = entry.filter(|_| at_rest) {
            // The projector is about to clear the owner.
            entry.owned = false;
        }
        if at_rest || elsewhere {
            self.known.remove(&id);
            if self.parts.care.is_active() {
                self.parts.care.let_go(id);
            }
        } else {
            self.known.insert(id, last_seq);
        }
        self.states.written(id, run.generation);
        self.unsure.remove(&id);
        for task in run.execute {
            self.parts.executor.begin(org, id, &run.plan, task);
        }
        for task in run.cancel {
            self.parts.executor.cancel(org, id, task);
            self.parts.leases.cancel(id, task);
        }
        self.parts.leases.written(id, &run.events, &run.tasks);
        self.give_room(&run.tasks);
        self.wake_landed(id, run.cache.as_deref());
        for (offer, handed) in run.hand_over {
            self.parts.leases.add(&handed, last_seq);
            given.entry(offer).or_default().push(handed);
        }
        for timer in &run.timers {
            if let TimerWrite::Arm { seq, due_at } = timer {
                self.parts.timers.arm(org, id, *seq, *due_at);
            }
        }
        if let Some(key) = run.freed_key {
            self.wake_waiting(org, key);
        }
        let decided = run.decided.into_iter().map(|decided| decided.written(last_seq)).collect();
        let rows = self.parts.watchers.wants_events(org, id).then(|| rows(id, &run.plan, &run.events, persisted_at));
        let ended = run.events.iter().rev().find_map(|event| event.body.run_status());
        let ended = ended.filter(|status| status.is_terminal());
        let news = News { org, run: id, decided, rows, ended };
        self.project(Committed {
            org,
            run: id,
            plan: run.plan,
            after_seq: run.expected_seq,
            last_seq,
            events: run.events,
            at_rest,
        });
        news
    }

    /// In order: what follows on something that had to wait waits, too.
    fn project(&mut self, committed: Committed) {
        let left =
            if self.unprojected.is_empty() { self.parts.projector.try_committed(committed) } else { Some(committed) };
        self.unprojected.extend(left);
    }

    fn tell(&self, news: News) {
        news.decided.into_iter().for_each(Decided::tell);
        if let Some(rows) = &news.rows {
            self.parts.watchers.tell_events(news.org, news.run, rows);
        }
        if let Some(status) = news.ended {
            self.parts.watchers.tell_end(news.run, status);
        }
    }

    /// There is room under a key: those that wait for it try again.
    fn wake_waiting(&self, org: OrgId, key: String) {
        let (store, inbox) = (self.parts.store.clone(), self.parts.inbox.clone());
        tokio::spawn(async move {
            match store.slots_to_wake_of(org, &key, 16).await {
                Ok(waiting) => {
                    for slot in waiting {
                        inbox.report(Request::try_slot(org, slot.run)).await;
                    }
                }
                // The reaper's sweep will find them.
                Err(error) => tracing::warn!(%error, key, "who waits under a key cannot be read"),
            }
        });
    }

    /// Somebody else changed the run: it is read again, and what was asked of it is decided again.
    fn conflicted(&mut self, run: RunPending) {
        self.parts.telemetry.metrics.conflicts.increment(1);
        tracing::debug!(node = %self.parts.node, run = %run.run, "lost a race for a run");
        self.wake_unwritten(&run);
        self.ready.free(run.execute.len());
        self.drop_pending(run.run);
        self.decide_again(run);
    }

    /// The database will not have what was decided: callers are told, and an outcome that cannot be stored is a failure.
    /// A worker that reports one is told when that is written.
    fn refused(&mut self, run: RunPending) {
        self.wake_unwritten(&run);
        self.ready.free(run.execute.len());
        self.drop_pending(run.run);
        if !run.execute.is_empty() {
            self.later(Request::revive(run.org, run.run));
        }
        for decided in run.decided {
            let failure = match &decided.kind {
                super::RequestKind::Command { command, .. } => command.failed(not_stored),
                _ => None,
            };
            match failure {
                Some(command) => {
                    let request = Request::command(run.org, run.run, command);
                    self.again.push(Request { reply: decided.reply, ..request });
                }
                None => decided.fail(StoreError::Refused("see the log of the server".to_owned()).into()),
            }
        }
    }

    /// The run was not written, or nobody knows. Callers are told; what nobody waits for is tried again.
    fn failed(&mut self, run: RunPending, error: &StoreError) {
        self.wake_unwritten(&run);
        self.ready.free(run.execute.len());
        self.drop_pending(run.run);
        for decided in run.decided {
            if decided.reply.is_some() {
                decided.fail(copy(error).into());
            } else {
                self.later(decided.again());
            }
        }
        for timer in &run.timers {
            // If it was written, it has to ring; else that changes nothing.
            if let TimerWrite::Arm { seq, due_at } = timer {
                self.parts.timers.arm(run.org, run.run, *seq, *due_at);
            }
        }
        // What may have happened unseen is in the log.
        self.parts.watchers.let_go(run.run);
        // If it was written, its worker will never say a word, and that is noticed.
        for (_, handed) in &run.hand_over {
            self.parts.leases.add(handed, 0);
            self.parts.outbox.unsure(handed);
        }
        if !run.execute.is_empty() {
            let unsure = Unsure { plan: run.plan, expected_seq: run.expected_seq, tasks: run.execute };
            self.unsure.insert(run.run, unsure);
        }
        // Ready steps are offered again when the run is read; so are those of a run that arrived although its writer was
        // told otherwise.
        self.later(Request::revive(run.org, run.run));
    }

    /// Again in a moment: the database may have recovered by then.
    pub(super) fn later(&self, request: Request) {
        self.after(Duration::from_millis(250), request);
    }

    pub(super) fn after(&self, wait: Duration, request: Request) {
        let inbox = self.parts.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            inbox.report(request).await;
        });
    }
}

/// What is to be told of a run once its batch is written.
struct News {
    org: OrgId,
    run: RunId,
    decided: Vec<Decided>,
    rows: Option<Arc<[EventRow]>>,
    ended: Option<RunStatus>,
}

/// The very rows that were written, for those who watch the run.
fn rows(run: RunId, plan: &Plan, events: &[Event], persisted_at: Timestamp) -> Arc<[EventRow]> {
    milepost_core::codec::encode_all(events, run, plan, persisted_at).into()
}

/// What this batch takes, which the database does not know yet.
#[derive(Default)]
struct Taken {
    slots: HashMap<(OrgId, String), u32>,
    /// By org, workflow and request id.
    requests: HashMap<(OrgId, Arc<str>, String), RequestedRun>,
}

impl Taken {
    fn slots(&self, org: OrgId, key: &str) -> u32 {
        self.slots.get(&(org, key.to_owned())).copied().unwrap_or(0)
    }
}

/// Whether a start asks for what the run was started with that has its request id.
fn same_request(kind: &super::RequestKind, first: &RequestedRun) -> Result<(), Rejection> {
    let super::RequestKind::Start { start, .. } = kind else { return Ok(()) };
    start.request.as_ref().map_or(Ok(()), |request| request.check_same(first.run, first.asked.as_ref()))
}

/// What one request was answered.
#[derive(Default)]
struct Facts {
    slots_held: u32,
    run_of_request: Option<RequestedRun>,
}

impl Facts {
    fn of(questions: &[Question], answers: impl Iterator<Item = Answer>) -> Facts {
        let mut facts = Facts::default();
        for (_, answer) in questions.iter().zip(answers) {
            match answer {
                Answer::SlotsHeld(held) => facts.slots_held = held,
                Answer::RunOfRequest(run) => facts.run_of_request = run,
                Answer::Event(_) | Answer::Limits(_) | Answer::Results(_) | Answer::Flights(_) | Answer::Epochs(_) => {}
            }
        }
        facts
    }
}

/// What asks, and for each what it asks.
struct Asked {
    asking: Vec<Asking>,
    questions: Vec<Vec<Question>>,
}

impl Asked {
    /// Takes out those at these places, which are in order.
    fn take(&mut self, places: &[usize]) -> Vec<Asking> {
        let mut taken: Vec<Asking> = Vec::with_capacity(places.len());
        for place in places.iter().rev() {
            self.questions.remove(*place);
            taken.push(self.asking.remove(*place));
        }
        taken
    }
}

fn not_stored() -> ErrorInfo {
    ErrorInfo::fatal("not_stored", "the database refused the output of this step")
}

/// What became of one run of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    Written,
    Conflict,
    /// The database will not have it, ever.
    Refused,
    /// It could not be tried, or its answer was lost.
    Unknown,
}

impl From<WriteResult> for Wrote {
    fn from(result: WriteResult) -> Wrote {
        match result {
            WriteResult::Written => Wrote::Written,
            WriteResult::Conflict => Wrote::Conflict,
        }
    }
}

/// Writes a batch. One that the database refuses is written in halves, down to single groups: the innocent are not taken
/// along.
async fn commit_apart(store: &dyn Store, batch: Arc<Batch>) -> Result<Vec<Wrote>, StoreError> {
    match store.commit(batch.clone()).await {
        Err(StoreError::Refused(reason)) => {
            let runs = batch.writes.len();
            tracing::error!(reason, runs, "the database refused a batch; its runs are written apart");
            commit_groups(store, &batch).await
        }
        Ok(results) => Ok(results.into_iter().map(Wrote::from).collect()),
        Err(error) => Err(error),
    }
}

async fn commit_groups(store: &dyn Store, batch: &Batch) -> Result<Vec<Wrote>, StoreError> {
    let groups: Vec<u32> =
        batch.writes.iter().map(|write| write.group).collect::<BTreeSet<u32>>().into_iter().collect();
    let results = Mutex::new(vec![Wrote::Refused; batch.writes.len()]);
    let write = |result: &dyn Fn(usize) -> Wrote, places: &[usize]| {
        let mut results = results.lock().expect("no holder of this lock panics");
        places.iter().enumerate().for_each(|(nth, at)| results[*at] = result(nth));
    };
    let write = &write;
    refused_of(groups.len(), |part| {
        let members = &groups[part];
        let places: Vec<usize> =
            (0..batch.writes.len()).filter(|at| members.binary_search(&batch.writes[*at].group).is_ok()).collect();
        async move {
            let writes = places.iter().map(|at| batch.writes[*at].clone()).collect();
            match store.commit(Arc::new(Batch { writes, ..Batch::default() })).await {
                Ok(outcome) => write(&|nth| outcome[nth].into(), &places),
                Err(StoreError::Refused(reason)) => {
                    if let ([at], 1) = (places.as_slice(), members.len()) {
                        tracing::error!(reason, run = %batch.writes[*at].run, "the database refused a run");
                    }
                    return Err(StoreError::Refused(reason));
                }
                Err(error) => {
                    tracing::error!(%error, runs = places.len(), "runs could not be written");
                    write(&|_| Wrote::Unknown, &places);
                }
            }
            Ok(())
        }
    })
    .await?;
    Ok(results.into_inner().expect("no holder of this lock panics"))
}

async fn commit_in(
    transaction: Box<dyn Transaction>,
    store: &dyn Store,
    batch: Arc<Batch>,
) -> Result<Vec<Wrote>, StoreError> {
    match transaction.commit(batch.clone()).await {
        Err(StoreError::Refused(_)) => commit_apart(store, batch).await,
        Ok(results) => Ok(results.into_iter().map(Wrote::from).collect()),
        Err(error) => Err(error),
    }
}

fn copy(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(text) => StoreError::Unavailable(text.clone()),
        StoreError::Refused(text) => StoreError::Refused(text.clone()),
        StoreError::Corrupt(text) => StoreError::Corrupt(text.clone()),
        StoreError::DiskFull(text) => StoreError::DiskFull(text.clone()),
        StoreError::Unusable(text) => StoreError::Unusable(text.clone()),
    }
}
