//! Secrets, sealed.

use async_trait::async_trait;
use deadpool_postgres::Object;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;

use super::PostgresStore;
use super::columns::{col, int4};
use super::runs::query;
use crate::rows::{SealedRow, SecretPosition, SecretRow, SecretWrite};
use crate::{Result, SecretStore, StoreError};

#[async_trait]
impl SecretStore for PostgresStore {
    async fn put(&self, org: OrgId, write: &SecretWrite) -> Result<bool> {
        put(&self.writing().await?, org, write).await
    }

    async fn get(
        &self,
        org: OrgId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<(SecretRow, Option<SealedRow>)>> {
        secret(&self.reading().await?, org, name, version).await
    }

    async fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>> {
        list(&self.reading().await?, org, after, limit).await
    }

    async fn remove(&self, org: OrgId, name: &str, version: Option<u32>) -> Result<bool> {
        remove(&mut self.writing().await?, org, name, version).await
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<&SecretPosition>,
        limit: u32,
    ) -> Result<Vec<(SecretPosition, SealedRow)>> {
        under_other_keys(&self.reading().await?, key_id, after, limit).await
    }

    async fn reseal(&self, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool> {
        reseal(&self.writing().await?, of, old_nonce, sealed).await
    }
}

/// The head moves if it stands where it is expected to, and the version goes with it.
const PUT: &str = "WITH moved AS (
        INSERT INTO secrets AS s (org_id, name, last_version, queues, workflows) SELECT $1, $2, $4, $5, $6
        WHERE $3 = 0 OR EXISTS (SELECT FROM secrets WHERE org_id = $1 AND name = $2)
        ON CONFLICT (org_id, name) DO UPDATE
        SET last_version = excluded.last_version, queues = excluded.queues, workflows = excluded.workflows
        WHERE s.last_version = $3 RETURNING s.last_version
    ), made AS (
        INSERT INTO secret_versions (org_id, name, version, key_id, nonce, ciphertext, created_at)
        SELECT $1, $2, last_version, $7, $8, $9, $10 FROM moved WHERE $7::text IS NOT NULL
    )
    SELECT last_version FROM moved";

async fn put(connection: &Object, org: OrgId, write: &SecretWrite) -> Result<bool> {
    let SecretWrite { name, expected_version, queues, workflows, sealed } = write;
    let (expected, last) = (int4(*expected_version), sealed.as_ref().map_or(*expected_version, |new| new.version));
    let key_id = sealed.as_ref().map(|sealed| sealed.key_id.as_str());
    let nonce = sealed.as_ref().map(|sealed| sealed.nonce.as_slice());
    let ciphertext = sealed.as_ref().map(|sealed| sealed.ciphertext.as_slice());
    let created_at = sealed.as_ref().map(|sealed| sealed.created_at.0);
    let rows = query(
        connection,
        PUT,
        &[&org.0, name, &expected, &int4(last), queues, workflows, &key_id, &nonce, &ciphertext, &created_at],
    )
    .await?;
    Ok(!rows.is_empty())
}

/// The versions that are there, as two lists.
const VERSIONS: &str = "(SELECT coalesce(array_agg(v.version ORDER BY v.version), '{}') FROM secret_versions AS v
        WHERE v.org_id = s.org_id AND v.name = s.name),
    (SELECT coalesce(array_agg(v.created_at ORDER BY v.version), '{}') FROM secret_versions AS v
        WHERE v.org_id = s.org_id AND v.name = s.name)";

