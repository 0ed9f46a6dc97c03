//! How a tag moves: read it, decide, write everything if it still stands where it stood.
//!
//! Undo and redo work as in an editor. The *move in effect* is a move of its own kind (no undo, no redo); each knows which one
//! was in effect before it, and there undo goes. What was undone lies on a stack that redo takes from, linked through the undos:
//!
//! ```text
//!   move 1 ◄─ move 2 ◄─ move 3        at 3
//!                                     undo (4): at 2, redo takes back 4
//!                                     undo (5): at 1, redo takes back 5, then 4
//!                                     redo (6): at 2, redo takes back 4
//!                 ◄─ move 7           at 7, nothing to redo
//! ```
//!
//! **Invariant:** every move is one row that is never changed, and says all that is needed to go on from it: each step costs
//! the same however long the history is.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    BlobRow, ChainRow, DefinitionWrite, MoveKind, MoveRow, RequestRow, RevisionKind, RevisionRow, TagRow, TagWrite,
};
use uuid::Uuid;

use super::request::Asked;
use super::{DefinitionError, Definitions, Moved, Moving, TRIES, Target};
use crate::error::EngineError;

/// Where a tag goes.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) kind: RevisionKind,
    pub(super) revision_id: Uuid,
    pub(super) version_hash: Digest,
}

impl From<&RevisionRow> for Destination {
    fn from(row: &RevisionRow) -> Destination {
        Destination { kind: row.kind, revision_id: row.revision_id, version_hash: row.version_hash }
    }
}

impl From<&Target> for Destination {
    fn from(target: &Target) -> Destination {
        let Target { kind, revision_id, version_hash, .. } = *target;
        Destination { kind, revision_id, version_hash }
    }
}

impl Destination {
    pub(super) fn from_tag(tag: &TagRow) -> Destination {
        Destination { kind: tag.kind, revision_id: tag.revision_id, version_hash: tag.version_hash }
    }
}

impl From<&MoveRow> for Destination {
    fn from(moved: &MoveRow) -> Destination {
        Destination { kind: moved.to_kind, revision_id: moved.to_revision_id, version_hash: moved.to_version_hash }
    }
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Step {
    /// A move of its own kind: ends redo.
    Go { kind: MoveKind, restores: Option<u64>, merged: Option<Uuid> },
    /// Takes back the move in effect: goes to the one before it.
    Undo { to: u64 },
    /// Takes an undo back: the move that it took back is in effect again.
    Redo { to: u64, below: Option<u64> },
    /// Restores where move `to` led because the tag points at what is damaged or gone. An undo goes on from there.
    Repair { to: u64, before: Option<u64> },
}

/// What was decided on a tag.
#[derive(Debug)]
pub(super) enum Decision {
    Stay,
    Move(Box<Change>),
}

#[derive(Debug)]
pub(super) struct Change {
    pub(super) step: Step,
    pub(super) to: Destination,
    /// The revision was there before.
    pub(super) existing: bool,
    /// To be written with the move.
    pub(super) blobs: Vec<BlobRow>,
    pub(super) revisions: Vec<RevisionRow>,
    pub(super) chain: Vec<ChainRow>,
}

impl Change {
    pub(super) fn to_existing(step: Step, to: Destination) -> Decision {
        let (blobs, revisions, chain) = Default::default();
        Decision::Move(Box::new(Change { step, to, existing: true, blobs, revisions, chain }))
    }
}

pub(super) fn go(kind: MoveKind) -> Step {
    Step::Go { kind, restores: None, merged: None }
}

impl Definitions {
    /// Moves a tag as `decide` says; again from the beginning as often as another one is faster.
    pub(super) async fn change<D>(
        &self,
        org: OrgId,
        tag: &str,
        asked: &Asked<'_>,
        decide: impl Fn(Option<TagRow>) -> D,
    ) -> Result<Moved, EngineError>
    where
        D: Future<Output = Result<Decision, EngineError>>,
    {
        asked.moving.check(&self.limits)?;
        if !self.can_be_tag(tag) {
            return Err(EngineError::NoSuchWorkflow(tag.to_owned()));
        }
        let _turn = self.line(org, tag).lock().await;
        for tried in 0..TRIES {
            if let Some(answer) = self.answered(org, tag, asked).await? {
                return Ok(answer);
            }
            let now = self.store.definitions().tag(org, tag).await?;
            check_expected(tag, asked.moving, now.as_ref())?;
            self.check_mover(tag, asked.moving, now.as_ref())?;
            let (write, moved) = match (decide(now.clone()).await?, now) {
                (Decision::Move(change), now) => {
                    let mut from = now.as_ref().map(|row| row.revision_id);
                    if let Some(revision) = from.filter(|_| tried > 0) {
                        // A move names revisions that are there. One that is gone looks like a race that was lost.
                        let found = self.store.definitions().revision(org, revision).await?;
                        from = found.map(|row| row.revision_id);
                    }
                    self.write_of(tag, asked, *change, (now, from))
                }
                (Decision::Stay, Some(now)) => {
                    let moved = self.newest_move(org, &now).await?;
                    let moved = Moved { tag: now, moved, existing: true, unchanged: true };
                    (DefinitionWrite::default(), moved)
                }
                (Decision::Stay, None) => return Err(EngineError::NoSuchWorkflow(tag.to_owned())),
            };
            let request = asked.answer(&moved, self.clock.now());
            let nothing = moved.unchanged && request.is_none();
            if nothing || self.store.definitions().write(org, &DefinitionWrite { request, ..write }).await? {
                return Ok(moved);
            }
        }
        Err(DefinitionError::Busy(tag.to_owned()).into())
    }

