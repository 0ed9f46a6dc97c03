//! Runs in memory: plain maps behind one lock. What the other stores are compared with, and what tests of the engine use.
//!
//! **Invariant:** heads are moved first, then all events of a batch are checked, then rows are written; so an error only
//! ever has heads to put back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

use crate::groups::in_groups;
use crate::rows::{
    Answer, Batch, BlobRow, CheckpointRow, HeadRow, HeadWrite, LoadedRun, LogGap, NewHead, ProjectionWrite, Question,
    RunFilter, RunWrite, SlotRow, SlotWrite, SnapshotRow, StepRow, TimerRow, TimerWrite, TransitionRow, WriteResult,
};
use crate::{Result, Store, StoreError, Transaction};

type Key = (OrgId, RunId);

/// A store that forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Arc<Mutex<Tables>>,
    /// Held by whoever writes; by a transaction from its first answer to its end.
    writing: Arc<AsyncMutex<()>>,
}

#[derive(Debug, Default)]
struct Tables {
    runs: BTreeMap<Key, HeadRow>,
    events: BTreeMap<(Key, u64), EventRow>,
    event_keys: BTreeSet<(Key, Digest)>,
    checkpoints: BTreeMap<Key, CheckpointRow>,
    timers: BTreeMap<(Key, u64), Timestamp>,
    slots: BTreeMap<Key, SlotRow>,
    /// Until when the lease runs; `None` for a node that left.
    nodes: BTreeMap<NodeId, Option<Timestamp>>,
    blobs: BTreeMap<(OrgId, Digest), BlobRow>,
    tags: BTreeMap<(OrgId, String), Digest>,
    snapshots: BTreeMap<Key, SnapshotRow>,
    steps: BTreeMap<(Key, String), StepRow>,
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

fn of_run<T>(map: &BTreeMap<(Key, u64), T>, key: Key) -> impl Iterator<Item = (u64, &T)> {
    map.range((key, 0)..=(key, u64::MAX)).map(|((_, seq), row)| (*seq, row))
}

impl Tables {
    fn commit(&mut self, batch: &Batch) -> Result<Vec<WriteResult>> {
        let mut results = vec![WriteResult::Conflict; batch.writes.len()];
        let mut moved = Vec::new();
        for group in in_groups(&batch.writes) {
            let already = moved.len();
            let all_moved = group.iter().all(|index| {
                let write = &batch.writes[*index];
                moved.push((write, self.runs.get(&(write.org, write.run)).cloned()));
                self.move_head(write)
            });
            if all_moved {
                group.into_iter().for_each(|index| results[index] = WriteResult::Written);
            } else {
                self.put_back(moved.drain(already..));
            }
        }
        let written: Vec<&RunWrite> = moved.iter().map(|(write, _)| *write).collect();
        if let Some(refused) = self.duplicate(&written) {
            self.put_back(moved.drain(..));
            return Err(StoreError::Refused(refused));
        }
        written.into_iter().for_each(|write| self.write_rows(write));
        Ok(results)
    }

