//! `doctor`: looks over a whole database for what should never be.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::id::{NodeId, RunId};
use milepost_core::limits::Limits;
use milepost_core::run::RunState;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::rows::{HeadRow, OutboxCounts};
use serde::Serialize;

use crate::care::refuse_parked;
use crate::committer::restore;
use crate::definitions::Definitions;
use crate::error::EngineError;
use crate::plans::Plans;

const PAGE: u32 = 500;
/// A projection may be this far behind before it is worth a word.
const LAG_MS: u64 = 5_000;
/// A timer may be this late before it is worth a word.
const LATE_MS: u64 = 30_000;
/// At most so many findings of each kind are listed.
const FINDINGS: u32 = 100;

/// Something that should not be.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub code: &'static str,
    pub run_id: Option<RunId>,
    pub message: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Diagnosis {
    pub runs: u64,
    pub open_runs: u64,
    pub findings: Vec<Finding>,
    /// What makes things slower and nothing wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Finding>,
    /// What `--repair` did before it looked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<String>,
}

/// Looks over the whole database. Reads only.
///
/// # Errors
/// The database cannot be read.
pub async fn diagnose(store: &Arc<dyn Store>, blobs: Option<Blobs>, now: Timestamp) -> Result<Diagnosis, EngineError> {
    let plans = Plans::of_store(store, blobs.clone());
    let mut diagnosis = Diagnosis { runs: store.count_runs().await?, ..Diagnosis::default() };
    let dead: BTreeSet<NodeId> = store.dead_nodes(now).await?.into_iter().collect();
    let mut after = None;
    loop {
        let heads = store.open_runs(after, PAGE).await?;
        diagnosis.open_runs += heads.len() as u64;
        for head in &heads {
            if let Some(finding) = look_at(&**store, &plans, head, &dead, now).await? {
                diagnosis.findings.push(finding);
            }
        }
        after = heads.last().map(|head| head.run);
        if heads.len() < PAGE as usize {
            break;
        }
    }
    for gap in store.log_gaps(FINDINGS).await? {
        diagnosis.findings.push(Finding { code: "log_gap", run_id: Some(gap.run), message: gap.message });
    }
    for (org, run, behind) in store.unprojected(FINDINGS).await? {
        let head = store.head(org, run).await?;
        let newest = store.events(org, run, head.as_ref().map_or(0, |head| head.last_seq.saturating_sub(1)), 1).await?;
        let age_ms = newest.first().map_or(0, |row| now.ms_since(row.persisted_at));
        let cared_for = head.and_then(|head| head.owner).is_some_and(|owner| !dead.contains(&owner));
        if age_ms > LAG_MS || !cared_for {
            let message = format!("its projection is {behind} events and {age_ms} ms behind its log");
            diagnosis.findings.push(Finding { code: "projection_lag", run_id: Some(run), message });
        }
    }
    for flight in store.flights().left_behind(FINDINGS).await? {
        let message = "it has ended and is said to make a result still; whoever wants that takes over".to_owned();
        diagnosis.findings.push(Finding { code: "flight_left_behind", run_id: Some(flight.leader.0), message });
    }
    diagnosis.findings.extend(look_at_outbox(&**store, now).await?);
    for fault in Definitions::open(store.clone(), blobs, Limits::default()).faults().await? {
        let way = if fault.repairable { "; `milepost doctor --repair` puts it right" } else { "" };
        let message = format!("{}{way}", fault.message);
        diagnosis.findings.push(Finding { code: fault.code, run_id: None, message });
    }
    Ok(diagnosis)
}

/// Puts right what can be: chains of patches are made again from parents, and tags that point at what is damaged or gone are
/// moved to where they last stood on something whole, in the name of `by`. Runs whose log has a gap are marked, so that lists
/// say so. Says what was done.
///
/// # Errors
/// The database cannot be read or written.
pub async fn repair(
    store: &Arc<dyn Store>,
    blobs: Option<Blobs>,
    by: Option<&str>,
) -> Result<Vec<String>, EngineError> {
    let mut done = Definitions::open(store.clone(), blobs, Limits::default()).repair(by).await?;
    for gap in store.log_gaps(u32::MAX).await? {
        let from_seq = store.first_missing(gap.org, gap.run).await?;
        let noted = store.stale_runs(gap.org, &[gap.run]).await?;
        if noted != [(gap.run, from_seq)] && store.head(gap.org, gap.run).await?.is_some() {
            store.mark_stale(gap.org, gap.run, Some(from_seq)).await?;
            done.push(format!("run {} is marked as stale from event {from_seq} on", gap.run));
        }
    }
    Ok(done)
}