    async fn newest_move(&self, org: OrgId, tag: &TagRow) -> Result<MoveRow, EngineError> {
        let moved = self.store.definitions().move_of(org, &tag.tag, tag.version).await?;
        Ok(moved.ok_or_else(|| corrupt_history(&tag.tag, tag.version))?)
    }

    /// A move that a tag's row or another move names.
    pub(super) async fn known_move(&self, org: OrgId, tag: &str, move_id: u64) -> Result<MoveRow, EngineError> {
        let moved = self.store.definitions().move_of(org, tag, move_id).await?;
        Ok(moved.ok_or_else(|| corrupt_history(tag, move_id))?)
    }

    /// What a change writes to a tag that stands there now, and leaves this revision.
    fn write_of(
        &self,
        tag: &str,
        asked: &Asked<'_>,
        change: Change,
        (now, from_revision_id): (Option<TagRow>, Option<Uuid>),
    ) -> (DefinitionWrite, Moved) {
        let moving = asked.moving;
        let expected_version = now.as_ref().map_or(0, |row| row.version);
        let version = expected_version + 1;
        // Later than the move before, whatever the clock says: `tag@time` has one answer.
        let earliest = now.as_ref().map_or(i64::MIN, |row| row.moved_at.0 + 1);
        let moved_at = Timestamp(self.clock.now().0.max(earliest));
        let at = now.as_ref().map(|row| row.at_move);
        let redo = now.as_ref().and_then(|row| row.redo_move);
        let mut moved = MoveRow {
            move_id: version,
            kind: MoveKind::Move,
            from_revision_id,
            to_kind: change.to.kind,
            to_revision_id: change.to.revision_id,
            to_version_hash: change.to.version_hash,
            restores_move_id: None,
            before_move: None,
            undone_move: None,
            below_move: None,
            merged_revision_id: None,
            moved_by: moving.by.clone(),
            moved_at,
            message: moving.message.clone(),
            from_kind: now.as_ref().map(|row| row.kind),
            expected_hash: now.as_ref().filter(|_| moving.expected.is_some()).map(|row| row.version_hash),
        };
        let (at_move, redo_move) = match change.step {
            Step::Go { kind, restores, merged } => {
                moved.kind = kind;
                moved.before_move = at;
                moved.restores_move_id = restores;
                moved.merged_revision_id = merged;
                (version, None)
            }
            Step::Undo { to } => {
                moved.kind = MoveKind::Undo;
                moved.restores_move_id = Some(to);
                moved.undone_move = at;
                moved.below_move = redo;
                (to, Some(version))
            }
            Step::Redo { to, below } => {
                moved.kind = MoveKind::Redo;
                moved.restores_move_id = Some(to);
                (to, below)
            }
            Step::Repair { to, before } => {
                moved.kind = MoveKind::Restore;
                moved.restores_move_id = Some(to);
                moved.before_move = before;
                (version, None)
            }
        };
        let row = TagRow {
            tag: tag.to_owned(),
            kind: change.to.kind,
            revision_id: change.to.revision_id,
            version_hash: change.to.version_hash,
            version,
            at_move,
            redo_move,
            moved_by: moving.by.clone(),
            moved_at,
            message: moving.message.clone(),
            protection: now.and_then(|row| row.protection),
        };
        let write = DefinitionWrite {
            blobs: change.blobs,
            revisions: change.revisions,
            chain: change.chain,
            tag: Some(TagWrite { expected_version, tag: row.clone(), moved: moved.clone() }),
            request: None::<RequestRow>,
        };
        (write, Moved { tag: row, moved, existing: change.existing, unchanged: false })
    }
}

fn check_expected(tag: &str, moving: &Moving, now: Option<&TagRow>) -> Result<(), EngineError> {
    let version = now.map_or(0, |row| row.version);
    match moving.expected {
        Some(expected) if expected != version => {
            Err(DefinitionError::TagMoved { tag: tag.to_owned(), expected, version }.into())
        }
        _ => Ok(()),
    }
}

fn corrupt_history(tag: &str, move_id: u64) -> milepost_store::StoreError {
    milepost_store::StoreError::Corrupt(format!("move {move_id} of tag `{tag}` is not there"))
}
