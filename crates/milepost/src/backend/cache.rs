//! Results that are kept, by a server or in a database.

use milepost_core::hash::Digest;

use super::Backend;
use crate::wire::{CacheKey, CacheResult, CacheStats, Disowned, Evicted, Page, Said};

/// Which results are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResultsOf {
    All,
    Workflow {
        workflow: String,
        step: Option<String>,
    },
    /// Their keys begin so.
    Key(String),
}

impl Backend {
    /// What results come to.
    pub(crate) async fn cache_stats(&self, of: &ResultsOf) -> anyhow::Result<Said<CacheStats>> {
        match self {
            Backend::Local(local) => local.cache_stats(of).await,
            Backend::Remote(client) => client.cache_stats(of).await,
        }
    }

    /// Results, by workflow, step and key.
    pub(crate) async fn cache_list(
        &self,
        of: &ResultsOf,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<CacheResult>>> {
        match self {
            Backend::Local(local) => local.cache_list(of, cursor, limit).await,
            Backend::Remote(client) => client.cache_list(of, cursor, limit).await,
        }
    }

    /// What a key is made of, and what is kept under it.
    pub(crate) async fn cache_key(&self, key: Digest) -> anyhow::Result<Said<CacheKey>> {
        match self {
            Backend::Local(local) => local.cache_key(key).await,
            Backend::Remote(client) => client.cache_key(key).await,
        }
    }

    /// Removes results.
    pub(crate) async fn evict(&self, of: &ResultsOf) -> anyhow::Result<Said<Evicted>> {
        match self {
            Backend::Local(local) => local.evict(of).await,
            Backend::Remote(client) => client.evict(of).await,
        }
    }

    /// From now on nobody takes what is kept of them.
    pub(crate) async fn disown(&self, workflow: &str, step: Option<&str>) -> anyhow::Result<Said<Disowned>> {
        match self {
            Backend::Local(local) => local.disown(workflow, step).await,
            Backend::Remote(client) => client.disown(workflow, step).await,
        }
    }
}