    /// Undoes moves of heads, the last one first.
    fn put_back<'w>(&mut self, moved: impl DoubleEndedIterator<Item = (&'w RunWrite, Option<HeadRow>)>) {
        for (write, before) in moved.rev() {
            let key = (write.org, write.run);
            match before {
                Some(head) => self.runs.insert(key, head),
                None => self.runs.remove(&key),
            };
        }
    }

    fn move_head(&mut self, write: &RunWrite) -> bool {
        let key = (write.org, write.run);
        match &write.head {
            HeadWrite::Insert(new) => {
                let taken = self.runs.contains_key(&key)
                    || new.request_id.as_deref().is_some_and(|request| self.run_of_request(key.0, request).is_some());
                if !taken {
                    self.runs.insert(key, new_head(write, new));
                }
                !taken
            }
            HeadWrite::Update { status, owner } => {
                let Some(head) = self.runs.get_mut(&key).filter(|head| head.last_seq == write.expected_seq) else {
                    return false;
                };
                head.last_seq = write.last_seq;
                if let Some(to) = status {
                    head.status = to.status;
                    head.started_at = to.started_at;
                    head.completed_at = to.completed_at;
                }
                head.owner = owner.or(head.owner);
                true
            }
        }
    }

    /// The first event that is there already, by number or by key.
    fn duplicate(&self, writes: &[&RunWrite]) -> Option<String> {
        let (mut seqs, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for write in writes {
            let key = (write.org, write.run);
            for event in &write.events {
                let seq = (key, event.seq);
                if self.events.contains_key(&seq) || !seqs.insert(seq) {
                    return Some(format!("run {} has an event {} already", write.run, event.seq));
                }
                let once = (key, event.idempotency_key);
                if self.event_keys.contains(&once) || !keys.insert(once) {
                    return Some(format!(
                        "run {} has an event with the key {} already",
                        write.run, event.idempotency_key
                    ));
                }
            }
        }
        None
    }

    fn write_rows(&mut self, write: &RunWrite) {
        let key = (write.org, write.run);
        for event in &write.events {
            self.event_keys.insert((key, event.idempotency_key));
            self.events.insert((key, event.seq), event.clone());
        }
        for timer in &write.timers {
            match timer {
                TimerWrite::Arm { seq, due_at } => self.timers.insert((key, *seq), *due_at),
                TimerWrite::Disarm { seq } => self.timers.remove(&(key, *seq)),
            };
        }
        let slot = |slot_key: &str, limit: Option<u32>, priority| SlotRow {
            org: write.org,
            run: write.run,
            key: slot_key.to_owned(),
            holding: limit.is_none(),
            limit,
            priority,
        };
        match &write.slot {
            None => None,
            Some(SlotWrite::Hold { key: name }) => self.slots.insert(key, slot(name, None, 0)),
            Some(SlotWrite::Wait { key: name, limit, priority }) => {
                self.slots.insert(key, slot(name, Some(*limit), *priority))
            }
            Some(SlotWrite::Release) => self.slots.remove(&key),
        };
        if let Some(checkpoint) = &write.checkpoint {
            self.checkpoints.insert(key, checkpoint.clone());
        }
    }

    fn run_of_request(&self, org: OrgId, request: &str) -> Option<RunId> {
        let mut heads = self.runs.values();
        heads.find(|head| head.org == org && head.request_id.as_deref() == Some(request)).map(|head| head.run)
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::SlotsHeld { org, key } => Answer::SlotsHeld(self.slots_held(*org, key)),
            Question::RunOfRequest { org, request_id } => Answer::RunOfRequest(self.run_of_request(*org, request_id)),
            Question::Event { org, run, seq } => Answer::Event(self.events.get(&((*org, *run), *seq)).cloned()),
        }
    }

    fn slots_held(&self, org: OrgId, key: &str) -> u32 {
        let held = self.slots.values().filter(|slot| slot.org == org && slot.key == key && slot.holding).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Stops at the first that has no room: nobody overtakes under one key.
    fn slots_to_wake_of(&self, org: OrgId, key: &str) -> Vec<SlotRow> {
        let mut waiting: Vec<&SlotRow> =
            self.slots.values().filter(|slot| slot.org == org && slot.key == key && !slot.holding).collect();
        waiting.sort_by_key(|slot| (std::cmp::Reverse(slot.priority), slot.run));
        let used = self.slots_held(org, key)..;
        let room = |(slot, used): &(&SlotRow, u32)| slot.limit.is_none_or(|limit| *used < limit);
        waiting.into_iter().zip(used).take_while(room).map(|(slot, _)| slot.clone()).collect()
    }

    fn project(&mut self, write: &ProjectionWrite) -> WriteResult {
        let key = (write.org, write.run);
        if self.snapshots.get(&key).map_or(0, |snapshot| snapshot.last_event_seq) != write.expected_seq {
            return WriteResult::Conflict;
        }
        self.snapshots.insert(key, write.snapshot.clone());
        for step in &write.steps {
            self.steps.insert((key, step.step_id.clone()), step.clone());
        }
        if write.release
            && let Some(head) = self.runs.get_mut(&key).filter(|head| head.last_seq == write.snapshot.last_event_seq)
        {
            head.owner = None;
        }
        WriteResult::Written
    }

    fn load(&self, key: Key) -> Option<LoadedRun> {
        let head = self.runs.get(&key)?.clone();
        let checkpoint = self.checkpoints.get(&key).cloned();
        let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let tail = of_run(&self.events, key).filter(|(seq, _)| *seq > after).map(|(_, event)| event.clone()).collect();
        Some(LoadedRun { head, checkpoint, tail })
    }

    fn gap(&self, head: &HeadRow) -> Option<LogGap> {
        let stored: Vec<u64> = of_run(&self.events, (head.org, head.run)).map(|(seq, _)| seq).collect();
        let whole = stored.iter().copied().eq(1..=head.last_seq);
        (!whole).then(|| LogGap {
            org: head.org,
            run: head.run,
            message: format!("its last event is {}, but {} are stored", head.last_seq, stored.len()),
        })
    }
}

