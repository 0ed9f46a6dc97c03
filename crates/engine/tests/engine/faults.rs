//! A store that fails at the worst moment: callers get an answer, no run is lost, nothing happens twice.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, OutboxId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::memory::MemoryStore;
use milepost_store::rows::{
    Answer, Batch, Claim, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition,
    OutboxCounts, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, ProjectionWrite, Question, QueueCount, QueueRow,
    RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow, TransitionRow, WriteResult,
};
use milepost_store::{OutboxStore, Result, Store, StoreError, Transaction};
use serde_json::json;
use tokio::sync::watch;

use crate::support::*;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Unavailable,
    DiskFull,
    /// It was written, but the answer is lost.
    AnswerLost,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    /// Which call fails, counted from 0, and how many in a row.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

const NEVER: Plan = Plan { fault: Fault::Unavailable, first: u64::MAX, count: 0 };

#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    armed: AtomicBool,
    calls: Arc<AtomicU64>,
    plan: Plan,
    /// What has this word in it is refused: batches with it in an event, questions, projections, lines, last errors.
    refuses: Option<&'static str>,
    /// How long each commit takes.
    slow: Duration,
    /// Runs in the largest batch.
    largest: AtomicUsize,
    /// Commits that have begun.
    begun: AtomicUsize,
    /// So many times log lines cannot be stored.
    pub(crate) lost_logs: AtomicUsize,
    /// Commits wait while this is so.
    hangs: watch::Sender<bool>,
    /// The call that panics.
    panics: Mutex<&'static str>,
}

impl Faulty {
    pub(crate) fn new(plan: Plan) -> Arc<Faulty> {
        Faulty::with(plan, None, Duration::ZERO)
    }

    pub(crate) fn refusing(word: &'static str) -> Arc<Faulty> {
        Faulty::with(NEVER, Some(word), Duration::ZERO)
    }

    pub(crate) fn slow(slow: Duration) -> Arc<Faulty> {
        Faulty::with(NEVER, None, slow)
    }

    fn with(plan: Plan, refuses: Option<&'static str>, slow: Duration) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner: Arc::new(MemoryStore::new()),
            armed: AtomicBool::new(false),
            calls: Arc::default(),
            plan,
            refuses,
            slow,
            largest: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            lost_logs: AtomicUsize::new(0),
            hangs: watch::Sender::new(false),
            panics: Mutex::new(""),
        })
    }

    pub(crate) fn largest_batch(&self) -> usize {
        self.largest.load(Ordering::SeqCst)
    }

    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    pub(crate) fn panic_in(&self, call: &'static str) {
        *self.panics.lock().unwrap() = call;
    }

    fn panic_if_told(&self, call: &str) {
        let told = *self.panics.lock().unwrap() == call;
        assert!(!told, "`{call}`, as the test wants it");
    }

    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    fn next_fault(&self) -> Option<Fault> {
        if !self.armed.load(Ordering::SeqCst) {
            return None;
        }
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        (self.plan.first <= call && call - self.plan.first < self.plan.count).then_some(self.plan.fault)
    }

    /// Before a call that only reads.
    fn read(&self) -> Result<()> {
        match self.next_fault() {
            Some(fault) => Err(error_of(fault)),
            None => Ok(()),
        }
    }

    /// Around a call that writes.
    async fn write<T>(&self, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        match self.next_fault() {
            Some(Fault::AnswerLost) => {
                work.await?;
                Err(error_of(Fault::AnswerLost))
            }
            Some(fault) => Err(error_of(fault)),
            None => work.await,
        }
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        self.check_texts(batch.writes.iter().flat_map(|write| &write.events).map(|event| event.data.as_str()))
    }

    fn check_texts<'a>(&self, mut texts: impl Iterator<Item = &'a str>) -> Result<()> {
        let Some(word) = self.refuses else { return Ok(()) };
        match texts.any(|text| text.contains(word)) {
            true => Err(StoreError::Refused(format!("`{word}` cannot be stored"))),
            false => Ok(()),
        }
    }
}

fn error_of(fault: Fault) -> StoreError {
    let text = "as the test wants it".to_owned();
    match fault {
        Fault::Unavailable | Fault::AnswerLost => StoreError::Unavailable(text),
        Fault::DiskFull => StoreError::DiskFull(text),
    }
}

struct FaultyTransaction {
    inner: Box<dyn Transaction>,
    fault_at_ask: Option<Fault>,
    fault_at_commit: Option<Fault>,
}

#[async_trait]
impl Transaction for FaultyTransaction {
    async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Answer>> {
        match self.fault_at_ask.take() {
            Some(fault) => Err(error_of(fault)),
            None => self.inner.ask(questions).await,
        }
    }

