//! What commits ask for beyond the database.

use async_trait::async_trait;
use milepost_core::id::{NodeId, OrgId, OutboxId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::columns::{col, count, int4, moment};
use super::runs::query;
use crate::rows::{Claim, OutboxCounts, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, OutboxState};
use crate::{OutboxStore, Result};

const PENDING: &str =
    "o.id, o.org_id, o.run_id, o.kind, o.payload, o.attempts, o.last_error, o.created_at, o.available_at,
    o.claimed_by, o.claimed_until, NULL::int8";
const DEAD: &str = "d.id, d.org_id, d.run_id, d.kind, d.payload, d.attempts, d.last_error, d.created_at, NULL::int8,
    NULL::int8, NULL::int8, d.died_at";

fn rows(rows: &[Row]) -> Result<Vec<OutboxRow>> {
    rows.iter().map(row).collect()
}

fn row(row: &Row) -> Result<OutboxRow> {
    let state = match (moment(row, 8)?, col::<Option<i64>>(row, 9)?, moment(row, 10)?) {
        (_, Some(node), Some(until)) => OutboxState::Claimed(Claim { node: NodeId(node), until }),
        (Some(available_at), ..) => OutboxState::Waiting { available_at },
        _ => OutboxState::Dead { died_at: Timestamp(col(row, 11)?) },
    };
    Ok(OutboxRow {
        id: OutboxId(col(row, 0)?),
        org: OrgId(col(row, 1)?),
        run: RunId(col(row, 2)?),
        kind: col::<&str>(row, 3)?.into(),
        payload: Json::trusted(col::<&str>(row, 4)?),
        attempts: count(col(row, 5)?)?,
        state,
        last_error: col(row, 6)?,
        created_at: Timestamp(col(row, 7)?),
    })
}

/// What became of claims, column by column, by what is to be done.
#[derive(Default)]
struct Ends<'a> {
    gone: Vec<Uuid>,
    gone_attempts: Vec<i32>,
    again: Vec<Uuid>,
    again_attempts: Vec<i32>,
    at: Vec<i64>,
    counted: Vec<i32>,
    error: Vec<Option<&'a str>>,
    dead: Vec<Uuid>,
    dead_attempts: Vec<i32>,
    died_at: Vec<i64>,
    last_error: Vec<&'a str>,
}

impl<'a> Ends<'a> {
    fn of(ends: &'a [OutboxEnd]) -> Ends<'a> {
        let mut columns = Ends::default();
        for end in ends {
            let (id, attempts) = (end.id.0, int4(end.attempts));
            match &end.outcome {
                OutboxOutcome::Done => {
                    columns.gone.push(id);
                    columns.gone_attempts.push(attempts);
                }
                OutboxOutcome::Again { at, attempts: counted, error } => {
                    columns.again.push(id);
                    columns.again_attempts.push(attempts);
                    columns.at.push(at.0);
                    columns.counted.push(int4(*counted));
                    columns.error.push(error.as_deref());
                }
                OutboxOutcome::Dead { at, error } => {
                    columns.dead.push(id);
                    columns.dead_attempts.push(attempts);
                    columns.died_at.push(at.0);
                    columns.last_error.push(error);
                }
            }
        }
        columns
    }
}

const SETTLE: &str = "WITH done AS (
    DELETE FROM outbox AS o USING unnest($2::uuid[], $3::int4[]) AS e (id, attempts)
    WHERE o.id = e.id AND o.attempts = e.attempts AND o.claimed_by = $1
), again AS (
    UPDATE outbox AS o SET status = 'pending', claimed_by = NULL, claimed_until = NULL, available_at = e.at,
        attempts = e.counted, last_error = coalesce(e.error, o.last_error)
    FROM unnest($4::uuid[], $5::int4[], $6::int8[], $7::int4[], $8::text[]) AS e (id, attempts, at, counted, error)
    WHERE o.id = e.id AND o.attempts = e.attempts AND o.claimed_by = $1
), given_up AS (
    DELETE FROM outbox AS o
    USING unnest($9::uuid[], $10::int4[], $11::int8[], $12::text[]) AS e (id, attempts, died_at, last_error)
    WHERE o.id = e.id AND o.attempts = e.attempts AND o.claimed_by = $1
    RETURNING o.id, o.org_id, o.run_id, o.created_at, e.died_at, o.attempts, o.kind, o.payload, e.last_error
)
INSERT INTO dead_letters (id, org_id, run_id, created_at, died_at, attempts, kind, payload, last_error)
SELECT * FROM given_up";

