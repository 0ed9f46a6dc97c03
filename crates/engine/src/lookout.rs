//! The lookout: sees when another node has changed a run whose steps this one carries out.
//!
//! Any node may take a signal for any run. The one that has the run's steps in hand would notice when it next writes; a step
//! that runs for hours should not wait that long to be cancelled, nor should steps that a signal made ready. So the heads of
//! runs with steps that have been under way for a while are looked at. An idle node and one with short steps look at nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_store::{Result, Store};

use crate::committer::{Inbox, Request};
use crate::executor::Executor;
use crate::supervisor::Pulse;
use crate::workers::Leases;

/// How long a step has to be under way before its run is looked at, and how often that is done.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Lookout {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) executor: Executor,
    pub(crate) leases: Arc<Leases>,
    pub(crate) inbox: Inbox,
}

impl Lookout {
    /// Tells the committer how far the runs have come; it knows whether that is news.
    pub(crate) async fn run_once(&self, at_least: Duration) -> Result<()> {
        for (org, run) in self.executor.runs_under_way(at_least) {
            if let Some(head) = self.store.head(org, run).await? {
                self.inbox.report(Request::look(org, run, head.last_seq)).await;
            }
        }
        self.look_at_leases(at_least).await
    }

    /// Of runs whose steps workers have: one statement for all, and word only of those that went on.
    async fn look_at_leases(&self, at_least: Duration) -> Result<()> {
        let seen = self.leases.runs_under_way(at_least);
        if seen.is_empty() {
            return Ok(());
        }
        let runs: Vec<(OrgId, RunId)> = seen.iter().map(|(org, run, _)| (*org, *run)).collect();
        let seen: HashMap<RunId, u64> = seen.into_iter().map(|(_, run, seq)| (run, seq)).collect();
        for (org, run, last_seq) in self.store.last_seqs(&runs).await? {
            if seen.get(&run).is_none_or(|seq| *seq < last_seq) {
                self.leases.seen(run, last_seq);
                self.inbox.report(Request::look(org, run, last_seq)).await;
            }
        }
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            pulse.rest(tokio::time::sleep(INTERVAL)).await;
            if let Err(error) = self.run_once(INTERVAL).await {
                tracing::warn!(%error, "the runs whose steps are under way here cannot be looked at");
            }
        }
    }
}
