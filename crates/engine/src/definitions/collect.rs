//! What nothing leads to any more goes, after a while; long chains are made short.
//!
//! Whatever a tag points at or ever pointed at stays, with all that it came from; so does what a run needs. The rest is what
//! runs left that are forgotten, documents of requests that never came to an end, and content in the blob store that no row
//! names.
//!
//! **Invariant:** what is removed was loose for the whole time of grace, and is looked at again by the statement that removes
//! it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::StoreError;
use milepost_store::rows::{BlobRow, DefinitionWrite, GarbageCount, RevisionKind};
use uuid::Uuid;

use super::Definitions;
use crate::error::EngineError;

/// Rows that are looked at in one go.
const PAGE: u32 = 500;
/// The time of grace where nothing is removed without being asked.
const GRACE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a plan's use is noted; the time of grace is never shorter than twice that.
pub(crate) const NOTED_EVERY: Duration = Duration::from_secs(3600);
/// How often what is loose is looked for.
const EVERY: Duration = Duration::from_secs(6 * 3600);
/// How long answers to requests with an idempotency key are kept.
const REQUESTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a collection found, or removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub found: GarbageCount,
    /// Chains that were made short, or would be.
    pub compacted: u64,
}

impl Definitions {
    /// Removes what nothing has led to for as long as `grace` says, or the settings (an hour or two at least, for those who
    /// are about to use it); with `dry_run` it is only counted, by the code that finds it for a pass. What only revisions
    /// lead to that go in this pass goes the next time, content excepted: that goes with them.
    ///
    /// # Errors
    /// The store or the blob store cannot be reached.
    pub async fn collect(&self, org: OrgId, grace: Option<Duration>, dry_run: bool) -> Result<Collected, EngineError> {
        let now = self.clock.now();
        let grace = grace.or(self.config.grace).unwrap_or(GRACE);
        let before = back(now, grace.max(NOTED_EVERY * 2));
        let compacted = self.compact(org, dry_run).await?;
        let loose = self.loose(org, before, &compacted).await?;
        let found = match dry_run {
            true => loose.count(),
            false => self.remove(org, before, &loose).await?,
        };
        if !dry_run {
            self.collect_keys(before).await?;
            self.store.definitions().forget_requests(back(now, REQUESTS)).await?;
        }
        Ok(Collected { found, compacted: compacted.len() as u64 })
    }

    /// What a pass removes that makes short the chains of these documents.
    async fn loose(&self, org: OrgId, before: Timestamp, compacted: &HashSet<Digest>) -> Result<Loose, EngineError> {
        let definitions = self.store.definitions();
        let used = definitions.plans_in_use(org).await?;
        let mut loose = Loose::default();
        // How many of those that go have some content.
        let mut leaving: BTreeMap<Digest, u64> = BTreeMap::new();
        let mut after = None;
        loop {
            let page = definitions.loose_revisions(org, before, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.revision_id);
            for row in page.iter().filter(|row| !row.plan_hash.is_some_and(|plan| used.contains(&plan))) {
                loose.revisions.push(row.revision_id);
                *leaving.entry(row.cas_hash).or_default() += 1;
            }
        }
        let mut after = None;
        loop {
            let page = definitions.loose_blobs(org, before, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.hash);
            loose.add_blobs(page.iter().filter(|row| !compacted.contains(&row.hash)));
        }
        let left: Vec<Digest> = leaving.keys().filter(|hash| !compacted.contains(hash)).copied().collect();
        for hashes in left.chunks(PAGE as usize) {
            let rows = definitions.blobs_in_use(org, before, hashes).await?;
            let of_all = rows.iter().filter(|(row, uses)| leaving.get(&row.hash) == Some(uses));
            loose.add_blobs(of_all.map(|(row, _)| row));
        }
        Ok(loose)
    }

    /// Whatever somebody began to need meanwhile stays.
    async fn remove(&self, org: OrgId, before: Timestamp, loose: &Loose) -> Result<GarbageCount, EngineError> {
        let definitions = self.store.definitions();
        let mut removed = GarbageCount::default();
        for revisions in loose.revisions.chunks(PAGE as usize) {
            removed.revisions += definitions.remove_revisions(org, before, revisions).await?;
        }
        for blobs in loose.blobs.chunks(PAGE as usize) {
            let (count, bytes) = definitions.remove_blobs(org, before, blobs).await?;
            (removed.blobs, removed.bytes) = (removed.blobs + count, removed.bytes + bytes);
        }
        Ok(removed)
    }

