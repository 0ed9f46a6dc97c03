//! Files that runs leave, and where their content is.

mod content;

use async_trait::async_trait;
use deadpool_postgres::Object;
use milepost_core::artifact::Artifact;
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::columns::{self, col, int4, int8, moment, seq};
use super::runs::query;
use crate::rows::{ArtifactFilter, ArtifactPosition, ArtifactRow, ContentKey, ContentRow, RunWrite, WriteResult};
use crate::{ArtifactStore, Result};

pub(super) fn are_recorded_by(writes: &[RunWrite]) -> bool {
    writes.iter().any(|write| !write.artifacts.is_empty())
}

const RECORD: &str =
    "INSERT INTO artifacts (org_id, run_id, seq, place, artifact_id, step_id, skill, kind, uri, sha256,
        size_bytes, media_type, filename, training_step, metadata, created_at, expires_at)
    SELECT * FROM unnest($1::int4[], $2::uuid[], $3::int8[], $4::int4[], $5::uuid[], $6::text[], $7::text[], $8::text[],
        $9::text[], $10::bytea[], $11::int8[], $12::text[], $13::text[], $14::int8[], $15::text[], $16::int8[],
        $17::int8[])";

/// The artifacts that the events of writes record, as far as they were written.
pub(super) async fn write(connection: &Object, writes: &[RunWrite], results: &[WriteResult]) -> Result<()> {
    let written = writes.iter().zip(results).filter(|(_, result)| **result == WriteResult::Written);
    let rows: Vec<(i32, &ArtifactRow)> =
        written.flat_map(|(write, _)| write.artifacts.iter().map(|row| (write.org.0, row))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    fn column<'a, T>(rows: &[(i32, &'a ArtifactRow)], value: impl Fn(&'a ArtifactRow) -> T) -> Vec<T> {
        rows.iter().map(|(_, row)| value(row)).collect()
    }
    let orgs: Vec<i32> = rows.iter().map(|(org, _)| *org).collect();
    let parameters: [&(dyn ToSql + Sync); 17] = [
        &orgs,
        &column(&rows, |row| row.run.0),
        &column(&rows, |row| int8(row.position.seq)),
        &column(&rows, |row| int4(row.position.place)),
        &column(&rows, |row| row.artifact.id.0),
        &column(&rows, |row| row.step_id.as_deref()),
        &column(&rows, |row| row.skill.as_deref()),
        &column(&rows, |row| row.artifact.kind.as_str()),
        &column(&rows, |row| row.artifact.uri.as_str()),
        &column(&rows, |row| row.artifact.sha256.as_ref().map(|hash| hash.0.as_slice())),
        &column(&rows, |row| row.artifact.size_bytes.map(int8)),
        &column(&rows, |row| row.artifact.media_type.as_deref()),
        &column(&rows, |row| row.artifact.filename.as_deref()),
        &column(&rows, |row| row.artifact.training_step),
        &column(&rows, |row| row.artifact.metadata.as_str()),
        &column(&rows, |row| row.created_at.0),
        &column(&rows, |row| row.artifact.expires_at.map(|at| at.0)),
    ];
    query(connection, RECORD, &parameters).await?;
    Ok(())
}

/// That results which are kept name content.
pub(super) async fn keep(connection: &Object, named: &[(i32, Digest, Digest, Uuid)]) -> Result<()> {
    if named.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO cache_blobs (org_id, sha256, key, run_id)
        SELECT * FROM unnest($1::int4[], $2::bytea[], $3::bytea[], $4::uuid[]) ON CONFLICT DO NOTHING";
    let orgs: Vec<i32> = named.iter().map(|(org, ..)| *org).collect();
    let hashes: Vec<&[u8]> = named.iter().map(|(_, hash, ..)| hash.0.as_slice()).collect();
    let keys: Vec<&[u8]> = named.iter().map(|(_, _, key, _)| key.0.as_slice()).collect();
    let runs: Vec<Uuid> = named.iter().map(|(.., run)| *run).collect();
    query(connection, sql, &[&orgs, &hashes, &keys, &runs]).await?;
    Ok(())
}

/// Columns as [`artifact_row`] reads them.
pub(super) const COLUMNS: &str =
    "SELECT run_id, seq, place, step_id, skill, artifact_id, kind, uri, sha256, size_bytes,
    media_type, filename, training_step, metadata, expires_at, created_at FROM artifacts";

