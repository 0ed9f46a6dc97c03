//! Plans made of documents: compiled once, shared by all runs.
//!
//! A run needs the document of its plan for as long as there is a run, so it is kept as a *snapshot*: a revision that all runs
//! with the same plan share. It is made before the first of them is started.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use milepost_core::cache::Trust;
use milepost_core::document::{self, Loaded};
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::rows::{DefinitionWrite, RevisionKind, RevisionRow};
use uuid::Uuid;

use crate::clock::{Clock, SystemClock};
use crate::definitions::{DOCUMENT, Definitions, Documents, NOTED_EVERY, TagsSnapshot, Target, corrupt, definition_of};
use crate::error::EngineError;
use crate::work::{Lane, Work};

/// What compiled plans that no run uses take of the memory, beyond those that are used.
const CACHED_BYTES: usize = 256 * 1024 * 1024;

/// What a plan takes in any case.
const KEPT_BYTES: usize = 1024;

/// Of so many workflows below a run it is noted where their tags were when it began.
const CHILDREN: usize = 64;

#[derive(Debug)]
pub(crate) struct Plans {
    store: Arc<dyn Store>,
    definitions: Arc<Definitions>,
    documents: Arc<Documents>,
    clock: Arc<dyn Clock>,
    work: Work,
    cache: Mutex<Cache>,
}

/// Plans by their hashes.
#[derive(Debug, Default)]
struct Cache {
    plans: HashMap<(OrgId, Digest), Kept>,
    /// What they take.
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    plan: Arc<Plan>,
    /// When it was last said that it is about to be run.
    used: Option<Timestamp>,
}

impl Plans {
    /// To read runs with.
    pub(crate) fn of_store(store: &Arc<dyn Store>, blobs: Option<Blobs>) -> Plans {
        let definitions = Definitions::open(store.clone(), blobs, Limits::default());
        Plans::new(store.clone(), Arc::new(definitions), Arc::new(SystemClock))
    }

    pub(crate) fn new(store: Arc<dyn Store>, definitions: Arc<Definitions>, clock: Arc<dyn Clock>) -> Plans {
        let (documents, work) = (definitions.documents().clone(), definitions.work().clone());
        Plans { store, definitions, documents, clock, work, cache: Mutex::default() }
    }

    /// Stores a document that was read and checked, so that it can be run.
    pub(crate) async fn add(&self, org: OrgId, loaded: Loaded) -> Result<Arc<Plan>, EngineError> {
        let plan = match self.cached(org, loaded.hash) {
            Some(plan) => plan,
            None => {
                self.documents.keep(org, loaded.hash, loaded.canonical);
                self.keep(org, Arc::new(loaded.plan))
            }
        };
        self.ready(org, &plan).await?;
        Ok(plan)
    }

    pub(crate) async fn by_hash(&self, org: OrgId, hash: Digest) -> Result<Arc<Plan>, EngineError> {
        match self.cached(org, hash) {
            Some(plan) => Ok(plan),
            // What is rarely done makes no call larger.
            None => Box::pin(async { self.compile(org, hash, self.text(org, hash).await?).await }).await,
        }
    }

    /// The canonical text of a document: of its snapshot, or of any revision that means it.
    pub(crate) async fn text(&self, org: OrgId, hash: Digest) -> Result<Arc<str>, EngineError> {
        if let Some(text) = self.documents.whole(org, hash).await? {
            return Ok(text);
        }
        match self.definitions.resolve(org, &format!("sha256:{hash}")).await {
            Ok(target) => self.definitions.document(org, &target).await,
            Err(EngineError::Definition(_)) => Err(corrupt(hash, "it is not there").into()),
            Err(error) => Err(error),
        }
    }

    /// What a reference means, to be run.
    pub(crate) async fn resolve(&self, org: OrgId, reference: &str) -> Result<(Arc<Plan>, Target), EngineError> {
        let target = self.definitions.resolve(org, reference).await?;
        Ok((self.of(org, &target).await?, target))
    }

    /// Whose results a run may take that follows what a reference means.
    pub(crate) async fn trust_in(&self, org: OrgId, plan: &Plan, target: &Target) -> Result<Trust, EngineError> {
        self.definitions.trust_in(org, plan, target).await
    }

    /// What is kept with a run of where its plan came from. A run whose plan has no children costs nothing more.
    pub(crate) async fn definition_of(
        &self,
        org: OrgId,
        reference: &str,
        (plan, target): (&Plan, &Target),
        patch: Option<&serde_json::Value>,
    ) -> Result<Json, EngineError> {
        let mut tags = TagsSnapshot::default();
        note_tag(&mut tags, target);
        if plan.children().next().is_some() {
            Box::pin(self.tags_of_children(org, plan, &mut tags)).await?;
        }
        Ok(definition_of(reference, target, &tags, patch))
    }

