//! Which runs may have something in the blob store.

use async_trait::async_trait;
use milepost_core::id::{OrgId, RunId};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::columns::{Columns, all, id};
use crate::{Result, RunBlobs};

#[async_trait]
impl RunBlobs for SqliteStore {
    async fn note(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let runs = runs.to_vec();
        self.write(move |tx| note(tx, &runs)).await
    }

    async fn gone(&self, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        self.read(move |conn| gone(conn, limit)).await
    }

    async fn clear(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let runs = runs.to_vec();
        self.write(move |tx| clear(tx, &runs)).await
    }
}

/// A run that is forgotten already is noted as such: a step of it was late.
fn note(tx: &Connection, runs: &[(OrgId, RunId)]) -> Result<()> {
    let mut statement = tx.prepare_cached(
        "INSERT INTO run_blobs (org_id, run_id, gone)
         VALUES (?1, ?2, NOT EXISTS (SELECT 1 FROM runs WHERE org_id = ?1 AND run_id = ?2)) ON CONFLICT DO NOTHING",
    )?;
    for (org, run) in runs {
        statement.execute(params![org.0, id(run)])?;
    }
    Ok(())
}

fn gone(conn: &Connection, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
    all(conn, "SELECT org_id, run_id FROM run_blobs WHERE gone = 1 LIMIT ?", params![limit], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.org()?, columns.run()?))
    })
}

fn clear(tx: &Connection, runs: &[(OrgId, RunId)]) -> Result<()> {
    let mut statement = tx.prepare_cached("DELETE FROM run_blobs WHERE org_id = ? AND run_id = ? AND gone = 1")?;
    for (org, run) in runs {
        statement.execute(params![org.0, id(run)])?;
    }
    Ok(())
}
