//! Loading: states that are not at hand, and facts that a decision lacks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use milepost_core::artifact::BlobRef;
use milepost_core::codec;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::run::Command;
use milepost_store::StoreError;

use super::decide::FollowUps;
use super::states::{Entry, restore};
use super::{Committer, Request, RequestKind};
use crate::care::Standing;
use crate::error::EngineError;
use crate::reading::{Budget, EVENTS};

impl Committer {
    /// States that another node is known to have left behind are read again, if nothing of them is on its way.
    pub(super) fn forget_outdated(&mut self, requests: &[Request]) {
        for request in requests {
            let Some(entry) = self.states.peek(request.kind.run()).filter(|entry| entry.busy == 0) else { continue };
            let outdated = match &request.kind {
                RequestKind::Command { command: Command::Adopt { lost: Some(_) }, .. } => true,
                RequestKind::Look { seq, .. } => entry.state.last_seq < *seq,
                _ => request.reread,
            };
            if outdated {
                self.states.forget(request.kind.run());
            }
        }
    }

    /// Loads the states that are not at hand. Answers those that cannot be.
    pub(super) async fn load(&mut self, runs: Vec<(OrgId, RunId)>) -> HashMap<RunId, Arc<EngineError>> {
        let mut failed = HashMap::new();
        if self.parts.care.is_active() {
            for (_, run) in &runs {
                let Standing::Parked(error) = self.parts.care.standing(*run) else { continue };
                if self.states.peek(*run).is_some_and(|entry| entry.busy == 0) {
                    self.states.forget(*run);
                }
                failed.insert(*run, Arc::new(error));
            }
        }
        let runs = runs.into_iter().filter(|(_, run)| !failed.contains_key(run));
        let mut missing: Vec<(OrgId, RunId)> = runs.filter(|(_, run)| !self.states.has(*run)).collect();
        if missing.is_empty() {
            return failed;
        }
        missing.sort_unstable();
        missing.dedup();
        // What is read now of a run on its way to the disk is out of date in a moment.
        let on_its_way = self.on_its_way(&missing);
        if !on_its_way.is_empty() {
            missing.retain(|(_, run)| !on_its_way.contains(run));
            let error = Arc::new(EngineError::Store(StoreError::Unavailable("the run is being written".to_owned())));
            failed.extend(on_its_way.into_iter().map(|run| (run, error.clone())));
        }
        match self.parts.store.load_runs(&missing).await {
            Ok(loaded) => {
                let with_care = self.parts.care.is_active() && self.parts.care.is_wary();
                for loaded in loaded {
                    let run = loaded.head.run;
                    match restore(&loaded, &self.parts.plans).await {
                        Ok(state) => {
                            let inline = state.ready_steps().any(|step| self.is_inline(state.plan.step(step.step)));
                            self.states.insert_loaded(state, &loaded.head, self.parts.node, inline, with_care);
                            self.carry_out_unsure(loaded.head.org, run, loaded.head.last_seq);
                            self.compare_with_known(loaded.head.org, run, loaded.head.last_seq);
                            self.ask_anew(loaded.head.org, run);
                        }
                        Err(error) if loaded.head.stuck.is_some() => {
                            self.parts.care.found_parked(&loaded.head);
                            failed.insert(run, Arc::new(error));
                        }
                        Err(error) => {
                            tracing::error!(%run, %error, "a run cannot be loaded");
                            failed.insert(run, Arc::new(error));
                        }
                    }
                }
            }
            Err(error) => {
                tracing::error!(node = %self.parts.node, %error, runs = missing.len(), "runs cannot be loaded");
                let error = Arc::new(EngineError::from(error));
                failed.extend(missing.into_iter().map(|(_, run)| (run, error.clone())));
            }
        }
        failed
    }

    /// Another node added to a run that this one has work of: what it stopped is stopped here, what it made ready is
    /// offered here.
    fn compare_with_known(&mut self, org: OrgId, run: RunId, last_seq: u64) {
        if self.known.get(&run).is_none_or(|known| *known == last_seq) {
            return;
        }
        let Some(entry) = self.states.peek(run) else { return };
        for task in self.parts.executor.tasks_of(run) {
            if !entry.state.wants(task) {
                self.parts.executor.cancel(org, run, task);
            }
        }
        if entry.elsewhere || !entry.needs_node() {
            self.known.remove(&run);
        } else {
            self.known.insert(run, last_seq);
            self.again.push(Request::revive(org, run));
        }
    }

