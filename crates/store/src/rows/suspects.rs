//! Runs that may bring a process down when they are loaded or decided.

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Result, StoreError};

/// A run during whose decision the process has died so often is parked.
pub const MOST_CRASHES: u32 = 2;

/// A node is about to load or decide this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    pub org: OrgId,
    pub run: RunId,
    /// What is to be decided, in a few words. Of several things, all of them, separated by [`Note::AND`].
    pub deed: String,
}

impl Note {
    pub const AND: &str = "; ";
    const FOLLOWS: &str = "follows a crash";

    /// Stands among the notes of a process that began after a crash, and names no run: when it dies, that was not the first time.
    #[must_use]
    pub fn follows_a_crash() -> Note {
        Note { org: OrgId(0), run: RunId(uuid::Uuid::nil()), deed: Note::FOLLOWS.to_owned() }
    }

    fn is_of_run(&self) -> bool {
        *self != Note::follows_a_crash()
    }

    /// The runs that are named, and whether the process that named them followed a crash.
    pub(crate) fn told_apart(mut notes: Vec<Note>) -> (Vec<Note>, bool) {
        let all = notes.len();
        notes.retain(Note::is_of_run);
        let follows = notes.len() < all;
        (notes, follows)
    }

    pub(crate) fn write_all(notes: &[Note]) -> Option<String> {
        // Plain data: there is nothing in it that JSON could not say.
        (!notes.is_empty()).then(|| serde_json::to_string(notes).unwrap_or_default())
    }

    pub(crate) fn read_all(text: Option<&str>) -> Result<(Vec<Note>, bool)> {
        let notes = text.map_or(Ok(Vec::new()), |text| {
            serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("notes of a node: {error}")))
        });
        notes.map(Note::told_apart)
    }
}

/// What is held against a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectState {
    /// It is decided alone, so that it is known whether it was that.
    Suspected,
    /// It is loaded and decided by nobody until somebody says so.
    Stuck,
    /// The same for ever: it was ended without having been looked at.
    Ended,
}

impl SuspectState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SuspectState::Suspected => "suspected",
            SuspectState::Stuck => "stuck",
            SuspectState::Ended => "ended",
        }
    }
}

/// A word that names no state.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no state of a suspect")]
pub struct UnknownState(String);

impl std::str::FromStr for SuspectState {
    type Err = UnknownState;

    fn from_str(text: &str) -> std::result::Result<SuspectState, UnknownState> {
        match text {
            "suspected" => Ok(SuspectState::Suspected),
            "stuck" => Ok(SuspectState::Stuck),
            "ended" => Ok(SuspectState::Ended),
            _ => Err(UnknownState(text.to_owned())),
        }
    }
}

/// A run that was being decided when a process died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspectRow {
    pub org: OrgId,
    pub run: RunId,
    pub state: SuspectState,
    /// How often the process died while this run, and no other, was being decided.
    pub crashes: u32,
    /// What was being decided the last time: the deeds of its note.
    pub deed: String,
    /// When it was last found so; of a run that is parked, since when it is.
    pub changed_at: Timestamp,
    /// The node that had the run when it was parked.
    pub owner: Option<NodeId>,
}

impl SuspectRow {
    /// What the note of a node that died means for its run. `alone`: it was the only one, so it is known which run it was.
    pub(crate) fn charged(note: Note, alone: bool, before: Option<SuspectRow>, at: Timestamp) -> SuspectRow {
        let crashes = before.as_ref().map_or(0, |row| row.crashes).saturating_add(u32::from(alone));
        let (was, owner) = before.map_or((SuspectState::Suspected, None), |row| (row.state, row.owner));
        let state = match was {
            SuspectState::Suspected if crashes >= MOST_CRASHES => SuspectState::Stuck,
            was => was,
        };
        SuspectRow { org: note.org, run: note.run, state, crashes, deed: note.deed, changed_at: at, owner }
    }

    /// `None` for one that may be decided.
    #[must_use]
    pub fn stuck(&self) -> Option<Stuck> {
        (self.state != SuspectState::Suspected).then(|| Stuck {
            since: self.changed_at,
            crashes: self.crashes,
            deed: self.deed.clone(),
        })
    }
}

/// A run is parked: no node loads or decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub since: Timestamp,
    /// How often it took its process down.
    pub crashes: u32,
    /// What was being decided the last time.
    pub deed: String,
}

/// What a node has to know of the others, and of runs that brought nodes down.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Nodes that have died, not left, and were not charged yet ([`crate::SuspectStore::charge`]).
    pub died: Vec<NodeId>,
    /// When a node was last charged.
    pub last_crash: Option<Timestamp>,
    /// A node that has died and was not charged yet had begun after a crash itself.
    pub again: bool,
    /// There are nodes of which it is not known yet whether they live.
    pub uncertain: bool,
    /// What nodes that may live are about to decide.
    pub noted: Vec<Note>,
    /// All runs that something is held against: few.
    pub suspects: Vec<SuspectRow>,
}
