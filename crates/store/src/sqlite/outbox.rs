//! What commits ask for beyond the database.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use milepost_core::id::{NodeId, OrgId, OutboxId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::SqliteStore;
use super::columns::{Columns, all, id, one};
use crate::rows::{Claim, OutboxCounts, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, OutboxState, OutboxWrite};
use crate::{OutboxStore, Result};

const PENDING: &str = "id, org_id, run_id, kind, payload, attempts, last_error, created_at, available_at, claimed_by, claimed_until, NULL";
const DEAD: &str = "id, org_id, run_id, kind, payload, attempts, last_error, created_at, NULL, NULL, NULL, died_at";

fn key(of: &OutboxId) -> &[u8] {
    of.0.as_bytes()
}

pub(super) fn write(tx: &Connection, org: OrgId, run: RunId, write: &OutboxWrite) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO outbox (id, org_id, run_id, kind, payload, status, available_at, attempts, claimed_by, claimed_until,
             created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'processing', ?6, 1, ?7, ?6, ?8)",
    )?
    .execute(params![
        key(&write.id),
        org.0,
        id(&run),
        write.kind.as_ref(),
        write.payload.as_str(),
        write.claim.until.0,
        write.claim.node.0,
        write.created_at.0,
    ])?;
    Ok(())
}

