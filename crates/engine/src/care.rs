//! Care: which runs may bring this process down, as all parts of an engine know it.
//!
//! ```text
//!   another node has died ─► wary for a while: runs that are loaded are noted before they are decided or prepared for
//!                            what is under way of them then stays under care until it is over
//!   one that began wary ─► wary until the end: however late a run does harm, it is noted before
//!   it died with a note  ─► suspected: decided alone, each time noted
//!   twice with that alone ─► stuck: nobody loads or decides it; `RESUME` or `TERMINATE` by somebody outside
//! ```
//!
//! In normal operation there is nothing here, and asking costs a look at a flag. The reaper brings it up to date; what the
//! database says of a run's head counts if that knows more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::run::{Rejection, RejectionKind};
use milepost_store::Store;
use milepost_store::rows::{HeadRow, Note, Stuck, SuspectRow, SuspectState, Watched};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

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
    notebook: tokio::sync::Mutex<Notebook>,
    /// For suspects something is prepared alone.
    turn: Arc<RwLock<()>>,
    store: Arc<dyn Store>,
    node: NodeId,
}

/// What this node has noted: one text for all that it does.
#[derive(Debug, Default)]
struct Notebook {
    deciding: Vec<Note>,
    preparing: Vec<(u64, Note)>,
    /// It began after a crash.
    follows: bool,
    /// `None`: a note was on its way when nobody waited for it any more.
    written: Option<Vec<Note>>,
}

impl Notebook {
    fn notes(&self) -> Vec<Note> {
        let mut runs: BTreeMap<(OrgId, RunId), Vec<&str>> = BTreeMap::new();
        for note in self.deciding.iter().chain(self.preparing.iter().map(|(_, note)| note)) {
            let deeds = runs.entry((note.org, note.run)).or_default();
            if !deeds.contains(&note.deed.as_str()) {
                deeds.push(&note.deed);
            }
        }
        let named = runs.into_iter().map(|((org, run), deeds)| Note { org, run, deed: deeds.join(Note::AND) });
        self.follows.then(Note::follows_a_crash).into_iter().chain(named).collect()
    }
}

