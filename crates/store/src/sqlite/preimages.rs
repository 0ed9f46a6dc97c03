//! What keys of steps are made of.

use rusqlite::{Connection, params};

use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id};
use crate::Result;
use crate::rows::{PreimageRow, PreimageWrite, RunWrite};

pub(super) fn write(tx: &Connection, write: &RunWrite, began: &PreimageWrite, at: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO cache_preimages (org_id, key, workflow, step_id, run_id, created_at, preimage)
         VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        write.org.0,
        began.key.0,
        began.workflow.as_ref(),
        began.step_id.as_ref(),
        id(&write.run),
        at.0,
        began.preimage.as_str(),
    ])?;
    Ok(())
}

pub(super) const OF_STEP: &str = "SELECT key, run_id, created_at, preimage FROM cache_preimages
    WHERE org_id = ? AND workflow = ? AND step_id = ? ORDER BY created_at DESC LIMIT ?";

pub(super) fn of_step(
    conn: &Connection,
    org: OrgId,
    workflow: &str,
    step: &str,
    limit: u32,
) -> Result<Vec<PreimageRow>> {
    all(conn, OF_STEP, params![org.0, workflow, step, limit], |row| {
        let mut columns = Columns::of(row);
        let (key, run, created_at) = (columns.digest()?, columns.run()?, columns.time()?);
        let preimage: std::sync::Arc<str> = columns.get()?;
        Ok(PreimageRow { key, run, created_at, preimage: Json::trusted(preimage) })
    })
}