    async fn commit(self: Box<Self>, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        match self.fault_at_commit {
            Some(Fault::AnswerLost) => {
                self.inner.commit(batch).await?;
                Err(error_of(Fault::AnswerLost))
            }
            Some(fault) => Err(error_of(fault)),
            None => self.inner.commit(batch).await,
        }
    }
}

#[async_trait]
impl Store for Faulty {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn outbox(&self) -> &dyn OutboxStore {
        self
    }
    async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        self.check(&batch)?;
        self.largest.fetch_max(batch.writes.len(), Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.slow).await;
        self.panic_if_told("commit");
        self.hangs.subscribe().wait_for(|hangs| !hangs).await.unwrap();
        self.write(self.inner.commit(batch)).await
    }
    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)> {
        self.read()?;
        self.check_texts(questions.iter().filter_map(|question| match question {
            Question::RunOfRequest { request_id, .. } => Some(request_id.as_str()),
            Question::SlotsHeld { key, .. } => Some(key.as_str()),
            _ => None,
        }))?;
        let (inner, answers) = self.inner.ask(questions).await?;
        let fault_at_ask = self.next_fault();
        let fault_at_commit = self.next_fault();
        Ok((Box::new(FaultyTransaction { inner, fault_at_ask, fault_at_commit }), answers))
    }
    async fn maintain(&self, now: Timestamp) -> Result<()> {
        self.inner.maintain(now).await
    }
    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten> {
        self.inner.forget_runs(ended_before, limit).await
    }
    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
        self.read()?;
        self.inner.load_runs(runs).await
    }
    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
        self.inner.head(org, run).await
    }
    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
        self.inner.last_seqs(runs).await
    }
    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>> {
        self.inner.events(org, run, after_seq, limit).await
    }
    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
        self.read()?;
        self.inner.events_at(org, run, seqs).await
    }
    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>> {
        self.read()?;
        self.inner.events_by_key(org, run, keys).await
    }
    async fn step_events(
        &self,
        org: OrgId,
        run: RunId,
        step_id: &str,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>> {
        self.inner.step_events(org, run, step_id, after_seq, limit).await
    }
    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>> {
        self.inner.timers_until(after, until, limit).await
    }
    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
        self.inner.timers_of(org, run).await
    }
    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>> {
        self.inner.slots_to_wake(limit).await
    }
    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
        self.read()?;
        self.inner.slots_to_wake_of(org, key, limit).await
    }
    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
        self.inner.slot_of(org, run).await
    }
    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
        self.inner.tasks(org, tasks).await
    }
    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
        self.inner.tasks_of(org, run).await
    }
    async fn pull_tasks(
        &self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TaskRow>> {
        self.inner.pull_tasks(node, queues, before, now, limit).await
    }
    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>> {
        self.inner.take_over_tasks(dead, node, now, limit).await
    }
    async fn extend_leases(
        &self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Result<Vec<TaskRow>> {
        self.inner.extend_leases(org, node, now, leases).await
    }
    async fn queue_counts(&self) -> Result<Vec<QueueCount>> {
        self.inner.queue_counts().await
    }
    async fn log_lines(
        &self,
        org: OrgId,
        run: RunId,
        step: &str,
        logical_attempt: u32,
        engine_attempt: u32,
    ) -> Result<u32> {
        self.inner.log_lines(org, run, step, logical_attempt, engine_attempt).await
    }
    async fn queues(&self) -> Result<Vec<QueueRow>> {
        self.inner.queues().await
    }
    async fn set_queue(&self, queue: &QueueRow) -> Result<()> {
        self.inner.set_queue(queue).await
    }
    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
        self.inner.heartbeat(node, now, lease_ms).await
    }
    async fn leave(&self, node: NodeId) -> Result<()> {
        self.inner.leave(node).await
    }
    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>> {
        self.inner.dead_nodes(now).await
    }
    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        self.inner.owned_runs(node, after, limit).await
    }
    fn definitions(&self) -> &dyn milepost_store::DefinitionStore {
        self.inner.definitions()
    }
    fn suspects(&self) -> &dyn milepost_store::SuspectStore {
        self.inner.suspects()
    }
    fn cache(&self) -> &dyn milepost_store::CacheStore {
        self.inner.cache()
    }

    fn flights(&self) -> &dyn milepost_store::FlightStore {
        self.inner.flights()
    }
    fn secrets(&self) -> &dyn milepost_store::SecretStore {
        self.inner.secrets()
    }
    fn artifacts(&self) -> &dyn milepost_store::ArtifactStore {
        self.inner.artifacts()
    }

    fn run_blobs(&self) -> &dyn milepost_store::RunBlobs {
        self.inner.run_blobs()
    }
    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()> {
        let less = |left: usize| left.checked_sub(1);
        if self.lost_logs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Err(error_of(Fault::Unavailable));
        }
        let contents: Vec<_> = chunks.iter().map(|chunk| String::from_utf8_lossy(&chunk.content)).collect();
        self.check_texts(contents.iter().map(AsRef::as_ref))?;
        self.write(self.inner.append_logs(chunks)).await
    }
    async fn logs(
        &self,
        org: OrgId,
        run: RunId,
        step: Option<&str>,
        after: Option<&LogPosition>,
        limit: u32,
    ) -> Result<Vec<LogChunkRow>> {
        self.inner.logs(org, run, step, after, limit).await
    }
    async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>> {
        self.check_texts(writes.iter().map(|write| write.snapshot.workflow.as_str()))?;
        self.panic_if_told("project");
        self.write(self.inner.project(writes)).await
    }
    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()> {
        self.inner.drop_projection(org, run).await
    }
    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
        self.inner.transitions(org, run).await
    }
    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
        self.inner.snapshot(org, run).await
    }
    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
        self.inner.projection(org, run).await
    }
    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
        self.inner.read_run(org, run).await
    }
    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
        self.inner.steps_by_id(org, run, ids).await
    }
    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
        self.inner.list_runs(org, filter).await
    }
    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
        self.inner.count_matching(org, filter, up_to).await
    }
    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>> {
        self.inner.status_counts().await
    }
    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
        self.inner.open_runs(after, limit).await
    }
    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
        self.inner.unprojected(limit).await
    }
    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>> {
        self.inner.log_gaps(limit).await
    }
    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64> {
        self.inner.first_missing(org, run).await
    }
    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
        self.inner.mark_stale(org, run, from_seq).await
    }
    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
        self.inner.stale_runs(org, runs).await
    }
    async fn count_runs(&self) -> Result<u64> {
        self.inner.count_runs().await
    }
}

