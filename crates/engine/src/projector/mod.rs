//! The projector: keeps `run_snapshots` and `run_steps` in step with the log, in order, never skipping.
//!
//! The node that commits projects what it committed, many events of a run in one write. What it did not see (another
//! node's work, a queue that was full) it reads from the log. A projection can be dropped and made anew.

mod reduce;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::codec;
use milepost_core::event::Event;
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::record::EventRow;
use milepost_core::time::Timestamp;
use milepost_store::rows::{ProjectionWrite, WriteResult};
use milepost_store::{Result, Store, StoreError};
use tokio::sync::{Notify, mpsc};

use crate::clock::Clock;
use crate::error::EngineError;
use crate::plans::Plans;
use crate::refused::refused_of;
use crate::supervisor::Pulse;
use crate::telemetry::metrics::Metrics;

pub(crate) use reduce::Projection;

/// Commits that may wait to be projected; then committing waits.
const QUEUE: usize = 16_384;
/// How long events are gathered before they are written. Short runs are written once, as they ended.
const GATHER: Duration = Duration::from_millis(250);
/// How long somebody who asks for a list waits for the newest of it, and how many runs are worth the wait.
const FRESHEN: Duration = Duration::from_millis(50);
const FEW: usize = 64;
/// How soon a projection that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// With so many runs waiting, nothing is gathered any longer.
const FULL: usize = 8192;
/// Runs in one write, so that commits never wait long for it; more of them when many wait.
const CHUNK: usize = 32;
const LARGE_CHUNK: usize = 128;
/// Lag above this is worth an alert.
const LAG_HIGH_MS: u64 = 5_000;
const PAGE: u32 = 200;
/// So many runs that are under way are kept in mind.
const KEPT: usize = 20_000;
/// How often a projection is made anew while somebody else writes it.
const REBUILDS: usize = 5;

/// What a commit did to one run.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) org: OrgId,
    pub(crate) run: RunId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) after_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) events: Vec<Event>,
    /// As of `last_seq`, no executor has or waits for work of it.
    pub(crate) at_rest: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct ProjectorHandle {
    sender: mpsc::Sender<Message>,
    lag_ms: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    Committed(Committed),
    Flush(Arc<Notify>),
    /// The same if it is little; no wait if it is much.
    Freshen(Arc<Notify>),
}

impl ProjectorHandle {
    pub(crate) fn new() -> (ProjectorHandle, ProjectorInbox) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let lag_ms = Arc::<AtomicU64>::default();
        (ProjectorHandle { sender, lag_ms: lag_ms.clone() }, ProjectorInbox { receiver, lag_ms })
    }

    /// Hands a commit over if there is room for it; gives it back if there is none.
    pub(crate) fn try_committed(&self, committed: Committed) -> Option<Committed> {
        match self.sender.try_send(Message::Committed(committed)) {
            Err(mpsc::error::TrySendError::Full(Message::Committed(committed))) => Some(committed),
            _ => None,
        }
    }

    /// Waits for room: who commits faster than can be projected is slowed down, so that neither memory nor lag grow.
    pub(crate) async fn committed(&self, committed: Committed) {
        let _ = self.sender.send(Message::Committed(committed)).await;
    }

    /// Commits that wait in line.
    pub(crate) fn depth(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Waits until all that was committed before is projected.
    pub(crate) async fn flush(&self) {
        let done = Arc::new(Notify::new());
        if self.sender.send(Message::Flush(done.clone())).await.is_ok() {
            done.notified().await;
        }
    }

    /// Waits a moment for what was committed before, if that is little: who has just done something and asks for a list
    /// finds it there. Under load a list is as old as its projections are.
    pub(crate) async fn freshen(&self) {
        let done = Arc::new(Notify::new());
        if self.sender.try_send(Message::Freshen(done.clone())).is_ok() {
            let _ = tokio::time::timeout(FRESHEN, done.notified()).await;
        }
    }

    /// How old the oldest commit is that is not projected yet.
    pub(crate) fn lag_ms(&self) -> u64 {
        self.lag_ms.load(Ordering::Relaxed)
    }
}

