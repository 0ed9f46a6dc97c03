//! Secrets, sealed.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use milepost_core::id::OrgId;

use super::SqliteStore;
use super::columns::{Columns, all, one};
use crate::rows::{SealedRow, SecretPosition, SecretRow, SecretWrite};
use crate::{Result, SecretStore};

#[async_trait]
impl SecretStore for SqliteStore {
    async fn put(&self, org: OrgId, write: &SecretWrite) -> Result<bool> {
        let write = write.clone();
        self.write(move |tx| put(tx, org, &write)).await
    }

    async fn get(
        &self,
        org: OrgId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<(SecretRow, Option<SealedRow>)>> {
        let name = name.to_owned();
        self.read(move |conn| secret(conn, org, &name, version)).await
    }

    async fn list(&self, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>> {
        let after = after.map(ToOwned::to_owned);
        self.read(move |conn| list(conn, org, after.as_deref(), limit)).await
    }

    async fn remove(&self, org: OrgId, name: &str, version: Option<u32>) -> Result<bool> {
        let name = name.to_owned();
        self.write(move |tx| remove(tx, org, &name, version)).await
    }

    async fn sealed_otherwise(
        &self,
        key_id: &str,
        after: Option<&SecretPosition>,
        limit: u32,
    ) -> Result<Vec<(SecretPosition, SealedRow)>> {
        let (key_id, after) = (key_id.to_owned(), after.cloned());
        self.read(move |conn| under_other_keys(conn, &key_id, after.as_ref(), limit)).await
    }

    async fn reseal(&self, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool> {
        let (of, old_nonce, sealed) = (of.clone(), old_nonce.to_vec(), sealed.clone());
        self.write(move |tx| reseal(tx, &of, &old_nonce, &sealed)).await
    }
}

fn put(tx: &Connection, org: OrgId, write: &SecretWrite) -> Result<bool> {
    let SecretWrite { name, expected_version, queues, workflows, sealed } = write;
    let last = sealed.as_ref().map_or(*expected_version, |sealed| sealed.version);
    let (queues, workflows) = (joined(queues), joined(workflows));
    let written = match expected_version {
        0 => tx
            .prepare_cached(
                "INSERT INTO secrets (org_id, name, last_version, queues, workflows) VALUES (?, ?, ?, ?, ?)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![org.0, name, last, queues, workflows])?,
        _ => tx
            .prepare_cached(
                "UPDATE secrets SET last_version = ?, queues = ?, workflows = ?
                 WHERE org_id = ? AND name = ? AND last_version = ?",
            )?
            .execute(params![last, queues, workflows, org.0, name, expected_version])?,
    };
    if let (1, Some(sealed)) = (written, sealed) {
        let SealedRow { version, key_id, nonce, ciphertext, created_at } = sealed;
        tx.prepare_cached(
            "INSERT INTO secret_versions (org_id, name, version, key_id, nonce, ciphertext, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![org.0, name, version, key_id, nonce, ciphertext, created_at.0])?;
    }
    Ok(written == 1)
}

const VERSIONS: &str = "SELECT version, created_at FROM secret_versions WHERE org_id = ? AND name = ? ORDER BY version";
const SEALED: &str = "SELECT version, key_id, nonce, ciphertext, created_at FROM secret_versions";

fn secret(
    conn: &Connection,
    org: OrgId,
    name: &str,
    version: Option<u32>,
) -> Result<Option<(SecretRow, Option<SealedRow>)>> {
    let head = "SELECT name, last_version, queues, workflows FROM secrets WHERE org_id = ? AND name = ?";
    let Some(mut row) = one(conn, head, params![org.0, name], secret_row)? else { return Ok(None) };
    row.versions = versions(conn, org, name)?;
    let wanted = version.or_else(|| row.versions.last().map(|(newest, _)| *newest));
    let sql = format!("{SEALED} WHERE org_id = ? AND name = ? AND version = ?");
    let sealed = one(conn, &sql, params![org.0, name, wanted], |row| sealed_row(&mut Columns::of(row)))?;
    Ok(Some((row, sealed)))
}

fn list(conn: &Connection, org: OrgId, after: Option<&str>, limit: u32) -> Result<Vec<SecretRow>> {
    let sql = "SELECT name, last_version, queues, workflows FROM secrets AS s WHERE org_id = ? AND name > ?
               AND EXISTS (SELECT 1 FROM secret_versions AS v WHERE v.org_id = s.org_id AND v.name = s.name)
               ORDER BY name LIMIT ?";
    let mut rows = all(conn, sql, params![org.0, after.unwrap_or_default(), limit], secret_row)?;
    for row in &mut rows {
        row.versions = versions(conn, org, &row.name)?;
    }
    Ok(rows)
}

fn remove(tx: &Connection, org: OrgId, name: &str, version: Option<u32>) -> Result<bool> {
    let removed = tx
        .prepare_cached("DELETE FROM secret_versions WHERE org_id = ?1 AND name = ?2 AND (?3 IS NULL OR version = ?3)")?
        .execute(params![org.0, name, version])?;
    // Who may have it goes with its last version. The number stays.
    tx.prepare_cached(
        "UPDATE secrets SET queues = '', workflows = '' WHERE org_id = ?1 AND name = ?2
         AND NOT EXISTS (SELECT 1 FROM secret_versions WHERE org_id = ?1 AND name = ?2)",
    )?
    .execute(params![org.0, name])?;
    Ok(removed > 0)
}

fn under_other_keys(
    conn: &Connection,
    key_id: &str,
    after: Option<&SecretPosition>,
    limit: u32,
) -> Result<Vec<(SecretPosition, SealedRow)>> {
    let first = SecretPosition { org: OrgId(i32::MIN), name: String::new(), version: 0 };
    let SecretPosition { org, name, version } = after.unwrap_or(&first);
    let sql = "SELECT org_id, name, version, key_id, nonce, ciphertext, created_at FROM secret_versions
               WHERE (org_id, name, version) > (?, ?, ?) AND key_id <> ? ORDER BY org_id, name, version LIMIT ?";
    all(conn, sql, params![org.0, name, version, key_id, limit], |row| {
        let mut columns = Columns::of(row);
        let (org, name) = (columns.org()?, columns.get()?);
        let sealed = sealed_row(&mut columns)?;
        Ok((SecretPosition { org, name, version: sealed.version }, sealed))
    })
}

fn reseal(tx: &Connection, of: &SecretPosition, old_nonce: &[u8], sealed: &SealedRow) -> Result<bool> {
    let written = tx
        .prepare_cached(
            "UPDATE secret_versions SET key_id = ?, nonce = ?, ciphertext = ?
             WHERE org_id = ? AND name = ? AND version = ? AND nonce = ?",
        )?
        .execute(params![sealed.key_id, sealed.nonce, sealed.ciphertext, of.org.0, of.name, of.version, old_nonce])?;
    Ok(written == 1)
}

fn versions(conn: &Connection, org: OrgId, name: &str) -> Result<Vec<(u32, milepost_core::time::Timestamp)>> {
    all(conn, VERSIONS, params![org.0, name], |row| {
        let mut columns = Columns::of(row);
        Ok((columns.get()?, columns.time()?))
    })
}

fn secret_row(row: &Row) -> rusqlite::Result<SecretRow> {
    let mut columns = Columns::of(row);
    Ok(SecretRow {
        name: columns.get()?,
        last_version: columns.get()?,
        queues: split(&columns.get::<String>()?),
        workflows: split(&columns.get::<String>()?),
        versions: Vec::new(),
    })
}

fn sealed_row(columns: &mut Columns<'_, '_>) -> rusqlite::Result<SealedRow> {
    Ok(SealedRow {
        version: columns.get()?,
        key_id: columns.get()?,
        nonce: columns.get()?,
        ciphertext: columns.get()?,
        created_at: columns.time()?,
    })
}

/// Names of queues and workflows have no line breaks.
fn joined(names: &[String]) -> String {
    names.join("\n")
}

fn split(names: &str) -> Vec<String> {
    names.lines().map(ToOwned::to_owned).collect()
}
