//! The tables, and how a batch changes them.
//!
//! **Invariant:** heads are moved and flights begun first, then all events of a batch are checked, then rows are written; so
//! an error only ever has those to put back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::request::Asked;
use milepost_core::time::Timestamp;

use super::outbox::Outbox;
use super::tasks::Tasks;
use crate::groups::in_groups;
use crate::rows::{
    Answer, Batch, CheckpointRow, Forgotten, HeadRow, HeadWrite, LoadedRun, LogChunkRow, LogGap, LogPosition, NewHead,
    ProjectionWrite, Question, QueueRow, RequestedRun, RunFilter, RunRows, RunWrite, SlotRow, SlotWrite, SnapshotRow,
    StatusWrite, StepRow, TaskLimits, TaskRow, TimerWrite, WriteResult,
};
use crate::{Result, StoreError};

pub(super) type Key = (OrgId, RunId);

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) runs: BTreeMap<Key, HeadRow>,
    /// What runs with request ids were asked for.
    pub(super) asked: BTreeMap<Key, Asked>,
    pub(super) events: BTreeMap<(Key, u64), EventRow>,
    pub(super) event_keys: BTreeSet<(Key, Digest)>,
    pub(super) checkpoints: BTreeMap<Key, CheckpointRow>,
    pub(super) timers: BTreeMap<(Key, u64), Timestamp>,
    pub(super) slots: BTreeMap<Key, SlotRow>,
    pub(super) tasks: Tasks,
    /// With up to where their rates are used up.
    pub(super) queues: BTreeMap<(OrgId, Arc<str>), (QueueRow, Timestamp)>,
    pub(super) outbox: Outbox,
    /// Until when the lease runs; `None` for a node that left.
    pub(super) nodes: BTreeMap<NodeId, Option<Timestamp>>,
    pub(super) definitions: super::definitions::Definitions,
    pub(super) logs: BTreeMap<(Key, LogPosition), LogChunkRow>,
    /// Whether the run is forgotten.
    pub(super) run_blobs: BTreeMap<Key, bool>,
    pub(super) secrets: super::secrets::Secrets,
    pub(super) suspects: super::suspects::Suspects,
    pub(super) results: super::cache::Results,
    pub(super) flights: super::flights::Flights,
    pub(super) artifacts: super::artifacts::Artifacts,
    pub(super) snapshots: BTreeMap<Key, SnapshotRow>,
    pub(super) stale: BTreeMap<Key, u64>,
    pub(super) steps: BTreeMap<(Key, String), StepRow>,
}

pub(super) fn of_run<T>(map: &BTreeMap<(Key, u64), T>, key: Key) -> impl Iterator<Item = (u64, &T)> {
    map.range((key, 0)..=(key, u64::MAX)).map(|((_, seq), row)| (*seq, row))
}