pub(super) fn artifact_row(row: &Row) -> Result<ArtifactRow> {
    Ok(ArtifactRow {
        run: RunId(col(row, 0)?),
        position: ArtifactPosition { seq: seq(col(row, 1)?)?, place: columns::count(col(row, 2)?)? },
        step_id: col::<Option<&str>>(row, 3)?.map(Into::into),
        skill: col::<Option<&str>>(row, 4)?.map(Into::into),
        artifact: Artifact {
            id: ArtifactId(col(row, 5)?),
            kind: col(row, 6)?,
            uri: col(row, 7)?,
            sha256: col::<Option<&[u8]>>(row, 8)?.map(columns::digest).transpose()?,
            size_bytes: col::<Option<i64>>(row, 9)?.map(seq).transpose()?,
            media_type: col(row, 10)?,
            filename: col(row, 11)?,
            training_step: col(row, 12)?,
            metadata: columns::json(row, 13)?.unwrap_or_else(milepost_core::artifact::nothing),
            expires_at: moment(row, 14)?,
        },
        created_at: Timestamp(col(row, 15)?),
    })
}

const MEDIA_TYPE: &str =
    "SELECT media_type FROM artifacts WHERE org_id = $1 AND sha256 = $2 AND media_type IS NOT NULL LIMIT 1";

