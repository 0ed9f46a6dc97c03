//! Finding and removing what nothing leads to any more.
//!
//! Foreign keys guard what is removed against those who begin to need it at that moment: one of the two waits, and then
//! one of them finds that it came too late.

use std::collections::HashSet;

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::super::columns::{self, col};
use super::super::runs::query;
use super::read::{REVISION, revision_row};
use crate::rows::{BlobRow, RevisionRow};
use crate::{Result, StoreError};

pub(super) async fn orgs(connection: &Object) -> Result<Vec<OrgId>> {
    let rows =
        query(connection, "SELECT org_id FROM cas_blobs UNION SELECT org_id FROM tags ORDER BY org_id", &[]).await?;
    rows.iter().map(|row| Ok(OrgId(col(row, 0)?))).collect()
}

pub(super) async fn plans_in_use(connection: &Object, org: OrgId) -> Result<HashSet<Digest>> {
    let forget = "DELETE FROM run_plans AS p WHERE p.org_id = $1
        AND NOT EXISTS (SELECT FROM runs AS r WHERE r.org_id = $1 AND r.run_id = p.run_id)";
    query(connection, forget, &[&org.0]).await?;
    let sql = "SELECT DISTINCT plan_hash FROM runs WHERE org_id = $1
        UNION SELECT plan_hash FROM run_plans WHERE org_id = $1";
    let rows = query(connection, sql, &[&org.0]).await?;
    rows.iter().map(|row| columns::digest(col(row, 0)?)).collect()
}

/// `$1` is the org, `$2` the moment before which it must have been made and used.
const LOOSE: &str = "r.org_id = $1 AND r.created_at < $2
    AND NOT EXISTS (SELECT FROM tags AS t WHERE t.org_id = $1 AND t.target_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM tag_moves AS m WHERE m.org_id = $1 AND m.to_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM tag_moves AS m WHERE m.org_id = $1 AND m.from_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM tag_moves AS m WHERE m.org_id = $1 AND m.merged_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM revisions AS c WHERE c.org_id = $1 AND c.base_version = r.revision_id)
    AND NOT EXISTS (SELECT FROM revisions AS c WHERE c.org_id = $1 AND c.parent_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM revisions AS c WHERE c.org_id = $1 AND c.merge_parent_id = r.revision_id)
    AND NOT EXISTS (SELECT FROM patch_chain_members AS c
                    WHERE c.org_id = $1 AND c.member_id = r.revision_id AND c.head_id <> r.revision_id)
    AND NOT EXISTS (SELECT FROM plan_uses AS u WHERE u.org_id = $1 AND u.revision_id = r.revision_id AND u.used_at >= $2)";

pub(super) async fn loose_revisions(
    connection: &Object,
    org: OrgId,
    before: Timestamp,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE {LOOSE} AND r.revision_id > $3 ORDER BY r.revision_id LIMIT $4"
    );
    let rows = query(connection, &sql, &[&org.0, &before.0, &after.unwrap_or(Uuid::nil()), &i64::from(limit)]).await?;
    rows.iter().map(revision_row).collect()
}

pub(super) async fn remove_revisions(
    connection: &Object,
    org: OrgId,
    before: Timestamp,
    revisions: &[Uuid],
) -> Result<u64> {
    let used = "DELETE FROM plan_uses WHERE org_id = $1 AND used_at < $2 AND revision_id = $3";
    let sql = format!("DELETE FROM revisions AS r WHERE {LOOSE} AND r.revision_id = $3 RETURNING r.revision_id");
    let mut removed = 0;
    for revision in revisions {
        query(connection, used, &[&org.0, &before.0, revision]).await?;
        removed += remove(connection, &sql, &[&org.0, &before.0, revision]).await?.len() as u64;
    }
    Ok(removed)
}

/// Somebody began to need it: then it stays.
async fn remove(connection: &Object, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
    match query(connection, sql, parameters).await {
        Err(StoreError::Refused(_)) => Ok(Vec::new()),
        result => result,
    }
}

