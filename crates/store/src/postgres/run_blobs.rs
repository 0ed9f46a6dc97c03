//! Which runs may have something in the blob store.

use async_trait::async_trait;
use milepost_core::id::{OrgId, RunId};
use uuid::Uuid;

use super::PostgresStore;
use super::columns;
use super::runs::query;
use crate::{Result, RunBlobs};

/// A run that is forgotten already is noted as such: a step of it was late. One that is being forgotten is waited for.
const NOTE: &str = "WITH heads AS MATERIALIZED (
        SELECT r.org_id, r.run_id FROM unnest($1::int4[], $2::uuid[]) AS c (org_id, run_id)
        JOIN runs AS r ON r.run_id = c.run_id AND r.org_id = c.org_id
        ORDER BY r.run_id FOR KEY SHARE OF r
    )
    INSERT INTO run_blobs (org_id, run_id, gone)
    SELECT c.org_id, c.run_id, h.run_id IS NULL FROM unnest($1::int4[], $2::uuid[]) AS c (org_id, run_id)
    LEFT JOIN heads AS h ON h.run_id = c.run_id AND h.org_id = c.org_id
    ORDER BY c.run_id ON CONFLICT DO NOTHING";

const CLEAR: &str = "DELETE FROM run_blobs AS b USING unnest($1::int4[], $2::uuid[]) AS c (org_id, run_id)
    WHERE b.run_id = c.run_id AND b.org_id = c.org_id AND b.gone";

#[async_trait]
impl RunBlobs for PostgresStore {
    async fn note(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
        query(&self.writing().await?, NOTE, &[&orgs, &ids]).await?;
        Ok(())
    }

    async fn gone(&self, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        let sql = "SELECT org_id, run_id FROM run_blobs WHERE gone LIMIT $1";
        let rows = query(&self.reading().await?, sql, &[&i64::from(limit)]).await?;
        rows.iter().map(|row| columns::org_run(row, 0)).collect()
    }

    async fn clear(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
        query(&self.writing().await?, CLEAR, &[&orgs, &ids]).await?;
        Ok(())
    }
}
