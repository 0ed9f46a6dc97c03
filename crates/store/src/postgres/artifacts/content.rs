//! Content in the blob store: rows that name it, and notes of keys that no row names.

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;

use super::super::columns::{self, col, int8, seq};
use super::super::runs::query;
use crate::Result;
use crate::rows::{ContentKey, ContentRow};

pub(super) async fn note_key(connection: &Object, key: &str, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO blob_notes (blob, noted_at) VALUES ($1, $2)
        ON CONFLICT (blob) DO UPDATE SET noted_at = excluded.noted_at";
    query(connection, sql, &[&key, &now.0]).await?;
    Ok(())
}

const COLUMNS: &str = "b.org_id, b.sha256, b.blob, b.size_bytes, b.used_at";

fn content_row(row: &Row) -> Result<(OrgId, ContentRow)> {
    let content = ContentRow {
        sha256: columns::digest(col(row, 1)?)?,
        blob: col(row, 2)?,
        size_bytes: seq(col(row, 3)?)?,
        used_at: Timestamp(col(row, 4)?),
    };
    Ok((OrgId(col(row, 0)?), content))
}

fn contents(rows: &[Row]) -> Result<Vec<ContentRow>> {
    rows.iter().map(|row| content_row(row).map(|(_, content)| content)).collect()
}

pub(super) async fn find(connection: &Object, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>> {
    let sql = format!("SELECT {COLUMNS} FROM artifact_blobs AS b WHERE b.org_id = $1 AND b.sha256 = ANY ($2::bytea[])");
    contents(&query(connection, &sql, &[&org.0, &bytes(hashes)]).await?)
}

fn bytes(hashes: &[Digest]) -> Vec<&[u8]> {
    hashes.iter().map(|hash| hash.0.as_slice()).collect()
}

pub(super) async fn name(connection: &Object, org: OrgId, row: &ContentRow, instead_of: Option<&str>) -> Result<bool> {
    let sql = "WITH named AS (
            INSERT INTO artifact_blobs AS b (org_id, sha256, blob, size_bytes, used_at) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (org_id, sha256) DO UPDATE
            SET blob = excluded.blob, size_bytes = excluded.size_bytes, used_at = excluded.used_at WHERE b.blob = $6
            RETURNING b.blob
        ), cleared AS (
            DELETE FROM blob_notes AS n USING named WHERE n.blob = named.blob
        ), noted AS (
            INSERT INTO blob_notes (blob, noted_at) SELECT $6, $5 FROM named WHERE $6::text IS NOT NULL
            ON CONFLICT (blob) DO UPDATE SET noted_at = excluded.noted_at
        )
        SELECT blob FROM named";
    let hash = row.sha256.0.as_slice();
    let size = int8(row.size_bytes);
    let named = query(connection, sql, &[&org.0, &hash, &row.blob, &size, &row.used_at.0, &instead_of]).await?;
    Ok(!named.is_empty())
}

pub(super) async fn touch(
    connection: &Object,
    org: OrgId,
    hashes: &[Digest],
    now: Timestamp,
) -> Result<Vec<ContentRow>> {
    // In order, so that two who touch the same do not wait for each other.
    let sql = format!(
        "WITH chosen AS MATERIALIZED (
             SELECT org_id, sha256 FROM artifact_blobs WHERE org_id = $1 AND sha256 = ANY ($2::bytea[])
             ORDER BY sha256 FOR NO KEY UPDATE
         )
         UPDATE artifact_blobs AS b SET used_at = greatest(b.used_at, $3) FROM chosen AS c
         WHERE b.org_id = c.org_id AND b.sha256 = c.sha256 RETURNING {COLUMNS}"
    );
    contents(&query(connection, &sql, &[&org.0, &bytes(hashes), &now.0]).await?)
}

/// Of content `b`: nobody has used it since before `$1`, and nobody names it. A row of `cache_blobs` counts while the result
/// is there and still names the content.
const LOOSE: &str = "b.used_at < $1
    AND NOT EXISTS (SELECT FROM artifacts AS a WHERE a.org_id = b.org_id AND a.sha256 = b.sha256)
    AND NOT EXISTS (
        SELECT FROM cache_blobs AS k
        JOIN step_cache AS c ON c.org_id = k.org_id AND c.key = k.key AND c.run_id = k.run_id
        WHERE k.org_id = b.org_id AND k.sha256 = b.sha256 AND strpos(c.artifacts, encode(b.sha256, 'hex')) > 0)";

pub(super) async fn loose(
    connection: &Object,
    before: Timestamp,
    after: Option<ContentKey>,
    limit: u32,
) -> Result<Vec<(OrgId, ContentRow)>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM artifact_blobs AS b WHERE (b.org_id, b.sha256) > ($2, $3) AND {LOOSE}
         ORDER BY b.org_id, b.sha256 LIMIT $4"
    );
    let (org, hash) = after.map_or((i32::MIN, Vec::new()), |(org, hash)| (org.0, hash.0.to_vec()));
    let rows = query(connection, &sql, &[&before.0, &org, &hash, &i64::from(limit)]).await?;
    rows.iter().map(content_row).collect()
}

pub(super) fn remove_sql() -> String {
    format!(
        "WITH gone AS (
             DELETE FROM artifact_blobs AS b WHERE b.org_id = $2 AND b.sha256 = $3 AND {LOOSE}
             RETURNING b.org_id, b.sha256, b.blob, b.size_bytes
         ), noted AS (
             INSERT INTO blob_notes (blob, noted_at) SELECT blob, 0 FROM gone
             ON CONFLICT (blob) DO UPDATE SET noted_at = 0
         ), forgotten AS (
             DELETE FROM cache_blobs AS k USING gone AS g WHERE k.org_id = g.org_id AND k.sha256 = g.sha256
         )
         SELECT size_bytes FROM gone"
    )
}

/// Whoever touches a row at this moment is waited for, and then the row is looked at again.
pub(super) async fn remove(connection: &Object, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)> {
    let sql = remove_sql();
    let (mut removed, mut bytes) = (0, 0);
    for (org, hash) in contents {
        for row in query(connection, &sql, &[&before.0, &org.0, &hash.0.as_slice()]).await? {
            (removed, bytes) = (removed + 1, bytes + seq(col(&row, 0)?)?);
        }
    }
    Ok((removed, bytes))
}
