//! Revisions and the tags that point at their content.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, one};
use crate::Result;
use crate::rows::{Deployed, TagRow};

pub(super) fn deploy(
    tx: &Connection,
    org: OrgId,
    tag: &str,
    target: Digest,
    revision: Uuid,
    now: Timestamp,
) -> Result<Deployed> {
    let hash = target.0.as_slice();
    let made = tx
        .prepare_cached(
            "INSERT INTO revisions (org_id, revision_id, kind, version_hash, created_at)
             VALUES (?, ?, 'dag_version', ?, ?) ON CONFLICT (org_id, version_hash) DO NOTHING",
        )?
        .execute(params![org.0, revision.as_bytes(), hash, now.0])?;
    tx.prepare_cached(
        "INSERT INTO tags (org_id, tag, target_hash, version, moved_at) VALUES (?1, ?2, ?3, 1, ?4)
         ON CONFLICT (org_id, tag) DO UPDATE SET target_hash = ?3, version = version + 1, moved_at = ?4
         WHERE target_hash <> ?3",
    )?
    .execute(params![org.0, tag, hash, now.0])?;
    let sql = "SELECT r.revision_id, t.version FROM revisions r, tags t
               WHERE r.org_id = ?1 AND r.version_hash = ?3 AND t.org_id = ?1 AND t.tag = ?2";
    let (bytes, version) = tx.prepare_cached(sql)?.query_row(params![org.0, tag, hash], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.get::<[u8; 16]>()?, columns.seq()?))
    })?;
    Ok(Deployed { revision_id: Uuid::from_bytes(bytes), existing: made == 0, tag_version: version })
}

const TAG: &str = "SELECT t.tag, t.target_hash, t.version, t.moved_at, r.revision_id
    FROM tags t LEFT JOIN revisions r ON r.org_id = t.org_id AND r.version_hash = t.target_hash";

fn tag_row(row: &Row) -> rusqlite::Result<TagRow> {
    let mut columns = Columns::of(row);
    Ok(TagRow {
        tag: columns.get()?,
        target: columns.digest()?,
        version: columns.seq()?,
        moved_at: columns.time()?,
        revision_id: columns.get::<Option<[u8; 16]>>()?.map(Uuid::from_bytes),
    })
}

fn one_tag() -> String {
    format!("{TAG} WHERE t.org_id = ? AND t.tag = ?")
}

fn tags_after() -> String {
    format!("{TAG} WHERE t.org_id = ? AND t.tag > ? ORDER BY t.tag LIMIT ?")
}

pub(super) fn tag(conn: &Connection, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
    one(conn, &one_tag(), params![org.0, tag], tag_row)
}

pub(super) fn tags(conn: &Connection, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>> {
    all(conn, &tags_after(), params![org.0, after.unwrap_or_default(), limit], tag_row)
}

#[cfg(test)]
mod tests {
    use rusqlite::{StatementStatus, params_from_iter};

    use super::super::open;
    use super::*;

    fn compilations_to_run(conn: &Connection, sql: &str) -> i32 {
        let mut statement = conn.prepare(sql).unwrap();
        for value in 0..5 {
            let values = vec![value; statement.parameter_count()];
            assert!(statement.query(params_from_iter(values)).unwrap().next().unwrap().is_none());
        }
        1 + statement.get_status(StatementStatus::RePrepare)
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