fn claim(tx: &Connection, claim: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>> {
    let sql = format!(
        "UPDATE outbox SET status = 'processing', attempts = attempts + 1, claimed_by = ?1, claimed_until = ?2,
             available_at = ?2
         WHERE id IN (SELECT id FROM outbox WHERE available_at <= ?3 ORDER BY available_at LIMIT ?4)
         RETURNING {PENDING}"
    );
    all(tx, &sql, params![claim.node.0, claim.until.0, now.0, limit], row)
}

fn settle(tx: &Connection, node: NodeId, end: &OutboxEnd) -> Result<()> {
    let (of, attempts) = (key(&end.id), end.attempts);
    let ours = "id = ?1 AND claimed_by = ?2 AND attempts = ?3";
    match &end.outcome {
        OutboxOutcome::Done => {
            tx.prepare_cached(&format!("DELETE FROM outbox WHERE {ours}"))?.execute(params![of, node.0, attempts])?
        }
        OutboxOutcome::Again { at, attempts: counted, error } => tx
            .prepare_cached(&format!(
                "UPDATE outbox SET status = 'pending', claimed_by = NULL, claimed_until = NULL, available_at = ?4,
                     attempts = ?5, last_error = coalesce(?6, last_error)
                 WHERE {ours}"
            ))?
            .execute(params![of, node.0, attempts, at.0, counted, error])?,
        OutboxOutcome::Dead { at, error } => {
            tx.prepare_cached(&format!(
                "INSERT INTO dead_letters (id, org_id, run_id, kind, payload, attempts, last_error, created_at, died_at)
                 SELECT id, org_id, run_id, kind, payload, attempts, ?4, created_at, ?5 FROM outbox WHERE {ours}"
            ))?
            .execute(params![of, node.0, attempts, error, at.0])?;
            tx.prepare_cached(&format!("DELETE FROM outbox WHERE {ours}"))?.execute(params![of, node.0, attempts])?
        }
    };
    Ok(())
}

fn get(conn: &Connection, org: OrgId, of: OutboxId) -> Result<Option<OutboxRow>> {
    let sql = format!(
        "SELECT {PENDING} FROM outbox WHERE id = ?1 AND org_id = ?2
         UNION ALL SELECT {DEAD} FROM dead_letters WHERE id = ?1 AND org_id = ?2"
    );
    one(conn, &sql, params![key(&of), org.0], row)
}

fn list(
    conn: &Connection,
    org: OrgId,
    filter: OutboxFilter,
    after: Option<OutboxId>,
    limit: u32,
) -> Result<Vec<OutboxRow>> {
    let page = |columns: &str, table: &str| -> Result<Vec<OutboxRow>> {
        let sql = format!("SELECT {columns} FROM {table} WHERE id > ? AND org_id = ? ORDER BY id LIMIT ?");
        let after = after.as_ref().map_or(&[][..], |after| key(after));
        all(conn, &sql, params![after, org.0, limit], row)
    };
    let mut rows = Vec::new();
    if filter != OutboxFilter::Dead {
        rows.extend(page(PENDING, "outbox")?);
    }
    if filter != OutboxFilter::Pending {
        rows.extend(page(DEAD, "dead_letters")?);
    }
    rows.sort_by_key(|row| row.id);
    rows.truncate(limit as usize);
    Ok(rows)
}

fn retry(tx: &Connection, org: OrgId, of: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>> {
    tx.prepare_cached("UPDATE outbox SET available_at = ?3 WHERE id = ?1 AND org_id = ?2 AND claimed_by IS NULL")?
        .execute(params![key(&of), org.0, now.0])?;
    tx.prepare_cached(
        "INSERT INTO outbox (id, org_id, run_id, kind, payload, status, available_at, attempts, last_error, created_at)
         SELECT id, org_id, run_id, kind, payload, 'pending', ?3, 0, last_error, created_at
         FROM dead_letters WHERE id = ?1 AND org_id = ?2",
    )?
    .execute(params![key(&of), org.0, now.0])?;
    discard(tx, org, of)?;
    get(tx, org, of)
}

fn discard(tx: &Connection, org: OrgId, of: OutboxId) -> Result<bool> {
    let sql = "DELETE FROM dead_letters WHERE id = ? AND org_id = ?";
    Ok(tx.prepare_cached(sql)?.execute(params![key(&of), org.0])? == 1)
}

fn next_due(conn: &Connection) -> Result<Option<Timestamp>> {
    one(conn, "SELECT available_at FROM outbox ORDER BY available_at LIMIT 1", [], |row| row.get(0).map(Timestamp))
}

fn count(conn: &Connection, table: &str) -> Result<u64> {
    let count = one(conn, &format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))?;
    Ok(count.unwrap_or(0).cast_unsigned())
}

fn row(row: &Row) -> rusqlite::Result<OutboxRow> {
    let mut columns = Columns::of(row);
    let mut row = OutboxRow {
        id: columns.get::<[u8; 16]>().map(|bytes| OutboxId(Uuid::from_bytes(bytes)))?,
        org: columns.org()?,
        run: columns.run()?,
        kind: columns.get()?,
        payload: columns.get::<Arc<str>>().map(Json::trusted)?,
        attempts: columns.get()?,
        last_error: columns.get()?,
        created_at: columns.time()?,
        state: OutboxState::Dead { died_at: Timestamp(0) },
    };
    let (available_at, claimed_by, claimed_until) = (columns.opt_time()?, columns.get()?, columns.opt_time()?);
    row.state = match (available_at, claimed_by, claimed_until) {
        (_, Some(node), Some(until)) => OutboxState::Claimed(Claim { node: NodeId(node), until }),
        (Some(available_at), ..) => OutboxState::Waiting { available_at },
        _ => OutboxState::Dead { died_at: columns.time()? },
    };
    Ok(row)
}

#[async_trait]
impl OutboxStore for SqliteStore {
    async fn claim(&self, wanted: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>> {
        self.write(move |tx| claim(tx, wanted, now, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>> {
        self.read(next_due).await
    }

    async fn settle(&self, node: NodeId, ends: &[OutboxEnd]) -> Result<()> {
        let ends = ends.to_vec();
        self.write(move |tx| ends.iter().try_for_each(|end| settle(tx, node, end))).await
    }

    async fn free_claims(&self, gone: NodeId, now: Timestamp) -> Result<u64> {
        let sql = "UPDATE outbox SET status = 'pending', claimed_by = NULL, claimed_until = NULL, available_at = ?2
                   WHERE claimed_by = ?1";
        self.write(move |tx| Ok(tx.prepare_cached(sql)?.execute(params![gone.0, now.0])? as u64)).await
    }

    async fn get(&self, org: OrgId, id: OutboxId) -> Result<Option<OutboxRow>> {
        self.read(move |conn| get(conn, org, id)).await
    }

    async fn list(
        &self,
        org: OrgId,
        filter: OutboxFilter,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<OutboxRow>> {
        self.read(move |conn| list(conn, org, filter, after, limit)).await
    }

    async fn retry(&self, org: OrgId, id: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>> {
        self.write(move |tx| retry(tx, org, id, now)).await
    }

    async fn discard(&self, org: OrgId, id: OutboxId) -> Result<bool> {
        self.write(move |tx| discard(tx, org, id)).await
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        self.read(|conn| {
            let (pending, dead) = (count(conn, "outbox")?, count(conn, "dead_letters")?);
            Ok(OutboxCounts { pending, dead, next_due: next_due(conn)? })
        })
        .await
    }

    async fn forget_dead(&self, before: Timestamp) -> Result<u64> {
        let sql = "DELETE FROM dead_letters WHERE died_at < ?";
        self.write(move |tx| Ok(tx.prepare_cached(sql)?.execute([before.0])? as u64)).await
    }
}
