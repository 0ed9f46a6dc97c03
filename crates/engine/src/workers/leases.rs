//! The leases that this node watches.
//!
//! **Invariant:** what is in here is what the database says of this node's tasks, or is about to be lost: a lease that is
//! watched in vain does no harm, because losing it is decided by the run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use milepost_core::event::{Body, Event};
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::json::Json;
use milepost_core::run::{RunState, TaskRef};
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::{LeaseExtension, TaskRow, TaskWrite};
use milepost_store::{Result, Store};
use tokio::sync::Notify;

use super::{Directive, DirectiveKind, Handed, LeaseToken};
use crate::logs::{AttemptKey, AttemptLog, LogHandle};
use crate::secrets::Redactor;

#[derive(Debug)]
pub(crate) struct Leases {
    held: Mutex<Held>,
    /// There is one that ends earlier than all others.
    pub(super) earlier: Notify,
    logs: LogHandle,
}

#[derive(Debug, Default)]
struct Held {
    by_task: HashMap<TaskId, Lease>,
    by_run: HashMap<RunId, BTreeSet<TaskId>>,
    by_worker: HashMap<Arc<str>, Worker>,
    /// When each has to be looked at; one that was extended is then put off.
    due: BTreeSet<(Timestamp, TaskId)>,
    /// Those whose progress is not written yet.
    told: HashSet<TaskId>,
}

/// What one worker has, and the bell of those of its calls that wait.
#[derive(Debug, Default)]
struct Worker {
    tasks: BTreeSet<TaskId>,
    bell: Arc<Notify>,
    /// Calls that wait.
    calls: usize,
}

#[derive(Debug)]
struct Lease {
    org: OrgId,
    run: RunId,
    attempt: TaskRef,
    nonce: u64,
    worker: Arc<str>,
    step_id: Arc<str>,
    lease_ms: u64,
    expires_at: Timestamp,
    due: Timestamp,
    progress: Option<Json>,
    cancelled: bool,
    paused: bool,
    /// The worker has been told of what stands above.
    heard: bool,
    /// Up to where the run's log was seen.
    seen_seq: u64,
    since: Instant,
    log: Option<Arc<AttemptLog>>,
    /// Takes the step's secrets out of what its worker says; nothing, as long as nobody knows which they are.
    redactor: Option<Redacting>,
    /// What its worker says with its calls to be told what is new: nobody else knows it.
    secret: Option<Digest>,
}

/// What takes a step's secrets out of texts, if it has some.
pub(crate) type Redacting = Option<Arc<Redactor>>;

impl Lease {
    fn token(&self) -> LeaseToken {
        LeaseToken { org: self.org, run: self.run, task: self.attempt, nonce: self.nonce }
    }

    fn directive(&self) -> Option<Directive> {
        let kind = match (self.cancelled, self.paused) {
            (true, _) => DirectiveKind::Cancel,
            (false, true) => DirectiveKind::Pause,
            (false, false) => return None,
        };
        Some(Directive { token: self.token(), kind })
    }
}

/// Whoever makes a call, by what it shows.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) worker: Arc<str>,
    pub(super) secret: Option<Digest>,
    /// Leases whose tokens came with the call.
    pub(super) shown: Vec<LeaseToken>,
}

impl Caller {
    fn holds(&self, lease: &Lease) -> bool {
        (self.secret.is_some() && self.secret == lease.secret) || self.shown.contains(&lease.token())
    }
}

/// What is known here of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) expires_at: Timestamp,
    lease_ms: u64,
    pub(crate) cancelled: bool,
}

impl Standing {
    /// A moment before it ends: who could not pass the task on by then says so himself.
    pub(crate) fn give_up_at(&self) -> Timestamp {
        let before_us = (self.lease_ms / 10).min(1000) * 1000;
        Timestamp(self.expires_at.0 - i64::try_from(before_us).unwrap_or(0))
    }
}

impl Leases {
    pub(crate) fn new(logs: LogHandle) -> Leases {
        Leases { held: Mutex::default(), earlier: Notify::new(), logs }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder of this lock panics")
    }

    /// A worker was given a step.
    pub(crate) fn add(&self, handed: &Handed, seen_seq: u64) {
        self.insert(Lease {
            org: handed.org,
            run: handed.run,
            attempt: handed.task.task,
            nonce: handed.lease.nonce,
            worker: handed.lease.worker.clone(),
            step_id: handed.task.step_id.as_str().into(),
            lease_ms: handed.lease_ms(),
            expires_at: handed.expires_at,
            due: handed.expires_at,
            progress: None,
            cancelled: false,
            paused: false,
            heard: true,
            seen_seq,
            since: Instant::now(),
            log: None,
            redactor: handed.has_no_secrets().then_some(None),
            secret: None,
        });
    }

