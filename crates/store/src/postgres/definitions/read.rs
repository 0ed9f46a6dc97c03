//! Reading definitions.

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::columns::{self, col, int4, int8};
use super::super::runs::query;
use crate::Result;
use crate::rows::{BlobRow, ChainRow, MoveRow, RequestRow, RevisionRow, StoredRevision, TagRow};

/// Rows of a join are looked up one by one, by their keys: a plan that was made while tables were small would go over all.
const BY_KEY: &str = "OFFSET 0";

const BLOB: &str = "b.hash, b.media_type, b.size, b.content, b.blob, b.created_at";

fn blob_row(row: &Row, at: usize) -> Result<BlobRow> {
    Ok(BlobRow {
        hash: columns::digest(col(row, at)?)?,
        media_type: col(row, at + 1)?,
        size: columns::seq(col(row, at + 2)?)?,
        content: col(row, at + 3)?,
        blob: col(row, at + 4)?,
        created_at: Timestamp(col(row, at + 5)?),
    })
}

pub(super) async fn blob(connection: &Object, org: OrgId, hash: Digest) -> Result<Option<BlobRow>> {
    let sql = format!("SELECT {BLOB} FROM cas_blobs AS b WHERE b.org_id = $1 AND b.hash = $2");
    let rows = query(connection, &sql, &[&org.0, &hash.0.as_slice()]).await?;
    rows.first().map(|row| blob_row(row, 0)).transpose()
}

const TAG: &str = "SELECT tag, target_kind, target_id, target_hash, version, at_move, redo_move, moved_by, moved_at,
    message, protection FROM tags";

fn tag_row(row: &Row) -> Result<TagRow> {
    Ok(TagRow {
        tag: col(row, 0)?,
        kind: columns::word(col(row, 1)?)?,
        revision_id: col(row, 2)?,
        version_hash: columns::digest(col(row, 3)?)?,
        version: columns::seq(col(row, 4)?)?,
        at_move: columns::seq(col(row, 5)?)?,
        redo_move: opt_seq(row, 6)?,
        moved_by: col(row, 7)?,
        moved_at: Timestamp(col(row, 8)?),
        message: col(row, 9)?,
        protection: col(row, 10)?,
    })
}

fn opt_seq(row: &Row, at: usize) -> Result<Option<u64>> {
    col::<Option<i64>>(row, at)?.map(columns::seq).transpose()
}

pub(super) async fn tag(connection: &Object, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
    let rows = query(connection, &format!("{TAG} WHERE org_id = $1 AND tag = $2"), &[&org.0, &tag]).await?;
    rows.first().map(tag_row).transpose()
}

pub(super) async fn tags(connection: &Object, org: OrgId, after: &str, limit: u32) -> Result<Vec<TagRow>> {
    let sql = format!("{TAG} WHERE org_id = $1 AND tag > $2 ORDER BY tag LIMIT $3");
    let rows = query(connection, &sql, &[&org.0, &after, &i64::from(limit)]).await?;
    rows.iter().map(tag_row).collect()
}

const MOVE: &str = "m.move_id, m.kind, m.from_revision_id, m.to_kind, m.to_revision_id, m.to_version_hash,
    m.restores_move_id, m.before_move, m.undone_move, m.below_move, m.merged_revision_id, m.moved_by, m.moved_at, m.message,
    m.from_kind, m.expected_hash";

fn move_row(row: &Row) -> Result<MoveRow> {
    Ok(MoveRow {
        move_id: columns::seq(col(row, 0)?)?,
        kind: columns::word(col(row, 1)?)?,
        from_revision_id: col(row, 2)?,
        to_kind: columns::word(col(row, 3)?)?,
        to_revision_id: col(row, 4)?,
        to_version_hash: columns::digest(col(row, 5)?)?,
        restores_move_id: opt_seq(row, 6)?,
        before_move: opt_seq(row, 7)?,
        undone_move: opt_seq(row, 8)?,
        below_move: opt_seq(row, 9)?,
        merged_revision_id: col(row, 10)?,
        moved_by: col(row, 11)?,
        moved_at: Timestamp(col(row, 12)?),
        message: col(row, 13)?,
        from_kind: col::<Option<&str>>(row, 14)?.map(columns::word).transpose()?,
        expected_hash: col::<Option<&[u8]>>(row, 15)?.map(columns::digest).transpose()?,
    })
}

