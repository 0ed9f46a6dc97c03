//! Care: which runs may bring this process down, as all parts of an engine know it.
//!
//! ```text
//!   another node has died ─► wary for a while: runs that are loaded are noted before they are decided
//!   it died with a note  ─► suspected: decided alone, each time noted
//!   twice with that alone ─► stuck: nobody loads or decides it; `RESUME` or `TERMINATE` by somebody outside
//! ```
//!
//! In normal operation there is nothing here, and asking costs a look at a flag. The reaper brings it up to date; what the
//! database says of a run's head counts if that knows more.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use milepost_core::id::{OrgId, RunId};
use milepost_core::run::{Rejection, RejectionKind};
use milepost_store::rows::{HeadRow, Note, Stuck, SuspectRow, SuspectState, Watched};

use crate::error::EngineError;

/// For so long after a crash was noticed a node notes what it loads.
pub(crate) const WARY_MS: u64 = 60_000;

/// A run that is held to have taken a process down waits for so long in a new one. So others get on first, and a process that is
/// killed again and again for other reasons does not end up with the same run in hand.
const QUARANTINE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Care(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    opened: Instant,
    /// There is anything at all to be careful about.
    active: AtomicBool,
    stuck: AtomicUsize,
    known: Mutex<Known>,
}

impl Default for Care {
    fn default() -> Care {
        let (active, stuck, known) = Default::default();
        Care(Arc::new(Shared { opened: Instant::now(), active, stuck, known }))
    }
}

#[derive(Debug, Default)]
struct Known {
    wary: bool,
    suspects: HashMap<RunId, Suspect>,
    parked: HashMap<RunId, SuspectRow>,
    /// Runs that another node, of which nobody knows whether it lives, is about to decide.
    elsewhere: HashSet<RunId>,
}

#[derive(Debug)]
struct Suspect {
    row: SuspectRow,
    /// Of what was being decided when the process died: what was not decided since.
    left: BTreeSet<String>,
}

/// How a run is to be taken.
#[derive(Debug)]
pub(crate) enum Standing {
    /// As any.
    Free,
    /// By itself; so often its process died in that.
    Alone(u32),
    /// Not yet: another node may be at it, or may have died of it; or this process is too young for it.
    Later,
    /// Not at all.
    Parked(EngineError),
}

impl Care {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().expect("no holder of this lock panics")
    }

    pub(crate) fn is_active(&self) -> bool {
        self.0.active.load(Ordering::Relaxed)
    }

    /// Runs that are parked, of all orgs.
    pub(crate) fn parked(&self) -> usize {
        self.0.stuck.load(Ordering::Relaxed)
    }

    fn changed(&self, known: &Known) {
        let active =
            known.wary || !(known.suspects.is_empty() && known.parked.is_empty() && known.elsewhere.is_empty());
        let parked = known.parked.values().filter(|row| row.state == SuspectState::Stuck).count();
        self.0.stuck.store(parked, Ordering::Relaxed);
        self.0.active.store(active, Ordering::Relaxed);
    }

    /// All that the database knows.
    pub(crate) fn set(&self, watched: Watched, wary: bool) {
        let mut known = self.known();
        known.wary = wary;
        known.elsewhere = watched.noted.iter().map(|note| note.run).collect();
        let mut suspects = HashMap::new();
        let (parked, suspected): (Vec<SuspectRow>, Vec<SuspectRow>) =
            watched.suspects.into_iter().partition(|row| row.state != SuspectState::Suspected);
        for row in suspected {
            let before = known.suspects.remove(&row.run).filter(|before| before.row == row);
            let left = before.map_or_else(|| row.deed.split(Note::AND).map(str::to_owned).collect(), |one| one.left);
            suspects.insert(row.run, Suspect { row, left });
        }
        known.suspects = suspects;
        known.parked = parked.into_iter().map(|row| (row.run, row)).collect();
        self.changed(&known);
    }

    /// The database says of a run that it is parked.
    pub(crate) fn found_parked(&self, head: &HeadRow) {
        let Some(stuck) = &head.stuck else { return };
        let state = if head.status.is_terminal() { SuspectState::Ended } else { SuspectState::Stuck };
        let Stuck { since: changed_at, crashes, deed } = stuck.clone();
        let row = SuspectRow { org: head.org, run: head.run, state, crashes, deed, changed_at, owner: None };
        let mut known = self.known();
        known.parked.insert(head.run, row);
        self.changed(&known);
    }

    /// Somebody has said that it may be decided again.
    pub(crate) fn released(&self, run: RunId) {
        let mut known = self.known();
        known.parked.remove(&run);
        known.suspects.remove(&run);
        self.changed(&known);
    }

    /// A parked run has ended.
    pub(crate) fn ended(&self, run: RunId) {
        let mut known = self.known();
        if let Some(row) = known.parked.get_mut(&run) {
            row.state = SuspectState::Ended;
        }
        self.changed(&known);
    }

    pub(crate) fn standing(&self, run: RunId) -> Standing {
        let known = self.known();
        if let Some(row) = known.parked.get(&run) {
            return Standing::Parked(parked_error(row));
        }
        if known.elsewhere.contains(&run) {
            return Standing::Later;
        }
        match known.suspects.get(&run).map(|suspect| suspect.row.crashes) {
            None => Standing::Free,
            Some(crashes) if crashes > 0 && self.0.opened.elapsed() < QUARANTINE => Standing::Later,
            Some(crashes) => Standing::Alone(crashes),
        }
    }

    /// Whether what is loaded now is noted.
    pub(crate) fn is_wary(&self) -> bool {
        self.known().wary
    }

    pub(crate) fn suspects(&self, run: RunId) -> bool {
        self.known().suspects.contains_key(&run)
    }

    /// What was to be decided is decided, and the process lives. Answers whether nothing is left to hold against the run.
    pub(crate) fn decided(&self, run: RunId, deed: &str, ended: bool) -> Option<OrgId> {
        let mut known = self.known();
        let suspect = known.suspects.get_mut(&run)?;
        suspect.left.remove(deed);
        if !ended && !suspect.left.is_empty() {
            return None;
        }
        let org = suspect.row.org;
        known.suspects.remove(&run);
        self.changed(&known);
        Some(org)
    }
}

/// What somebody is told who wants something of a parked run.
fn parked_error(row: &SuspectRow) -> EngineError {
    match (row.state, row.stuck()) {
        (SuspectState::Stuck, Some(stuck)) => EngineError::Stuck { run: row.run, stuck },
        _ => ended_unseen(),
    }
}

/// The same, as its head says.
pub(crate) fn refuse_parked(head: &HeadRow) -> Result<(), EngineError> {
    match &head.stuck {
        None => Ok(()),
        Some(_) if head.status.is_terminal() => Err(ended_unseen()),
        Some(stuck) => Err(EngineError::Stuck { run: head.run, stuck: stuck.clone() }),
    }
}

fn ended_unseen() -> EngineError {
    let message =
        "the run was terminated while it was parked; what its plan says is not looked at any more: start another";
    Rejection { kind: RejectionKind::Conflict, code: "run_ended", message: message.to_owned() }.into()
}

/// Why a run is parked, for people.
pub(crate) fn stuck_reason(stuck: &Stuck) -> String {
    let Stuck { crashes, deed, .. } = stuck;
    let times = match crashes {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    };
    format!("its process died {times} while it was being decided, the last time at: {deed}")
}