    /// A run that another node had may wait for what others make, as that one knows: whoever has it now has to ask.
    fn ask_anew(&mut self, org: OrgId, run: RunId) {
        let node = self.parts.node;
        let ours = |entry: &Entry| entry.may_wait && !entry.elsewhere && entry.owner.is_some_and(|owner| owner != node);
        if self.states.peek(run).is_some_and(ours) {
            self.again.push(Request::revive(org, run));
        }
    }

    /// A batch of which nobody knew was written after all: what it handed out is carried out now.
    fn carry_out_unsure(&mut self, org: OrgId, run: RunId, last_seq: u64) {
        let Some(entry) = self.states.peek(run) else { return };
        // As long as the log has not moved, that batch may yet arrive.
        if self.unsure.get(&run).is_none_or(|unsure| unsure.expected_seq == last_seq) {
            return;
        }
        let Some(unsure) = self.unsure.remove(&run) else { return };
        let ours = entry.owner == Some(self.parts.node);
        for task in unsure.tasks {
            if ours && entry.state.wants(task.task) {
                self.ready.occupy();
                self.parts.executor.begin(org, run, &unsure.plan, task);
            }
        }
    }

    /// Those of the runs that are part of the batch on its way.
    fn on_its_way(&self, runs: &[(OrgId, RunId)]) -> HashSet<RunId> {
        let Some(flying) = &self.in_flight else { return HashSet::new() };
        let asked: HashSet<RunId> = runs.iter().map(|(_, run)| *run).collect();
        flying.runs().filter(|run| asked.contains(run)).collect()
    }

    pub(super) fn is_on_its_way(&self, run: RunId) -> bool {
        self.in_flight.as_ref().is_some_and(|flying| flying.runs().any(|flying| flying == run))
    }

    /// What nobody waits for must not be lost: an outcome is decided again when its run can be read.
    pub(super) fn not_loaded(&mut self, request: Request, error: &EngineError) {
        let request = Request { frees_slot: false, ..request };
        if self.is_on_its_way(request.kind.run()) {
            return self.held.push(request);
        }
        match request.reply {
            Some(reply) => drop(reply.send(Err(copy_of(error)))),
            // Nothing wakes it but somebody outside.
            None if matches!(error, EngineError::Stuck { .. }) => {}
            None => self.retry_later(request, error),
        }
    }

    /// Reads what a decision lacked, and goes on with it.
    pub(super) async fn learn(&mut self, org: OrgId, run: RunId, mut seqs: Vec<u64>, follow_ups: &mut FollowUps) {
        seqs.sort_unstable();
        seqs.dedup();
        let mut budget = Budget::new(&self.parts.limits);
        let (mut learned, mut lost) = (Vec::with_capacity(seqs.len()), 0);
        for page in seqs.chunks(EVENTS) {
            let rows = match self.parts.store.events_at(org, run, page).await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%run, %error, "events cannot be read");
                    return self.postpone(org, run, &error.into());
                }
            };
            for row in rows {
                if let (Some(beyond), Some(entry)) = (codec::carried_beyond(&row), self.states.get(run)) {
                    entry.state.learn_artifacts(row.seq, beyond.result());
                }
                match codec::carried_value(&row) {
                    Ok(Some(json)) => match budget.pay(json.len()) {
                        Ok(()) => learned.push((row.seq, json)),
                        Err(reason) => {
                            self.learn_lost(run, row.seq, reason);
                            lost += 1;
                        }
                    },
                    Ok(None) => match self.read_elsewhere(org, run, &row, &mut budget).await {
                        Ok(read) => {
                            lost += usize::from(read.is_none());
                            learned.extend(read.map(|json| (row.seq, json)));
                        }
                        Err(error) => return self.postpone(org, run, &error),
                    },
                    Err(error) => tracing::error!(%run, %error, "an event cannot be read"),
                }
            }
        }
        // A result that was taken a moment ago may not be on disk yet.
        for (seq, blob) in self.elsewhere(run, &seqs) {
            if learned.iter().any(|(known, _)| *known == seq) {
                continue;
            }
            match self.read_blob(org, run, seq, blob, &mut budget).await {
                Ok(Some(json)) => learned.push((seq, json)),
                Ok(None) => lost += 1,
                Err(error) => return self.postpone(org, run, &error),
            }
        }
        if learned.len() + lost < seqs.len() {
            // Going on would ask the same again; the run is read anew when something happens to it.
            let reason = format!(
                "{} of {} events that a decision needs are not there",
                seqs.len() - learned.len() - lost,
                seqs.len()
            );
            tracing::error!(%run, reason, "a run cannot go on");
            return self.postpone(org, run, &EngineError::Corrupt { run, reason });
        }
        // A failure here is logged where it happens.
        let _ = self.decide_command(org, run, &Command::Continue, Some(learned), follow_ups);
    }
}