pub(super) async fn moves(
    connection: &Object,
    org: OrgId,
    tag: &str,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<MoveRow>> {
    let sql = format!(
        "SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = $1 AND m.tag = $2 AND m.move_id < $3
         ORDER BY m.move_id DESC LIMIT $4"
    );
    let before = before.map_or(i64::MAX, int8);
    let rows = query(connection, &sql, &[&org.0, &tag, &before, &i64::from(limit)]).await?;
    rows.iter().map(move_row).collect()
}

pub(super) async fn move_of(connection: &Object, org: OrgId, tag: &str, move_id: u64) -> Result<Option<MoveRow>> {
    let sql = format!("SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = $1 AND m.tag = $2 AND m.move_id = $3");
    let rows = query(connection, &sql, &[&org.0, &tag, &int8(move_id)]).await?;
    rows.first().map(move_row).transpose()
}

pub(super) async fn move_at(connection: &Object, org: OrgId, tag: &str, at: Timestamp) -> Result<Option<MoveRow>> {
    let sql = format!(
        "SELECT {MOVE} FROM tag_moves AS m WHERE m.org_id = $1 AND m.tag = $2 AND m.moved_at <= $3
         ORDER BY m.moved_at DESC LIMIT 1"
    );
    let rows = query(connection, &sql, &[&org.0, &tag, &at.0]).await?;
    rows.first().map(move_row).transpose()
}

pub(super) async fn move_back(
    connection: &Object,
    org: OrgId,
    tag: &str,
    from: u64,
    steps: u32,
) -> Result<Option<MoveRow>> {
    let sql = format!(
        "WITH RECURSIVE back (move_id, steps) AS (
             SELECT $3::int8, $4::int4
             UNION ALL
             SELECT m.before_move, b.steps - 1 FROM back AS b CROSS JOIN LATERAL (
                 SELECT before_move FROM tag_moves AS m
                 WHERE m.org_id = $1 AND m.tag = $2 AND m.move_id = b.move_id {BY_KEY}
             ) AS m
             WHERE b.steps > 0 AND m.before_move IS NOT NULL
         )
         SELECT {MOVE} FROM back AS b CROSS JOIN LATERAL (
             SELECT * FROM tag_moves AS m WHERE m.org_id = $1 AND m.tag = $2 AND m.move_id = b.move_id {BY_KEY}
         ) AS m
         WHERE b.steps = 0"
    );
    let rows = query(connection, &sql, &[&org.0, &tag, &int8(from), &int4(steps)]).await?;
    rows.first().map(move_row).transpose()
}

pub(super) const REVISION: &str = "r.revision_id, r.kind, r.cas_hash, r.version_hash, r.plan_hash, r.base_version,
    r.parent_id, r.merge_parent_id, r.depth, r.message, r.created_by, r.created_at, r.name, r.meta";
const REVISION_COLUMNS: usize = 14;

pub(super) fn revision_row(row: &Row) -> Result<RevisionRow> {
    Ok(RevisionRow {
        revision_id: col(row, 0)?,
        kind: columns::word(col(row, 1)?)?,
        cas_hash: columns::digest(col(row, 2)?)?,
        version_hash: columns::digest(col(row, 3)?)?,
        plan_hash: col::<Option<&[u8]>>(row, 4)?.map(columns::digest).transpose()?,
        base_version: col(row, 5)?,
        parent_id: col(row, 6)?,
        merge_parent_id: col(row, 7)?,
        depth: columns::count(col(row, 8)?)?,
        message: col(row, 9)?,
        created_by: col(row, 10)?,
        created_at: Timestamp(col(row, 11)?),
        name: col(row, 12)?,
        meta: col(row, 13)?,
    })
}

pub(super) async fn revision(connection: &Object, org: OrgId, revision: Uuid) -> Result<Option<RevisionRow>> {
    let sql = format!("SELECT {REVISION} FROM revisions AS r WHERE r.org_id = $1 AND r.revision_id = $2");
    let rows = query(connection, &sql, &[&org.0, &revision]).await?;
    rows.first().map(revision_row).transpose()
}

pub(super) async fn revisions_in(
    connection: &Object,
    org: OrgId,
    from: Digest,
    to: Digest,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE r.org_id = $1 AND r.version_hash BETWEEN $2 AND $3
         ORDER BY r.version_hash, r.revision_id LIMIT $4"
    );
    let rows = query(connection, &sql, &[&org.0, &from.0.as_slice(), &to.0.as_slice(), &i64::from(limit)]).await?;
    rows.iter().map(revision_row).collect()
}