impl Tables {
    pub(super) fn commit(&mut self, batch: &Batch) -> Result<Vec<WriteResult>> {
        for rate in &batch.rates {
            if let Some((_, taken)) = self.queues.get_mut(&(rate.org, rate.queue.clone())) {
                *taken = rate.taken_until;
            }
        }
        let mut results = vec![WriteResult::Conflict; batch.writes.len()];
        let mut moved = Vec::new();
        let flights = self.flights.clone();
        for group in in_groups(&batch.writes) {
            let already = moved.len();
            let flights = self.flights.clone();
            let all_moved = group.iter().all(|index| {
                let write = &batch.writes[*index];
                moved.push((write, self.runs.get(&(write.org, write.run)).cloned()));
                self.move_head(write) && self.lead(write)
            });
            if all_moved {
                group.into_iter().for_each(|index| results[index] = WriteResult::Written);
            } else {
                self.put_back(moved.drain(already..));
                self.flights = flights;
            }
        }
        let written: Vec<&RunWrite> = moved.iter().map(|(write, _)| *write).collect();
        if let Some(refused) = self.duplicate(&written) {
            self.put_back(moved.drain(..));
            self.flights = flights;
            return Err(StoreError::Refused(refused));
        }
        let standing = batch.writes.iter().zip(&results).filter(|(_, result)| **result == WriteResult::Written);
        let standing: Vec<&RunWrite> = standing.map(|(write, _)| write).collect();
        self.results.write(&standing);
        standing.into_iter().for_each(|write| self.land(write));
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
                    || new
                        .request_id
                        .as_deref()
                        .is_some_and(|id| self.run_of_request(key.0, &new.workflow, id).is_some());
                if !taken {
                    self.runs.insert(key, new_head(write, new));
                }
                !taken
            }
            HeadWrite::Update { status, owner } => self.update_head(write, status.as_ref(), *owner, None),
            HeadWrite::Patch(to) => self.update_head(write, to.status.as_ref(), to.owner, Some(to.plan_hash)),
        }
    }

    fn update_head(
        &mut self,
        write: &RunWrite,
        status: Option<&StatusWrite>,
        owner: Option<NodeId>,
        plan: Option<Digest>,
    ) -> bool {
        let head = self.runs.get_mut(&(write.org, write.run));
        let Some(head) = head.filter(|head| head.last_seq == write.expected_seq) else { return false };
        head.last_seq = write.last_seq;
        if let Some(to) = status {
            head.status = to.status;
            head.started_at = to.started_at;
            head.completed_at = to.completed_at;
        }
        head.owner = owner.or(head.owner);
        head.plan_hash = plan.unwrap_or(head.plan_hash);
        true
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
        if let HeadWrite::Insert(new) = &write.head {
            self.asked.extend(new.asked.map(|asked| (key, asked)));
        }
        for event in &write.events {
            self.event_keys.insert((key, event.idempotency_key));
            self.events.insert((key, event.seq), event.clone());
        }
        write.tasks.iter().for_each(|task| self.tasks.write(task));
        write.outbox.iter().for_each(|new| self.outbox.write(write.org, write.run, new));
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
        for row in &write.artifacts {
            self.artifacts.rows.insert((key, row.position), row.clone());
        }
    }

    pub(super) fn read_run(&self, key: Key) -> Option<RunRows> {
        let head = self.head(key)?;
        let snapshot = self.snapshots.get(&key).cloned();
        let after = snapshot.as_ref().map_or(0, |snapshot| snapshot.last_event_seq);
        let projection = snapshot.map(|snapshot| (snapshot, self.steps_of(key).cloned().collect::<Vec<_>>()));
        let tail = of_run(&self.events, key).filter(|(seq, _)| *seq > after).map(|(_, event)| event.clone());
        let tail = tail.take(RunRows::TAIL as usize).collect();
        let outputs = |steps: &[StepRow]| steps.iter().filter_map(|step| step.output_seq).collect::<Vec<u64>>();
        let seqs = projection.iter().flat_map(|(_, steps)| [1].into_iter().chain(outputs(steps)));
        let carrying = seqs.take(RunRows::CARRYING).filter_map(|seq| self.events.get(&(key, seq)).cloned()).collect();
        let artifacts = self.artifacts.of_run(key).cloned().collect();
        let events = of_run(&self.events, key).count() as u64;
        let stale_from = self.stale.get(&key).copied();
        Some(RunRows { head, tail, carrying, projection, events, stale_from, artifacts })
    }

    fn run_of_request(&self, org: OrgId, workflow: &str, request: &str) -> Option<RequestedRun> {
        let mut heads = self.runs.values().filter(|head| head.org == org && head.workflow == workflow);
        let head = heads.find(|head| head.request_id.as_deref() == Some(request))?;
        Some(RequestedRun { run: head.run, asked: self.asked.get(&(org, head.run)).copied() })
    }

    pub(super) fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::SlotsHeld { org, key } => Answer::SlotsHeld(self.slots_held(*org, key)),
            Question::RunOfRequest { org, workflow, request_id } => {
                Answer::RunOfRequest(self.run_of_request(*org, workflow, request_id))
            }
            Question::Limits { org, queue, key } => Answer::Limits(self.limits(*org, queue, key.as_ref())),
            Question::Event { org, run, seq } => Answer::Event(self.events.get(&((*org, *run), *seq)).cloned()),
            Question::Results { org, keys, held } => {
                let held = held.iter().copied().chain(std::iter::repeat(None));
                Answer::Results(keys.iter().zip(held).map(|(key, held)| self.results.find(*org, *key, held)).collect())
            }
            Question::Flights { org, keys } => {
                Answer::Flights(keys.iter().map(|key| self.under_way(*org, *key)).collect())
            }
            Question::Epochs { org, workflow } => Answer::Epochs(self.results.epochs(*org, workflow)),
        }
    }

    fn limits(&self, org: OrgId, queue: &Arc<str>, key: Option<&Arc<str>>) -> TaskLimits {
        let limited = self.queues.get(&(org, queue.clone()));
        let counts = limited.is_some_and(|(row, _)| row.concurrency.is_some());
        let has_key = |row: &TaskRow| row.slot.as_ref().is_some_and(|slot| Some(&slot.key) == key);
        TaskLimits {
            in_queue: self.tasks.leased(|row| counts && row.org == org && row.queue == *queue),
            with_key: self.tasks.leased(|row| row.org == org && has_key(row)),
            queue: limited.map(|(row, _)| row.clone()),
            taken_until: limited.map(|(_, taken)| *taken),
        }
    }

    fn slots_held(&self, org: OrgId, key: &str) -> u32 {
        let held = self.slots.values().filter(|slot| slot.org == org && slot.key == key && slot.holding).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Stops at the first that has no room: nobody overtakes under one key.
    pub(super) fn slots_to_wake_of(&self, org: OrgId, key: &str) -> Vec<SlotRow> {
        let mut waiting: Vec<&SlotRow> =
            self.slots.values().filter(|slot| slot.org == org && slot.key == key && !slot.holding).collect();
        waiting.retain(|slot| self.suspects.stuck(&(slot.org, slot.run)).is_none());
        waiting.sort_by_key(|slot| (std::cmp::Reverse(slot.priority), slot.run));
        let used = self.slots_held(org, key)..;
        let room = |(slot, used): &(&SlotRow, u32)| slot.limit.is_none_or(|limit| *used < limit);
        waiting.into_iter().zip(used).take_while(room).map(|(slot, _)| slot.clone()).collect()
    }

    pub(super) fn project(&mut self, write: &ProjectionWrite) -> WriteResult {
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

    pub(super) fn forget(&mut self, ended_before: Timestamp, limit: u32) -> Forgotten {
        let bases: BTreeSet<Key> = self.runs.values().filter_map(|head| Some((head.org, head.base_run?))).collect();
        // Told by the projection, which the others have an index on, and then by the head.
        let ended = |row: &SnapshotRow| row.completed_at.filter(|at| *at < ended_before);
        let may_go = |head: &HeadRow| {
            let ended = head.status.is_terminal() && head.completed_at.is_some_and(|at| at < ended_before);
            ended && head.owner.is_none() && !bases.contains(&(head.org, head.run))
        };
        let projected = self.snapshots.iter().filter_map(|(key, row)| Some((ended(row)?, self.runs.get(key)?)));
        let mut found: Vec<(Timestamp, &HeadRow)> = projected.filter(|(_, head)| may_go(head)).collect();
        found.sort_by_key(|(at, _)| *at);
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let frees_others = found.iter().any(|(_, head)| head.base_run.is_some());
        let keys: BTreeSet<Key> = found.iter().map(|(_, head)| (head.org, head.run)).collect();
        self.runs.retain(|key, _| !keys.contains(key));
        self.asked.retain(|key, _| !keys.contains(key));
        self.events.retain(|(key, _), _| !keys.contains(key));
        self.event_keys.retain(|(key, _)| !keys.contains(key));
        self.checkpoints.retain(|key, _| !keys.contains(key));
        self.timers.retain(|(key, _), _| !keys.contains(key));
        self.slots.retain(|key, _| !keys.contains(key));
        self.snapshots.retain(|key, _| !keys.contains(key));
        self.stale.retain(|key, _| !keys.contains(key));
        self.steps.retain(|(key, _), _| !keys.contains(key));
        self.logs.retain(|(key, _), _| !keys.contains(key));
        self.artifacts.rows.retain(|(key, _), _| !keys.contains(key));
        self.results.forget_runs(|org, run| keys.contains(&(org, run)));
        self.suspects.forget_runs(|key| keys.contains(key));
        self.run_blobs.iter_mut().filter(|(key, _)| keys.contains(key)).for_each(|(_, gone)| *gone = true);
        Forgotten { runs: keys.len() as u64, more: more || frees_others, ..Forgotten::default() }
    }

    /// Newest first.
    pub(super) fn matching(&self, org: OrgId, filter: &RunFilter) -> impl Iterator<Item = &SnapshotRow> {
        let stands = move |row: &SnapshotRow| !filter.stuck || self.suspects.is_stuck(&(row.org, row.run));
        self.snapshots.values().rev().filter(move |row| row.org == org && filter.matches(row) && stands(row))
    }

    pub(super) fn steps_of(&self, key: Key) -> impl Iterator<Item = &StepRow> {
        let from_here = self.steps.range((key, String::new())..);
        from_here.take_while(move |((of, _), _)| *of == key).map(|(_, step)| step)
    }

    pub(super) fn head(&self, key: Key) -> Option<HeadRow> {
        let head = self.runs.get(&key)?.clone();
        Some(HeadRow { stuck: self.suspects.stuck(&key), ..head })
    }

    pub(super) fn load(&self, key: Key) -> Option<LoadedRun> {
        let head = self.head(key)?;
        if head.stuck.is_some() {
            return Some(LoadedRun { head, checkpoint: None, tail: Vec::new() });
        }
        let checkpoint = self.checkpoints.get(&key).cloned();
        let after = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let tail = of_run(&self.events, key).filter(|(seq, _)| *seq > after).map(|(_, event)| event.clone()).collect();
        Some(LoadedRun { head, checkpoint, tail })
    }

    pub(super) fn gap(&self, head: &HeadRow) -> Option<LogGap> {
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
        stuck: None,
    }
}
