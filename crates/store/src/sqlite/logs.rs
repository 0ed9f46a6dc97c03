//! What steps wrote.

use rusqlite::{Connection, Row, params};

use milepost_core::id::{OrgId, RunId};

use super::columns::{Columns, all, id, one};
use crate::Result;
use crate::rows::{LogChunkRow, LogPosition};

pub(super) fn append(tx: &Connection, chunks: &[LogChunkRow]) -> Result<()> {
    let mut statement = tx.prepare_cached(
        "INSERT INTO step_logs (org_id, run_id, step_id, logical_attempt, engine_attempt, first_line, lines, content, blob)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
    )?;
    for chunk in chunks {
        let LogChunkRow { org, run, step_id, logical_attempt, engine_attempt, first_line, lines, content, blob } =
            chunk;
        statement.execute(params![
            org.0,
            id(run),
            step_id,
            logical_attempt,
            engine_attempt,
            first_line,
            lines,
            content,
            blob
        ])?;
    }
    Ok(())
}

pub(super) fn lines(
    conn: &Connection,
    org: OrgId,
    run: RunId,
    step: &str,
    logical_attempt: u32,
    engine_attempt: u32,
) -> Result<u32> {
    let sql = "SELECT first_line + lines FROM step_logs
               WHERE org_id = ? AND run_id = ? AND step_id = ? AND logical_attempt = ? AND engine_attempt = ?
               ORDER BY first_line DESC LIMIT 1";
    let end = one(conn, sql, params![org.0, id(&run), step, logical_attempt, engine_attempt], |row| row.get(0))?;
    Ok(end.unwrap_or(0))
}

const CHUNK: &str = "SELECT org_id, run_id, step_id, logical_attempt, engine_attempt, first_line, lines, content, blob
    FROM step_logs WHERE org_id = ? AND run_id = ?";
const ORDER: &str = "ORDER BY step_id, logical_attempt, engine_attempt, first_line LIMIT ?";
const AFTER: &str = "(step_id, logical_attempt, engine_attempt, first_line) > (?, ?, ?, ?)";

pub(super) fn read(
    conn: &Connection,
    org: OrgId,
    run: RunId,
    step: Option<&str>,
    after: Option<&LogPosition>,
    limit: u32,
) -> Result<Vec<LogChunkRow>> {
    // No step has an empty name, so this is before all.
    let none = LogPosition { step_id: String::new(), logical_attempt: 0, engine_attempt: 0, first_line: 0 };
    let LogPosition { step_id, logical_attempt, engine_attempt, first_line } = after.unwrap_or(&none);
    let after = params![org.0, id(&run), step_id, logical_attempt, engine_attempt, first_line];
    match step {
        None => all(conn, &format!("{CHUNK} AND {AFTER} {ORDER}"), [after, params![limit]].concat().as_slice(), chunk),
        Some(step) => {
            let sql = format!("{CHUNK} AND {AFTER} AND step_id = ? {ORDER}");
            all(conn, &sql, [after, params![step, limit]].concat().as_slice(), chunk)
        }
    }
}

fn chunk(row: &Row) -> rusqlite::Result<LogChunkRow> {
    let mut columns = Columns::of(row);
    Ok(LogChunkRow {
        org: columns.org()?,
        run: columns.run()?,
        step_id: columns.get()?,
        logical_attempt: columns.get()?,
        engine_attempt: columns.get()?,
        first_line: columns.get()?,
        lines: columns.get()?,
        content: columns.get()?,
        blob: columns.get()?,
    })
}
