//! Steps that wait for workers, and steps that workers have.

use std::collections::{BTreeMap, BTreeSet};

use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::time::Timestamp;

use crate::rows::{LeaseExtension, QueueCount, TaskRow, TaskWrite};

/// The rows, by id.
#[derive(Debug, Default)]
pub(super) struct Tasks(BTreeMap<TaskId, TaskRow>);

impl Tasks {
    pub(super) fn write(&mut self, write: &TaskWrite) {
        match write {
            TaskWrite::Put(row) => {
                self.0.insert(row.task, (**row).clone());
            }
            TaskWrite::Delete(task) => {
                self.0.remove(task);
            }
            TaskWrite::Withdraw(task) => {
                if self.0.get(task).is_some_and(|row| row.lease.is_none()) {
                    self.0.remove(task);
                }
            }
        }
    }

    pub(super) fn by_id(&self, org: OrgId, tasks: &[TaskId]) -> Vec<TaskRow> {
        tasks.iter().filter_map(|task| self.0.get(task)).filter(|row| row.org == org).cloned().collect()
    }

    pub(super) fn of_run(&self, org: OrgId, run: RunId) -> Vec<TaskRow> {
        self.0.values().filter(|row| row.org == org && row.run == run).cloned().collect()
    }

    pub(super) fn nodes(&self) -> BTreeSet<NodeId> {
        self.0.values().map(|row| row.node).collect()
    }

    pub(super) fn pull(
        &mut self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Vec<TaskRow> {
        let mut waiting: Vec<&mut TaskRow> = self
            .0
            .values_mut()
            .filter(|row| row.lease.is_none() && row.node != node && row.since < before)
            .filter(|row| queues.iter().any(|queue| **queue == *row.queue))
            .collect();
        waiting.sort_by_key(|row| (-i64::from(row.priority), row.ready_at));
        let mut of_kind: BTreeMap<_, u32> = BTreeMap::new();
        let mut pulled = Vec::new();
        for row in waiting {
            let count = of_kind.entry((row.queue.clone(), row.node, row.org, row.workflow.clone())).or_default();
            if *count < limit {
                *count += 1;
                (row.node, row.since) = (node, now);
                pulled.push(row.clone());
            }
        }
        pulled
    }

    pub(super) fn take_over(&mut self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Vec<TaskRow> {
        let left = self.0.values_mut().filter(|row| row.node == dead).take(limit as usize);
        left.map(|row| {
            (row.node, row.since) = (node, now);
            row.clone()
        })
        .collect()
    }

    pub(super) fn extend(
        &mut self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Vec<TaskRow> {
        let mut extended = Vec::new();
        for extension in leases {
            let Some(row) = self.0.get_mut(&extension.task).filter(|row| row.org == org) else { continue };
            let Some(lease) = row.lease.as_mut().filter(|lease| lease.nonce == extension.nonce) else { continue };
            lease.expires_at = lease.expires_at.max(extension.expires_at);
            if extension.progress.is_some() {
                lease.progress.clone_from(&extension.progress);
            }
            if row.node != node {
                (row.node, row.since) = (node, now);
            }
            extended.push(row.clone());
        }
        extended
    }

    pub(super) fn leased(&self, fits: impl Fn(&TaskRow) -> bool) -> u32 {
        let count = self.0.values().filter(|row| row.lease.is_some() && fits(row)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn counts(&self) -> Vec<QueueCount> {
        let mut counts: BTreeMap<(OrgId, String), QueueCount> = BTreeMap::new();
        for row in self.0.values() {
            let (org, queue) = (row.org, row.queue.to_string());
            let count = counts.entry((org, queue.clone())).or_insert(QueueCount {
                org,
                queue,
                waiting: 0,
                leased: 0,
                oldest: None,
            });
            if row.lease.is_some() {
                count.leased += 1;
            } else {
                count.waiting += 1;
                count.oldest = Some(count.oldest.map_or(row.ready_at, |oldest| oldest.min(row.ready_at)));
            }
        }
        counts.into_values().collect()
    }
}
