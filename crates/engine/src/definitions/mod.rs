//! Definitions in versions, as in git: documents by their content, patches on top of them, tags that point at one of them and
//! remember where they pointed before.
//!
//! ```text
//!   reference ─► tag ─► revision ─► document        (a version, or its base and up to ten patches)
//!                 └─ move, move, undo, redo, …       (append only)
//! ```
//!
//! Whatever moves a tag reads it, decides, and writes everything in one transaction that compares the tag's version. Who loses
//! the race reads again and decides anew, unless the caller named the version that it had seen.
//!
//! **Invariant:** a document is checked before anything of it is stored. A tag never points at what is not there.

mod collect;
mod content;
mod deploy;
mod doctor;
mod documents;
mod error;
mod merge;
mod moves;
mod patch;
mod protect;
mod reference;
mod request;
mod tags;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::canonical;
use milepost_core::document::{self, Diff};
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::text;
use milepost_store::blobs::Blobs;
use milepost_store::rows::{MoveRow, RevisionKind, RevisionRow, TagRow};
use milepost_store::{Store, StoreError};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::clock::{Clock, SystemClock};
use crate::error::EngineError;
use crate::work::{Lane, Work};

pub use collect::Collected;
pub(crate) use collect::{Collector, NOTED_EVERY};
pub(crate) use content::{Content, corrupt};
pub use doctor::DefinitionFault;
pub(crate) use documents::Documents;
pub use error::{DefinitionError, DefinitionErrorKind};
pub use merge::{MergeOutcome, Merging};
pub use protect::{Protection, Trust};
pub use reference::Target;
pub(crate) use reference::{TagsSnapshot, definition_of, is_pinned, tag_of};
pub use tags::Restore;

/// Documents are kept under this media type; the number is their format.
pub(crate) const DOCUMENT: &str = "application/vnd.milepost.document+json;format=1";
/// Operations of a patch.
const PATCH: &str = "application/json-patch+json";
/// What may be noted beside a revision.
const META_BYTES: usize = 16 * 1024;
/// How deep that may be nested.
const META_DEPTH: usize = 16;
/// How often a request is decided anew when others are faster.
const TRIES: usize = 200;

/// How definitions are kept.
#[derive(Clone, Copy, Debug)]
pub struct DefinitionsConfig {
    /// A chain of so many patches is made short: the next one begins at a document of its own. At most 50.
    pub chain_depth: u32,
    /// How long what nothing leads to is kept; for ever if it is not said.
    pub grace: Option<Duration>,
}

impl Default for DefinitionsConfig {
    fn default() -> DefinitionsConfig {
        DefinitionsConfig { chain_depth: 10, grace: Some(Duration::from_secs(7 * 24 * 3600)) }
    }
}

/// Who moves a tag, and why.
#[derive(Clone, Debug, Default)]
pub struct Moving {
    pub by: Option<String>,
    pub message: Option<String>,
    /// The version of the tag that the caller has seen; any if it is not said.
    pub expected: Option<u64>,
    /// The same key again gets the same answer, and nothing is done twice.
    pub key: Option<String>,
    /// Kept with the revision that this makes: a JSON object of the author's own. One that is there already keeps its own.
    pub meta: Option<Json>,
}

impl Moving {
    fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        if let Some(meta) = &self.meta {
            check_meta(meta.as_str(), limits).map_err(|message| Rejection {
                kind: RejectionKind::Invalid,
                code: "bad_meta",
                message,
            })?;
        }
        text::check_remark("the message", self.message.as_deref())?;
        let names = [
            ("the name of who moves it", &self.by, "bad_actor"),
            ("the idempotency key", &self.key, "bad_idempotency_key"),
        ];
        names.into_iter().try_for_each(|(what, name, code)| match name {
            Some(name) => text::check_name(what, name, limits.name_chars, code),
            None => Ok(()),
        })
    }
}

/// A stored document, to be compared and merged.
fn value_of(text: &str) -> Result<serde_json::Value, EngineError> {
    let not_json = |error| StoreError::Corrupt(format!("a stored document is not JSON: {error}"));
    Ok(serde_json::from_str(text).map_err(not_json)?)
}

fn check_meta(meta: &str, limits: &Limits) -> Result<(), String> {
    if !meta.trim_start().starts_with('{') || meta.len() > META_BYTES {
        return Err(format!("`meta` is a JSON object of at most {META_BYTES} bytes; put more into the document"));
    }
    let limits = Limits { json_depth: META_DEPTH.min(limits.json_depth), ..limits.clone() };
    canonical::parse_within(meta, &limits).map(drop).map_err(|error| format!("`meta`: {error}"))
}

impl Moving {
    fn meta_text(&self) -> Option<String> {
        self.meta.as_ref().map(|meta| meta.as_str().to_owned())
    }
}

/// What became of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// As it was right after.
    pub tag: TagRow,
    /// The move that made it so: this one, or, if nothing was to be done, the newest one.
    pub moved: MoveRow,
    /// The revision was there before.
    pub existing: bool,
    /// The tag pointed there already.
    pub unchanged: bool,
}

