//! What should not be among definitions, and what of it can be put right.
//!
//! Chains are made of parents, so one whose rows are lost is made again from them. A tag that points at nothing goes back to
//! where it last stood on something whole, by a move like any other.
//!
//! **Invariant:** looking changes nothing. Repairing writes rows of chains and ordinary moves, and takes nothing away that
//! can be read.

use std::collections::{BTreeMap, BTreeSet};

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_store::StoreError;
use milepost_store::rows::{MoveKind, MoveRow, RevisionKind, RevisionRow, TagRow};
use uuid::Uuid;

use super::moves::{Change, Decision, Destination, Step};
use super::request::Asked;
use super::{DefinitionError, Definitions, Moving};
use crate::error::EngineError;

/// Rows that are looked at in one go.
const PAGE: u32 = 500;
/// At most so many faults of each kind are listed, and so many moves are gone back for one tag.
const FAULTS: usize = 100;
const MOVES: u32 = 10_000;

/// Something among definitions that should not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionFault {
    pub code: &'static str,
    pub org: OrgId,
    pub message: String,
    /// `doctor --repair` puts it right.
    pub repairable: bool,
}

/// What was found, with what is needed to put it right.
#[derive(Debug, Default)]
struct Found {
    faults: Vec<DefinitionFault>,
    /// Heads of chains, with the members that they should have.
    chains: Vec<(Uuid, Vec<Uuid>)>,
    tags: Vec<TagRow>,
}

impl Found {
    fn add(&mut self, org: OrgId, code: &'static str, repairable: bool, message: String) {
        if self.faults.iter().filter(|fault| fault.code == code).count() < FAULTS {
            self.faults.push(DefinitionFault { code, org, message, repairable });
        }
    }
}