#[async_trait]
impl ArtifactStore for PostgresStore {
    async fn artifacts(
        &self,
        org: OrgId,
        run: RunId,
        filter: &ArtifactFilter,
        after: Option<ArtifactPosition>,
        limit: u32,
    ) -> Result<Vec<ArtifactRow>> {
        let after = after.unwrap_or(ArtifactPosition { seq: 0, place: 0 });
        let (seq, place, limit) = (int8(after.seq), int4(after.place), i64::from(limit));
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&org.0, &run.0, &seq, &place, &limit];
        let mut sql = format!("{COLUMNS} WHERE org_id = $1 AND run_id = $2 AND (seq, place) > ($3, $4)");
        for (column, wanted) in [("step_id", &filter.step_id), ("kind", &filter.kind)] {
            if let Some(wanted) = wanted {
                parameters.push(wanted);
                sql.push_str(&format!(" AND {column} = ${}", parameters.len()));
            }
        }
        sql.push_str(" ORDER BY seq, place LIMIT $5");
        query(&self.reading().await?, &sql, &parameters).await?.iter().map(artifact_row).collect()
    }

    async fn artifact(&self, org: OrgId, run: RunId, id: ArtifactId) -> Result<Option<ArtifactRow>> {
        let sql = format!("{COLUMNS} WHERE org_id = $1 AND run_id = $2 AND artifact_id = $3");
        let rows = query(&self.reading().await?, &sql, &[&org.0, &run.0, &id.0]).await?;
        rows.first().map(artifact_row).transpose()
    }

    async fn numbered(&self, org: OrgId, run: RunId, kind: &str, training_step: i64) -> Result<Option<ArtifactRow>> {
        let sql = format!("{COLUMNS} WHERE org_id = $1 AND run_id = $2 AND kind = $3 AND training_step = $4");
        let rows = query(&self.reading().await?, &sql, &[&org.0, &run.0, &kind, &training_step]).await?;
        rows.first().map(artifact_row).transpose()
    }

    async fn media_type(&self, org: OrgId, sha256: Digest) -> Result<Option<String>> {
        let rows = query(&self.reading().await?, MEDIA_TYPE, &[&org.0, &sha256.0.as_slice()]).await?;
        rows.first().map(|row| col(row, 0)).transpose()
    }

    async fn forget_expired(&self, now: Timestamp, limit: u32) -> Result<u64> {
        let sql = "WITH old AS MATERIALIZED (
                SELECT org_id, run_id, seq, place FROM artifacts WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM artifacts AS a USING old AS o
                WHERE a.org_id = o.org_id AND a.run_id = o.run_id AND a.seq = o.seq AND a.place = o.place RETURNING 1
            )
            SELECT count(*) FROM gone";
        let rows = query(&self.writing().await?, sql, &[&now.0, &i64::from(limit)]).await?;
        rows.first().map_or(Ok(0), |row| seq(col(row, 0)?))
    }

    async fn note_key(&self, key: &str, now: Timestamp) -> Result<()> {
        content::note_key(&self.writing().await?, key, now).await
    }

    async fn contents(&self, org: OrgId, hashes: &[Digest]) -> Result<Vec<ContentRow>> {
        content::find(&self.reading().await?, org, hashes).await
    }

    async fn name_content(&self, org: OrgId, row: &ContentRow, instead_of: Option<&str>) -> Result<bool> {
        content::name(&self.writing().await?, org, row, instead_of).await
    }

    async fn touch_contents(&self, org: OrgId, hashes: &[Digest], now: Timestamp) -> Result<Vec<ContentRow>> {
        content::touch(&self.writing().await?, org, hashes, now).await
    }

    async fn loose_contents(
        &self,
        before: Timestamp,
        after: Option<ContentKey>,
        limit: u32,
    ) -> Result<Vec<(OrgId, ContentRow)>> {
        content::loose(&self.reading().await?, before, after, limit).await
    }

    async fn remove_contents(&self, before: Timestamp, contents: &[ContentKey]) -> Result<(u64, u64)> {
        content::remove(&self.writing().await?, before, contents).await
    }

    async fn loose_keys(&self, before: Timestamp, limit: u32) -> Result<Vec<String>> {
        let sql = "SELECT blob FROM blob_notes WHERE noted_at < $1 ORDER BY blob LIMIT $2";
        let rows = query(&self.reading().await?, sql, &[&before.0, &i64::from(limit)]).await?;
        rows.iter().map(|row| col(row, 0)).collect()
    }

    async fn clear_key(&self, key: &str) -> Result<()> {
        query(&self.writing().await?, "DELETE FROM blob_notes WHERE blob = $1", &[&key]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Plan, client};
    use super::*;

    const MANY: &str = "
        INSERT INTO artifacts (org_id, run_id, seq, place, artifact_id, step_id, kind, uri, sha256, metadata, created_at)
        SELECT 1, gen_random_uuid(), 1, 0, gen_random_uuid(), 's', 'custom', 'u', sha256(n::text::bytea), '{}', 1
        FROM generate_series(1, 40000) AS n;
        INSERT INTO artifact_blobs (org_id, sha256, blob, size_bytes, used_at)
        SELECT 1, sha256(n::text::bytea), n::text, 1, 1 FROM generate_series(1, 40000) AS n;
        ANALYZE artifacts; ANALYZE artifact_blobs";

    #[tokio::test]
    async fn artifacts_and_content_are_found_by_their_keys_however_many_there_are() {
        let client = client().await;
        let run = || vec!["1".to_owned(), "gen_random_uuid()".to_owned()];
        let page = || run().into_iter().chain(["0", "0", "100"].map(str::to_owned)).collect::<Vec<_>>();
        let content = || vec!["1".to_owned(), "sha256('7')".to_owned()];
        let listed = format!("{COLUMNS} WHERE org_id = $1 AND run_id = $2 AND (seq, place) > ($3, $4)");
        let by = |column: &str| format!("{listed} AND {column} = $6 ORDER BY seq, place LIMIT $5");
        let of_kind = page().into_iter().chain(["'custom'".to_owned()]).collect::<Vec<_>>();
        let one = run().into_iter().chain(["gen_random_uuid()".to_owned()]).collect::<Vec<_>>();
        let gone = ["2".to_owned()].into_iter().chain(content()).collect::<Vec<_>>();
        for fill in ["SELECT", MANY] {
            client.batch_execute(fill).await.unwrap();
            for (sql, values) in [
                (format!("{listed} ORDER BY seq, place LIMIT $5"), page()),
                (by("kind"), of_kind.clone()),
                (by("step_id"), of_kind.clone()),
                (format!("{COLUMNS} WHERE org_id = $1 AND run_id = $2 AND artifact_id = $3"), one.clone()),
                (MEDIA_TYPE.to_owned(), content()),
                (content::remove_sql(), gone.clone()),
            ] {
                let plan = Plan::of(&client, &sql, &values).await;
                assert!(plan.buffers < 60 && !plan.text.contains("Seq Scan"), "{} pages\n{}", plan.buffers, plan.text);
                let by_content = sql.contains("sha256 = $2") || sql.contains("DELETE");
                assert!(!by_content || plan.text.contains("artifacts_by_content"), "{}", plan.text);
            }
        }
    }
}
