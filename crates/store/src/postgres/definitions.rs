//! Revisions and the tags that point at their content.

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::{self, col};
use super::runs::query;
use crate::Result;
use crate::rows::{Deployed, TagRow};

pub(super) async fn deploy(
    connection: &mut Object,
    org: OrgId,
    tag: &str,
    target: Digest,
    revision: Uuid,
    now: Timestamp,
) -> Result<Deployed> {
    let hash = target.0.as_slice();
    let transaction = connection.transaction().await?;
    let made = transaction
        .execute(
            "INSERT INTO revisions (org_id, revision_id, kind, version_hash, created_at)
             VALUES ($1, $2, 'dag_version', $3, $4) ON CONFLICT (org_id, version_hash) DO NOTHING",
            &[&org.0, &revision, &hash, &now.0],
        )
        .await?;
    transaction
        .execute(
            "INSERT INTO tags (org_id, tag, target_hash, version, moved_at) VALUES ($1, $2, $3, 1, $4)
             ON CONFLICT (org_id, tag) DO UPDATE
             SET target_hash = excluded.target_hash, version = tags.version + 1, moved_at = excluded.moved_at
             WHERE tags.target_hash <> excluded.target_hash",
            &[&org.0, &tag, &hash, &now.0],
        )
        .await?;
    let row = transaction
        .query_one(
            "SELECT r.revision_id, t.version FROM revisions r, tags t
             WHERE r.org_id = $1 AND r.version_hash = $3 AND t.org_id = $1 AND t.tag = $2",
            &[&org.0, &tag, &hash],
        )
        .await?;
    transaction.commit().await?;
    Ok(Deployed { revision_id: col(&row, 0)?, existing: made == 0, tag_version: columns::seq(col(&row, 1)?)? })
}

const TAG: &str = "SELECT t.tag, t.target_hash, t.version, t.moved_at, r.revision_id
    FROM tags t LEFT JOIN revisions r ON r.org_id = t.org_id AND r.version_hash = t.target_hash";

fn tag_row(row: &Row) -> Result<TagRow> {
    Ok(TagRow {
        tag: col(row, 0)?,
        target: columns::digest(col(row, 1)?)?,
        version: columns::seq(col(row, 2)?)?,
        moved_at: Timestamp(col(row, 3)?),
        revision_id: col(row, 4)?,
    })
}

pub(super) async fn tag(connection: &Object, org: OrgId, tag: &str) -> Result<Option<TagRow>> {
    let rows = query(connection, &format!("{TAG} WHERE t.org_id = $1 AND t.tag = $2"), &[&org.0, &tag]).await?;
    rows.first().map(tag_row).transpose()
}

pub(super) async fn tags(connection: &Object, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<TagRow>> {
    let sql = format!("{TAG} WHERE t.org_id = $1 AND t.tag COLLATE \"C\" > $2 ORDER BY t.tag COLLATE \"C\" LIMIT $3");
    let rows = query(connection, &sql, &[&org.0, &after.unwrap_or_default(), &i64::from(limit)]).await?;
    rows.iter().map(tag_row).collect()
}