    /// A lease that another node watched. Its worker may have talked to that one a moment ago.
    pub(crate) fn adopt(&self, row: &TaskRow, now: Timestamp, next_line: u32) {
        let Some(lease) = &row.lease else { return };
        let expires_at = lease.expires_at.max(now.plus_ms(lease.lease_ms));
        let attempt =
            TaskRef { step: row.step, logical_attempt: lease.logical_attempt, engine_attempt: lease.engine_attempt };
        let key = AttemptKey {
            org: row.org,
            run: row.run,
            step_id: row.step_id.clone(),
            logical_attempt: lease.logical_attempt,
            engine_attempt: lease.engine_attempt,
        };
        self.insert(Lease {
            org: row.org,
            run: row.run,
            attempt,
            nonce: lease.nonce,
            worker: lease.worker.clone(),
            step_id: row.step_id.clone(),
            lease_ms: lease.lease_ms,
            expires_at,
            due: expires_at,
            progress: lease.progress.clone(),
            cancelled: false,
            paused: false,
            heard: true,
            seen_seq: 0,
            since: Instant::now(),
            log: Some(Arc::new(AttemptLog::from_line(key, self.logs.clone(), next_line))),
            redactor: None,
            secret: None,
        });
    }

    fn insert(&self, lease: Lease) {
        let mut held = self.held();
        let task = TaskId::of(lease.run, lease.attempt.step);
        held.remove(task);
        let first = held.due.first().is_none_or(|(due, _)| lease.due < *due);
        held.due.insert((lease.due, task));
        held.by_run.entry(lease.run).or_default().insert(task);
        held.by_worker.entry(lease.worker.clone()).or_default().tasks.insert(task);
        held.by_task.insert(task, lease);
        drop(held);
        if first {
            self.earlier.notify_one();
        }
    }

    /// How many leases are watched here.
    pub(crate) fn count(&self) -> usize {
        self.held().by_task.len()
    }

    /// What a commit means for leases of its run.
    pub(crate) fn written(&self, run: RunId, events: &[Event], tasks: &BTreeMap<TaskId, TaskWrite>) {
        let mut held = self.held();
        if !held.by_run.contains_key(&run) {
            return;
        }
        for write in tasks.values() {
            if let TaskWrite::Delete(task) = write {
                held.remove(*task);
            } else if let TaskWrite::Put(row) = write
                && row.lease.is_none()
            {
                // Lost: it is in line again.
                held.remove(row.task);
            }
        }
        for event in events {
            match event.body {
                Body::RunPaused => held.tell(run, |lease| lease.set_paused(true)),
                Body::RunResumed => held.tell(run, |lease| lease.set_paused(false)),
                _ => {}
            }
        }
        if let Some(last) = events.last() {
            held.each(run, |lease| lease.seen_seq = lease.seen_seq.max(last.seq));
        }
    }

    /// The attempt is to be given up.
    pub(crate) fn cancel(&self, run: RunId, task: TaskRef) {
        self.held().tell(run, |lease| lease.attempt == task && lease.set_cancelled());
    }

    /// The run as it stands now.
    pub(crate) fn compare(&self, state: &RunState) {
        let paused = state.status == RunStatus::Paused;
        self.held().tell(state.run, |lease| {
            let cancelled = !state.wants(lease.attempt) && lease.set_cancelled();
            lease.set_paused(paused) || cancelled
        });
    }

    /// Runs of leases that are older than that, and up to where their logs were seen.
    pub(crate) fn runs_under_way(&self, at_least: Duration) -> Vec<(OrgId, RunId, u64)> {
        let held = self.held();
        let old = held.by_task.values().filter(|lease| lease.since.elapsed() >= at_least);
        let runs: BTreeMap<(OrgId, RunId), u64> = old.map(|lease| ((lease.org, lease.run), lease.seen_seq)).collect();
        runs.into_iter().map(|((org, run), seq)| (org, run, seq)).collect()
    }

    pub(crate) fn seen(&self, run: RunId, seq: u64) {
        self.held().each(run, |lease| lease.seen_seq = lease.seen_seq.max(seq));
    }

