//! Content in the blob store: rows that name it, and notes of keys that no row names.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use rusqlite::{Connection, Row, params};

use super::super::columns::{Columns, all, one};
use crate::Result;
use crate::rows::{ContentKey, ContentRow};

pub(super) fn note_key(tx: &Connection, key: &str, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO blob_notes (blob, noted_at) VALUES (?1, ?2) ON CONFLICT (blob) DO UPDATE SET noted_at = ?2",
    )?
    .execute(params![key, now.0])?;
    Ok(())
}

const COLUMNS: &str = "SELECT org_id, sha256, blob, size_bytes, used_at FROM artifact_blobs AS b";

fn content_row(row: &Row) -> rusqlite::Result<(OrgId, ContentRow)> {
    let mut columns = Columns::of(row);
    let org = columns.org()?;
    let (sha256, blob, size_bytes) = (columns.digest()?, columns.get()?, columns.seq()?);
    Ok((org, ContentRow { sha256, blob, size_bytes, used_at: columns.time()? }))
}

pub(super) fn find(conn: &Connection, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>> {
    let sql = format!("{COLUMNS} WHERE org_id = ? AND sha256 = ?");
    let mut found = Vec::with_capacity(hashes.len());
    for hash in hashes {
        found.extend(one(conn, &sql, params![org.0, hash.0], content_row)?.map(|(_, row)| row));
    }
    Ok(found)
}

pub(super) fn name(tx: &Connection, org: OrgId, row: &ContentRow, instead_of: Option<&str>) -> Result<bool> {
    let named = tx
        .prepare_cached(
            "INSERT INTO artifact_blobs (org_id, sha256, blob, size_bytes, used_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (org_id, sha256) DO UPDATE SET blob = ?3, size_bytes = ?4, used_at = ?5 WHERE blob = ?6",
        )?
        .execute(params![org.0, row.sha256.0, row.blob, row.size_bytes.cast_signed(), row.used_at.0, instead_of])?;
    if named == 0 {
        return Ok(false);
    }
    tx.prepare_cached("DELETE FROM blob_notes WHERE blob = ?")?.execute(params![row.blob])?;
    if let Some(before) = instead_of {
        note_key(tx, before, row.used_at)?;
    }
    Ok(true)
}

pub(super) fn touch(tx: &Connection, org: OrgId, hashes: &[Digest], now: Timestamp) -> Result<Vec<ContentRow>> {
    let sql = "UPDATE artifact_blobs SET used_at = max(used_at, ?3) WHERE org_id = ?1 AND sha256 = ?2";
    for hash in hashes {
        tx.prepare_cached(sql)?.execute(params![org.0, hash.0, now.0])?;
    }
    find(tx, org, hashes)
}

/// Of content `b`: nobody has used it since before ?1, and nobody names it. A row of `cache_blobs` counts while the result
/// is there and still names the content.
const LOOSE: &str = "b.used_at < ?1
    AND NOT EXISTS (SELECT 1 FROM artifacts AS a WHERE a.org_id = b.org_id AND a.sha256 = b.sha256)
    AND NOT EXISTS (
        SELECT 1 FROM cache_blobs AS k
        JOIN step_cache AS c ON c.org_id = k.org_id AND c.key = k.key AND c.run_id = k.run_id
        WHERE k.org_id = b.org_id AND k.sha256 = b.sha256 AND instr(c.artifacts, lower(hex(b.sha256))) > 0)";

pub(super) fn loose(
    conn: &Connection,
    before: Timestamp,
    after: Option<ContentKey>,
    limit: u32,
) -> Result<Vec<(OrgId, ContentRow)>> {
    let sql =
        format!("{COLUMNS} WHERE (b.org_id, b.sha256) > (?2, ?3) AND {LOOSE} ORDER BY b.org_id, b.sha256 LIMIT ?4");
    let (org, hash) = after.map_or((i32::MIN, Vec::new()), |(org, hash)| (org.0, hash.0.to_vec()));
    all(conn, &sql, params![before.0, org, hash, limit], content_row)
}

pub(super) fn remove(tx: &Connection, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)> {
    let sql = format!(
        "DELETE FROM artifact_blobs AS b WHERE b.org_id = ?2 AND b.sha256 = ?3 AND {LOOSE} RETURNING blob, size_bytes"
    );
    let (mut removed, mut bytes) = (0, 0);
    for (org, hash) in contents {
        let read = |row: &Row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
        let Some((key, size)) = one(tx, &sql, params![before.0, org.0, hash.0], read)? else { continue };
        note_key(tx, &key, Timestamp(0))?;
        tx.prepare_cached("DELETE FROM cache_blobs WHERE org_id = ? AND sha256 = ?")?
            .execute(params![org.0, hash.0])?;
        (removed, bytes) = (removed + 1, bytes + size);
    }
    Ok((removed, bytes))
}
