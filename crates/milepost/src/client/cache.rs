//! What a server is asked about results that are kept.

use milepost_core::hash::Digest;
use serde_json::json;

use super::Client;
use crate::backend::ResultsOf;
use crate::wire::{CacheKey, CacheResult, CacheStats, Disowned, Evicted, Page, Said};

impl Client {
    pub(crate) async fn cache_stats(&self, of: &ResultsOf) -> anyhow::Result<Said<CacheStats>> {
        self.get(&["cache", "stats"], &query(of)).await
    }

    pub(crate) async fn cache_list(
        &self,
        of: &ResultsOf,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<CacheResult>>> {
        let mut query = query(of);
        query.push(("limit", limit.to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["cache"], &query).await
    }

    pub(crate) async fn cache_key(&self, key: Digest) -> anyhow::Result<Said<CacheKey>> {
        self.get(&["cache", &key.to_string()], &[]).await
    }

    pub(crate) async fn evict(&self, of: &ResultsOf) -> anyhow::Result<Said<Evicted>> {
        match of {
            ResultsOf::Key(key) => self.delete_for(&["cache", key], &[]).await,
            ResultsOf::All => self.delete_for(&["cache"], &[("all", "true".to_owned())]).await,
            ResultsOf::Workflow { .. } => self.delete_for(&["cache"], &query(of)).await,
        }
    }

    pub(crate) async fn disown(&self, workflow: &str, step: Option<&str>) -> anyhow::Result<Said<Disowned>> {
        let body = match step {
            Some(step) => json!({ "workflow": workflow, "step": step }),
            None => json!({ "workflow": workflow }),
        };
        Ok(self.post(&["cache", "disown"], &body).await?.1)
    }
}

fn query(of: &ResultsOf) -> Vec<(&'static str, String)> {
    match of {
        ResultsOf::All => Vec::new(),
        ResultsOf::Key(key) => vec![("key", key.clone())],
        ResultsOf::Workflow { workflow, step } => {
            let step = step.iter().map(|step| ("step", step.clone()));
            std::iter::once(("workflow", workflow.clone())).chain(step).collect()
        }
    }
}
