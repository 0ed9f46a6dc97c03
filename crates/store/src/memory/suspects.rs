//! Runs that may bring a process down.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;

use super::MemoryStore;
use super::tables::{Key, Tables};
use crate::rows::{Note, Stuck, SuspectRow, SuspectState, Watched};
use crate::{Result, SuspectStore};

#[derive(Debug, Default)]
pub(super) struct Suspects {
    rows: BTreeMap<Key, SuspectRow>,
    notes: BTreeMap<NodeId, Vec<Note>>,
    crashed: BTreeMap<NodeId, Timestamp>,
}

impl Suspects {
    pub(super) fn forget_runs(&mut self, gone: impl Fn(&Key) -> bool) {
        self.rows.retain(|key, _| !gone(key));
    }

    /// A node that is heard of anew has not crashed.
    pub(super) fn heard(&mut self, node: NodeId) {
        self.crashed.remove(&node);
    }

    pub(super) fn left(&mut self, node: NodeId) {
        self.notes.remove(&node);
    }

    pub(super) fn stuck(&self, key: &Key) -> Option<Stuck> {
        self.rows.get(key).and_then(SuspectRow::stuck)
    }

    pub(super) fn is_stuck(&self, key: &Key) -> bool {
        self.rows.get(key).is_some_and(|row| row.state == SuspectState::Stuck)
    }
}

impl Tables {
    fn charge(&mut self, dead: NodeId, now: Timestamp) -> Vec<SuspectRow> {
        if self.nodes.get(&dead).copied().flatten().is_none() {
            return Vec::new();
        }
        self.suspects.crashed.entry(dead).or_insert(now);
        let (notes, _) = Note::told_apart(self.suspects.notes.remove(&dead).unwrap_or_default());
        let alone = notes.len() == 1;
        notes.into_iter().map(|note| self.charge_run(note, alone, now)).collect()
    }

    fn charge_run(&mut self, note: Note, alone: bool, now: Timestamp) -> SuspectRow {
        let key = (note.org, note.run);
        let before = self.suspects.rows.get(&key).cloned();
        let was_stuck = before.as_ref().is_some_and(|row| row.state != SuspectState::Suspected);
        let mut row = SuspectRow::charged(note, alone, before, now);
        if row.state == SuspectState::Stuck && !was_stuck {
            row.owner = self.runs.get_mut(&key).and_then(|head| head.owner.take());
            self.flights.retain(|(org, _), (run, ..)| (*org, *run) != key);
        }
        self.suspects.rows.insert(key, row.clone());
        row
    }
}

#[async_trait]
impl SuspectStore for MemoryStore {
    async fn note(&self, node: NodeId, notes: &[Note]) -> Result<()> {
        let mut tables = self.tables();
        if notes.is_empty() {
            tables.suspects.notes.remove(&node);
        } else if tables.nodes.contains_key(&node) {
            tables.suspects.notes.insert(node, notes.to_vec());
        }
        Ok(())
    }

    async fn charge(&self, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>> {
        let _writing = self.writing.lock().await;
        Ok(self.tables().charge(dead, now))
    }

    async fn watch(&self, node: NodeId, now: Timestamp) -> Result<Watched> {
        let tables = self.tables();
        let mut watched = Watched { suspects: tables.suspects.rows.values().cloned().collect(), ..Watched::default() };
        for (other, expires) in &tables.nodes {
            let Some(expires) = expires.filter(|_| *other != node) else { continue };
            let (crashed, notes) = (tables.suspects.crashed.get(other), tables.suspects.notes.get(other));
            watched.last_crash = watched.last_crash.max(crashed.copied());
            let (noted, follows) = Note::told_apart(notes.cloned().unwrap_or_default());
            if expires >= now {
                watched.uncertain = true;
                watched.noted.extend(noted);
            } else if crashed.is_none() || notes.is_some() {
                watched.died.push(*other);
                watched.again |= follows;
            }
        }
        Ok(watched)
    }

    async fn suspects(&self) -> Result<Vec<SuspectRow>> {
        Ok(self.tables().suspects.rows.values().cloned().collect())
    }

    async fn acquit(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        self.tables().suspects.rows.retain(|key, row| row.state != SuspectState::Suspected || !runs.contains(key));
        Ok(())
    }

    async fn release(&self, org: OrgId, run: RunId) -> Result<bool> {
        let _writing = self.writing.lock().await;
        let mut tables = self.tables();
        if !tables.suspects.is_stuck(&(org, run)) {
            return Ok(false);
        }
        let row = tables.suspects.rows.get_mut(&(org, run)).map(|row| {
            (row.state, row.crashes) = (SuspectState::Suspected, 0);
            row.owner
        });
        if let Some(head) = tables.runs.get_mut(&(org, run)) {
            head.owner = head.owner.or(row.flatten()).or(Some(NodeId(0)));
        }
        Ok(true)
    }

    async fn close(&self, org: OrgId, run: RunId) -> Result<bool> {
        let mut tables = self.tables();
        let row = tables.suspects.rows.get_mut(&(org, run)).filter(|row| row.state == SuspectState::Stuck);
        Ok(row.map(|row| row.state = SuspectState::Ended).is_some())
    }
}