pub(super) async fn chain(connection: &Object, org: OrgId, revision: Uuid) -> Result<Vec<StoredRevision>> {
    let sql = format!(
        "WITH members (seq, revision_id) AS (
             SELECT 0, coalesce(base_version, revision_id) FROM revisions WHERE org_id = $1 AND revision_id = $2
             UNION ALL
             SELECT seq, member_id FROM patch_chain_members WHERE org_id = $1 AND head_id = $2
         )
         SELECT {REVISION}, {BLOB} FROM members AS m
         CROSS JOIN LATERAL (
             SELECT * FROM revisions AS r WHERE r.org_id = $1 AND r.revision_id = m.revision_id {BY_KEY}
         ) AS r
         CROSS JOIN LATERAL (
             SELECT * FROM cas_blobs AS b WHERE b.org_id = $1 AND b.hash = r.cas_hash {BY_KEY}
         ) AS b
         ORDER BY m.seq"
    );
    let rows = query(connection, &sql, &[&org.0, &revision]).await?;
    let stored =
        |row: &Row| Ok(StoredRevision { revision: revision_row(row)?, content: blob_row(row, REVISION_COLUMNS)? });
    rows.iter().map(stored).collect()
}

/// A revision may be reached in two ways; it counts as near as the nearer one.
pub(super) async fn ancestors(connection: &Object, org: OrgId, revision: Uuid, limit: u32) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "WITH RECURSIVE line (revision_id, distance) AS (
             SELECT $2::uuid, 0
             UNION
             SELECT p.parent, l.distance + 1 FROM line AS l
             CROSS JOIN LATERAL (
                 SELECT * FROM revisions AS r WHERE r.org_id = $1 AND r.revision_id = l.revision_id {BY_KEY}
             ) AS r
             CROSS JOIN LATERAL (VALUES (r.parent_id), (r.merge_parent_id)) AS p (parent)
             WHERE l.distance < $3 AND p.parent IS NOT NULL
         )
         SELECT {REVISION} FROM (SELECT revision_id, min(distance) AS distance FROM line GROUP BY revision_id) AS l
         CROSS JOIN LATERAL (
             SELECT * FROM revisions AS r WHERE r.org_id = $1 AND r.revision_id = l.revision_id {BY_KEY}
         ) AS r
         ORDER BY l.distance, r.revision_id"
    );
    let rows = query(connection, &sql, &[&org.0, &revision, &int4(limit)]).await?;
    rows.iter().map(revision_row).collect()
}

pub(super) async fn revisions_after(
    connection: &Object,
    org: OrgId,
    after: Option<Uuid>,
    limit: u32,
) -> Result<Vec<RevisionRow>> {
    let sql = format!(
        "SELECT {REVISION} FROM revisions AS r WHERE r.org_id = $1 AND r.revision_id > $2 ORDER BY r.revision_id LIMIT $3"
    );
    let rows = query(connection, &sql, &[&org.0, &after.unwrap_or(Uuid::nil()), &i64::from(limit)]).await?;
    rows.iter().map(revision_row).collect()
}

pub(super) async fn chain_rows(connection: &Object, org: OrgId, heads: &[Uuid]) -> Result<Vec<ChainRow>> {
    let sql =
        "SELECT head_id, seq, member_id FROM patch_chain_members WHERE org_id = $1 AND head_id = ANY ($2::uuid[])";
    let rows = query(connection, sql, &[&org.0, &heads]).await?;
    let read =
        |row: &Row| Ok(ChainRow { head_id: col(row, 0)?, seq: columns::count(col(row, 1)?)?, member_id: col(row, 2)? });
    rows.iter().map(read).collect()
}

pub(super) async fn request(connection: &Object, org: OrgId, key: &str) -> Result<Option<RequestRow>> {
    let sql = "SELECT request_key, fingerprint, answer, created_at FROM definition_requests
               WHERE org_id = $1 AND request_key = $2";
    let rows = query(connection, sql, &[&org.0, &key]).await?;
    let read = |row: &Row| {
        Ok(RequestRow {
            key: col(row, 0)?,
            fingerprint: columns::digest(col(row, 1)?)?,
            answer: col(row, 2)?,
            created_at: Timestamp(col(row, 3)?),
        })
    };
    rows.first().map(read).transpose()
}