    /// Notes where the tags of child workflows are, and of their children. What cannot be found now may be there when its
    /// turn comes; then that run says where it was.
    async fn tags_of_children(&self, org: OrgId, plan: &Plan, tags: &mut TagsSnapshot) -> Result<(), EngineError> {
        let mut seen = HashSet::new();
        let mut next: VecDeque<String> = plan.children().map(ToOwned::to_owned).collect();
        while let Some(reference) = next.pop_front() {
            if seen.len() == CHILDREN || !seen.insert(reference.clone()) {
                continue;
            }
            let found = async {
                let target = self.definitions.resolve(org, &reference).await?;
                Ok::<_, EngineError>((self.of(org, &target).await?, target))
            };
            match found.await {
                Ok((plan, target)) => {
                    note_tag(tags, &target);
                    next.extend(plan.children().filter(|child| !seen.contains(*child)).map(ToOwned::to_owned));
                }
                Err(error) if error.is_passing() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// The plan of what a reference means.
    pub(crate) async fn of(&self, org: OrgId, target: &Target) -> Result<Arc<Plan>, EngineError> {
        if let Some(plan) = self.cached(org, target.version_hash) {
            return Ok(plan);
        }
        let text = self.definitions.document(org, target).await?;
        self.compile(org, target.version_hash, text).await
    }

    /// Sees to it that a plan that is about to be run has a snapshot, and that nobody removes it for a while.
    pub(crate) async fn ready(&self, org: OrgId, plan: &Arc<Plan>) -> Result<(), EngineError> {
        match self.is_ready(org, plan) {
            true => Ok(()),
            // What is rarely done makes no start larger.
            false => Box::pin(self.make_ready(org, plan)).await,
        }
    }

    async fn make_ready(&self, org: OrgId, plan: &Arc<Plan>) -> Result<(), EngineError> {
        let now = self.clock.now();
        let definitions = self.store.definitions();
        while !definitions.use_plan(org, plan.hash, now).await? {
            let snapshot = self.snapshot(org, plan, now).await?;
            // If somebody else has just made it, it is there the next time.
            definitions.write(org, &snapshot).await?;
        }
        self.keep(org, plan.clone());
        if let Some(kept) = self.cache().plans.get_mut(&(org, plan.hash)) {
            kept.used = Some(now);
        }
        Ok(())
    }

    /// Keeps plans for a run that follows one after the other: its log needs them all for as long as it is there.
    pub(crate) async fn keep_for(&self, org: OrgId, run: RunId, plans: &[Digest]) -> Result<(), EngineError> {
        Ok(self.store.definitions().keep_plans(org, run, plans).await?)
    }

    async fn snapshot(&self, org: OrgId, plan: &Plan, now: Timestamp) -> Result<DefinitionWrite, EngineError> {
        let hash = plan.hash;
        let text = self.text(org, hash).await?;
        let blob = self.documents.content.row(org, DOCUMENT, text.as_bytes().to_vec(), now).await?;
        let revision = RevisionRow {
            revision_id: Uuid::now_v7(),
            kind: RevisionKind::RunSnapshot,
            cas_hash: hash,
            version_hash: hash,
            plan_hash: Some(hash),
            base_version: None,
            parent_id: None,
            merge_parent_id: None,
            depth: 0,
            message: None,
            created_by: None,
            created_at: now,
            name: Some(plan.name.to_string()),
            meta: None,
        };
        Ok(DefinitionWrite {
            blobs: blob.into_iter().collect(),
            revisions: vec![revision],
            ..DefinitionWrite::default()
        })
    }

    /// The same for one that the committer starts: it waits for nothing. Whatever happens before the snapshot is made, the
    /// tag's revision has the document.
    pub(crate) fn ready_soon(self: &Arc<Self>, org: OrgId, plan: &Arc<Plan>) {
        if self.is_ready(org, plan) {
            return;
        }
        let (plans, plan) = (self.clone(), plan.clone());
        tokio::spawn(async move {
            if let Err(error) = plans.ready(org, &plan).await {
                tracing::debug!(%error, "a snapshot is not made yet");
            }
        });
    }

    fn is_ready(&self, org: OrgId, plan: &Plan) -> bool {
        let used = self.cache().plans.get(&(org, plan.hash)).and_then(|kept| kept.used);
        let for_now = |used: Timestamp| {
            let age = self.clock.now().0 - used.0;
            (0..i64::try_from(NOTED_EVERY.as_micros()).unwrap_or(i64::MAX)).contains(&age)
        };
        used.is_some_and(for_now)
    }

    async fn compile(&self, org: OrgId, hash: Digest, text: Arc<str>) -> Result<Arc<Plan>, EngineError> {
        let plan = self.work.sized(Lane::Stored, text.len(), move || document::load_stored(&text)).await?;
        let plan =
            plan.map_err(|problems| corrupt(hash, &problems.first().map(ToString::to_string).unwrap_or_default()))?;
        Ok(self.keep(org, Arc::new(plan)))
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().expect("no holder of this lock panics")
    }

    fn cached(&self, org: OrgId, hash: Digest) -> Option<Arc<Plan>> {
        self.cache().plans.get(&(org, hash)).map(|kept| kept.plan.clone())
    }

    pub(crate) fn keep(&self, org: OrgId, plan: Arc<Plan>) -> Arc<Plan> {
        let mut cache = self.cache();
        if let Some(kept) = cache.plans.get(&(org, plan.hash)) {
            return kept.plan.clone();
        }
        if cache.bytes + plan.memory > CACHED_BYTES {
            // Those that a run uses stay alive through it; the others are compiled again when they are wanted.
            cache.plans.retain(|_, kept| Arc::strong_count(&kept.plan) > 1);
            cache.bytes = cache.plans.values().map(|kept| kept.plan.memory + KEPT_BYTES).sum();
        }
        cache.bytes += plan.memory + KEPT_BYTES;
        cache.plans.insert((org, plan.hash), Kept { plan: plan.clone(), used: None });
        plan
    }
}

fn note_tag(tags: &mut TagsSnapshot, target: &Target) {
    if let Some((tag, version)) = &target.tag {
        tags.entry(tag.clone()).or_insert((target.revision_id, *version));
    }
}
