//! Finding and removing what nothing leads to any more.

use std::collections::HashSet;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::super::columns::{Columns, all};
use super::opt_id;
use super::read::{REVISION, revision_row};
use crate::Result;
use crate::rows::{BlobRow, RevisionRow};

pub(super) fn orgs(conn: &Connection) -> Result<Vec<OrgId>> {
    all(conn, "SELECT org_id FROM cas_blobs UNION SELECT org_id FROM tags ORDER BY org_id", [], |row| {
        Columns::of(row).org()
    })
}

pub(super) fn forget_plans(tx: &Connection, org: OrgId) -> Result<()> {
    let sql = "DELETE FROM run_plans WHERE org_id = ?1
               AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.org_id = ?1 AND r.run_id = run_plans.run_id)";
    tx.prepare_cached(sql)?.execute(params![org.0])?;
    Ok(())
}

pub(super) fn plans_in_use(conn: &Connection, org: OrgId) -> Result<HashSet<Digest>> {
    let sql = "SELECT DISTINCT plan_hash FROM runs WHERE org_id = ?1
               UNION SELECT plan_hash FROM run_plans WHERE org_id = ?1";
    Ok(all(conn, sql, params![org.0], |row| Columns::of(row).digest())?.into_iter().collect())
}

/// `?1` is the org, `?2` the moment before which it must have been made and used.
const LOOSE: &str = "r.org_id = ?1 AND r.created_at < ?2
    AND NOT EXISTS (SELECT 1 FROM tags AS t WHERE t.org_id = ?1 AND t.target_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM tag_moves AS m WHERE m.org_id = ?1 AND m.to_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM tag_moves AS m WHERE m.org_id = ?1 AND m.from_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM tag_moves AS m WHERE m.org_id = ?1 AND m.merged_revision_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM revisions AS c WHERE c.org_id = ?1 AND c.base_version = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM revisions AS c WHERE c.org_id = ?1 AND c.parent_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM revisions AS c WHERE c.org_id = ?1 AND c.merge_parent_id = r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM patch_chain_members AS c
                    WHERE c.org_id = ?1 AND c.member_id = r.revision_id AND c.head_id <> r.revision_id)
    AND NOT EXISTS (SELECT 1 FROM plan_uses AS u WHERE u.org_id = ?1 AND u.revision_id = r.revision_id AND u.used_at >= ?2)";

pub(super) fn loose_revisions(
    conn: &Connection,
    org: OrgId,
    before: Timestamp,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE {LOOSE} AND r.revision_id > ?3 ORDER BY r.revision_id LIMIT ?4"
    );
    let after = opt_id(after.as_ref()).unwrap_or_default();
    all(conn, &sql, params![org.0, before.0, after, limit], |row| revision_row(&mut Columns::of(row)))
}

pub(super) fn remove_revisions(tx: &Connection, org: OrgId, before: Timestamp, revisions: &[Uuid]) -> Result<u64> {
    let loose = format!("SELECT 1 FROM revisions AS r WHERE {LOOSE} AND r.revision_id = ?3");
    let mut removed = 0;
    for revision in revisions {
        if !tx.prepare_cached(&loose)?.exists(params![org.0, before.0, revision.as_bytes()])? {
            continue;
        }
        for sql in [
            "DELETE FROM plan_uses WHERE org_id = ? AND revision_id = ?",
            "DELETE FROM patch_chain_members WHERE org_id = ? AND head_id = ?",
            "DELETE FROM revisions WHERE org_id = ? AND revision_id = ?",
        ] {
            tx.prepare_cached(sql)?.execute(params![org.0, revision.as_bytes()])?;
        }
        removed += 1;
    }
    Ok(removed)
}

const LOOSE_BLOB: &str = "b.org_id = ?1 AND b.created_at < ?2
    AND NOT EXISTS (SELECT 1 FROM revisions AS r WHERE r.org_id = ?1 AND r.cas_hash = b.hash)";

