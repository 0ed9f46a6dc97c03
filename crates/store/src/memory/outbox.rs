//! What commits ask for beyond the database.

use std::collections::BTreeMap;

use async_trait::async_trait;
use milepost_core::id::{NodeId, OrgId, OutboxId, RunId};
use milepost_core::time::Timestamp;

use super::MemoryStore;
use crate::rows::{Claim, OutboxCounts, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, OutboxState, OutboxWrite};
use crate::{OutboxStore, Result};

/// The rows and the dead letters, by id.
#[derive(Debug, Default)]
pub(super) struct Outbox(BTreeMap<OutboxId, OutboxRow>);

impl OutboxRow {
    /// When it may be claimed; never, if it is dead.
    fn due_at(&self) -> Option<Timestamp> {
        match self.state {
            OutboxState::Waiting { available_at } => Some(available_at),
            OutboxState::Claimed(claim) => Some(claim.until),
            OutboxState::Dead { .. } => None,
        }
    }
}

impl Outbox {
    pub(super) fn write(&mut self, org: OrgId, run: RunId, write: &OutboxWrite) {
        let OutboxWrite { id, kind, payload, claim, created_at } = write.clone();
        let state = OutboxState::Claimed(claim);
        self.0.insert(id, OutboxRow { id, org, run, kind, payload, attempts: 1, state, last_error: None, created_at });
    }

    fn claim(&mut self, claim: Claim, now: Timestamp, limit: u32) -> Vec<OutboxRow> {
        let mut due: Vec<&mut OutboxRow> =
            self.0.values_mut().filter(|row| row.due_at().is_some_and(|at| at <= now)).collect();
        due.sort_by_key(|row| row.due_at());
        due.truncate(limit as usize);
        due.into_iter()
            .map(|row| {
                row.attempts += 1;
                row.state = OutboxState::Claimed(claim);
                row.clone()
            })
            .collect()
    }

    fn settle(&mut self, node: NodeId, end: &OutboxEnd) {
        let Some(row) = self.0.get_mut(&end.id) else { return };
        let ours = matches!(row.state, OutboxState::Claimed(claim) if claim.node == node);
        if !ours || row.attempts != end.attempts {
            return;
        }
        match &end.outcome {
            OutboxOutcome::Done => drop(self.0.remove(&end.id)),
            OutboxOutcome::Again { at, attempts, error } => {
                row.state = OutboxState::Waiting { available_at: *at };
                row.attempts = *attempts;
                if error.is_some() {
                    row.last_error.clone_from(error);
                }
            }
            OutboxOutcome::Dead { at, error } => {
                row.state = OutboxState::Dead { died_at: *at };
                row.last_error = Some(error.clone());
            }
        }
    }

    fn retry(&mut self, org: OrgId, id: OutboxId, now: Timestamp) -> Option<OutboxRow> {
        let row = self.0.get_mut(&id).filter(|row| row.org == org)?;
        match row.state {
            OutboxState::Claimed(_) => {}
            OutboxState::Waiting { .. } => row.state = OutboxState::Waiting { available_at: now },
            OutboxState::Dead { .. } => (row.state, row.attempts) = (OutboxState::Waiting { available_at: now }, 0),
        }
        Some(row.clone())
    }
}

fn is_dead(row: &OutboxRow) -> bool {
    matches!(row.state, OutboxState::Dead { .. })
}

#[async_trait]
impl OutboxStore for MemoryStore {
    async fn claim(&self, claim: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>> {
        Ok(self.tables().outbox.claim(claim, now, limit))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>> {
        Ok(self.tables().outbox.0.values().filter_map(OutboxRow::due_at).min())
    }

    async fn settle(&self, node: NodeId, ends: &[OutboxEnd]) -> Result<()> {
        let mut tables = self.tables();
        ends.iter().for_each(|end| tables.outbox.settle(node, end));
        Ok(())
    }

    async fn free_claims(&self, gone: NodeId, now: Timestamp) -> Result<u64> {
        let mut tables = self.tables();
        let of_gone = |row: &&mut OutboxRow| matches!(row.state, OutboxState::Claimed(claim) if claim.node == gone);
        let claimed = tables.outbox.0.values_mut().filter(of_gone);
        Ok(claimed.map(|row| row.state = OutboxState::Waiting { available_at: now }).count() as u64)
    }

    async fn get(&self, org: OrgId, id: OutboxId) -> Result<Option<OutboxRow>> {
        Ok(self.tables().outbox.0.get(&id).filter(|row| row.org == org).cloned())
    }

    async fn list(
        &self,
        org: OrgId,
        filter: OutboxFilter,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<OutboxRow>> {
        let wanted = |row: &&OutboxRow| match filter {
            OutboxFilter::All => true,
            OutboxFilter::Pending => !is_dead(row),
            OutboxFilter::Dead => is_dead(row),
        };
        let tables = self.tables();
        let later = tables.outbox.0.values().filter(|row| row.org == org && Some(row.id) > after);
        Ok(later.filter(wanted).take(limit as usize).cloned().collect())
    }

    async fn retry(&self, org: OrgId, id: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>> {
        Ok(self.tables().outbox.retry(org, id, now))
    }

    async fn discard(&self, org: OrgId, id: OutboxId) -> Result<bool> {
        let rows = &mut self.tables().outbox.0;
        let found = rows.get(&id).is_some_and(|row| row.org == org && is_dead(row));
        if found {
            rows.remove(&id);
        }
        Ok(found)
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        let next_due = self.next_due().await?;
        let tables = self.tables();
        let dead = tables.outbox.0.values().filter(|row| is_dead(row)).count();
        Ok(OutboxCounts { pending: (tables.outbox.0.len() - dead) as u64, dead: dead as u64, next_due })
    }

    async fn forget_dead(&self, before: Timestamp) -> Result<u64> {
        let rows = &mut self.tables().outbox.0;
        let count = rows.len();
        rows.retain(|_, row| !matches!(row.state, OutboxState::Dead { died_at } if died_at < before));
        Ok((count - rows.len()) as u64)
    }
}
