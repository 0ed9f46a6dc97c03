//! Runs in memory: plain maps behind one lock. What the other stores are compared with, and what tests of the engine use.

mod artifacts;
mod cache;
mod definitions;
mod flights;
mod outbox;
mod run_blobs;
mod secrets;
mod suspects;
mod tables;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

use tables::{Key, Tables, of_run};

use crate::rows::{
    Answer, Batch, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition, ProjectionWrite,
    Question, QueueCount, QueueRow, RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow,
    TransitionRow, WriteResult,
};
use crate::{OutboxStore, Result, Store, Transaction};

/// A store that forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    /// Held by whoever writes; by a transaction from its first answer to its end.
    writing: Arc<AsyncMutex<()>>,
}

impl MemoryStore {
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }
}

fn lock(tables: &Mutex<Tables>) -> MutexGuard<'_, Tables> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T>(rows: impl Iterator<Item = T>, limit: u32) -> Vec<T> {
    rows.take(limit as usize).collect()
}

/// The status that an event leads to, if it is one that changes the run's.
fn status_after(event: &EventRow) -> Option<RunStatus> {
    Some(match event.event_type.as_ref() {
        "RunQueued" => {
            let data = event.data.to_value();
            data.get("status").and_then(|word| word.as_str()?.parse().ok()).unwrap_or(RunStatus::Queued)
        }
        "RunApproved" => RunStatus::Approved,
        "RunStarted" | "RunResumed" | "RunReopened" => RunStatus::Running,
        "RunPaused" => RunStatus::Paused,
        "RunCompleted" => RunStatus::Completed,
        "RunFailed" => RunStatus::Failed,
        "RunCancelled" => RunStatus::Cancelled,
        "RunTerminated" => RunStatus::Terminated,
        _ => return None,
    })
}

/// Who had a change happen. Of a run that was cancelled, and whose steps ended later, the signal says it.
fn changed_by(events: &BTreeMap<(Key, u64), EventRow>, key: Key, event: &EventRow) -> Option<String> {
    let text = |event: &EventRow, field: &str| Some(event.data.to_value().get(field)?.as_str()?.to_owned());
    let asked = || {
        let before =
            of_run(events, key).filter(|(seq, other)| *seq < event.seq && other.event_type == "SignalAccepted");
        let stops = |other: &EventRow| text(other, "type").is_some_and(|name| name == "CANCEL" || name == "REJECT");
        before.filter(|(_, other)| stops(other)).last().and_then(|(_, other)| text(other, "actor"))
    };
    match event.event_type.as_ref() {
        "RunQueued" => text(event, "submitted_by"),
        "RunCancelled" => text(event, "actor").or_else(asked),
        _ => text(event, "actor"),
    }
}

struct MemoryTransaction {
    tables: Arc<Mutex<Tables>>,
    _writing: OwnedMutexGuard<()>,
}

#[async_trait]
impl Transaction for MemoryTransaction {
    async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Answer>> {
        let tables = lock(&self.tables);
        Ok(questions.iter().map(|question| tables.answer(question)).collect())
    }