fn new_head(write: &RunWrite, new: &NewHead) -> HeadRow {
    HeadRow {
        org: write.org,
        run: write.run,
        workflow: new.workflow.to_string(),
        workflow_version: new.workflow_version.to_string(),
        plan_hash: new.plan_hash,
        request_id: new.request_id.clone(),
        base_run: new.base_run,
        parent_run: new.parent_run,
        priority: new.priority,
        status: new.status.status,
        last_seq: write.last_seq,
        owner: new.owner,
        created_at: new.created_at,
        started_at: new.status.started_at,
        completed_at: new.status.completed_at,
    }
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
        Ok(self.tables().runs.get(&(org, run)).cloned())
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

    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
        self.tables().nodes.insert(node, Some(now.plus_ms(lease_ms)));
        Ok(())
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        self.tables().nodes.insert(node, None);
        Ok(())
    }

    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>> {
        let tables = self.tables();
        let lives = |node: &NodeId| tables.nodes.get(node).copied().flatten().is_some_and(|expires| expires >= now);
        let owners: BTreeSet<NodeId> = tables.runs.values().filter_map(|head| head.owner).collect();
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

    async fn put_blob(&self, org: OrgId, blob: &BlobRow) -> Result<()> {
        self.tables().blobs.entry((org, blob.hash)).or_insert_with(|| blob.clone());
        Ok(())
    }

    async fn blob(&self, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
        Ok(self.tables().blobs.get(&(org, hash)).cloned())
    }

    async fn set_tag(&self, org: OrgId, tag: &str, target: Digest, _now: Timestamp) -> Result<()> {
        self.tables().tags.insert((org, tag.to_owned()), target);
        Ok(())
    }

    async fn tag(&self, org: OrgId, tag: &str) -> Result<Option<Digest>> {
        Ok(self.tables().tags.get(&(org, tag.to_owned())).copied())
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
            Some(TransitionRow { seq, from, to, signal: event.signal, at: event.emitted_at })
        });
        Ok(changes.collect())
    }

    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
        Ok(self.tables().snapshots.get(&(org, run)).cloned())
    }

    async fn steps(&self, org: OrgId, run: RunId) -> Result<Vec<StepRow>> {
        let tables = self.tables();
        let steps = tables.steps.range(((org, run), String::new())..);
        Ok(steps.take_while(|((key, _), _)| *key == (org, run)).map(|(_, step)| step.clone()).collect())
    }

    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
        let tables = self.tables();
        Ok(ids.iter().filter_map(|id| tables.steps.get(&((org, run), id.clone())).cloned()).collect())
    }

    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
        let tables = self.tables();
        let wanted = tables.snapshots.values().rev().filter(|row| {
            row.org == org
                && filter.status.is_none_or(|status| row.status == status)
                && filter.workflow.as_ref().is_none_or(|workflow| row.workflow == *workflow)
                && filter.before.is_none_or(|before| row.run < before)
        });
        Ok(take(wanted.cloned(), filter.limit))
    }

    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
        let tables = self.tables();
        let open = tables.runs.values().filter(|head| !head.status.is_terminal() && Some(head.run) > after);
        let mut open: Vec<HeadRow> = open.cloned().collect();
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

    async fn count_runs(&self) -> Result<u64> {
        Ok(self.tables().runs.len() as u64)
    }
}
