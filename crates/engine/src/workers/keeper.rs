//! The lease keeper: what no worker speaks for any more goes to another one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{NodeId, OrgId, TaskId};
use milepost_core::run::Command;
use milepost_core::time::Timestamp;
use milepost_store::rows::TaskRow;
use milepost_store::{Result, Store, StoreError};

use super::{LeaseToken, Leases};
use crate::clock::Clock;
use crate::committer::{Inbox, Message, Request};
use crate::refused::refused_of;
use crate::supervisor::Pulse;

/// How long progress is gathered before it is written.
const GATHER: Duration = Duration::from_secs(1);

pub(crate) struct LeaseKeeper {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
    pub(crate) leases: Arc<Leases>,
}

impl LeaseKeeper {
    /// Loses the leases whose time is up. Answers when to look again.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<Option<Timestamp>> {
        self.write_progress(now).await?;
        let (overdue, next) = self.leases.overdue(now);
        let mut by_org: BTreeMap<OrgId, Vec<LeaseToken>> = BTreeMap::new();
        for token in overdue {
            by_org.entry(token.org).or_default().push(token);
        }
        for (org, tokens) in by_org {
            let ids: Vec<TaskId> = tokens.iter().map(LeaseToken::task_id).collect();
            let rows: BTreeMap<TaskId, TaskRow> =
                self.store.tasks(org, &ids).await?.into_iter().map(|row| (row.task, row)).collect();
            for token in tokens {
                self.judge(&token, rows.get(&token.task_id()), now).await;
            }
        }
        Ok(next)
    }

    /// Its worker may have talked to another node meanwhile.
    async fn judge(&self, token: &LeaseToken, row: Option<&TaskRow>, now: Timestamp) {
        let lease = row.and_then(|row| Some((row.node, row.lease.as_ref()?)));
        match lease.filter(|(_, lease)| lease.nonce == token.nonce) {
            Some((node, _)) if node != self.node => self.leases.forget(token),
            Some((_, lease)) if lease.expires_at > now => self.leases.put_off(token, lease.expires_at),
            _ => {
                tracing::info!(run = %token.run, worker_lost = %token.task_id(), "a worker said nothing for too long");
                if let Some(worker) = self.leases.worker(token) {
                    // After shutdown nobody offers anything.
                    let _ = self.inbox.send(Message::Silent(worker)).await;
                }
                let command = Command::LoseLease { task: token.task };
                self.inbox.report(Request::command(token.org, token.run, command)).await;
                // If it was not written, it is about to be; if it was over, there is nothing to watch.
                self.leases.forget(token);
            }
        }
    }

    async fn write_progress(&self, now: Timestamp) -> Result<()> {
        for (org, extensions) in self.leases.progress() {
            let extend = |part: Range<usize>| async {
                self.store.extend_leases(org, self.node, now, &extensions[part]).await.map(drop)
            };
            match extend(0..extensions.len()).await {
                Err(StoreError::Refused(reason)) => {
                    let refused = refused_of(extensions.len(), extend).await?;
                    let tasks: Vec<TaskId> = refused.into_iter().map(|place| extensions[place].task).collect();
                    tracing::error!(reason, ?tasks, "the database refused what workers say of their progress");
                }
                extended => extended?,
            }
        }
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            let now = self.clock.now();
            let wait = match self.run_once(now).await {
                Ok(Some(next)) => Duration::from_millis(next.ms_since(self.clock.now()).saturating_add(1)),
                Ok(None) => Duration::from_secs(3600),
                Err(error) => {
                    tracing::warn!(%error, "leases cannot be looked after");
                    Duration::from_secs(1)
                }
            };
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.leases.earlier.notified() => tokio::time::sleep(GATHER.min(wait)).await,
                    () = self.clock.set_from(now) => {}
                }
            };
            pulse.rest(due).await;
        }
    }
}