    async fn commit(self: Box<Self>, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        lock(&self.tables).commit(&batch)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        let _writing = self.writing.lock().await;
        self.tables().commit(&batch)
    }

    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)> {
        let writing = Arc::clone(&self.writing).lock_owned().await;
        let mut transaction = MemoryTransaction { tables: Arc::clone(&self.tables), _writing: writing };
        let answers = transaction.ask(questions).await?;
        Ok((Box::new(transaction), answers))
    }

    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
        let tables = self.tables();
        Ok(runs.iter().filter_map(|key| tables.load(*key)).collect())
    }

    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
        Ok(self.tables().head((org, run)))
    }

    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
        let tables = self.tables();
        let found = runs.iter().filter_map(|key| tables.runs.get(key));
        Ok(found.map(|head| (head.org, head.run, head.last_seq)).collect())
    }

    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>> {
        let tables = self.tables();
        let later = of_run(&tables.events, (org, run)).filter(|(seq, _)| *seq > after_seq);
        Ok(take(later.map(|(_, event)| event.clone()), limit))
    }

    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
        let tables = self.tables();
        Ok(seqs.iter().filter_map(|seq| tables.events.get(&((org, run), *seq)).cloned()).collect())
    }

    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>> {
        let all = self.events(org, run, 0, u32::MAX).await?;
        Ok(all.into_iter().filter(|event| keys.contains(&event.idempotency_key)).collect())
    }

    async fn step_events(
        &self,
        org: OrgId,
        run: RunId,
        step_id: &str,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>> {
        let all = self.events(org, run, after_seq, u32::MAX).await?;
        Ok(take(all.into_iter().filter(|event| event.step_id.as_deref() == Some(step_id)), limit))
    }

    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>> {
        let tables = self.tables();
        let row = |((key, seq), due_at): (&(Key, u64), &Timestamp)| TimerRow {
            org: key.0,
            run: key.1,
            seq: *seq,
            due_at: *due_at,
        };
        let mut due: Vec<TimerRow> = tables.timers.iter().map(row).filter(|timer| timer.due_at <= until).collect();
        let place = |timer: &TimerRow| (timer.due_at, timer.org, timer.run, timer.seq);
        due.retain(|timer| after.is_none_or(|after| place(timer) > place(&after)));
        due.sort_by_key(place);
        due.truncate(limit as usize);
        Ok(due)
    }

    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
        let tables = self.tables();
        let armed = of_run(&tables.timers, (org, run));
        Ok(armed.map(|(seq, due_at)| TimerRow { org, run, seq, due_at: *due_at }).collect())
    }

    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>> {
        let tables = self.tables();
        let keys: BTreeSet<(OrgId, &str)> = tables.slots.values().map(|slot| (slot.org, slot.key.as_str())).collect();
        Ok(take(keys.into_iter().flat_map(|(org, key)| tables.slots_to_wake_of(org, key)), limit))
    }

    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
        Ok(take(self.tables().slots_to_wake_of(org, key).into_iter(), limit))
    }

    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
        Ok(self.tables().slots.get(&(org, run)).cloned())
    }

    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
        Ok(self.tables().tasks.by_id(org, tasks))
    }

    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
        Ok(self.tables().tasks.of_run(org, run))
    }

    async fn pull_tasks(
        &self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TaskRow>> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().tasks.pull(node, queues, before, now, limit))
    }

    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().tasks.take_over(dead, node, now, limit))
    }

    async fn extend_leases(
        &self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Result<Vec<TaskRow>> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().tasks.extend(org, node, now, leases))
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCount>> {
        Ok(self.tables().tasks.counts())
    }

    async fn queues(&self) -> Result<Vec<QueueRow>> {
        Ok(self.tables().queues.values().map(|(queue, _)| queue.clone()).collect())
    }

    async fn set_queue(&self, queue: &QueueRow) -> Result<()> {
        let _writing = self.writing.lock().await;
        let key = (queue.org, queue.queue.clone());
        if queue.concurrency.is_none() && queue.rate.is_none() {
            self.tables().queues.remove(&key);
        } else {
            self.tables().queues.insert(key, (queue.clone(), Timestamp(0)));
        }
        Ok(())
    }

    fn outbox(&self) -> &dyn OutboxStore {
        self
    }

    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
        let mut tables = self.tables();
        tables.nodes.insert(node, Some(now.plus_ms(lease_ms)));
        tables.suspects.heard(node);
        Ok(())
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        let mut tables = self.tables();
        tables.nodes.insert(node, None);
        tables.suspects.left(node);
        Ok(())
    }

    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>> {
        let tables = self.tables();
        let lives = |node: &NodeId| tables.nodes.get(node).copied().flatten().is_some_and(|expires| expires >= now);
        let mut owners: BTreeSet<NodeId> = tables.runs.values().filter_map(|head| head.owner).collect();
        owners.extend(tables.tasks.nodes());
        Ok(owners.into_iter().filter(|node| !lives(node)).collect())
    }

    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        let tables = self.tables();
        let owned = tables.runs.values().filter(|head| head.owner == Some(node) && Some(head.run) > after);
        let mut owned: Vec<_> = owned.map(|head| (head.org, head.run)).collect();
        owned.sort_by_key(|(_, run)| *run);
        owned.truncate(limit as usize);
        Ok(owned)
    }

    async fn maintain(&self, _now: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().forget(ended_before, limit))
    }

    fn definitions(&self) -> &dyn crate::DefinitionStore {
        self
    }

    fn cache(&self) -> &dyn crate::CacheStore {
        self
    }

    fn flights(&self) -> &dyn crate::FlightStore {
        self
    }

    fn artifacts(&self) -> &dyn crate::ArtifactStore {
        self
    }

    fn secrets(&self) -> &dyn crate::SecretStore {
        self
    }

    fn run_blobs(&self) -> &dyn crate::RunBlobs {
        self
    }

    fn suspects(&self) -> &dyn crate::SuspectStore {
        self
    }

    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()> {
        let mut tables = self.tables();
        for chunk in chunks {
            tables.logs.entry(((chunk.org, chunk.run), chunk.position())).or_insert(chunk);
        }
        Ok(())
    }

    async fn logs(
        &self,
        org: OrgId,
        run: RunId,
        step: Option<&str>,
        after: Option<&LogPosition>,
        limit: u32,
    ) -> Result<Vec<LogChunkRow>> {
        let tables = self.tables();
        let of_run = tables.logs.iter().filter(|((key, _), _)| *key == (org, run));
        let of_step = of_run.filter(|(_, chunk)| step.is_none_or(|step| chunk.step_id == step));
        let later = of_step.filter(|((_, position), _)| after.is_none_or(|after| position > after));
        Ok(take(later.map(|(_, chunk)| chunk.clone()), limit))
    }

    async fn log_lines(
        &self,
        org: OrgId,
        run: RunId,
        step: &str,
        logical_attempt: u32,
        engine_attempt: u32,
    ) -> Result<u32> {
        let tables = self.tables();
        let of_attempt = |position: &LogPosition| {
            position.step_id == step
                && position.logical_attempt == logical_attempt
                && position.engine_attempt == engine_attempt
        };
        let ends = tables.logs.iter().filter(|((key, position), _)| *key == (org, run) && of_attempt(position));
        Ok(ends.map(|(_, row)| row.first_line + row.lines).max().unwrap_or(0))
    }

    async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>> {
        let _writing = self.writing.lock().await;
        let mut tables = self.tables();
        Ok(writes.iter().map(|write| tables.project(write)).collect())
    }

    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()> {
        let mut tables = self.tables();
        tables.snapshots.remove(&(org, run));
        tables.steps.retain(|(key, _), _| *key != (org, run));
        Ok(())
    }

    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
        let tables = self.tables();
        let mut from = None;
        let changes = of_run(&tables.events, (org, run)).filter_map(|(seq, event)| {
            let to = status_after(event)?;
            let from = from.replace(to);
            let changed_by = changed_by(&tables.events, (org, run), event);
            Some(TransitionRow { seq, from, to, signal: event.signal, changed_by, at: event.emitted_at })
        });
        Ok(changes.collect())
    }

    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
        Ok(self.tables().snapshots.get(&(org, run)).cloned())
    }

    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
        let tables = self.tables();
        let steps = || tables.steps_of((org, run)).cloned().collect();
        Ok(tables.snapshots.get(&(org, run)).map(|snapshot| (snapshot.clone(), steps())))
    }

    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
        Ok(self.tables().read_run((org, run)))
    }

    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
        let tables = self.tables();
        Ok(ids.iter().filter_map(|id| tables.steps.get(&((org, run), id.clone())).cloned()).collect())
    }

    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
        Ok(take(self.tables().matching(org, filter).cloned(), filter.limit))
    }

    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
        Ok(up_to.min(self.tables().matching(org, filter).count() as u64))
    }

    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>> {
        let mut counts = BTreeMap::new();
        for row in self.tables().snapshots.values().filter(|row| !row.status.is_terminal()) {
            *counts.entry((row.org, row.status)).or_default() += 1;
        }
        Ok(counts.into_iter().map(|((org, status), count)| (org, status, count)).collect())
    }

    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
        let tables = self.tables();
        let open = tables.runs.values().filter(|head| !head.status.is_terminal() && Some(head.run) > after);
        let mut open: Vec<HeadRow> = open.filter_map(|head| tables.head((head.org, head.run))).collect();
        open.sort_by_key(|head| head.run);
        open.truncate(limit as usize);
        Ok(open)
    }

    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
        let tables = self.tables();
        let behind = |head: &HeadRow| {
            let projected = tables.snapshots.get(&(head.org, head.run)).map_or(0, |snapshot| snapshot.last_event_seq);
            head.last_seq.saturating_sub(projected)
        };
        let late = tables.runs.values().map(|head| (head.org, head.run, behind(head)));
        Ok(take(late.filter(|(_, _, behind)| *behind > 0), limit))
    }

    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>> {
        let tables = self.tables();
        Ok(take(tables.runs.values().filter_map(|head| tables.gap(head)), limit))
    }

    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64> {
        let tables = self.tables();
        let missing = (1..).find(|seq| !tables.events.contains_key(&((org, run), *seq)));
        Ok(missing.unwrap_or_default())
    }

    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
        let stale = &mut self.tables().stale;
        match from_seq {
            Some(seq) => stale.insert((org, run), seq),
            None => stale.remove(&(org, run)),
        };
        Ok(())
    }

    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
        let tables = self.tables();
        Ok(runs.iter().filter_map(|run| Some((*run, *tables.stale.get(&(org, *run))?))).collect())
    }

    async fn count_runs(&self) -> Result<u64> {
        Ok(self.tables().runs.len() as u64)
    }
}
