//! The reaper: says that this node lives, takes over what dead ones left, wakes runs that have room to start.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::{NodeId, RunId};
use milepost_core::run::Command;
use milepost_core::time::Timestamp;
use milepost_store::rows::TaskRow;
use milepost_store::{Result, Store};

use crate::care::{Care, WARY_MS, stuck_reason};
use crate::clock::Clock;
use crate::committer::{Inbox, LimitedQueues, Message, Request, in_line};
use crate::outbox::Outbox;
use crate::supervisor::Pulse;
use crate::workers::Leases;

const PAGE: u32 = 500;
/// How often the store does what has to be done now and then.
const CARE_MS: u64 = 6 * 60 * 60 * 1000;
/// Each so many rounds a node looks at all that it owns.
const LOOK_AFTER: u64 = 6;

pub(crate) struct Reaper {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
    pub(crate) leases: Arc<Leases>,
    pub(crate) outbox: Outbox,
    pub(crate) limited_queues: LimitedQueues,
    pub(crate) care: Care,
    pub(crate) lease_ms: u64,
    pub(crate) opened_at: Timestamp,
}

impl Reaper {
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<()> {
        self.store.heartbeat(self.node, now, self.lease_ms).await?;
        self.look_around(now).await?;
        for dead in self.store.dead_nodes(now).await? {
            self.take_over(dead).await?;
        }
        self.limited_queues.set(&self.store.queues().await?);
        for slot in self.store.slots_to_wake(PAGE).await? {
            self.inbox.report(Request::try_slot(slot.org, slot.run)).await;
        }
        Ok(())
    }

    /// Finds out whether there is reason for care, and holds against runs what they did.
    async fn look_around(&self, now: Timestamp) -> Result<()> {
        let mut watched = self.store.suspects().watch(self.node, now).await?;
        if watched.again {
            self.care.stay_wary();
        }
        if !watched.died.is_empty() {
            for dead in &watched.died {
                self.charge(*dead, now).await?;
            }
            watched = self.store.suspects().watch(self.node, now).await?;
        }
        let crashed = watched.last_crash.is_some_and(|at| now.ms_since(at) < WARY_MS);
        // Of a process that ended a moment ago nobody knows it yet where there is only a lease to tell.
        let unsure = watched.uncertain && now.ms_since(self.opened_at) < self.lease_ms;
        self.care.set(watched, crashed || unsure);
        if crashed && now.ms_since(self.opened_at) < WARY_MS {
            self.care.follow_a_crash().await;
        }
        Ok(())
    }

    /// Answers whether anything is held against a run.
    async fn charge(&self, dead: NodeId, now: Timestamp) -> Result<bool> {
        let charged = self.store.suspects().charge(dead, now).await?;
        for row in &charged {
            let run = row.run;
            match row.stuck() {
                Some(stuck) => {
                    let reason = stuck_reason(&stuck);
                    tracing::error!(
                        %run, crashes = stuck.crashes, reason,
                        "a run is parked: it takes its process down; `milepost runs resume` or `terminate` it"
                    );
                }
                None => {
                    let (crashes, deed) = (row.crashes, &row.deed);
                    tracing::warn!(%run, %dead, crashes, deed, "a process died while it decided this run; it is decided alone from now on");
                }
            }
        }
        Ok(!charged.is_empty())
    }

    async fn take_over(&self, dead: NodeId) -> Result<()> {
        // It may have died since somebody last looked around.
        if self.charge(dead, self.clock.now()).await? {
            self.look_around(self.clock.now()).await?;
        }
        let mut after = None;
        let mut count = 0;
        loop {
            let runs = self.store.owned_runs(dead, after, PAGE).await?;
            for (org, run) in &runs {
                self.inbox.report(Request::command(*org, *run, Command::Adopt { lost: Some(dead) })).await;
            }
            count += runs.len();
            after = runs.last().map(|(_, run)| *run);
            if runs.len() < PAGE as usize {
                break;
            }
        }
        self.take_over_tasks(dead).await?;
        if self.store.outbox().free_claims(dead, self.clock.now()).await? > 0 {
            self.outbox.look_now();
        }
        if count > 0 {
            tracing::info!(node = %self.node, %dead, runs = count, "taking over the runs of a node that is gone");
        }
        Ok(())
    }

    /// What the dead node offered to workers is in line here; what it watched is watched here, for a whole lease: workers
    /// could not know whom to tell that they live.
    async fn take_over_tasks(&self, dead: NodeId) -> Result<()> {
        let now = self.clock.now();
        loop {
            let rows = self.store.take_over_tasks(dead, self.node, now, PAGE).await?;
            if rows.is_empty() {
                return Ok(());
            }
            let (leased, waiting): (Vec<TaskRow>, Vec<TaskRow>) = rows.into_iter().partition(|row| row.lease.is_some());
            for row in leased {
                let lines = match &row.lease {
                    None => 0,
                    Some(lease) => {
                        let (logical, engine) = (lease.logical_attempt, lease.engine_attempt);
                        self.store.log_lines(row.org, row.run, &row.step_id, logical, engine).await?
                    }
                };
                self.leases.adopt(&row, now, lines);
            }
            let waiting: Vec<_> = waiting.iter().map(|row| in_line(row, Instant::now())).collect();
            if !waiting.is_empty() {
                // When this node ends before it has them, they are another's.
                let _ = self.inbox.send(Message::Waiting(waiting)).await;
            }
        }
    }

    /// What this node owns for longer than a moment without having work of it was written by another: one that took this
    /// one for dead, or died before it could project. Answers what is owned now.
    async fn look_after(&self, owned_before: &HashSet<RunId>) -> Result<HashSet<RunId>> {
        let mut owned = HashSet::new();
        let mut after = None;
        loop {
            let runs = self.store.owned_runs(self.node, after, PAGE).await?;
            for (org, run) in &runs {
                owned.insert(*run);
                if owned_before.contains(run) {
                    self.inbox.report(Request::care(*org, *run)).await;
                }
            }
            after = runs.last().map(|(_, run)| *run);
            if runs.len() < PAGE as usize {
                return Ok(owned);
            }
        }
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        let mut owned = HashSet::new();
        let mut next_care = self.clock.now();
        for round in 1_u64.. {
            if self.clock.now() >= next_care {
                next_care = self.clock.now().plus_ms(CARE_MS);
                // That may take as long as it takes.
                if let Err(error) = pulse.rest(self.store.maintain(self.clock.now())).await {
                    tracing::warn!(node = %self.node, %error, "the database could not be cared for");
                }
            }
            pulse.rest(tokio::time::sleep(Duration::from_millis((self.lease_ms / 3).max(1)))).await;
            if let Err(error) = self.run_once(self.clock.now()).await {
                tracing::warn!(node = %self.node, %error, "this node could not say that it lives");
            }
            if round % LOOK_AFTER == 0 {
                match self.look_after(&owned).await {
                    Ok(now) => owned = now,
                    Err(error) => {
                        tracing::warn!(node = %self.node, %error, "the runs of this node cannot be read");
                    }
                }
            }
        }
    }
}