#[derive(Debug, Default)]
struct Known {
    wary: bool,
    /// The time for that is over; what is under way of runs that were loaded in it is not known yet.
    was_wary: bool,
    /// It lasts until the end of this process.
    for_good: bool,
    /// Runs of which something is under way since then.
    cared: HashSet<RunId>,
    /// The suspect for which something is prepared.
    alone: Option<RunId>,
    /// Counts what is prepared.
    last: u64,
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
    pub(crate) fn new(store: Arc<dyn Store>, node: NodeId) -> Care {
        let (active, stuck, known, notebook, turn) = Default::default();
        Care(Arc::new(Shared { opened: Instant::now(), active, stuck, known, notebook, turn, store, node }))
    }

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
        let active = known.wary || known.was_wary || !(known.suspects.is_empty() && known.parked.is_empty());
        let active = active || !(known.elsewhere.is_empty() && known.cared.is_empty());
        let parked = known.parked.values().filter(|row| row.state == SuspectState::Stuck).count();
        self.0.stuck.store(parked, Ordering::Relaxed);
        self.0.active.store(active, Ordering::Relaxed);
    }

    /// All that the database knows.
    pub(crate) fn set(&self, watched: Watched, wary: bool) {
        let mut known = self.known();
        let wary = wary || known.for_good;
        known.was_wary = !wary && (known.wary || known.was_wary);
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

    /// A process died that had begun after a crash: nobody knows how long it takes until the next.
    pub(crate) fn stay_wary(&self) {
        self.known().for_good = true;
    }

    /// Whether the time is over in which all that is loaded is noted; asked once.
    pub(crate) fn has_calmed_down(&self) -> bool {
        let mut known = self.known();
        let over = std::mem::take(&mut known.was_wary);
        self.changed(&known);
        over
    }

    /// Something of these runs is under way since that time.
    pub(crate) fn keep_under_care(&self, runs: impl Iterator<Item = RunId>) {
        let mut known = self.known();
        known.cared.extend(runs);
        self.changed(&known);
    }

    /// Nothing is under way any more.
    pub(crate) fn let_go(&self, run: RunId) {
        let mut known = self.known();
        if known.cared.remove(&run) {
            self.changed(&known);
        }
    }

    /// Whether what is done for a run is noted. `loaded_with_care`: it was loaded in a time after a crash, or it is not loaded.
    pub(crate) fn notes(&self, run: RunId, loaded_with_care: impl Fn() -> bool) -> bool {
        let known = self.known();
        if known.suspects.contains_key(&run) {
            return true;
        }
        // A suspect for which something is prepared is noted alone.
        known.alone.is_none() && (known.cared.contains(&run) || (known.wary && loaded_with_care()))
    }

    /// Says among the notes that this process began after a crash.
    pub(crate) async fn follow_a_crash(&self) {
        let mut notebook = self.0.notebook.lock().await;
        notebook.follows = true;
        self.write(&mut notebook).await;
    }

    /// These are about to be decided, and no others.
    pub(crate) async fn deciding(&self, notes: Vec<Note>) {
        let mut notebook = self.0.notebook.lock().await;
        notebook.deciding = notes;
        self.write(&mut notebook).await;
    }

    /// Something is prepared for a run beside the committer, as long as the answer lives. A suspect waits until nothing is
    /// prepared for others under care.
    pub(crate) async fn prepare(&self, org: OrgId, run: RunId, deed: &str) -> Option<Preparing> {
        if !self.is_active() || !self.notes(run, || true) {
            return None;
        }
        let turn = match self.suspects(run) {
            true => {
                let turn = Turn::Alone(self.0.turn.clone().write_owned().await);
                self.known().alone = Some(run);
                turn
            }
            false => Turn::WithOthers(self.0.turn.clone().read_owned().await),
        };
        let id = {
            let mut known = self.known();
            known.last += 1;
            known.last
        };
        // From here on it is taken back when nobody waits for it any more.
        let preparing = Preparing { care: self.clone(), id, run, deed: deed.to_owned(), turn: Some(turn) };
        let mut notebook = self.0.notebook.lock().await;
        notebook.preparing.push((id, Note { org, run, deed: deed.to_owned() }));
        self.write(&mut notebook).await;
        Some(preparing)
    }

    async fn prepared(&self, id: u64, run: RunId, deed: &str) {
        let mut notebook = self.0.notebook.lock().await;
        notebook.preparing.retain(|(other, _)| *other != id);
        self.write(&mut notebook).await;
        drop(notebook);
        self.survived(run, deed, false).await;
    }

    /// What was to be done for a suspect is done, and the process lives.
    pub(crate) async fn survived(&self, run: RunId, deed: &str, ended: bool) {
        let Some(org) = self.decided(run, deed, ended) else { return };
        if let Err(error) = self.0.store.suspects().acquit(&[(org, run)]).await {
            tracing::warn!(%run, %error, "that a run does no harm could not be written");
        }
    }

    async fn write(&self, notebook: &mut Notebook) {
        let notes = notebook.notes();
        if notebook.written.take().is_some_and(|written| written == notes) {
            notebook.written = Some(notes);
            return;
        }
        if let Err(error) = self.0.store.suspects().note(self.0.node, &notes).await {
            // What cannot be written cannot be read either, as a rule: then nothing is loaded.
            tracing::warn!(node = %self.0.node, %error, "what is about to be decided could not be noted");
        }
        notebook.written = Some(notes);
    }

    /// Whether what is loaded now is noted.
    pub(crate) fn is_wary(&self) -> bool {
        self.known().wary
    }

    pub(crate) fn suspects(&self, run: RunId) -> bool {
        self.known().suspects.contains_key(&run)
    }

    /// What was to be decided is decided, and the process lives. Answers whether nothing is left to hold against the run.
    fn decided(&self, run: RunId, deed: &str, ended: bool) -> Option<OrgId> {
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

/// Something is being prepared for a run, and the note of this node says so.
#[derive(Debug)]
pub(crate) struct Preparing {
    care: Care,
    id: u64,
    run: RunId,
    deed: String,
    turn: Option<Turn>,
}

/// Held for as long as something is prepared.
#[derive(Debug)]
#[expect(dead_code, reason = "what counts is that it is held")]
enum Turn {
    Alone(OwnedRwLockWriteGuard<()>),
    WithOthers(OwnedRwLockReadGuard<()>),
}

impl Drop for Preparing {
    /// Also when nobody waits for it any more.
    fn drop(&mut self) {
        let (care, id, run, deed) = (self.care.clone(), self.id, self.run, std::mem::take(&mut self.deed));
        let turn = self.turn.take();
        // Without a runtime the process is about to end.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            care.prepared(id, run, &deed).await;
            if let Some(Turn::Alone(_)) = &turn {
                care.known().alone = None;
            }
            drop(turn);
        });
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

#[cfg(test)]
mod tests {
    use milepost_core::time::Timestamp;
    use milepost_store::memory::MemoryStore;
    use uuid::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const ORG: OrgId = OrgId::DEFAULT;

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    async fn care() -> (Care, Arc<dyn Store>) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        store.heartbeat(NodeId(1), NOW, 1000).await.unwrap();
        (Care::new(store.clone(), NodeId(1)), store)
    }

    fn suspect(n: u128) -> Watched {
        let (state, deed) = (SuspectState::Suspected, "patch".to_owned());
        let row = SuspectRow { org: ORG, run: run(n), state, crashes: 0, deed, changed_at: NOW, owner: None };
        Watched { suspects: vec![row], ..Watched::default() }
    }

    async fn noted(store: &Arc<dyn Store>) -> Vec<RunId> {
        let watched = store.suspects().watch(NodeId(2), NOW).await.unwrap();
        watched.noted.iter().map(|note| note.run).collect()
    }

    #[tokio::test]
    async fn what_is_under_way_since_a_crash_stays_under_care() {
        let (care, _) = care().await;
        care.set(Watched::default(), true);
        assert!(care.notes(run(1), || true) && !care.notes(run(1), || false) && !care.has_calmed_down());
        care.set(Watched::default(), false);
        assert!(care.is_active() && care.has_calmed_down() && !care.has_calmed_down());
        care.keep_under_care([run(1)].into_iter());
        assert!(care.notes(run(1), || false) && !care.notes(run(2), || true));
        care.let_go(run(1));
        assert!(!care.notes(run(1), || true) && !care.is_active());
    }

    #[tokio::test]
    async fn after_a_second_crash_it_is_wary_until_its_end() {
        let (care, _) = care().await;
        care.stay_wary();
        care.set(Watched::default(), false);
        assert!(care.is_wary() && care.is_active());
    }

    #[tokio::test]
    async fn a_run_is_noted_while_something_is_prepared_for_it() {
        let (care, store) = care().await;
        assert!(care.prepare(ORG, run(1), "patch").await.is_none(), "nothing in normal operation");
        care.set(Watched::default(), true);
        let preparing = care.prepare(ORG, run(1), "patch").await;
        care.deciding(vec![Note { org: ORG, run: run(2), deed: "adopt".to_owned() }]).await;
        assert_eq!(noted(&store).await, [run(1), run(2)]);
        care.deciding(Vec::new()).await;
        assert_eq!(noted(&store).await, [run(1)]);
        drop(preparing);
        while !noted(&store).await.is_empty() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn for_a_suspect_it_is_prepared_alone() {
        let (care, store) = care().await;
        care.set(suspect(1), true);
        let other = care.prepare(ORG, run(2), "patch").await;
        let alone = tokio::spawn({
            let care = care.clone();
            async move { care.prepare(ORG, run(1), "patch").await }
        });
        tokio::task::yield_now().await;
        assert_eq!(noted(&store).await, [run(2)]);
        drop(other);
        let preparing = alone.await.unwrap();
        assert_eq!(noted(&store).await, [run(1)]);
        assert!(!care.notes(run(2), || true), "else nobody knew which it was");
        drop(preparing);
        while care.suspects(run(1)) || !care.notes(run(2), || true) {
            tokio::task::yield_now().await;
        }
    }
}
