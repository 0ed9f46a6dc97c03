//! What open runs wait for: whether they go on by themselves, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::run::RunState;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::rows::HeadRow;

use crate::committer::restore;
use crate::error::EngineError;
use crate::plans::Plans;

const PAGE: u32 = 500;

/// What comes next for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// A node has, or should be given, work of it.
    Moves,
    /// A timer wakes it.
    WakesAt(Timestamp),
    /// Another run comes first: a child, or those that hold its concurrency key.
    AfterAnother,
    /// Somebody outside has to act: a signal, an approval, a resume.
    WaitsForPeople,
    /// Nothing will wake it; `diagnose` says more.
    Stuck,
}

/// A run that has not ended.
#[derive(Clone, Debug)]
pub struct OpenRun {
    pub org: OrgId,
    pub run: RunId,
    pub workflow: String,
    pub status: RunStatus,
    /// The living node that has it.
    pub owner: Option<NodeId>,
    pub outlook: Outlook,
}

/// All runs that have not ended. Needs no engine; reads only.
///
/// # Errors
/// The store cannot be read.
pub async fn open_runs(
    store: &Arc<dyn Store>,
    blobs: Option<Blobs>,
    now: Timestamp,
) -> Result<Vec<OpenRun>, EngineError> {
    let plans = Plans::of_store(store, blobs);
    let dead: BTreeSet<NodeId> = store.dead_nodes(now).await?.into_iter().collect();
    let wakeable: BTreeSet<RunId> = store.slots_to_wake(PAGE).await?.into_iter().map(|slot| slot.run).collect();
    let (mut open, mut after) = (Vec::new(), None);
    loop {
        let heads = store.open_runs(after, PAGE).await?;
        for head in &heads {
            if let Some(outlook) = outlook_of(&**store, &plans, head, &wakeable, now).await? {
                let owner = head.owner.filter(|owner| !dead.contains(owner));
                let (workflow, status) = (head.workflow.clone(), head.status);
                open.push(OpenRun { org: head.org, run: head.run, workflow, status, owner, outlook });
            }
        }
        after = heads.last().map(|head| head.run);
        if heads.len() < PAGE as usize {
            return Ok(open);
        }
    }
}

/// `None` for a run that has ended meanwhile.
async fn outlook_of(
    store: &dyn Store,
    plans: &Plans,
    head: &HeadRow,
    wakeable: &BTreeSet<RunId>,
    now: Timestamp,
) -> Result<Option<Outlook>, EngineError> {
    let Some(loaded) = store.load_runs(&[(head.org, head.run)]).await?.into_iter().next() else { return Ok(None) };
    // One that cannot be read must not hide the others.
    let Ok(state) = restore(&loaded, plans).await else { return Ok(Some(Outlook::Stuck)) };
    Ok((!state.status.is_terminal()).then(|| look(&state, wakeable.contains(&head.run), now)))
}

fn look(state: &RunState, wakeable: bool, now: Timestamp) -> Outlook {
    if state.needs_node() || state.has_leases() || wakeable {
        Outlook::Moves
    } else if let Some(at) = state.armed_timers().map(|(_, at)| at).min() {
        Outlook::WakesAt(at)
    } else if state.awaited_children().next().is_some() {
        Outlook::AfterAnother
    } else if state.waits_for_people() {
        Outlook::WaitsForPeople
    } else if state.waits_for_slot(now) {
        Outlook::AfterAnother
    } else {
        Outlook::Stuck
    }
}
