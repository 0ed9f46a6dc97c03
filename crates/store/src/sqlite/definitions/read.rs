//! Reading definitions.

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::super::columns::{Columns, all, one};
use crate::Result;
use crate::rows::{BlobRow, ChainRow, MoveRow, RequestRow, RevisionRow, StoredRevision, TagRow};

const BLOB: &str = "b.hash, b.media_type, b.size, b.content, b.blob, b.created_at";

fn blob_row(columns: &mut Columns) -> rusqlite::Result<BlobRow> {
    Ok(BlobRow {
        hash: columns.digest()?,
        media_type: columns.get()?,
        size: columns.seq()?,
        content: columns.get()?,
        blob: columns.get()?,
        created_at: columns.time()?,
    })
}

pub(super) fn blob(conn: &Connection, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
    let sql = format!("SELECT {BLOB} FROM cas_blobs AS b WHERE b.org_id = ? AND b.hash = ?");
    one(conn, &sql, params![org.0, hash.0.as_slice()], |row| blob_row(&mut Columns::of(row)))
}

const TAG: &str = "SELECT tag, target_kind, target_id, target_hash, version, at_move, redo_move, moved_by, moved_at,
    message, protection FROM tags";

fn tag_row(row: &Row) -> rusqlite::Result<TagRow> {
    let mut columns = Columns::of(row);
    Ok(TagRow {
        tag: columns.get()?,
        kind: columns.word()?,
        revision_id: uuid(&mut columns)?,
        version_hash: columns.digest()?,
        version: columns.seq()?,
        at_move: columns.seq()?,
        redo_move: columns.opt_seq()?,
        moved_by: columns.get()?,
        moved_at: columns.time()?,
        message: columns.get()?,
        protection: columns.get()?,
    })
}

fn uuid(columns: &mut Columns) -> rusqlite::Result<Uuid> {
    columns.get().map(Uuid::from_bytes)
}

fn opt_uuid(columns: &mut Columns) -> rusqlite::Result<Option<Uuid>> {
    Ok(columns.get::<Option<[u8; 16]>>()?.map(Uuid::from_bytes))
}

fn one_tag() -> String {
    format!("{TAG} WHERE org_id = ? AND tag = ?")
}

fn tags_after() -> String {
    format!("{TAG} WHERE org_id = ? AND tag > ? ORDER BY tag LIMIT ?")
}

pub(super) fn tag(conn: &Connection, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
    one(conn, &one_tag(), params![org.0, tag], tag_row)
}

pub(super) fn tags(conn: &Connection, org: OrgId, after: &str, limit: u32) -> Result<Vec<TagRow>> {
    all(conn, &tags_after(), params![org.0, after, limit], tag_row)
}

const MOVE: &str = "m.move_id, m.kind, m.from_revision_id, m.to_kind, m.to_revision_id, m.to_version_hash,
    m.restores_move_id, m.before_move, m.undone_move, m.below_move, m.merged_revision_id, m.moved_by, m.moved_at, m.message,
    m.from_kind, m.expected_hash";

fn move_row(row: &Row) -> rusqlite::Result<MoveRow> {
    let mut columns = Columns::of(row);
    Ok(MoveRow {
        move_id: columns.seq()?,
        kind: columns.word()?,
        from_revision_id: opt_uuid(&mut columns)?,
        to_kind: columns.word()?,
        to_revision_id: uuid(&mut columns)?,
        to_version_hash: columns.digest()?,
        restores_move_id: columns.opt_seq()?,
        before_move: columns.opt_seq()?,
        undone_move: columns.opt_seq()?,
        below_move: columns.opt_seq()?,
        merged_revision_id: opt_uuid(&mut columns)?,
        moved_by: columns.get()?,
        moved_at: columns.time()?,
        message: columns.get()?,
        from_kind: columns.opt_word()?,
        expected_hash: columns.opt_digest()?,
    })
}

pub(super) fn moves(conn: &Connection, org: OrgId, tag: &str, before: Option<u64>, limit: u32) -> Result<Vec<MoveRow>> {
    let sql = format!(
        "SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = ? AND m.tag = ? AND m.move_id < ?
         ORDER BY m.move_id DESC LIMIT ?"
    );
    let before = before.map_or(i64::MAX, u64::cast_signed);
    all(conn, &sql, params![org.0, tag, before, limit], move_row)
}