#[async_trait]
impl OutboxStore for PostgresStore {
    async fn claim(&self, claim: Claim, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>> {
        let sql = format!(
            "UPDATE outbox AS o SET status = 'processing', attempts = o.attempts + 1, claimed_by = $1, claimed_until = $2,
                 available_at = $2
             WHERE o.id IN (
                 SELECT id FROM outbox WHERE available_at <= $3 ORDER BY available_at LIMIT $4 FOR UPDATE SKIP LOCKED)
             RETURNING {PENDING}"
        );
        let connection = self.writing().await?;
        rows(&query(&connection, &sql, &[&claim.node.0, &claim.until.0, &now.0, &i64::from(limit)]).await?)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>> {
        let sql = "SELECT available_at FROM outbox ORDER BY available_at LIMIT 1";
        let found = query(&self.reading().await?, sql, &[]).await?;
        found.first().map(|row| col(row, 0).map(Timestamp)).transpose()
    }

    async fn settle(&self, node: NodeId, ends: &[OutboxEnd]) -> Result<()> {
        let e = Ends::of(ends);
        let connection = self.writing().await?;
        query(
            &connection,
            SETTLE,
            &[
                &node.0,
                &e.gone,
                &e.gone_attempts,
                &e.again,
                &e.again_attempts,
                &e.at,
                &e.counted,
                &e.error,
                &e.dead,
                &e.dead_attempts,
                &e.died_at,
                &e.last_error,
            ],
        )
        .await
        .map(drop)
    }

    async fn free_claims(&self, gone: NodeId, now: Timestamp) -> Result<u64> {
        // Two nodes may do it at once; what one has in hand, the other leaves.
        let sql = "UPDATE outbox SET status = 'pending', claimed_by = NULL, claimed_until = NULL, available_at = $2
                   WHERE id IN (SELECT id FROM outbox WHERE claimed_by = $1 FOR UPDATE SKIP LOCKED)
                   RETURNING 1";
        Ok(query(&self.writing().await?, sql, &[&gone.0, &now.0]).await?.len() as u64)
    }

    async fn get(&self, org: OrgId, id: OutboxId) -> Result<Option<OutboxRow>> {
        let sql = format!(
            "SELECT {PENDING} FROM outbox AS o WHERE o.id = $1 AND o.org_id = $2
             UNION ALL SELECT {DEAD} FROM dead_letters AS d WHERE d.id = $1 AND d.org_id = $2"
        );
        query(&self.reading().await?, &sql, &[&id.0, &org.0]).await?.first().map(row).transpose()
    }

    async fn list(
        &self,
        org: OrgId,
        filter: OutboxFilter,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<OutboxRow>> {
        let page = |columns: &str, table: &str| {
            format!("(SELECT {columns} FROM {table} WHERE id > $1 AND org_id = $2 ORDER BY id LIMIT $3)")
        };
        let (pending, dead) = (page(PENDING, "outbox AS o"), page(DEAD, "dead_letters AS d"));
        let sql = match filter {
            OutboxFilter::Pending => pending,
            OutboxFilter::Dead => dead,
            OutboxFilter::All => format!("{pending} UNION ALL {dead} ORDER BY 1 LIMIT $3"),
        };
        let after = after.map_or(Uuid::nil(), |after| after.0);
        rows(&query(&self.reading().await?, &sql, &[&after, &org.0, &i64::from(limit)]).await?)
    }

    async fn retry(&self, org: OrgId, id: OutboxId, now: Timestamp) -> Result<Option<OutboxRow>> {
        let sql = format!(
            "WITH hurried AS (
                 UPDATE outbox AS o SET available_at = $3
                 WHERE o.id = $1 AND o.org_id = $2 AND o.claimed_by IS NULL RETURNING {PENDING}
             ), letter AS (
                 DELETE FROM dead_letters WHERE id = $1 AND org_id = $2 RETURNING *
             ), revived AS (
                 INSERT INTO outbox AS o (id, org_id, run_id, available_at, created_at, attempts, kind, payload, status,
                                          last_error)
                 SELECT id, org_id, run_id, $3, created_at, 0, kind, payload, 'pending', last_error FROM letter
                 RETURNING {PENDING}
             )
             SELECT * FROM hurried UNION ALL SELECT * FROM revived
             UNION ALL SELECT {PENDING} FROM outbox AS o WHERE o.id = $1 AND o.org_id = $2 AND o.claimed_by IS NOT NULL"
        );
        query(&self.writing().await?, &sql, &[&id.0, &org.0, &now.0]).await?.first().map(row).transpose()
    }

    async fn discard(&self, org: OrgId, id: OutboxId) -> Result<bool> {
        let sql = "DELETE FROM dead_letters WHERE id = $1 AND org_id = $2 RETURNING 1";
        Ok(!query(&self.writing().await?, sql, &[&id.0, &org.0]).await?.is_empty())
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        let sql = "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM dead_letters),
                       (SELECT available_at FROM outbox ORDER BY available_at LIMIT 1)";
        let found = query(&self.reading().await?, sql, &[]).await?;
        let Some(row) = found.first() else { return Ok(OutboxCounts::default()) };
        let number = |at| col::<i64>(row, at).map(i64::cast_unsigned);
        Ok(OutboxCounts { pending: number(0)?, dead: number(1)?, next_due: moment(row, 2)? })
    }

    async fn forget_dead(&self, before: Timestamp) -> Result<u64> {
        let sql = "DELETE FROM dead_letters WHERE died_at < $1 RETURNING 1";
        Ok(query(&self.writing().await?, sql, &[&before.0]).await?.len() as u64)
    }
}
