//! What is kept beside the runs: nodes and blobs.

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId};
use milepost_core::time::Timestamp;

use super::columns::col;
use super::runs::query;
use crate::Result;
use crate::rows::BlobRow;

/// The format of what `cas_blobs` holds.
const BLOB_FORMAT: i16 = 1;

pub(super) async fn heartbeat(connection: &Object, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
    let sql = "INSERT INTO nodes (node_id, lease_expires_at, \"left\") VALUES ($1, $2, false)
               ON CONFLICT (node_id) DO UPDATE SET lease_expires_at = excluded.lease_expires_at, \"left\" = false";
    query(connection, sql, &[&node.0, &now.plus_ms(lease_ms).0]).await?;
    Ok(())
}

pub(super) async fn leave(connection: &Object, node: NodeId) -> Result<()> {
    query(connection, "UPDATE nodes SET \"left\" = true WHERE node_id = $1", &[&node.0]).await?;
    Ok(())
}

pub(super) async fn put_blob(connection: &Object, org: OrgId, blob: &BlobRow) -> Result<()> {
    let sql = "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT DO NOTHING";
    let size = i64::try_from(blob.content.len()).unwrap_or(i64::MAX);
    let hash = blob.hash.0.as_slice();
    query(connection, sql, &[&org.0, &hash, &blob.media_type, &BLOB_FORMAT, &size, &blob.content]).await?;
    Ok(())
}

pub(super) async fn blob(connection: &Object, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
    let sql = "SELECT media_type, content FROM cas_blobs WHERE org_id = $1 AND hash = $2";
    let rows = query(connection, sql, &[&org.0, &hash.0.as_slice()]).await?;
    rows.first().map(|row| Ok(BlobRow { hash, media_type: col(row, 0)?, content: col(row, 1)? })).transpose()
}