pub(super) fn move_of(conn: &Connection, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>> {
    let sql = format!("SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = ? AND m.tag = ? AND m.move_id = ?");
    one(conn, &sql, params![org.0, tag, move_id.cast_signed()], move_row)
}

pub(super) fn move_at(conn: &Connection, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>> {
    let sql = format!(
        "SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = ? AND m.tag = ? AND m.moved_at <= ?
         ORDER BY m.moved_at DESC LIMIT 1"
    );
    one(conn, &sql, params![org.0, tag, at.0], move_row)
}

fn move_back_sql() -> String {
    format!(
        "WITH RECURSIVE back (move_id, steps) AS (
             VALUES (?3, ?4)
             UNION ALL
             SELECT m.before_move, b.steps - 1 FROM back AS b
             CROSS JOIN tag_moves AS m ON m.org_id = ?1 AND m.tag = ?2 AND m.move_id = b.move_id
             WHERE b.steps > 0 AND m.before_move IS NOT NULL
         )
         SELECT {MOVE} FROM back AS b
         CROSS JOIN tag_moves AS m ON m.org_id = ?1 AND m.tag = ?2 AND m.move_id = b.move_id WHERE b.steps = 0"
    )
}

/// `CROSS JOIN` keeps the order as it is written: what is known first, then rows by their keys.
pub(super) fn move_back(conn: &Connection, org: OrgId, tag: &str, from: u64, steps: u32) -> Result<Option<MoveRow>> {
    one(conn, &move_back_sql(), params![org.0, tag, from.cast_signed(), steps], move_row)
}

pub(super) const REVISION: &str = "r.revision_id, r.kind, r.cas_hash, r.version_hash, r.plan_hash, r.base_version,
    r.parent_id, r.merge_parent_id, r.depth, r.message, r.created_by, r.created_at, r.name, r.meta";

pub(super) fn revision_row(columns: &mut Columns) -> rusqlite::Result<RevisionRow> {
    Ok(RevisionRow {
        revision_id: uuid(columns)?,
        kind: columns.word()?,
        cas_hash: columns.digest()?,
        version_hash: columns.digest()?,
        plan_hash: columns.opt_digest()?,
        base_version: opt_uuid(columns)?,
        parent_id: opt_uuid(columns)?,
        merge_parent_id: opt_uuid(columns)?,
        depth: columns.get()?,
        message: columns.get()?,
        created_by: columns.get()?,
        created_at: columns.time()?,
        name: columns.get()?,
        meta: columns.get()?,
    })
}

pub(super) fn revision(conn: &Connection, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>> {
    let sql = format!("SELECT {REVISION} FROM revisions AS r WHERE r.org_id = ? AND r.revision_id = ?");
    one(conn, &sql, params![org.0, revision.as_bytes()], |row| revision_row(&mut Columns::of(row)))
}

pub(super) fn revisions_in(
    conn: &Connection,
    org: OrgId,
    from: Digest,
    to: Digest,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE r.org_id = ? AND r.version_hash BETWEEN ? AND ?
         ORDER BY r.version_hash, r.revision_id LIMIT ?"
    );
    let params = params![org.0, from.0.as_slice(), to.0.as_slice(), limit];
    all(conn, &sql, params, |row| revision_row(&mut Columns::of(row)))
}

fn chain_sql() -> String {
    format!(
        "WITH members (seq, revision_id) AS (
             SELECT 0, coalesce(base_version, revision_id) FROM revisions WHERE org_id = ?1 AND revision_id = ?2
             UNION ALL
             SELECT seq, member_id FROM patch_chain_members WHERE org_id = ?1 AND head_id = ?2
         )
         SELECT {REVISION}, {BLOB} FROM members AS m
         CROSS JOIN revisions AS r ON r.org_id = ?1 AND r.revision_id = m.revision_id
         CROSS JOIN cas_blobs AS b ON b.org_id = ?1 AND b.hash = r.cas_hash
         ORDER BY m.seq"
    )
}