    async fn collect_keys(&self, before: Timestamp) -> Result<(), EngineError> {
        let Some(blobs) = self.documents.content.blobs() else { return Ok(()) };
        let definitions = self.store.definitions();
        loop {
            let keys = definitions.loose_keys(before, PAGE).await?;
            for key in &keys {
                blobs.delete(key).await?;
                definitions.clear_key(key).await?;
            }
            if keys.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    /// Gives what tags point at through long chains a version of its own: the next patch then has none to make. Answers the
    /// documents that this is done for.
    async fn compact(&self, org: OrgId, dry_run: bool) -> Result<HashSet<Digest>, EngineError> {
        let (mut made, mut after) = (HashSet::new(), None::<String>);
        loop {
            let page = self.tags(org, after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(made) };
            after = Some(last.tag.clone());
            for tag in page.iter().filter(|tag| tag.kind == RevisionKind::PatchSet) {
                // One that points at nothing, or at what cannot be read, is for `doctor`: the others are tidied up.
                let Some(head) = self.store.definitions().revision(org, tag.revision_id).await? else { continue };
                let long = head.depth >= self.config.chain_depth.min(50);
                if !long
                    || made.contains(&head.version_hash)
                    || self.version_of(org, head.version_hash).await?.is_some()
                {
                    continue;
                }
                let text = match self.documents.of(org, &head).await {
                    Ok(text) => text,
                    Err(EngineError::Store(StoreError::Corrupt(reason))) => {
                        tracing::warn!(
                            tag = tag.tag,
                            reason,
                            "a chain cannot be made short; `milepost doctor` says more"
                        );
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let written = match dry_run {
                    true => true,
                    false => {
                        let (revision, blob) = self.compacted(org, &head, &text, None).await?;
                        let (blobs, revisions) = (blob.into_iter().collect(), vec![revision]);
                        let write = DefinitionWrite { blobs, revisions, ..DefinitionWrite::default() };
                        // Somebody else may have made it meanwhile.
                        self.store.definitions().write(org, &write).await?
                    }
                };
                if written {
                    made.insert(head.version_hash);
                }
            }
        }
    }
}

/// What goes in one pass.
#[derive(Debug, Default)]
struct Loose {
    revisions: Vec<Uuid>,
    blobs: Vec<Digest>,
    bytes: u64,
}

impl Loose {
    fn add_blobs<'r>(&mut self, rows: impl Iterator<Item = &'r BlobRow>) {
        for row in rows {
            self.blobs.push(row.hash);
            self.bytes += row.size;
        }
    }

    fn count(&self) -> GarbageCount {
        let (revisions, blobs) = (self.revisions.len() as u64, self.blobs.len() as u64);
        GarbageCount { revisions, blobs, bytes: self.bytes }
    }
}

fn back(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

/// The service that collects now and then.
#[derive(Debug)]
pub(crate) struct Collector {
    definitions: Arc<Definitions>,
}

impl Collector {
    pub(crate) fn new(definitions: Arc<Definitions>) -> Collector {
        Collector { definitions }
    }

    pub(crate) async fn run(self) {
        let Some(grace) = self.definitions.config.grace else { return };
        // Servers that start together do not collect together.
        tokio::time::sleep(Duration::from_secs(60 + u64::from(Uuid::now_v7().as_bytes()[15]))).await;
        loop {
            if let Err(error) = self.run_once(grace).await {
                tracing::warn!(%error, "what nothing leads to could not be removed; it is tried again later");
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn run_once(&self, grace: Duration) -> Result<(), EngineError> {
        for org in self.definitions.store.definitions().orgs().await? {
            let Collected { found, compacted } = self.definitions.collect(org, Some(grace), false).await?;
            if found != GarbageCount::default() || compacted > 0 {
                let GarbageCount { revisions, blobs, bytes } = found;
                tracing::info!(org = org.0, revisions, blobs, bytes, compacted, "definitions were tidied up");
            }
        }
        Ok(())
    }
}