async fn secret(
    connection: &Object,
    org: OrgId,
    name: &str,
    version: Option<u32>,
) -> Result<Option<(SecretRow, Option<SealedRow>)>> {
    let sql = format!(
        "SELECT s.name, s.last_version, s.queues, s.workflows, {VERSIONS},
                w.version, w.key_id, w.nonce, w.ciphertext, w.created_at
         FROM secrets AS s LEFT JOIN LATERAL (
             SELECT * FROM secret_versions AS v
             WHERE v.org_id = s.org_id AND v.name = s.name AND ($3::int4 IS NULL OR v.version = $3)
             ORDER BY v.version DESC LIMIT 1
         ) AS w ON true
         WHERE s.org_id = $1 AND s.name = $2"
    );
    let rows = query(connection, &sql, &[&org.0, &name, &version.map(int4)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let sealed = col::<Option<i32>>(row, 6)?.map(|_| sealed_row(row, 6)).transpose()?;
    Ok(Some((secret_row(row)?, sealed)))
}

async fn list(connection: &Object, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>> {
    let sql = format!(
        "SELECT s.name, s.last_version, s.queues, s.workflows, {VERSIONS} FROM secrets AS s
         WHERE s.org_id = $1 AND s.name > $2
           AND EXISTS (SELECT FROM secret_versions AS v WHERE v.org_id = s.org_id AND v.name = s.name)
         ORDER BY s.name LIMIT $3"
    );
    let rows = query(connection, &sql, &[&org.0, &after.unwrap_or_default(), &i64::from(limit)]).await?;
    rows.iter().map(secret_row).collect()
}

async fn remove(connection: &mut Object, org: OrgId, name: &str, version: Option<u32>) -> Result<bool> {
    let transaction = connection.transaction().await?;
    // Whoever sets it at the same time waits here, and comes after.
    transaction.execute("SELECT FROM secrets WHERE org_id = $1 AND name = $2 FOR UPDATE", &[&org.0, &name]).await?;
    let sql = "DELETE FROM secret_versions WHERE org_id = $1 AND name = $2 AND ($3::int4 IS NULL OR version = $3)";
    let removed = transaction.execute(sql, &[&org.0, &name, &version.map(int4)]).await?;
    // Who may have it goes with its last version. The number stays.
    let sql = "UPDATE secrets SET queues = '{}', workflows = '{}' WHERE org_id = $1 AND name = $2
               AND NOT EXISTS (SELECT FROM secret_versions WHERE org_id = $1 AND name = $2)";
    transaction.execute(sql, &[&org.0, &name]).await?;
    transaction.commit().await?;
    Ok(removed > 0)
}

async fn under_other_keys(
    connection: &Object,
    key_id: &str,
    after: Option<&SecretPosition>,
    limit: u32,
) -> Result<Vec<(SecretPosition, SealedRow)>> {
    let first = SecretPosition { org: OrgId(i32::MIN), name: String::new(), version: 0 };
    let SecretPosition { org, name, version } = after.unwrap_or(&first);
    let sql = "SELECT org_id, name, version, key_id, nonce, ciphertext, created_at FROM secret_versions
               WHERE (org_id, name, version) > ($1, $2, $3) AND key_id <> $4 ORDER BY org_id, name, version LIMIT $5";
    let rows = query(connection, sql, &[&org.0, name, &int4(*version), &key_id, &i64::from(limit)]).await?;
    let read = |row: &Row| {
        let sealed = sealed_row(row, 2)?;
        Ok((SecretPosition { org: OrgId(col(row, 0)?), name: col(row, 1)?, version: sealed.version }, sealed))
    };
    rows.iter().map(read).collect()
}

async fn reseal(connection: &Object, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool> {
    let sql = "UPDATE secret_versions SET key_id = $1, nonce = $2, ciphertext = $3
               WHERE org_id = $4 AND name = $5 AND version = $6 AND nonce = $7 RETURNING version";
    let SealedRow { key_id, nonce, ciphertext, .. } = sealed;
    let version = int4(of.version);
    let rows = query(connection, sql, &[key_id, nonce, ciphertext, &of.org.0, &of.name, &version, &old_nonce]).await?;
    Ok(!rows.is_empty())
}

fn secret_row(row: &Row) -> Result<SecretRow> {
    let (numbers, made): (Vec<i32>, Vec<i64>) = (col(row, 4)?, col(row, 5)?);
    let version = |(number, at): (i32, i64)| Ok((count(number)?, Timestamp(at)));
    Ok(SecretRow {
        name: col(row, 0)?,
        last_version: count(col(row, 1)?)?,
        queues: col(row, 2)?,
        workflows: col(row, 3)?,
        versions: numbers.into_iter().zip(made).map(version).collect::<Result<_>>()?,
    })
}

fn sealed_row(row: &Row, at: usize) -> Result<SealedRow> {
    Ok(SealedRow {
        version: count(col(row, at)?)?,
        key_id: col(row, at + 1)?,
        nonce: col(row, at + 2)?,
        ciphertext: col(row, at + 3)?,
        created_at: Timestamp(col(row, at + 4)?),
    })
}

fn count(number: i32) -> Result<u32> {
    u32::try_from(number).map_err(|_| StoreError::Corrupt(format!("{number} is no number of a version")))
}
