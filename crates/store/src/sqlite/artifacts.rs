//! Files that runs leave, and where their content is.

mod content;

use async_trait::async_trait;
use milepost_core::artifact::Artifact;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, Row, ToSql, params};
use uuid::Uuid;

use super::SqliteStore;
use super::columns::{Columns, all, id, one};
use crate::rows::{ArtifactFilter, ArtifactPosition, ArtifactRow, ContentKey, ContentRow, KeptWrite, RunWrite};
use crate::{ArtifactStore, Result};

/// The artifacts that a write's events record.
pub(super) fn write(tx: &Connection, write: &RunWrite) -> Result<()> {
    let mut statement = tx.prepare_cached(
        "INSERT INTO artifacts (org_id, run_id, seq, place, artifact_id, step_id, skill, kind, uri, sha256, size_bytes,
             media_type, filename, training_step, metadata, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?;
    for row in &write.artifacts {
        let artifact = &row.artifact;
        statement.execute(params![
            write.org.0,
            id(&row.run),
            row.position.seq.cast_signed(),
            row.position.place,
            artifact.id.0.as_bytes(),
            row.step_id.as_deref(),
            row.skill.as_deref(),
            artifact.kind,
            artifact.uri,
            artifact.sha256.map(|hash| hash.0),
            artifact.size_bytes.map(u64::cast_signed),
            artifact.media_type,
            artifact.filename,
            artifact.training_step,
            artifact.metadata.as_str(),
            row.created_at.0,
            artifact.expires_at.map(|at| at.0),
        ])?;
    }
    Ok(())
}

/// That a result which is kept names content.
pub(super) fn keep(tx: &Connection, org: OrgId, served: &RunId, kept: &KeptWrite) -> Result<()> {
    let Some(beyond) = &kept.beyond else { return Ok(()) };
    let mut statement = tx.prepare_cached(
        "INSERT INTO cache_blobs (org_id, sha256, key, run_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )?;
    for hash in beyond.blobs() {
        statement.execute(params![org.0, hash.0, kept.key.key.0, id(served)])?;
    }
    Ok(())
}

const COLUMNS: &str =
    "SELECT run_id, seq, place, step_id, skill, artifact_id, kind, uri, sha256, size_bytes, media_type,
    filename, training_step, metadata, expires_at, created_at FROM artifacts";

fn artifact_row(row: &Row) -> rusqlite::Result<ArtifactRow> {
    let mut columns = Columns::of(row);
    Ok(ArtifactRow {
        run: columns.run()?,
        position: ArtifactPosition { seq: columns.seq()?, place: columns.get()? },
        step_id: columns.get()?,
        skill: columns.get()?,
        artifact: Artifact {
            id: columns.get::<[u8; 16]>().map(|bytes| ArtifactId(Uuid::from_bytes(bytes)))?,
            kind: columns.get()?,
            uri: columns.get()?,
            sha256: columns.opt_digest()?,
            size_bytes: columns.opt_seq()?,
            media_type: columns.get()?,
            filename: columns.get()?,
            training_step: columns.get()?,
            metadata: columns.opt_json()?.unwrap_or_else(milepost_core::artifact::nothing),
            expires_at: columns.opt_time()?,
        },
        created_at: columns.time()?,
    })
}

/// All of a run.
pub(super) fn of_run(conn: &Connection, org: OrgId, run: RunId) -> Result<Vec<ArtifactRow>> {
    let sql = format!("{COLUMNS} WHERE org_id = ? AND run_id = ? ORDER BY seq, place");
    all(conn, &sql, params![org.0, id(&run)], artifact_row)
}

fn list_sql(filter: &ArtifactFilter) -> String {
    // A step has few of them.
    let (index, wanted) = match (&filter.step_id, &filter.kind) {
        (None, None) => ("", ""),
        (Some(_), None) => (" INDEXED BY artifacts_by_step", " AND step_id = ?6"),
        (None, Some(_)) => (" INDEXED BY artifacts_by_kind", " AND kind = ?7"),
        (Some(_), Some(_)) => (" INDEXED BY artifacts_by_step", " AND step_id = ?6 AND kind = ?7"),
    };
    format!(
        "{COLUMNS}{index} WHERE org_id = ?1 AND run_id = ?2 AND (seq, place) > (?3, ?4){wanted} ORDER BY seq, place LIMIT ?5"
    )
}

fn list(
    conn: &Connection,
    org: OrgId,
    run: RunId,
    filter: &ArtifactFilter,
    after: Option<ArtifactPosition>,
    limit: u32,
) -> Result<Vec<ArtifactRow>> {
    let after = after.unwrap_or(ArtifactPosition { seq: 0, place: 0 });
    let (run, seq) = (id(&run), after.seq.cast_signed());
    let mut parameters: Vec<&dyn ToSql> = vec![&org.0, &run, &seq, &after.place, &limit];
    match (&filter.step_id, &filter.kind) {
        (None, None) => {}
        (Some(step), None) => parameters.push(step),
        (step, Some(kind)) => parameters.extend([step as &dyn ToSql, kind]),
    }
    all(conn, &list_sql(filter), &parameters[..], artifact_row)
}

const EXPIRED: &str = "DELETE FROM artifacts WHERE (org_id, run_id, seq, place) IN (
    SELECT org_id, run_id, seq, place FROM artifacts WHERE expires_at <= ? LIMIT ?)";

#[async_trait]
impl ArtifactStore for SqliteStore {
    async fn artifacts(
        &self,
        org: OrgId,
        run: RunId,
        filter: &ArtifactFilter,
        after: Option<ArtifactPosition>,
        limit: u32,
    ) -> Result<Vec<ArtifactRow>> {
        let filter = filter.clone();
        self.read(move |conn| list(conn, org, run, &filter, after, limit)).await
    }

    async fn artifact(&self, org: OrgId, run: RunId, artifact: ArtifactId) -> Result<Option<ArtifactRow>> {
        self.read(move |conn| {
            let sql = format!("{COLUMNS} WHERE org_id = ? AND run_id = ? AND artifact_id = ?");
            one(conn, &sql, params![org.0, id(&run), artifact.0.as_bytes()], artifact_row)
        })
        .await
    }

    async fn numbered(&self, org: OrgId, run: RunId, kind: &str, training_step: i64) -> Result<Option<ArtifactRow>> {
        let kind = kind.to_owned();
        self.read(move |conn| {
            let sql = format!("{COLUMNS} WHERE org_id = ? AND run_id = ? AND kind = ? AND training_step = ?");
            one(conn, &sql, params![org.0, id(&run), kind, training_step], artifact_row)
        })
        .await
    }

    async fn media_type(&self, org: OrgId, sha256: Digest) -> Result<Option<String>> {
        let sql = "SELECT media_type FROM artifacts WHERE org_id = ? AND sha256 = ? AND media_type IS NOT NULL LIMIT 1";
        self.read(move |conn| one(conn, sql, params![org.0, sha256.0], |row| row.get(0))).await
    }

    async fn forget_expired(&self, now: Timestamp, limit: u32) -> Result<u64> {
        self.write(move |tx| Ok(tx.prepare_cached(EXPIRED)?.execute(params![now.0, limit])? as u64)).await
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        let key = key.to_owned();
        self.write(move |tx| content::note_key(tx, &key, now)).await
    }

    async fn contents(&self, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>> {
        let hashes = hashes.to_vec();
        self.read(move |conn| content::find(conn, org, &hashes)).await
    }

    async fn name_content(&self, org: OrgId, row: &ContentRow, instead_of: Option<&str>) -> Result<bool> {
        let (row, instead_of) = (row.clone(), instead_of.map(ToOwned::to_owned));
        self.write(move |tx| content::name(tx, org, &row, instead_of.as_deref())).await
    }

    async fn touch_contents(&self, org: OrgId, hashes: &[Digest], now: Timestamp) -> Result<Vec<ContentRow>> {
        let hashes = hashes.to_vec();
        self.write(move |tx| content::touch(tx, org, &hashes, now)).await
    }

    async fn loose_contents(
        &self,
        before: Timestamp,
        after: Option<ContentKey>,
        limit: u32,
    ) -> Result<Vec<(OrgId, ContentRow)>> {
        self.read(move |conn| content::loose(conn, before, after, limit)).await
    }

    async fn remove_contents(&self, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)> {
        let contents = contents.to_vec();
        self.write(move |tx| content::remove(tx, before, &contents)).await
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        let sql = "SELECT blob FROM blob_notes WHERE noted_at < ? ORDER BY blob LIMIT ?";
        self.read(move |conn| all(conn, sql, params![before.0, limit], |row| row.get(0))).await
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        self.write(move |tx| {
            tx.prepare_cached("DELETE FROM blob_notes WHERE blob = ?")?.execute(params![key])?;
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{plan, schema};
    use super::*;

    #[test]
    fn artifacts_are_found_without_a_scan() {
        let schema = schema();
        let filter =
            |step: bool, kind: bool| ArtifactFilter { step_id: step.then(String::new), kind: kind.then(String::new) };
        let lists = [(false, false), (true, false), (false, true), (true, true)].map(|(s, k)| list_sql(&filter(s, k)));
        for sql in lists.iter().map(String::as_str).chain([EXPIRED]) {
            let plan = plan(&schema, sql);
            assert!(!plan.contains("SCAN") && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}