/// The definitions of all orgs of a database.
#[derive(Debug)]
pub struct Definitions {
    store: Arc<dyn Store>,
    documents: Arc<Documents>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    config: DefinitionsConfig,
    work: Work,
    /// Those that move one tag through this process go one after the other; others they race.
    lines: [Mutex<()>; 32],
}

impl Definitions {
    /// The definitions of a database, without an engine on it.
    #[must_use]
    pub fn open(store: Arc<dyn Store>, blobs: Option<Blobs>, limits: Limits) -> Definitions {
        Definitions::new(store, blobs, Arc::new(SystemClock), limits, DefinitionsConfig::default(), Work::default())
    }

    pub(crate) fn new(
        store: Arc<dyn Store>,
        blobs: Option<Blobs>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        config: DefinitionsConfig,
        work: Work,
    ) -> Definitions {
        let documents = Arc::new(Documents::new(store.clone(), Content::new(store.clone(), blobs), work.clone()));
        Definitions { store, documents, clock, limits, config, work, lines: Default::default() }
    }

    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    pub(crate) fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Tags in the order of their names, after `after`.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn tags(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>, EngineError> {
        after.map_or(Ok(()), |after| text::check_name("the cursor", after, self.limits.name_chars, "bad_cursor"))?;
        Ok(self.store.definitions().tags(org, after, limit).await?)
    }

    /// Where a tag has been, newest first, before the move given.
    ///
    /// # Errors
    /// There is no such tag.
    pub async fn history(
        &self,
        org: OrgId,
        tag: &str,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<MoveRow>, EngineError> {
        if !self.can_be_tag(tag) {
            return Err(EngineError::NoSuchWorkflow(tag.to_owned()));
        }
        let moves = self.store.definitions().moves(org, tag, before, limit).await?;
        if moves.is_empty() {
            self.tag(org, tag).await?;
        }
        Ok(moves)
    }

    /// # Errors
    /// There is no such revision.
    pub async fn revision(&self, org: OrgId, revision: Uuid) -> Result<RevisionRow, EngineError> {
        let row = self.store.definitions().revision(org, revision).await?;
        let (reference, reason) = (revision.to_string(), "there is no such revision".to_owned());
        row.ok_or_else(|| DefinitionError::UnknownRef { reference, reason }.into())
    }

    /// A revision's base, and the patches that are applied to it in their order.
    ///
    /// # Errors
    /// There is no such revision.
    pub async fn chain(&self, org: OrgId, revision: Uuid) -> Result<Vec<RevisionRow>, EngineError> {
        self.revision(org, revision).await?;
        let chain = self.store.definitions().chain(org, revision).await?;
        Ok(chain.into_iter().map(|member| member.revision).collect())
    }

    /// The canonical document that a target means.
    ///
    /// # Errors
    /// What is stored of it is damaged, or not there.
    pub async fn document(&self, org: OrgId, target: &Target) -> Result<Arc<str>, EngineError> {
        self.documents.text(org, target.version_hash, target.revision_id).await
    }

    /// The revision that a reference means, and what is stored of it: the document of a version, the operations of a patch.
    /// Nothing is put together.
    ///
    /// # Errors
    /// The reference means nothing, or what is stored is damaged.
    pub async fn stored(&self, org: OrgId, reference: &str) -> Result<(RevisionRow, Json), EngineError> {
        let target = self.resolve(org, reference).await?;
        let revision = self.revision(org, target.revision_id).await?;
        let text = self.documents.content.get(org, revision.cas_hash).await?;
        let text = text.ok_or_else(|| corrupt(revision.cas_hash, "it is not there"))?;
        Ok((revision, Json::trusted(text)))
    }

    /// What is different between two references.
    ///
    /// # Errors
    /// One of them means nothing.
    pub async fn diff(&self, org: OrgId, from: &str, to: &str) -> Result<(Target, Target, Diff), EngineError> {
        let (from, to) = (self.resolve(org, from).await?, self.resolve(org, to).await?);
        let (before, after) = (self.document(org, &from).await?, self.document(org, &to).await?);
        let diff = self.diff_texts(before, after).await?;
        Ok((from, to, diff))
    }

    async fn diff_texts(&self, before: Arc<str>, after: Arc<str>) -> Result<Diff, EngineError> {
        let bytes = before.len() + after.len();
        let diff = move || Ok(document::diff(&value_of(&before)?, &value_of(&after)?));
        self.work.sized(Lane::Documents, bytes, diff).await?
    }

    /// The version of a document with that content, if there is one.
    async fn version_of(
        &self,
        org: OrgId,
        hash: milepost_core::hash::Digest,
    ) -> Result<Option<RevisionRow>, EngineError> {
        let rows = self.store.definitions().revisions_in(org, hash, hash, 1000).await?;
        Ok(rows.into_iter().find(|row| row.kind == RevisionKind::DagVersion))
    }

    fn line(&self, org: OrgId, tag: &str) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (org, tag).hash(&mut hasher);
        &self.lines[usize::try_from(hasher.finish() % 32).unwrap_or_default()]
    }
}
