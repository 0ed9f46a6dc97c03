//! What steps wrote.

use deadpool_postgres::Object;
use milepost_core::id::{OrgId, RunId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{col, int4};
use super::runs::query;
use crate::rows::{LogChunkRow, LogPosition};
use crate::{Result, StoreError};

pub(super) async fn append(connection: &Object, chunks: &[LogChunkRow]) -> Result<()> {
    let orgs: Vec<i32> = chunks.iter().map(|chunk| chunk.org.0).collect();
    let runs: Vec<Uuid> = chunks.iter().map(|chunk| chunk.run.0).collect();
    let steps: Vec<&str> = chunks.iter().map(|chunk| chunk.step_id.as_str()).collect();
    let logical: Vec<i32> = chunks.iter().map(|chunk| int4(chunk.logical_attempt)).collect();
    let engine: Vec<i32> = chunks.iter().map(|chunk| int4(chunk.engine_attempt)).collect();
    let first: Vec<i64> = chunks.iter().map(|chunk| i64::from(chunk.first_line)).collect();
    let lines: Vec<i64> = chunks.iter().map(|chunk| i64::from(chunk.lines)).collect();
    let content: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.content.as_slice()).collect();
    let blobs: Vec<Option<&str>> = chunks.iter().map(|chunk| chunk.blob.as_deref()).collect();
    let sql = "INSERT INTO step_logs (org_id, run_id, step_id, logical_attempt, engine_attempt, first_line, lines, content, blob)
               SELECT * FROM unnest($1::int4[], $2::uuid[], $3::text[], $4::int4[], $5::int4[], $6::int8[], $7::int8[], $8::bytea[], $9::text[])
               ON CONFLICT DO NOTHING";
    query(connection, sql, &[&orgs, &runs, &steps, &logical, &engine, &first, &lines, &content, &blobs]).await?;
    Ok(())
}

pub(super) async fn read(
    connection: &Object,
    org: OrgId,
    run: RunId,
    step: Option<&str>,
    after: Option<&LogPosition>,
    limit: u32,
) -> Result<Vec<LogChunkRow>> {
    // No step has an empty name, so this is before all.
    let none = LogPosition { step_id: String::new(), logical_attempt: 0, engine_attempt: 0, first_line: 0 };
    let after = after.unwrap_or(&none);
    let (logical, engine) = (int4(after.logical_attempt), int4(after.engine_attempt));
    let (first, limit) = (i64::from(after.first_line), i64::from(limit));
    let mut parameters: Vec<&(dyn ToSql + Sync)> =
        vec![&run.0, &org.0, &after.step_id, &logical, &engine, &first, &limit];
    if let Some(step) = &step {
        parameters.push(step);
    }
    let rows = query(connection, &chunks_of(step.is_some()), &parameters).await?;
    rows.iter().map(chunk).collect()
}

pub(super) async fn lines(
    connection: &Object,
    org: OrgId,
    run: RunId,
    step: &str,
    logical_attempt: u32,
    engine_attempt: u32,
) -> Result<u32> {
    let sql = "SELECT first_line + lines FROM step_logs
               WHERE run_id = $1 AND org_id = $2 AND step_id = $3 AND logical_attempt = $4 AND engine_attempt = $5
               ORDER BY first_line DESC LIMIT 1";
    let parameters: [&(dyn ToSql + Sync); 5] = [&run.0, &org.0, &step, &int4(logical_attempt), &int4(engine_attempt)];
    let rows = query(connection, sql, &parameters).await?;
    rows.first().map_or(Ok(0), |row| number(col(row, 0)?))
}

/// One range of the key: of the whole run, or of one step.
fn chunks_of(one_step: bool) -> String {
    let step = if one_step { "AND step_id = $8" } else { "" };
    format!(
        "SELECT org_id, run_id, step_id, logical_attempt, engine_attempt, first_line, lines, content, blob
         FROM step_logs
         WHERE run_id = $1 AND org_id = $2 AND (step_id, logical_attempt, engine_attempt, first_line) > ($3, $4, $5, $6) {step}
         ORDER BY step_id, logical_attempt, engine_attempt, first_line LIMIT $7"
    )
}

fn chunk(row: &Row) -> Result<LogChunkRow> {
    Ok(LogChunkRow {
        org: OrgId(col(row, 0)?),
        run: RunId(col(row, 1)?),
        step_id: col(row, 2)?,
        logical_attempt: number(col::<i32>(row, 3)?.into())?,
        engine_attempt: number(col::<i32>(row, 4)?.into())?,
        first_line: number(col(row, 5)?)?,
        lines: number(col(row, 6)?)?,
        content: col(row, 7)?,
        blob: col(row, 8)?,
    })
}

fn number(value: i64) -> Result<u32> {
    u32::try_from(value).map_err(|_| StoreError::Corrupt(format!("{value} is no number of lines or attempts")))
}