    /// The worker lives. None: no such lease is watched here.
    pub(crate) fn extend(&self, token: &LeaseToken, now: Timestamp) -> Option<Timestamp> {
        let mut held = self.held();
        let lease = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == *token)?;
        lease.expires_at = now.plus_ms(lease.lease_ms);
        Some(lease.expires_at)
    }

    /// The worker says how far it is.
    pub(super) fn set_progress(&self, token: &LeaseToken, progress: Json) {
        let mut held = self.held();
        let task = token.task_id();
        let Some(lease) = held.by_task.get_mut(&task).filter(|lease| lease.token() == *token) else { return };
        lease.progress = Some(progress);
        held.told.insert(task);
        drop(held);
        self.earlier.notify_one();
    }

    /// Who says this from now on is told what is new of these leases.
    pub(super) fn own(&self, tokens: impl Iterator<Item = LeaseToken>, secret: Digest) {
        let mut held = self.held();
        for token in tokens {
            if let Some(lease) = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == token) {
                lease.secret = Some(secret);
            }
        }
    }

    /// The log of an attempt whose lease is watched here.
    pub(super) fn log(&self, token: &LeaseToken) -> Option<Arc<AttemptLog>> {
        let mut held = self.held();
        let lease = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == *token)?;
        let key = || AttemptKey {
            org: lease.org,
            run: lease.run,
            step_id: lease.step_id.clone(),
            logical_attempt: lease.attempt.logical_attempt,
            engine_attempt: lease.attempt.engine_attempt,
        };
        Some(lease.log.get_or_insert_with(|| Arc::new(AttemptLog::new(key(), self.logs.clone()))).clone())
    }

    /// Nothing, if it is not known here which secrets the attempt has.
    pub(super) fn redactor(&self, token: &LeaseToken) -> Option<Redacting> {
        let held = self.held();
        held.by_task.get(&token.task_id()).filter(|lease| lease.token() == *token)?.redactor.clone()
    }

    pub(crate) fn set_redactor(&self, token: &LeaseToken, redactor: &Redacting) {
        let mut held = self.held();
        if let Some(lease) = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == *token) {
            lease.redactor = Some(redactor.clone());
        }
    }

    /// What is to be told of this attempt.
    pub(super) fn directive(&self, token: &LeaseToken) -> Option<Directive> {
        let mut held = self.held();
        let lease = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == *token)?;
        lease.heard = true;
        lease.directive()
    }

    /// What a worker has not been told yet. Its name is no secret: only who says the worker's secret, or showed the lease's
    /// token, is told.
    pub(super) fn news(&self, caller: &Caller) -> Vec<Directive> {
        let mut held = self.held();
        let held = &mut *held;
        let Some(worker) = held.by_worker.get(&caller.worker) else { return Vec::new() };
        let mut news = Vec::new();
        for task in &worker.tasks {
            if let Some(lease) = held.by_task.get_mut(task).filter(|lease| !lease.heard && caller.holds(lease)) {
                lease.heard = true;
                news.extend(lease.directive());
            }
        }
        news
    }

    /// Whether there is something that it has not been told.
    pub(super) fn has_news(&self, caller: &Caller) -> bool {
        let held = self.held();
        let of_task = |task| held.by_task.get(task).is_some_and(|lease: &Lease| !lease.heard && caller.holds(lease));
        held.by_worker.get(&caller.worker).is_some_and(|worker| worker.tasks.iter().any(of_task))
    }

    /// Rings when a worker is to be told something.
    pub(crate) fn bell(self: &Arc<Self>, worker: &Arc<str>) -> Bell {
        let mut held = self.held();
        let entry = held.by_worker.entry(worker.clone()).or_default();
        entry.calls += 1;
        Bell { leases: self.clone(), worker: worker.clone(), bell: entry.bell.clone() }
    }

    /// How a lease stands; nothing, if it is not watched here.
    pub(crate) fn standing(&self, token: &LeaseToken) -> Option<Standing> {
        let held = self.held();
        let lease = held.by_task.get(&token.task_id()).filter(|lease| lease.token() == *token)?;
        Some(Standing { expires_at: lease.expires_at, lease_ms: lease.lease_ms, cancelled: lease.cancelled })
    }

    /// Watches a lease that another node watched, or one that died. Answers whether there is one.
    pub(crate) async fn watch_here(
        &self,
        store: &dyn Store,
        node: NodeId,
        token: &LeaseToken,
        now: Timestamp,
    ) -> Result<bool> {
        let extension = LeaseExtension { task: token.task_id(), nonce: token.nonce, expires_at: now, progress: None };
        let Some(row) = store.extend_leases(token.org, node, now, &[extension]).await?.pop() else { return Ok(false) };
        let (logical, engine) = (token.task.logical_attempt, token.task.engine_attempt);
        let lines = store.log_lines(row.org, row.run, &row.step_id, logical, engine).await?;
        self.adopt(&row, now, lines);
        Ok(true)
    }

    /// What is known here of a task: how long its lease runs, and how far it is.
    pub(super) fn look(&self, task: TaskId) -> Option<(Timestamp, Option<Json>)> {
        self.held().by_task.get(&task).map(|lease| (lease.expires_at, lease.progress.clone()))
    }

    /// Takes those whose time is up out of the order; they have to be put back or lost. Answers when to look again, too.
    pub(super) fn overdue(&self, now: Timestamp) -> (Vec<LeaseToken>, Option<Timestamp>) {
        let mut held = self.held();
        let mut overdue = Vec::new();
        while let Some((due, task)) = held.due.first().copied().filter(|(due, _)| *due <= now) {
            held.due.remove(&(due, task));
            let Some(lease) = held.by_task.get_mut(&task) else { continue };
            if lease.expires_at > now {
                lease.due = lease.expires_at;
            } else {
                overdue.push(lease.token());
                // Should nobody be able to say now whether it is lost, it is looked at again.
                lease.due = now.plus_ms(1000);
            }
            let due = lease.due;
            held.due.insert((due, task));
        }
        (overdue, held.due.first().map(|(due, _)| *due))
    }

    /// Whose lease it is.
    pub(super) fn worker(&self, token: &LeaseToken) -> Option<Arc<str>> {
        let held = self.held();
        held.by_task.get(&token.task_id()).filter(|lease| lease.token() == *token).map(|lease| lease.worker.clone())
    }

    /// Somebody else extended it, or watches it.
    pub(super) fn put_off(&self, token: &LeaseToken, until: Timestamp) {
        let mut held = self.held();
        if let Some(lease) = held.by_task.get_mut(&token.task_id()).filter(|lease| lease.token() == *token) {
            lease.expires_at = lease.expires_at.max(until);
        }
    }

    pub(super) fn forget(&self, token: &LeaseToken) {
        let mut held = self.held();
        if held.by_task.get(&token.task_id()).is_some_and(|lease| lease.token() == *token) {
            held.remove(token.task_id());
        }
    }

    /// What workers said of their progress since the last time.
    pub(super) fn progress(&self) -> BTreeMap<OrgId, Vec<LeaseExtension>> {
        let mut held = self.held();
        let told = std::mem::take(&mut held.told);
        let mut extensions: BTreeMap<OrgId, Vec<LeaseExtension>> = BTreeMap::new();
        for task in told {
            let Some(lease) = held.by_task.get(&task) else { continue };
            extensions.entry(lease.org).or_default().push(LeaseExtension {
                task,
                nonce: lease.nonce,
                expires_at: lease.expires_at,
                progress: lease.progress.clone(),
            });
        }
        extensions
    }
}

