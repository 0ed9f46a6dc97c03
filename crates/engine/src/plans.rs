//! Documents and the plans made of them: stored once by content, compiled once, shared by all runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::document::{self, Loaded};
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::plan::Plan;
use milepost_core::time::Timestamp;
use milepost_store::rows::{BlobRow, Deployed};
use milepost_store::{Store, StoreError};

use crate::error::EngineError;

/// Documents are kept under this media type; the number is their format.
const MEDIA_TYPE: &str = "application/vnd.milepost.document+json;format=1";
/// So many steps of compiled plans are kept in memory.
const CACHED_STEPS: usize = 500_000;

#[derive(Debug)]
pub(crate) struct Plans {
    store: Arc<dyn Store>,
    cache: Mutex<HashMap<(OrgId, Digest), Arc<Plan>>>,
}

impl Plans {
    pub(crate) fn new(store: Arc<dyn Store>) -> Plans {
        Plans { store, cache: Mutex::default() }
    }

    /// Stores a document that was read and checked, unless it is stored already.
    pub(crate) async fn add(&self, org: OrgId, loaded: Loaded) -> Result<Arc<Plan>, EngineError> {
        if let Some(plan) = self.cached(org, loaded.hash) {
            return Ok(plan);
        }
        let content = loaded.canonical.into_bytes();
        let blob = BlobRow { hash: loaded.hash, media_type: MEDIA_TYPE.to_owned(), content };
        self.store.put_blob(org, &blob).await?;
        Ok(self.keep(org, Arc::new(loaded.plan)))
    }

    /// Stores a document and points a name at it.
    pub(crate) async fn deploy(
        &self,
        org: OrgId,
        tag: &str,
        loaded: Loaded,
        now: Timestamp,
    ) -> Result<(Arc<Plan>, Deployed), EngineError> {
        let plan = self.add(org, loaded).await?;
        let deployed = self.store.deploy(org, tag, plan.hash, uuid::Uuid::now_v7(), now).await?;
        Ok((plan, deployed))
    }

    pub(crate) async fn by_hash(&self, org: OrgId, hash: Digest) -> Result<Arc<Plan>, EngineError> {
        if let Some(plan) = self.cached(org, hash) {
            return Ok(plan);
        }
        let text = self.text(org, hash).await?;
        let plan = document::load_stored(&text)
            .map_err(|problems| corrupt(hash, &problems.first().map(ToString::to_string).unwrap_or_default()))?;
        Ok(self.keep(org, Arc::new(plan)))
    }

    /// The canonical text of a stored document.
    pub(crate) async fn text(&self, org: OrgId, hash: Digest) -> Result<String, EngineError> {
        let blob = self.store.blob(org, hash).await?.ok_or_else(|| corrupt(hash, "it is not there"))?;
        if Digest::of(&blob.content) != hash {
            return Err(corrupt(hash, "its content does not have that hash").into());
        }
        Ok(String::from_utf8(blob.content).map_err(|error| corrupt(hash, &error.to_string()))?)
    }

    /// A workflow by name, or by `sha256:…`.
    pub(crate) async fn resolve(&self, org: OrgId, reference: &str) -> Result<Arc<Plan>, EngineError> {
        let unknown = || EngineError::NoSuchWorkflow(reference.to_owned());
        let hash = match reference.strip_prefix("sha256:") {
            Some(hex) => {
                let hash = hex.parse().map_err(|_| unknown())?;
                self.store.blob(org, hash).await?.ok_or_else(unknown)?;
                hash
            }
            None => self.store.tag(org, reference).await?.ok_or_else(unknown)?.target,
        };
        self.by_hash(org, hash).await
    }

    fn cached(&self, org: OrgId, hash: Digest) -> Option<Arc<Plan>> {
        self.cache.lock().expect("no holder of this lock panics").get(&(org, hash)).cloned()
    }

    fn keep(&self, org: OrgId, plan: Arc<Plan>) -> Arc<Plan> {
        let mut cache = self.cache.lock().expect("no holder of this lock panics");
        let kept: usize = cache.values().map(|plan| plan.steps.len()).sum();
        if kept + plan.steps.len() > CACHED_STEPS {
            // Those that a run uses stay alive through it; the others are compiled again when they are wanted.
            cache.retain(|_, plan| Arc::strong_count(plan) > 1);
        }
        cache.entry((org, plan.hash)).or_insert(plan).clone()
    }
}

fn corrupt(hash: Digest, reason: &str) -> StoreError {
    StoreError::Corrupt(format!("document sha256:{hash}: {reason}"))
}
