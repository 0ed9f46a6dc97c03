//! What is kept beside the runs: nodes and blobs.

use deadpool_postgres::Object;
use milepost_core::id::NodeId;
use milepost_core::time::Timestamp;

use super::runs::query;
use crate::Result;

pub(super) async fn heartbeat(connection: &Object, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
    let sql = "INSERT INTO nodes (node_id, lease_expires_at, \"left\") VALUES ($1, $2, false)
               ON CONFLICT (node_id) DO UPDATE SET lease_expires_at = excluded.lease_expires_at, \"left\" = false,
                   crashed_at = NULL";
    query(connection, sql, &[&node.0, &now.plus_ms(lease_ms).0]).await?;
    Ok(())
}

pub(super) async fn leave(connection: &Object, node: NodeId) -> Result<()> {
    query(connection, "UPDATE nodes SET \"left\" = true, deciding = NULL WHERE node_id = $1", &[&node.0]).await?;
    Ok(())
}
