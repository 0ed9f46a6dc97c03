//! What nothing leads to any more goes, after a while; long chains are made short.
//!
//! Whatever a tag points at or ever pointed at stays, with all that it came from; so does what a run needs. The rest is what
//! runs left that are forgotten, documents of requests that never came to an end, and content in the blob store that no row
//! names.
//!
//! **Invariant:** what is removed was loose for the whole time of grace, and is looked at again by the statement that removes
//! it.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::rows::{DefinitionWrite, GarbageCount, RevisionKind};
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
    /// Chains that were made short.
    pub compacted: u64,
}

impl Definitions {
    /// Removes what nothing has led to for as long as `grace` says, or the settings (an hour or two at least, for those who
    /// are about to use it); with `dry_run` it is only counted. A dry run finds what one pass finds: what only that led to goes next time.
    ///
    /// # Errors
    /// The store or the blob store cannot be reached.
    pub async fn collect(&self, org: OrgId, grace: Option<Duration>, dry_run: bool) -> Result<Collected, EngineError> {
        let now = self.clock.now();
        let grace = grace.or(self.config.grace).unwrap_or(GRACE);
        let before = back(now, grace.max(NOTED_EVERY * 2));
        let mut collected = Collected::default();
        if !dry_run {
            collected.compacted = self.compact(org).await?;
        }
        collected.found.revisions = self.collect_revisions(org, before, dry_run).await?;
        (collected.found.blobs, collected.found.bytes) = self.collect_blobs(org, before, dry_run).await?;
        if !dry_run {
            self.collect_keys(before).await?;
            self.store.definitions().forget_requests(back(now, REQUESTS)).await?;
        }
        Ok(collected)
    }

    async fn collect_revisions(&self, org: OrgId, before: Timestamp, dry_run: bool) -> Result<u64, EngineError> {
        let definitions = self.store.definitions();
        let used = definitions.plans_in_use(org).await?;
        let (mut total, mut after) = (0, None);
        loop {
            let page = definitions.loose_revisions(org, before, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(total) };
            after = Some(last.revision_id);
            let is_used = |plan: &_| used.contains(plan);
            let loose = page.iter().filter(|row| !row.plan_hash.as_ref().is_some_and(is_used));
            let loose: Vec<Uuid> = loose.map(|row| row.revision_id).collect();
            total += match dry_run {
                true => loose.len() as u64,
                false => definitions.remove_revisions(org, before, &loose).await?,
            };
        }
    }

    async fn collect_blobs(&self, org: OrgId, before: Timestamp, dry_run: bool) -> Result<(u64, u64), EngineError> {
        let definitions = self.store.definitions();
        let (mut blobs, mut bytes, mut after) = (0, 0, None);
        loop {
            let page = definitions.loose_blobs(org, before, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok((blobs, bytes)) };
            after = Some(last.hash);
            let (count, size) = match dry_run {
                true => (page.len() as u64, page.iter().map(|row| row.size).sum()),
                false => {
                    let hashes: Vec<_> = page.iter().map(|row| row.hash).collect();
                    definitions.remove_blobs(org, before, &hashes).await?
                }
            };
            (blobs, bytes) = (blobs + count, bytes + size);
        }
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

    /// Gives what tags point at through long chains a version of its own: the next patch then has none to make.
    async fn compact(&self, org: OrgId) -> Result<u64, EngineError> {
        let (mut made, mut after) = (0, None::<String>);
        loop {
            let page = self.tags(org, after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(made) };
            after = Some(last.tag.clone());
            for tag in page.iter().filter(|tag| tag.kind == RevisionKind::PatchSet) {
                let head = self.revision(org, tag.revision_id).await?;
                let long = head.depth >= self.config.chain_depth.min(50);
                if !long || self.version_of(org, head.version_hash).await?.is_some() {
                    continue;
                }
                let text = self.documents.of(org, &head).await?;
                let (revision, blob) = self.compacted(org, &head, &text, None).await?;
                let (blobs, revisions) = (blob.into_iter().collect(), vec![revision]);
                let write = DefinitionWrite { blobs, revisions, ..DefinitionWrite::default() };
                // Somebody else may have made it meanwhile.
                made += u64::from(self.store.definitions().write(org, &write).await?);
            }
        }
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
