//! Which runs may have something in the blob store.

use async_trait::async_trait;
use milepost_core::id::{OrgId, RunId};

use super::MemoryStore;
use crate::{Result, RunBlobs};

#[async_trait]
impl RunBlobs for MemoryStore {
    async fn note(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let mut tables = self.tables();
        for run in runs {
            let gone = !tables.runs.contains_key(run);
            tables.run_blobs.entry(*run).or_insert(gone);
        }
        Ok(())
    }

    async fn gone(&self, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        let tables = self.tables();
        let gone = tables.run_blobs.iter().filter(|(_, gone)| **gone).map(|(run, _)| *run);
        Ok(gone.take(limit as usize).collect())
    }

    async fn clear(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        self.tables().run_blobs.retain(|run, gone| !*gone || !runs.contains(run));
        Ok(())
    }
}