#[async_trait]
impl OutboxStore for Faulty {
    async fn claim(&self, claim: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>> {
        self.inner.outbox().claim(claim, now, limit).await
    }
    async fn next_due(&self) -> Result<Option<Timestamp>> {
        self.inner.outbox().next_due().await
    }
    async fn settle(&self, node: NodeId, ends: &[OutboxEnd]) -> Result<()> {
        self.check_texts(ends.iter().filter_map(|end| match &end.outcome {
            OutboxOutcome::Again { error, .. } => error.as_deref(),
            OutboxOutcome::Dead { error, .. } => Some(error.as_str()),
            OutboxOutcome::Done => None,
        }))?;
        self.inner.outbox().settle(node, ends).await
    }
    async fn free_claims(&self, gone: NodeId, now: Timestamp) -> Result<u64> {
        self.inner.outbox().free_claims(gone, now).await
    }
    async fn get(&self, org: OrgId, id: OutboxId) -> Result<Option<OutboxRow>> {
        self.inner.outbox().get(org, id).await
    }
    async fn list(
        &self,
        org: OrgId,
        filter: OutboxFilter,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<OutboxRow>> {
        self.inner.outbox().list(org, filter, after, limit).await
    }
    async fn retry(&self, org: OrgId, id: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>> {
        self.inner.outbox().retry(org, id, now).await
    }
    async fn discard(&self, org: OrgId, id: OutboxId) -> Result<bool> {
        self.inner.outbox().discard(org, id).await
    }
    async fn counts(&self) -> Result<OutboxCounts> {
        self.inner.outbox().counts().await
    }
    async fn forget_dead(&self, before: Timestamp) -> Result<u64> {
        self.inner.outbox().forget_dead(before).await
    }
}

const CHILD: &str = r#"{name: child, concurrency: {key: c, limit: 1}, steps: {a: {skill: echo, input: {n: 1}}}}"#;
const SCENARIO: &str = r#"
name: scenario
steps:
  a: {skill: echo, input: {n: "${{ payload.n }}"}}
  child: {skill: workflow, depends_on: [a], input: {ref: child}}
  many: {skill: echo, foreach: "${{ range(3) }}", depends_on: [a], input: {n: "${{ item }}"}}
  wait: {skill: wait, depends_on: [child, many], input: {signal: go}}
  end: {skill: echo, input: {n: "${{ steps.a.output.n }}", go: "${{ steps.wait.output }}"}}
"#;

/// Calls in one scenario, roughly; more would only fail after its end.
const CALLS: u64 = 26;

/// Runs the scenario while calls fail. Whatever callers were told, every run that exists ends, once.
async fn scenario(plan: Plan, cached_bytes: usize) {
    let faulty = Faulty::new(plan);
    let store: Arc<dyn Store> = faulty.clone();
    let engine = Engine::open_with(store.clone(), Config { cached_bytes, ..config() }).await.unwrap();
    engine.deploy(CHILD).await.unwrap();
    engine.deploy(SCENARIO).await.unwrap();
    faulty.arm();
    let new = || NewRun { request_id: Some("one".to_owned()), ..payload(&json!({"n": 7})) };
    // A caller that is told of a failure tries again with the same request id.
    let id = within(async {
        loop {
            match engine.start("scenario", new()).await {
                Ok(accepted) => return accepted.run,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let signal = Engine::new_signal("go");
    within(async {
        while engine.signal(id, signal.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ended(&engine, id).await, RunStatus::Completed, "{plan:?}");
    faulty.disarm();
    assert_eq!(output(&engine.run(id).await.unwrap(), "end"), json!({"n": 7, "go": {}}), "{plan:?}");
    within(async {
        while !store.unprojected(1).await.unwrap().is_empty() {
            engine.flush_projections().await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    let all = store.list_runs(ORG, &RunFilter { limit: 100, ..RunFilter::default() }).await.unwrap();
    assert_eq!(all.len(), 2, "{plan:?}: one run and one child, {all:#?}");
    for run in all {
        assert_eq!(run.status, RunStatus::Completed, "{plan:?}");
        sound(&engine, run.run).await;
    }
    let accepted = types(&store, id).await.iter().filter(|name| *name == "SignalAccepted").count();
    assert_eq!(accepted, 1, "{plan:?}");
    healthy(&store).await;
    within(engine.shutdown()).await;
}

async fn every_call(fault: Fault, count: u64, cached_bytes: usize) {
    let scenarios = (0..CALLS).map(|first| async move {
        let plan = Plan { fault, first, count };
        let in_time = tokio::time::timeout(Duration::from_secs(30), scenario(plan, cached_bytes)).await;
        assert!(in_time.is_ok(), "{plan:?} with {cached_bytes} bytes of cache: something is stuck");
    });
    futures::future::join_all(scenarios).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_for_a_moment_loses_nothing() {
    every_call(Fault::Unavailable, 1, 1 << 20).await;
    every_call(Fault::Unavailable, 5, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_that_gets_room_again_loses_nothing() {
    every_call(Fault::DiskFull, 3, 1 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_doubles_nothing() {
    every_call(Fault::AnswerLost, 1, 1 << 20).await;
    every_call(Fault::AnswerLost, 2, 0).await;
}

/// What is on its way to the disk may not arrive; whether the run went on is said when that is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_has_not_moved_by_what_was_never_written() {
    let plan = Plan { fault: Fault::Unavailable, first: 0, count: 1 };
    let faulty = Faulty::with(plan, None, Duration::from_millis(100));
    let store: Arc<dyn Store> = faulty.clone();
    let engine = Arc::new(Engine::open_with(store.clone(), config()).await.unwrap());
    let id = start(&engine, "{name: m, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    engine.flush_projections().await;
    let seen = engine.summary(id).await.unwrap().last_event_seq;
    faulty.arm();
    let begun = faulty.begun.load(Ordering::SeqCst);
    let sender = engine.clone();
    let lost = tokio::spawn(async move { sender.signal(id, Engine::new_signal("lost")).await });
    within(async {
        while faulty.begun.load(Ordering::SeqCst) == begun {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let heard = within(engine.signal_if(id, Engine::new_signal("heard"), Some(seen))).await;
    assert_eq!(lost.await.unwrap().unwrap_err().code(), "store_unavailable");
    assert_eq!(heard.unwrap().last_seq, seen + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_stored_fails_its_step_and_harms_nobody_else() {
    let store: Arc<dyn Store> = Faulty::refusing("poison");
    let config = config().skill("poison", |_, _: serde_json::Value| async { Ok(json!("poison")) });
    let engine = Engine::open_with(store.clone(), config).await.unwrap();
    let bad = start(&engine, "{name: bad, steps: {a: {skill: poison, input: {}}}}", NewRun::default());
    let good: Vec<_> =
        (0..50).map(|_| run(&engine, "{name: good, steps: {a: {skill: noop}}}", NewRun::default())).collect();
    let (bad, good) = tokio::join!(bad, futures::future::join_all(good));
    assert!(good.iter().all(|(_, status)| *status == RunStatus::Completed));
    assert_eq!(ended(&engine, bad).await, RunStatus::Failed);
    assert_eq!(engine.run(bad).await.unwrap().summary.error.unwrap().code, "not_stored");
    let refused = engine.start_document("{name: p, steps: {a: {skill: noop}}}", payload(&json!("poison"))).await;
    assert_eq!(refused.unwrap_err().code(), "store_refused");
    sound(&engine, bad).await;
    healthy(&store).await;
}
