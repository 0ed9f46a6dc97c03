//! Conflicts as data: what clashes, where, and what each side has there.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// So many clashing values are told.
const MOST: usize = 10_000;
/// Bytes of all of them: paths, and what each side has.
const MOST_BYTES: usize = 32 << 20;

/// What a merge cannot decide.
#[derive(Debug)]
pub struct Conflicts {
    pub list: Vec<Conflict>,
    /// There are more.
    pub truncated: bool,
    bytes_left: usize,
}

impl Default for Conflicts {
    fn default() -> Conflicts {
        Conflicts { list: Vec::new(), truncated: false, bytes_left: MOST_BYTES }
    }
}

impl Conflicts {
    /// Makes room for a conflict of so many bytes before it is made.
    pub(super) fn add(&mut self, bytes: usize, conflict: impl FnOnce() -> Conflict) {
        match self.bytes_left.checked_sub(bytes).filter(|_| self.list.len() < MOST) {
            Some(left) => {
                self.bytes_left = left;
                self.list.push(conflict());
            }
            None => self.truncated = true,
        }
    }
}

/// Something that a merge cannot decide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conflict {
    pub kind: ConflictKind,
    /// A JSON pointer into the document: `/steps/brief/input/topic`.
    pub path: String,
    /// The step that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    pub message: String,
    /// The way around of a cycle, from a step back to itself; the step that a dangling reference names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// Where a value clashes: what was there, and what each side has now. Absent where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictKind {
    /// Both sides changed a value, and not to the same.
    BothChanged,
    /// One side changed what the other removed.
    ChangedAndRemoved,
    /// Both sides added something of that name, and not the same.
    BothAdded,
    /// Every value fits, and together they make steps wait for each other.
    Cycle,
    /// Every value fits, and a step that one side removed is referred to by the other.
    DanglingReference,
    /// Every value fits, and together they are no valid document.
    Invalid,
}

/// The two sides of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Theirs,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Ours => "ours",
            Side::Theirs => "theirs",
        })
    }
}