impl Held {
    fn remove(&mut self, task: TaskId) {
        let Some(lease) = self.by_task.remove(&task) else { return };
        self.due.remove(&(lease.due, task));
        self.told.remove(&task);
        if let Some(tasks) = self.by_run.get_mut(&lease.run) {
            tasks.remove(&task);
            if tasks.is_empty() {
                self.by_run.remove(&lease.run);
            }
        }
        if let Some(worker) = self.by_worker.get_mut(&lease.worker) {
            worker.tasks.remove(&task);
            if worker.tasks.is_empty() && worker.calls == 0 {
                self.by_worker.remove(&lease.worker);
            }
        }
    }

    fn each(&mut self, run: RunId, mut change: impl FnMut(&mut Lease)) {
        for task in self.by_run.get(&run).into_iter().flatten() {
            if let Some(lease) = self.by_task.get_mut(task) {
                change(lease);
            }
        }
    }

    /// Changes the leases of a run, and rings for the workers that have to be told.
    fn tell(&mut self, run: RunId, mut change: impl FnMut(&mut Lease) -> bool) {
        let mut workers = BTreeSet::new();
        self.each(run, |lease| {
            if change(lease) {
                lease.heard = false;
                workers.insert(lease.worker.clone());
            }
        });
        for worker in workers {
            if let Some(worker) = self.by_worker.get(&worker) {
                worker.bell.notify_waiters();
            }
        }
    }
}

impl Lease {
    /// Answers whether that is news.
    fn set_cancelled(&mut self) -> bool {
        !std::mem::replace(&mut self.cancelled, true)
    }

    fn set_paused(&mut self, paused: bool) -> bool {
        std::mem::replace(&mut self.paused, paused) != paused
    }
}

/// A call that waits for something to be told to its worker.
#[derive(Debug)]
pub(crate) struct Bell {
    leases: Arc<Leases>,
    worker: Arc<str>,
    pub(crate) bell: Arc<Notify>,
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut held = self.leases.held();
        if let Some(worker) = held.by_worker.get_mut(&self.worker) {
            worker.calls -= 1;
            if worker.calls == 0 && worker.tasks.is_empty() {
                held.by_worker.remove(&self.worker);
            }
        }
    }
}