async fn look_at_outbox(store: &dyn Store, now: Timestamp) -> Result<Vec<Finding>, EngineError> {
    let finding = |code, message: String| Finding { code, run_id: None, message };
    let OutboxCounts { dead, next_due, .. } = store.outbox().counts().await?;
    let mut findings = Vec::new();
    if dead > 0 {
        let what = if dead == 1 { "a delivery was".to_owned() } else { format!("{dead} deliveries were") };
        let message = format!(
            "{what} given up; `milepost outbox list --dead` says why, `milepost outbox retry` has them tried again"
        );
        findings.push(finding("dead_letters", message));
    }
    if let Some(due) = next_due.filter(|due| now.ms_since(*due) > LATE_MS) {
        findings.push(finding("overdue_delivery", format!("a delivery was due at {due} and no server has tried it")));
    }
    Ok(findings)
}

async fn look_at(
    store: &dyn Store,
    plans: &Plans,
    head: &HeadRow,
    dead: &BTreeSet<NodeId>,
    now: Timestamp,
) -> Result<Option<Finding>, EngineError> {
    let finding = |code, message: String| Ok(Some(Finding { code, run_id: Some(head.run), message }));
    if let Err(error) = refuse_parked(head) {
        return finding(error.code(), error.to_string());
    }
    let Some(loaded) = store.load_runs(&[(head.org, head.run)]).await?.into_iter().next() else {
        return Ok(None);
    };
    let state = match restore(&loaded, plans).await {
        Ok(state) => state,
        Err(error) => return finding("unreadable", error.to_string()),
    };
    if state.status.is_terminal() {
        return Ok(None);
    }
    let armed: BTreeSet<(u64, Timestamp)> = state.armed_timers().collect();
    let rows = store.timers_of(head.org, head.run).await?;
    let stored: BTreeSet<(u64, Timestamp)> = rows.iter().map(|row| (row.seq, row.due_at)).collect();
    if armed != stored && store.head(head.org, head.run).await?.is_some_and(|now| now.last_seq == state.last_seq) {
        return finding("timers", format!("it needs the timers {armed:?} and has {stored:?}"));
    }
    if let Some((_, due_at)) = armed.iter().find(|(_, due_at)| now.ms_since(*due_at) > LATE_MS) {
        let message = format!("a timer was due at {due_at} and no process has fired it");
        return finding("overdue_timer", message);
    }
    match has_wake_up(store, &state, &loaded.head, dead, now).await? {
        true => Ok(None),
        // It went on while it was looked at.
        false if store.head(head.org, head.run).await?.is_none_or(|now| now.last_seq != state.last_seq) => Ok(None),
        false if loaded.head.owner.is_some_and(|owner| dead.contains(&owner)) => {
            finding("left_behind", format!("it is {} and the process that had it is gone", state.status))
        }
        false => finding("no_wake_up", format!("it is {} and nothing will wake it", state.status)),
    }
}

/// Whether something will make the run go on by itself, or somebody outside has to.
async fn has_wake_up(
    store: &dyn Store,
    state: &RunState,
    head: &HeadRow,
    dead: &BTreeSet<NodeId>,
    now: Timestamp,
) -> Result<bool, EngineError> {
    let owned = head.owner.is_some_and(|owner| !dead.contains(&owner));
    if owned || state.waits_for_people() || state.armed_timers().next().is_some() {
        return Ok(true);
    }
    if state.has_leases() || state.needs_node() {
        // Each step in the hands of a worker, or in line for one, has a row; one step that moves is enough.
        return Ok(!store.tasks_of(head.org, head.run).await?.is_empty());
    }
    for child in state.awaited_children() {
        if store.head(head.org, child).await?.is_some_and(|child| !child.status.is_terminal()) {
            return Ok(true);
        }
    }
    if state.waits_for_slot(now) {
        return Ok(store.slot_of(head.org, head.run).await?.is_some());
    }
    Ok(false)
}