pub(super) fn loose_blobs(
    conn: &Connection,
    org: OrgId,
    before: Timestamp,
    after: Option<Digest>,
    limit: u32,
) -> Result<Vec<BlobRow>> {
    let sql = format!(
        "SELECT {EMPTY_BLOB} FROM cas_blobs AS b
         WHERE {LOOSE_BLOB} AND b.hash > ?3 ORDER BY b.hash LIMIT ?4"
    );
    let after = after.map(|hash| hash.0.to_vec()).unwrap_or_default();
    all(conn, &sql, params![org.0, before.0, after, limit], |row| empty_blob_row(&mut Columns::of(row)))
}

const EMPTY_BLOB: &str = "b.hash, b.media_type, b.size, b.blob, b.created_at";

/// Without what it holds.
fn empty_blob_row(columns: &mut Columns) -> rusqlite::Result<BlobRow> {
    Ok(BlobRow {
        hash: columns.digest()?,
        media_type: columns.get()?,
        size: columns.seq()?,
        content: Vec::new(),
        blob: columns.get()?,
        created_at: columns.time()?,
    })
}

pub(super) fn blobs_in_use(
    conn: &Connection,
    org: OrgId,
    before: Timestamp,
    hashes: &[Digest],
) -> Result<Vec<(BlobRow, u64)>> {
    let sql = format!(
        "SELECT {EMPTY_BLOB}, (SELECT count(*) FROM revisions AS r WHERE r.org_id = ?1 AND r.cas_hash = b.hash)
         FROM cas_blobs AS b WHERE b.org_id = ?1 AND b.created_at < ?2 AND b.hash = ?3"
    );
    let mut rows = Vec::with_capacity(hashes.len());
    for hash in hashes {
        rows.extend(all(conn, &sql, params![org.0, before.0, hash.0.as_slice()], |row| {
            let mut columns = Columns::of(row);
            Ok((empty_blob_row(&mut columns)?, columns.seq()?))
        })?);
    }
    Ok(rows)
}

pub(super) fn remove_blobs(tx: &Connection, org: OrgId, before: Timestamp, blobs: &[Digest]) -> Result<(u64, u64)> {
    let note = format!(
        "INSERT INTO cas_notes (blob, noted_at) SELECT b.blob, 0 FROM cas_blobs AS b
         WHERE {LOOSE_BLOB} AND b.hash = ?3 AND b.blob IS NOT NULL ON CONFLICT DO NOTHING"
    );
    let remove = format!("DELETE FROM cas_blobs AS b WHERE {LOOSE_BLOB} AND b.hash = ?3 RETURNING size");
    let (mut removed, mut bytes) = (0, 0);
    for hash in blobs {
        let params = params![org.0, before.0, hash.0.as_slice()];
        tx.prepare_cached(&note)?.execute(params)?;
        let sizes = all(tx, &remove, params, |row| row.get::<_, i64>(0))?;
        removed += sizes.len() as u64;
        bytes += sizes.iter().map(|size| size.cast_unsigned()).sum::<u64>();
    }
    Ok((removed, bytes))
}

pub(super) fn forget_requests(tx: &Connection, before: Timestamp) -> Result<()> {
    tx.prepare_cached("DELETE FROM definition_requests WHERE created_at < ?")?.execute(params![before.0])?;
    Ok(())
}

pub(super) fn note_key(tx: &Connection, key: &str, now: Timestamp) -> Result<()> {
    tx.prepare_cached("INSERT INTO cas_notes (blob, noted_at) VALUES (?, ?) ON CONFLICT DO NOTHING")?
        .execute(params![key, now.0])?;
    Ok(())
}

pub(super) fn loose_keys(conn: &Connection, before: Timestamp, limit: u32) -> Result<Vec<String>> {
    let sql = "SELECT blob FROM cas_notes WHERE noted_at < ? ORDER BY blob LIMIT ?";
    all(conn, sql, params![before.0, limit], |row| row.get(0))
}

pub(super) fn clear_key(tx: &Connection, key: &str) -> Result<()> {
    tx.prepare_cached("DELETE FROM cas_notes WHERE blob = ?")?.execute(params![key])?;
    Ok(())
}
