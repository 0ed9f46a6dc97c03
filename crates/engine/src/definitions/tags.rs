//! Tags are set, taken back, and brought back.

use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::rows::{MoveKind, MoveRow, TagRow};

use super::moves::{Change, Decision, Destination, Step, go};
use super::request::Asked;
use super::{DefinitionError, Definitions, Moved, Moving, Target};
use crate::error::EngineError;

impl Definitions {
    /// Points a tag at a revision; makes it if there is none.
    ///
    /// # Errors
    /// The target means nothing, the name cannot be one, or the tag moved or may not be moved.
    pub async fn set(&self, org: OrgId, tag: &str, target: &str, moving: &Moving) -> Result<Moved, EngineError> {
        self.check_tag(tag)?;
        let asked = Asked::new(moving, ["set", tag, target]);
        self.change(org, tag, &asked, |now| async move {
            let target = self.resolve(org, target).await?;
            self.go_to(org, now, &target, go(MoveKind::Move)).await
        })
        .await
    }

    /// Takes the newest move back that was not taken back yet.
    ///
    /// # Errors
    /// There is none, the newest move is somebody else's and the caller did not say that it has seen it, or the tag moved
    /// or may not be moved.
    pub async fn undo(&self, org: OrgId, tag: &str, moving: &Moving) -> Result<Moved, EngineError> {
        let asked = Asked::new(moving, ["undo", tag]);
        self.change(org, tag, &asked, |now| async move {
            let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))?;
            let nothing = || DefinitionError::NothingToUndo(tag.to_owned());
            let to = self.store.definitions().move_back(org, tag, now.at_move, 1).await?.ok_or_else(nothing)?;
            check_own(&now, moving)?;
            self.bring_back(org, &now, &to, Step::Undo { to: to.move_id }).await
        })
        .await
    }

    /// Takes the newest undo back.
    ///
    /// # Errors
    /// There is none since the last other move, the newest move is somebody else's and the caller did not say that it has
    /// seen it, or the tag moved or may not be moved.
    pub async fn redo(&self, org: OrgId, tag: &str, moving: &Moving) -> Result<Moved, EngineError> {
        let asked = Asked::new(moving, ["redo", tag]);
        self.change(org, tag, &asked, |now| async move {
            let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))?;
            let nothing = || DefinitionError::NothingToRedo(tag.to_owned());
            let undo = self.known_move(org, tag, now.redo_move.ok_or_else(nothing)?).await?;
            let to = undo.undone_move.ok_or_else(nothing)?;
            check_own(&now, moving)?;
            let moved = self.known_move(org, tag, to).await?;
            self.bring_back(org, &now, &moved, Step::Redo { to, below: undo.below_move }).await
        })
        .await
    }

    /// Goes back to what a reference means, or to where the tag was at a moment. This is a move like any other: it can be
    /// undone.
    ///
    /// # Errors
    /// The target means nothing, the newest move is somebody else's and the caller did not say that it has seen it, or the
    /// tag moved or may not be moved.
    pub async fn restore(
        &self,
        org: OrgId,
        tag: &str,
        target: &Restore,
        moving: &Moving,
    ) -> Result<Moved, EngineError> {
        let reference = match target {
            Restore::Target(reference) => reference.clone(),
            Restore::At(at) => format!("{tag}@{at}"),
        };
        let asked = Asked::new(moving, ["restore", tag, &reference]);
        let reference = &reference;
        self.change(org, tag, &asked, |now| async move {
            let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))?;
            let target = self.resolve(org, reference).await?;
            check_own(&now, moving)?;
            let restores = target.tag.as_ref().filter(|(of, _)| of == tag).map(|(_, moved)| *moved);
            let step = Step::Go { kind: MoveKind::Restore, restores, merged: None };
            self.go_to(org, Some(now), &target, step).await
        })
        .await
    }

    pub(super) async fn go_to(
        &self,
        org: OrgId,
        now: Option<TagRow>,
        target: &Target,
        step: Step,
    ) -> Result<Decision, EngineError> {
        if now.as_ref().is_some_and(|now| now.revision_id == target.revision_id) {
            return Ok(Decision::Stay);
        }
        let to = Destination::from(target);
        self.check_target(org, now.as_ref(), &to).await?;
        Ok(Change::to_existing(step, to))
    }

    async fn bring_back(&self, org: OrgId, now: &TagRow, to: &MoveRow, step: Step) -> Result<Decision, EngineError> {
        self.revision(org, to.to_revision_id).await?;
        let to = Destination::from(to);
        self.check_target(org, Some(now), &to).await?;
        Ok(Change::to_existing(step, to))
    }
}

/// What to go back to.
#[derive(Clone, Debug)]
pub enum Restore {
    Target(String),
    At(Timestamp),
}

/// Nobody takes back what somebody else did without having seen it.
fn check_own(now: &TagRow, moving: &Moving) -> Result<(), EngineError> {
    match (&now.moved_by, moving.expected) {
        (Some(by), None) if moving.by.as_ref() != Some(by) => {
            let (tag, by, version) = (now.tag.clone(), by.clone(), now.version);
            Err(DefinitionError::MovedByAnother { tag, by, version }.into())
        }
        _ => Ok(()),
    }
}