pub(super) fn chain(conn: &Connection, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>> {
    all(conn, &chain_sql(), params![org.0, revision.as_bytes()], |row| {
        let mut columns = Columns::of(row);
        Ok(StoredRevision { revision: revision_row(&mut columns)?, content: blob_row(&mut columns)? })
    })
}

fn ancestors_sql() -> String {
    format!(
        "WITH RECURSIVE line (revision_id, distance) AS (
             VALUES (?2, 0)
             UNION
             SELECT CASE s.side WHEN 1 THEN r.parent_id ELSE r.merge_parent_id END, l.distance + 1
             FROM line AS l
             CROSS JOIN revisions AS r ON r.org_id = ?1 AND r.revision_id = l.revision_id
             CROSS JOIN (SELECT 1 AS side UNION ALL SELECT 2) AS s
             WHERE l.distance < ?3 AND CASE s.side WHEN 1 THEN r.parent_id ELSE r.merge_parent_id END IS NOT NULL
         )
         SELECT {REVISION} FROM (SELECT revision_id, min(distance) AS distance FROM line GROUP BY revision_id) AS l
         CROSS JOIN revisions AS r ON r.org_id = ?1 AND r.revision_id = l.revision_id
         ORDER BY l.distance, r.revision_id"
    )
}

/// A revision may be reached in two ways; it counts as near as the nearer one.
pub(super) fn ancestors(conn: &Connection, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>> {
    all(conn, &ancestors_sql(), params![org.0, revision.as_bytes(), limit], |row| revision_row(&mut Columns::of(row)))
}

pub(super) fn revisions_after(
    conn: &Connection,
    org: OrgId,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE r.org_id = ? AND r.revision_id > ? ORDER BY r.revision_id LIMIT ?"
    );
    let after = super::opt_id(after.as_ref()).unwrap_or_default();
    all(conn, &sql, params![org.0, after, limit], |row| revision_row(&mut Columns::of(row)))
}

pub(super) fn chain_rows(conn: &Connection, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>> {
    let sql = "SELECT head_id, seq, member_id FROM patch_chain_members WHERE org_id = ? AND head_id = ?";
    let mut rows = Vec::new();
    for head in heads {
        rows.extend(all(conn, sql, params![org.0, head.as_bytes()], |row| {
            let mut columns = Columns::of(row);
            Ok(ChainRow { head_id: uuid(&mut columns)?, seq: columns.get()?, member_id: uuid(&mut columns)? })
        })?);
    }
    Ok(rows)
}

pub(super) fn request(conn: &Connection, org: OrgId, key: &str) -> Result<Option<RequestRow>> {
    let sql = "SELECT request_key, fingerprint, answer, created_at FROM definition_requests
               WHERE org_id = ? AND request_key = ?";
    one(conn, sql, params![org.0, key], |row| {
        let mut columns = Columns::of(row);
        Ok(RequestRow {
            key: columns.get()?,
            fingerprint: columns.digest()?,
            answer: columns.get()?,
            created_at: columns.time()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::{StatementStatus, params_from_iter};

    use super::super::super::open;
    use super::*;

    fn compilations_to_run(conn: &Connection, sql: &str) -> i32 {
        let mut statement = conn.prepare(sql).unwrap();
        for value in 0..5 {
            let values = vec![value; statement.parameter_count()];
            assert!(statement.query(params_from_iter(values)).unwrap().next().unwrap().is_none());
        }
        1 + statement.get_status(StatementStatus::RePrepare)
    }

    #[test]
    fn ways_back_are_gone_by_keys_alone() {
        let folder = tempfile::tempdir().unwrap();
        let conn = open::writer(&folder.path().join("runs.db"), true).unwrap();
        for sql in [move_back_sql(), chain_sql(), ancestors_sql()] {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![rusqlite::types::Null; plan.parameter_count()];
            let lines = plan.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let lines: Vec<String> = lines.map(Result::unwrap).collect();
            let looked_up = lines.iter().filter(|line| line.contains("PRIMARY KEY"));
            for line in looked_up.clone() {
                let whole = ["move_id=?", "revision_id=?", "hash=?", "head_id=?"];
                assert!(whole.iter().any(|key| line.contains(key)), "{lines:#?}");
            }
            assert!(looked_up.count() >= 2 && !lines.iter().any(|line| line.contains("AUTOMATIC")), "{lines:#?}");
        }
    }

    /// Every start by a workflow's name asks for its tag.
    #[test]
    fn a_tag_is_asked_for_by_a_statement_that_is_compiled_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        for conn in [open::writer(&path, true).unwrap(), open::reader(&path).unwrap()] {
            assert_eq!(compilations_to_run(&conn, &one_tag()), 1);
            assert_eq!(compilations_to_run(&conn, &tags_after()), 1);
        }
    }
}