pub(crate) struct ProjectorInbox {
    receiver: mpsc::Receiver<Message>,
    lag_ms: Arc<AtomicU64>,
}

pub(crate) struct Projector {
    pub(crate) store: Arc<dyn Store>,
    plans: Arc<Plans>,
    pub(crate) clock: Arc<dyn Clock>,
    waiting: HashMap<RunId, Waiting>,
    inbox: ProjectorInbox,
    metrics: Arc<Metrics>,
}

/// A run that has something to be projected.
#[derive(Debug)]
struct Waiting {
    org: OrgId,
    plan: Arc<Plan>,
    /// The rows as they will be; `None` until they are known.
    projection: Option<Projection>,
    /// As of `seen_seq`, no executor has or waits for work of it.
    at_rest: bool,
    seen_seq: u64,
    since: Option<Timestamp>,
    /// The number that its log lacks, once that is noted.
    stale_from: Option<u64>,
}

impl Waiting {
    /// Nobody need own the run once this is written. Only true of the very event that left it at rest.
    fn may_release(&self) -> bool {
        self.at_rest && self.projection.as_ref().is_some_and(|projection| projection.last_seq() == self.seen_seq)
    }
}

impl Projector {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        plans: Arc<Plans>,
        clock: Arc<dyn Clock>,
        inbox: ProjectorInbox,
        metrics: Arc<Metrics>,
    ) -> Projector {
        Projector { store, plans, clock, waiting: HashMap::new(), inbox, metrics }
    }

    pub(crate) async fn run(mut self, pulse: Arc<Pulse>) {
        let mut messages = Vec::new();
        let mut flushed = Vec::new();
        loop {
            // What could not be written, or waits for a gap to close, is tried again.
            let patience = if self.is_behind() { RETRY } else { Duration::MAX };
            let received = self.inbox.receiver.recv_many(&mut messages, QUEUE);
            if let Ok(0) = pulse.rest(tokio::time::timeout(patience, received)).await {
                return;
            }
            let until = tokio::time::Instant::now() + GATHER;
            let mut hurry = self.take(&mut messages, &mut flushed);
            while !hurry && self.waiting.len() < FULL {
                match tokio::time::timeout_at(until, self.inbox.receiver.recv_many(&mut messages, QUEUE)).await {
                    Ok(count) if count > 0 => hurry = self.take(&mut messages, &mut flushed),
                    _ => break,
                }
            }
            self.run_once(&pulse).await;
            if !flushed.is_empty() && self.is_behind() {
                // Somebody else projected some of it meanwhile.
                self.run_once(&pulse).await;
            }
            for done in flushed.drain(..) {
                done.notify_one();
            }
        }
    }

    fn waiting_now(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.since.is_some()).count()
    }

    fn is_behind(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.since.is_some())
    }

    fn take(&mut self, messages: &mut Vec<Message>, flushed: &mut Vec<Arc<Notify>>) -> bool {
        for message in messages.drain(..) {
            match message {
                Message::Committed(committed) => self.gather(committed),
                Message::Flush(done) => flushed.push(done),
                Message::Freshen(done) if self.waiting_now() <= FEW => flushed.push(done),
                Message::Freshen(done) => done.notify_one(),
            }
        }
        !flushed.is_empty()
    }

    fn gather(&mut self, committed: Committed) {
        let now = self.clock.now();
        let waiting = self.waiting.entry(committed.run).or_insert_with(|| Waiting {
            org: committed.org,
            plan: committed.plan.clone(),
            projection: (committed.after_seq == 0).then(Projection::default),
            at_rest: false,
            seen_seq: 0,
            since: None,
            stale_from: None,
        });
        waiting.since = waiting.since.or(Some(now));
        if !Arc::ptr_eq(&waiting.plan, &committed.plan) {
            // Patched: the newer plan knows all steps that there have been.
            waiting.plan = committed.plan.clone();
        }
        if committed.last_seq >= waiting.seen_seq {
            waiting.seen_seq = committed.last_seq;
            waiting.at_rest = committed.at_rest;
        }
        let fits = waiting.projection.as_ref().is_some_and(|projection| {
            projection.last_seq() == committed.after_seq
                && projection.missing(&waiting.plan, committed.events.iter()).is_empty()
        });
        match &mut waiting.projection {
            Some(projection) if fits => {
                for event in &committed.events {
                    projection.apply(committed.org, committed.run, &waiting.plan, event);
                }
            }
            // Not what comes next, or of rows that are not at hand: the store will tell.
            other => *other = None,
        }
    }

    /// Writes all that waits.
    async fn run_once(&mut self, pulse: &Pulse) {
        let now = self.clock.now();
        let oldest = self.waiting.values().filter_map(|waiting| waiting.since).min();
        let lag_ms = oldest.map_or(0, |since| now.ms_since(since));
        self.inbox.lag_ms.store(lag_ms, Ordering::Relaxed);
        if lag_ms > LAG_HIGH_MS {
            tracing::warn!(lag_ms, runs = self.waiting.len(), "PROJECTOR_LAG_HIGH");
            self.metrics.projector_lag_high.increment(1);
        }
        let mut due: Vec<RunId> =
            self.waiting.iter().filter(|(_, waiting)| waiting.since.is_some()).map(|(run, _)| *run).collect();
        // In the order of ids, so that rows next to each other are written next to each other.
        due.sort_unstable();
        let size = if due.len() > CHUNK * CHUNK { LARGE_CHUNK } else { CHUNK };
        for chunk in due.chunks(size) {
            if let Err(error) = self.write(chunk).await {
                tracing::warn!(%error, runs = chunk.len(), "projections could not be written; they are tried again");
            }
            pulse.answer();
        }
        if !self.is_behind() {
            self.inbox.lag_ms.store(0, Ordering::Relaxed);
        }
        if self.waiting.len() > KEPT {
            // They are read from the log when there is more of them; another node may have them now.
            self.waiting.retain(|_, waiting| waiting.since.is_some());
        }
    }

    async fn write(&mut self, runs: &[RunId]) -> Result<()> {
        let mut writes = Vec::with_capacity(runs.len());
        for run in runs {
            let Some(waiting) = self.waiting.get_mut(run) else { continue };
            if waiting.projection.is_none() {
                let plan = waiting.plan.clone();
                match read_up(&*self.store, &self.plans, waiting.org, *run, plan, waiting.seen_seq).await {
                    Ok(CaughtUp { projection, gap: None }) => {
                        // Noted by this process, or by one before it.
                        let org = waiting.org;
                        let noted = !self.store.stale_runs(org, &[*run]).await?.is_empty();
                        if noted && self.store.first_missing(org, *run).await? > projection.last_seq() {
                            self.store.mark_stale(org, *run, None).await?;
                        }
                        waiting.stale_from = None;
                        waiting.projection = Some(projection);
                    }
                    // A gap: this run's projection stands still there until it closes, and says so.
                    Ok(CaughtUp { projection, gap: Some(gap) }) => {
                        self.metrics.projector_gap.increment(1);
                        if waiting.stale_from != Some(gap) {
                            stand_still(&*self.store, (waiting.org, *run), &waiting.plan, projection, gap).await?;
                            waiting.stale_from = Some(gap);
                        }
                        continue;
                    }
                    // The others need not wait for one that cannot be read.
                    Err(error @ (StoreError::Corrupt(_) | StoreError::Refused(_))) => {
                        tracing::error!(%run, %error, "a run cannot be projected");
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let write = waiting.projection.as_ref();
            let release = waiting.may_release();
            writes.extend(write.and_then(|projection| projection.to_write(waiting.org, *run, release)));
        }
        match self.store.project(writes.clone()).await {
            Ok(results) => self.after_writes(&writes, results),
            Err(StoreError::Refused(reason)) => self.write_apart(&writes, &reason).await?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A projection that the store will not have is left out; the others are written.
    async fn write_apart(&mut self, writes: &[ProjectionWrite], reason: &str) -> Result<()> {
        tracing::error!(reason, runs = writes.len(), "the database refused projections");
        let written = Mutex::new(Vec::with_capacity(writes.len()));
        let (store, keep) = (self.store.clone(), &written);
        let refused = refused_of(writes.len(), |part| {
            let store = store.clone();
            async move {
                let results = store.project(writes[part.clone()].to_vec()).await?;
                keep.lock().expect("no holder of this lock panics").push((part, results));
                Ok(())
            }
        })
        .await;
        for (part, results) in written.into_inner().expect("no holder of this lock panics") {
            self.after_writes(&writes[part], results);
        }
        for place in refused? {
            let run = writes[place].run;
            tracing::error!(%run, "a run is not projected until it goes on: the database refuses what it says");
            self.waiting.remove(&run);
        }
        Ok(())
    }

    fn after_writes(&mut self, writes: &[ProjectionWrite], results: Vec<WriteResult>) {
        for (write, result) in writes.iter().zip(results) {
            self.after_write(write.run, write.release, result);
        }
    }

    fn after_write(&mut self, run: RunId, released: bool, result: WriteResult) {
        let Some(waiting) = self.waiting.get_mut(&run) else { return };
        match (&mut waiting.projection, result) {
            // Somebody else projected it meanwhile: see what is there, in the next round.
            (projection, WriteResult::Conflict) => *projection = None,
            (Some(projection), WriteResult::Written) if !released => {
                projection.written();
                waiting.since = None;
            }
            (_, WriteResult::Written) => {
                self.waiting.remove(&run);
            }
        }
    }
}

/// A projection after a log that was read on.
#[derive(Debug)]
pub(crate) struct CaughtUp {
    pub(crate) projection: Projection,
    /// The number of the event that is missing or cannot be read; the projection stands before it.
    pub(crate) gap: Option<u64>,
}

/// Makes a run's projection from what is projected already and the log after it, with the rows of those steps that the
/// log goes on with. The log goes up to `known` at least.
async fn read_up(
    store: &dyn Store,
    plans: &Plans,
    org: OrgId,
    run: RunId,
    plan: Arc<Plan>,
    known: u64,
) -> Result<CaughtUp> {
    let projection = match store.snapshot(org, run).await? {
        Some(snapshot) => Projection::partial(snapshot),
        None => Projection::default(),
    };
    let mut caught_up = catch_up(store, plans, (org, run), plan, projection, u64::MAX, |_| {}).await?;
    let last = caught_up.projection.last_seq();
    if last < known && caught_up.gap.is_none() {
        tracing::error!(%run, last, known, "PROJECTOR_GAP_DETECTED");
        caught_up.gap = Some(last + 1);
    }
    Ok(caught_up)
}

/// Applies the log up to `until`, or up to a gap, and shows each row on the way.
pub(crate) async fn catch_up(
    store: &dyn Store,
    plans: &Plans,
    (org, run): (OrgId, RunId),
    mut plan: Arc<Plan>,
    mut projection: Projection,
    until: u64,
    mut see: impl FnMut(&EventRow),
) -> Result<CaughtUp> {
    while projection.last_seq() < until {
        let wanted = u64::from(PAGE).min(until - projection.last_seq());
        let rows = store.events(org, run, projection.last_seq(), wanted as u32).await?;
        let last_page = (rows.len() as u64) < wanted;
        let Decoded { events, gap } = decode(&plan, projection.last_seq(), &rows);
        if let Some((seq, reason)) = &gap {
            // The run may have been patched since its plan was looked up.
            if let Some(newer) = newer_plan(store, plans, org, run, &plan).await? {
                plan = newer;
                continue;
            }
            tracing::error!(%run, seq, reason, "PROJECTOR_GAP_DETECTED");
        }
        let missing = projection.missing(&plan, events.iter());
        if !missing.is_empty() {
            projection.add(store.steps_by_id(org, run, &missing).await?);
        }
        events.iter().for_each(|event| projection.apply(org, run, &plan, event));
        rows.iter().take(events.len()).for_each(&mut see);
        if let Some((seq, _)) = gap {
            return Ok(CaughtUp { projection, gap: Some(seq) });
        }
        if last_page {
            break;
        }
    }
    Ok(CaughtUp { projection, gap: None })
}

/// A projection with all its steps, after events that follow it.
pub(crate) fn followed(mut projection: Projection, org: OrgId, run: RunId, plan: &Plan, rows: &[EventRow]) -> CaughtUp {
    let Decoded { events, gap } = decode(plan, projection.last_seq(), rows);
    if let Some((seq, reason)) = &gap {
        tracing::error!(%run, seq, reason, "PROJECTOR_GAP_DETECTED");
    }
    events.iter().for_each(|event| projection.apply(org, run, plan, event));
    CaughtUp { projection, gap: gap.map(|(seq, _)| seq) }
}

/// The events of rows, up to the first that is missing or cannot be read.
struct Decoded {
    events: Vec<Event>,
    /// Its number, and what is wrong with it.
    gap: Option<(u64, String)>,
}

fn decode(plan: &Plan, after_seq: u64, rows: &[EventRow]) -> Decoded {
    let mut events = Vec::with_capacity(rows.len());
    for (row, expected) in rows.iter().zip(after_seq + 1..) {
        if row.seq != expected {
            let reason = format!("event {expected} is expected, the log goes on with {}", row.seq);
            return Decoded { events, gap: Some((expected, reason)) };
        }
        match codec::decode(row, plan) {
            Ok(event) => events.push(event),
            Err(error) => return Decoded { events, gap: Some((expected, error.to_string())) },
        }
    }
    Decoded { events, gap: None }
}

/// Writes a projection as far as the log goes without a gap, and notes where that is. A run whose first event is missing is
/// shown as its head has it.
async fn stand_still(
    store: &dyn Store,
    (org, run): (OrgId, RunId),
    plan: &Plan,
    mut projection: Projection,
    gap: u64,
) -> Result<()> {
    if projection.snapshot().is_none()
        && let Some(head) = store.head(org, run).await?
    {
        projection = Projection::of_head(&head, plan);
    }
    if let Some(write) = projection.to_write(org, run, false) {
        // Should somebody else be faster, it stands where that one left it.
        store.project(vec![write]).await?;
    }
    store.mark_stale(org, run, Some(gap)).await
}

/// The plan that the run has now, if that is another.
async fn newer_plan(
    store: &dyn Store,
    plans: &Plans,
    org: OrgId,
    run: RunId,
    plan: &Plan,
) -> Result<Option<Arc<Plan>>> {
    let Some(head) = store.head(org, run).await?.filter(|head| head.plan_hash != plan.hash) else { return Ok(None) };
    match plans.by_hash(org, head.plan_hash).await {
        Ok(plan) => Ok(Some(plan)),
        Err(EngineError::Store(error)) => Err(error),
        Err(error) => Err(StoreError::Corrupt(error.to_string())),
    }
}

/// Drops a run's projection and makes it anew from its log.
pub(crate) async fn rebuild(store: &dyn Store, plans: &Plans, plan: Arc<Plan>, org: OrgId, run: RunId) -> Result<bool> {
    for _ in 0..REBUILDS {
        store.drop_projection(org, run).await?;
        let known = store.head(org, run).await?.map_or(0, |head| head.last_seq);
        let CaughtUp { projection, gap } = read_up(store, plans, org, run, plan.clone(), known).await?;
        if let Some(gap) = gap {
            stand_still(store, (org, run), &plan, projection, gap).await?;
            return Ok(false);
        }
        let Some(write) = projection.to_write(org, run, false) else { return Ok(false) };
        if store.project(vec![write]).await? == [WriteResult::Written] {
            return Ok(true);
        }
    }
    Err(StoreError::Unavailable(format!("the projection of run {run} is being written by somebody else")))
}