const LOOSE_BLOB: &str = "b.org_id = $1 AND b.created_at < $2
    AND NOT EXISTS (SELECT FROM revisions AS r WHERE r.org_id = $1 AND r.cas_hash = b.hash)";

pub(super) async fn loose_blobs(
    connection: &Object,
    org: OrgId,
    before: Timestamp,
    after: Option<Digest>,
    limit: u32,
) -> Result<Vec<BlobRow>> {
    let sql = format!(
        "SELECT {EMPTY_BLOB} FROM cas_blobs AS b
         WHERE {LOOSE_BLOB} AND b.hash > $3 ORDER BY b.hash LIMIT $4"
    );
    let after = after.map(|hash| hash.0.to_vec()).unwrap_or_default();
    let rows = query(connection, &sql, &[&org.0, &before.0, &after, &i64::from(limit)]).await?;
    rows.iter().map(empty_blob_row).collect()
}

const EMPTY_BLOB: &str = "b.hash, b.media_type, b.size, b.blob, b.created_at";

/// Without what it holds.
fn empty_blob_row(row: &Row) -> Result<BlobRow> {
    Ok(BlobRow {
        hash: columns::digest(col(row, 0)?)?,
        media_type: col(row, 1)?,
        size: columns::seq(col(row, 2)?)?,
        content: Vec::new(),
        blob: col(row, 3)?,
        created_at: Timestamp(col(row, 4)?),
    })
}

pub(super) async fn blobs_in_use(
    connection: &Object,
    org: OrgId,
    before: Timestamp,
    hashes: &[Digest],
) -> Result<Vec<(BlobRow, u64)>> {
    let sql = format!(
        "SELECT {EMPTY_BLOB}, (SELECT count(*) FROM revisions AS r WHERE r.org_id = $1 AND r.cas_hash = b.hash)
         FROM cas_blobs AS b WHERE b.org_id = $1 AND b.created_at < $2 AND b.hash = ANY ($3::bytea[])"
    );
    let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.as_slice()).collect();
    let rows = query(connection, &sql, &[&org.0, &before.0, &hashes]).await?;
    rows.iter().map(|row| Ok((empty_blob_row(row)?, columns::seq(col(row, 5)?)?))).collect()
}

pub(super) async fn remove_blobs(
    connection: &Object,
    org: OrgId,
    before: Timestamp,
    blobs: &[Digest],
) -> Result<(u64, u64)> {
    let sql = format!(
        "WITH removed AS (
             DELETE FROM cas_blobs AS b WHERE {LOOSE_BLOB} AND b.hash = $3 RETURNING b.size, b.blob
         ), noted AS (
             INSERT INTO cas_notes (blob, noted_at) SELECT blob, 0 FROM removed WHERE blob IS NOT NULL
             ON CONFLICT DO NOTHING
         )
         SELECT size FROM removed"
    );
    let (mut removed, mut bytes) = (0, 0);
    for hash in blobs {
        for row in remove(connection, &sql, &[&org.0, &before.0, &hash.0.as_slice()]).await? {
            removed += 1;
            bytes += columns::seq(col(&row, 0)?)?;
        }
    }
    Ok((removed, bytes))
}

pub(super) async fn forget_requests(connection: &Object, before: Timestamp) -> Result<()> {
    query(connection, "DELETE FROM definition_requests WHERE created_at < $1", &[&before.0]).await?;
    Ok(())
}

pub(super) async fn note_key(connection: &Object, key: &str, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO cas_notes (blob, noted_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    query(connection, sql, &[&key, &now.0]).await?;
    Ok(())
}

pub(super) async fn loose_keys(connection: &Object, before: Timestamp, limit: u32) -> Result<Vec<String>> {
    let sql = "SELECT blob FROM cas_notes WHERE noted_at < $1 ORDER BY blob LIMIT $2";
    let rows = query(connection, sql, &[&before.0, &i64::from(limit)]).await?;
    rows.iter().map(|row| col(row, 0)).collect()
}

pub(super) async fn clear_key(connection: &Object, key: &str) -> Result<()> {
    query(connection, "DELETE FROM cas_notes WHERE blob = $1", &[&key]).await?;
    Ok(())
}