impl Committer {
    /// The value of an event that is too large for the log. `None`: it is gone, and the state knows.
    async fn read_elsewhere(
        &mut self,
        org: OrgId,
        run: RunId,
        row: &EventRow,
        budget: &mut Budget,
    ) -> Result<Option<Json>, EngineError> {
        let Some(blob) = codec::carried_blob(row) else {
            return Err(EngineError::Corrupt { run, reason: format!("event {} carries no value", row.seq) });
        };
        self.read_blob(org, run, row.seq, blob, budget).await
    }

    async fn read_blob(
        &mut self,
        org: OrgId,
        run: RunId,
        seq: u64,
        blob: BlobRef,
        budget: &mut Budget,
    ) -> Result<Option<Json>, EngineError> {
        if let Err(reason) = budget.pay(usize::try_from(blob.size_bytes).unwrap_or(usize::MAX)) {
            self.learn_lost(run, seq, reason);
            return Ok(None);
        }
        let read = self.parts.artifacts.read_output(org, blob).await?;
        if read.is_none() {
            self.learn_lost(run, seq, crate::artifacts::lost(blob));
        }
        Ok(read)
    }

    fn learn_lost(&mut self, run: RunId, seq: u64, reason: String) {
        if let Some(entry) = self.states.get(run) {
            entry.state.learn_lost(seq, reason);
        }
    }

    /// Where the outputs of these events are, of those that are not on disk yet.
    fn elsewhere(&mut self, run: RunId, seqs: &[u64]) -> Vec<(u64, BlobRef)> {
        let gathering = self.pending.get(run).into_iter().flat_map(|pending| pending.events.iter());
        let flying = self.in_flight.iter().flat_map(|flying| flying.events_of(run));
        let wanted = gathering.chain(flying).filter(|event| seqs.contains(&event.seq));
        wanted.filter_map(|event| Some((event.seq, event.output_blob()?))).collect()
    }
}

pub(super) fn runs_of(requests: &[Request]) -> Vec<(OrgId, RunId)> {
    requests
        .iter()
        .filter_map(|request| match &request.kind {
            RequestKind::Command { org, run, .. }
            | RequestKind::TrySlot { org, run }
            | RequestKind::Look { org, run, .. } => Some((*org, *run)),
            RequestKind::Start { .. } | RequestKind::Care { .. } | RequestKind::EndParked { .. } => None,
        })
        .collect()
}

/// An error for each of several callers.
pub(super) fn copy_of(error: &EngineError) -> EngineError {
    match error {
        EngineError::Rejected(rejection) => EngineError::Rejected(rejection.clone()),
        EngineError::NoSuchRun(run) => EngineError::NoSuchRun(*run),
        EngineError::Moved { run, expected, last_seq } => {
            EngineError::Moved { run: *run, expected: *expected, last_seq: *last_seq }
        }
        EngineError::Stuck { run, stuck } => EngineError::Stuck { run: *run, stuck: stuck.clone() },
        EngineError::Corrupt { run, reason } => EngineError::Corrupt { run: *run, reason: reason.clone() },
        EngineError::LogGap { run, seq } => EngineError::LogGap { run: *run, seq: *seq },
        other => EngineError::Store(StoreError::Unavailable(other.to_string())),
    }
}
