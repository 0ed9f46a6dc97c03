//! Documents as revisions mean them: read, put together from patches, and kept at hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::document;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_store::Store;
use milepost_store::rows::{RevisionKind, RevisionRow};
use uuid::Uuid;

use super::content::{Content, corrupt};
use crate::error::EngineError;
use crate::work::{Lane, Work};

/// Bytes of documents that are kept at hand, about.
const KEPT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Documents {
    store: Arc<dyn Store>,
    pub(crate) content: Content,
    kept: Mutex<Kept>,
    work: Work,
}

impl Documents {
    pub(crate) fn new(store: Arc<dyn Store>, content: Content, work: Work) -> Documents {
        Documents { store, content, kept: Mutex::default(), work }
    }

    /// The canonical document of a revision. One that is stored whole (a version, a snapshot, a chain that was made short)
    /// is read; otherwise its base is read and patched.
    pub(crate) async fn of(&self, org: OrgId, revision: &RevisionRow) -> Result<Arc<str>, EngineError> {
        self.text(org, revision.version_hash, revision.revision_id).await
    }

    pub(crate) async fn text(&self, org: OrgId, hash: Digest, revision: Uuid) -> Result<Arc<str>, EngineError> {
        if let Some(text) = self.whole(org, hash).await? {
            return Ok(text);
        }
        let text = self.patched(org, hash, revision).await?;
        Ok(self.keep(org, hash, text))
    }

    /// A document that is at hand or stored as a whole.
    pub(crate) async fn whole(&self, org: OrgId, hash: Digest) -> Result<Option<Arc<str>>, EngineError> {
        if let Some(text) = self.at_hand(org, hash) {
            return Ok(Some(text));
        }
        Ok(self.content.get(org, hash).await?.map(|text| self.keep(org, hash, text)))
    }

    async fn patched(&self, org: OrgId, hash: Digest, revision: Uuid) -> Result<String, EngineError> {
        let mut chain = self.store.definitions().chain(org, revision).await?.into_iter();
        let gone = || corrupt(hash, "what it is made of is not there");
        let base = chain.next().ok_or_else(gone)?;
        let mut depth = 0;
        let mut patches = Vec::with_capacity(chain.len());
        let base = self.content.of(base.content).await?;
        for member in chain {
            depth += 1;
            if member.revision.kind != RevisionKind::PatchSet || member.revision.depth != depth {
                return Err(gone().into());
            }
            patches.push(self.content.of(member.content).await?);
        }
        let bytes = base.len() + patches.iter().map(|patch| patch.len()).sum::<usize>();
        let put_together = move || {
            let text = document::patched(&base, &patches)?;
            let made = Digest::of(text.as_bytes());
            Ok::<_, String>((text, made))
        };
        let made = self.work.sized(Lane::Stored, bytes, put_together).await?;
        match made.map_err(|reason| corrupt(hash, &reason))? {
            (text, made) if made == hash => Ok(text),
            _ => Err(corrupt(hash, "its patches make another document").into()),
        }
    }

    fn at_hand(&self, org: OrgId, hash: Digest) -> Option<Arc<str>> {
        self.kept.lock().expect("no holder of this lock panics").get(org, hash)
    }

    pub(crate) fn keep(&self, org: OrgId, hash: Digest, text: impl Into<Arc<str>>) -> Arc<str> {
        let text = text.into();
        self.kept.lock().expect("no holder of this lock panics").put(org, hash, text.clone());
        text
    }
}

/// Two generations: when the younger one is full it becomes the older one, and what nobody asked for meanwhile goes.
#[derive(Debug, Default)]
struct Kept {
    young: HashMap<(OrgId, Digest), Arc<str>>,
    old: HashMap<(OrgId, Digest), Arc<str>>,
    bytes: usize,
}

impl Kept {
    fn get(&mut self, org: OrgId, hash: Digest) -> Option<Arc<str>> {
        if let Some(text) = self.young.get(&(org, hash)) {
            return Some(text.clone());
        }
        let text = self.old.remove(&(org, hash))?;
        self.put(org, hash, text.clone());
        Some(text)
    }

    fn put(&mut self, org: OrgId, hash: Digest, text: Arc<str>) {
        if self.bytes + text.len() > KEPT_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += text.len();
        self.young.insert((org, hash), text);
    }
}