impl Definitions {
    /// Looks over all definitions: whether parents, content and chains of revisions are there, and what tags point at.
    /// Reads everything and changes nothing.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn faults(&self) -> Result<Vec<DefinitionFault>, EngineError> {
        let mut faults = Vec::new();
        for org in self.store.definitions().orgs().await? {
            faults.extend(self.find(org).await?.faults);
        }
        Ok(faults)
    }

    /// Makes chains again from parents, and moves tags that point at nothing, or at what cannot be read, to where they last
    /// stood on something whole. Says what was done.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn repair(&self, by: Option<&str>) -> Result<Vec<String>, EngineError> {
        let mut done = Vec::new();
        for org in self.store.definitions().orgs().await? {
            for (head, members) in self.find(org).await?.chains {
                self.store.definitions().rebuild_chain(org, head, &members).await?;
                let count = members.len();
                done.push(format!("the chain of revision {head} was made again from its {count} parent(s)"));
            }
            // What could not be read for its chain alone is whole again.
            for tag in self.find(org).await?.tags {
                match self.repair_tag(org, &tag, by).await {
                    Ok(moved) => done.push(format!(
                        "tag `{}` was moved back to revision {}, where its move {} had left it (move {})",
                        tag.tag,
                        moved.to_revision_id,
                        moved.restores_move_id.unwrap_or_default(),
                        moved.move_id
                    )),
                    Err(error @ EngineError::Definition(_)) => {
                        done.push(format!("tag `{}` was not moved: {error}", tag.tag));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(done)
    }

    async fn find(&self, org: OrgId) -> Result<Found, EngineError> {
        let mut found = Found::default();
        let revisions = self.all_revisions(org).await?;
        self.look_at_parents(org, &revisions, &mut found);
        self.look_at_chains(org, &revisions, &mut found).await?;
        self.look_at_content(org, &revisions, &mut found).await?;
        let mut after = None::<String>;
        loop {
            let page = self.tags(org, after.as_deref(), PAGE).await?;
            for tag in &page {
                self.look_at_tag(org, tag, &mut found).await?;
            }
            match page.last().filter(|_| page.len() == PAGE as usize) {
                Some(last) => after = Some(last.tag.clone()),
                None => return Ok(found),
            }
        }
    }

    async fn all_revisions(&self, org: OrgId) -> Result<BTreeMap<Uuid, RevisionRow>, EngineError> {
        let mut all = BTreeMap::new();
        loop {
            let after = all.last_key_value().map(|(id, _)| *id);
            let page = self.store.definitions().revisions_after(org, after, PAGE).await?;
            let whole = page.len() == PAGE as usize;
            all.extend(page.into_iter().map(|row| (row.revision_id, row)));
            if !whole {
                return Ok(all);
            }
        }
    }

    fn look_at_parents(&self, org: OrgId, revisions: &BTreeMap<Uuid, RevisionRow>, found: &mut Found) {
        for row in revisions.values() {
            let parents =
                [("base", row.base_version), ("parent", row.parent_id), ("merge parent", row.merge_parent_id)];
            for (what, parent) in parents {
                if let Some(parent) = parent.filter(|parent| !revisions.contains_key(parent)) {
                    let message = format!("revision {} has the {what} {parent}, which is not there", row.revision_id);
                    found.add(org, "missing_parent", false, message);
                }
            }
        }
    }

    async fn look_at_chains(
        &self,
        org: OrgId,
        revisions: &BTreeMap<Uuid, RevisionRow>,
        found: &mut Found,
    ) -> Result<(), EngineError> {
        let heads: Vec<&RevisionRow> = revisions.values().filter(|row| row.kind == RevisionKind::PatchSet).collect();
        for page in heads.chunks(PAGE as usize) {
            let ids: Vec<Uuid> = page.iter().map(|row| row.revision_id).collect();
            let mut stored: BTreeMap<Uuid, Vec<(u32, Uuid)>> = BTreeMap::new();
            for row in self.store.definitions().chain_rows(org, &ids).await? {
                stored.entry(row.head_id).or_default().push((row.seq, row.member_id));
            }
            for head in page {
                let mut rows = stored.remove(&head.revision_id).unwrap_or_default();
                rows.sort_unstable();
                let members = members_of(head, revisions);
                let whole = members.as_ref().is_some_and(|members| (1..).zip(members.iter().copied()).eq(rows));
                match members {
                    _ if whole => {}
                    Some(members) => {
                        let message = format!(
                            "the rows of the chain of revision {} are not its {} patches in their order",
                            head.revision_id,
                            members.len()
                        );
                        found.add(org, "broken_chain", true, message);
                        found.chains.push((head.revision_id, members));
                    }
                    None => {
                        let message = format!(
                            "the parents of revision {} do not lead to its base: its chain cannot be made again",
                            head.revision_id
                        );
                        found.add(org, "broken_chain", false, message);
                    }
                }
            }
        }
        Ok(())
    }

    async fn look_at_content(
        &self,
        org: OrgId,
        revisions: &BTreeMap<Uuid, RevisionRow>,
        found: &mut Found,
    ) -> Result<(), EngineError> {
        let mut looked_at: BTreeSet<Digest> = BTreeSet::new();
        for row in revisions.values().filter(|row| looked_at.insert(row.cas_hash)) {
            let fault = match self.documents.content.get(org, row.cas_hash).await {
                Ok(Some(_)) => None,
                Ok(None) => Some("it is not there".to_owned()),
                Err(error) => Some(told(error)?),
            };
            if let Some(fault) = fault {
                let message = format!("the content sha256:{} of revision {}: {fault}", row.cas_hash, row.revision_id);
                found.add(org, "missing_content", false, message);
            }
        }
        Ok(())
    }

    async fn look_at_tag(&self, org: OrgId, tag: &TagRow, found: &mut Found) -> Result<(), EngineError> {
        if let Some(fault) = self.fault_of(org, &Destination::from_tag(tag)).await? {
            let repairable = self.last_good(org, tag).await?.is_some();
            let way = if repairable { "" } else { "; no position of its history is whole" };
            let message = format!("tag `{}` points at revision {}: {fault}{way}", tag.tag, tag.revision_id);
            found.add(org, "orphaned_tag", repairable, message);
            if repairable {
                found.tags.push(tag.clone());
            }
        }
        let moved = self.store.definitions().move_of(org, &tag.tag, tag.version).await?;
        if moved.is_none_or(|moved| moved.to_revision_id != tag.revision_id) {
            let message = format!("tag `{}` is at version {}, and no move of it made that", tag.tag, tag.version);
            found.add(org, "unmoved_tag", false, message);
        }
        Ok(())
    }

    /// Why a tag should not point there, if it should not.
    async fn fault_of(&self, org: OrgId, to: &Destination) -> Result<Option<String>, EngineError> {
        let Some(revision) = self.store.definitions().revision(org, to.revision_id).await? else {
            return Ok(Some("it is not there".to_owned()));
        };
        match self.documents.of(org, &revision).await {
            Ok(_) => Ok(None),
            Err(error) => told(error).map(Some),
        }
    }

    /// The newest of the moves before the one in effect that led to something whole; then of all.
    async fn last_good(&self, org: OrgId, tag: &TagRow) -> Result<Option<MoveRow>, EngineError> {
        let definitions = self.store.definitions();
        let mut at = tag.at_move;
        for _ in 0..MOVES {
            let Some(moved) = definitions.move_back(org, &tag.tag, at, 1).await? else { break };
            if self.fault_of(org, &Destination::from(&moved)).await?.is_none() {
                return Ok(Some(moved));
            }
            at = moved.move_id;
        }
        let moves = definitions.moves(org, &tag.tag, None, MOVES).await?;
        for moved in moves.into_iter().filter(|moved| !matches!(moved.kind, MoveKind::Undo | MoveKind::Redo)) {
            if self.fault_of(org, &Destination::from(&moved)).await?.is_none() {
                return Ok(Some(moved));
            }
        }
        Ok(None)
    }

    async fn repair_tag(&self, org: OrgId, tag: &TagRow, by: Option<&str>) -> Result<MoveRow, EngineError> {
        let name = tag.tag.as_str();
        let message = format!("milepost doctor: revision {} is damaged or gone", tag.revision_id);
        let moving = Moving {
            by: by.map(ToOwned::to_owned),
            message: Some(message),
            expected: Some(tag.version),
            ..Moving::default()
        };
        let asked = Asked::new(&moving, ["repair", name]);
        let moved = self
            .change(org, name, &asked, |now| async move {
                let now = now.ok_or_else(|| EngineError::NoSuchWorkflow(name.to_owned()))?;
                let good =
                    self.last_good(org, &now).await?.ok_or_else(|| DefinitionError::NothingToUndo(name.to_owned()))?;
                let to = Destination::from(&good);
                self.check_target(org, Some(&now), &to).await?;
                let step = Step::Repair { to: good.move_id, before: good.before_move };
                Ok::<Decision, EngineError>(Change::to_existing(step, to))
            })
            .await?;
        Ok(moved.moved)
    }
}

/// The patches between a revision and its base by their parents, the first one first; nothing if they do not lead there.
fn members_of(head: &RevisionRow, revisions: &BTreeMap<Uuid, RevisionRow>) -> Option<Vec<Uuid>> {
    let base = head.base_version?;
    let (mut members, mut row) = (Vec::new(), head);
    while row.revision_id != base {
        let next = revisions.get(&row.parent_id?)?;
        let fits = row.kind == RevisionKind::PatchSet && row.base_version == Some(base);
        if !fits || members.len() as u32 >= head.depth {
            return None;
        }
        members.push(row.revision_id);
        row = next;
    }
    members.reverse();
    (members.len() as u32 == head.depth).then_some(members)
}

/// What is wrong with something that cannot be read; other errors are the caller's.
fn told(error: EngineError) -> Result<String, EngineError> {
    match error {
        EngineError::Store(StoreError::Corrupt(reason) | StoreError::Unusable(reason)) => Ok(reason),
        other => Err(other),
    }
}
