//! One run for somebody who looks at it, in one round trip.

use deadpool_postgres::Object;
use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::artifacts;
use super::columns::{self, EVENT, HEAD, HEADS, SNAPSHOT, STEP, col, int8};
use super::runs::query;
use crate::Result;
use crate::rows::RunRows;

/// All in one transaction that sees one moment, and all sent at once: see [`super::project::projection`].
pub(super) async fn read_run(connection: &Object, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
    let statements = [
        format!("SELECT {HEAD} FROM {HEADS} WHERE r.org_id = $1 AND r.run_id = $2"),
        format!("SELECT {SNAPSHOT} FROM run_snapshots WHERE org_id = $1 AND run_id = $2"),
        format!("SELECT {STEP} FROM run_steps WHERE run_id = $2 AND org_id = $1 ORDER BY step_id COLLATE \"C\""),
        tail(),
        carrying(),
        format!("{} WHERE org_id = $1 AND run_id = $2 ORDER BY seq, place", artifacts::COLUMNS),
        "SELECT (SELECT count(*) FROM run_events WHERE org_id = $1 AND run_id = $2),
                (SELECT from_seq FROM stale_runs WHERE org_id = $1 AND run_id = $2)"
            .to_owned(),
    ];
    let mut prepared = Vec::with_capacity(statements.len());
    for sql in &statements {
        prepared.push(connection.prepare_cached(sql).await?);
    }
    let key: [&(dyn ToSql + Sync); 2] = [&org.0, &run.0];
    let (begun, head, snapshot, steps, tail, carrying, files, counted, ended) = tokio::join!(
        biased;
        connection.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        connection.query_opt(&prepared[0], &key),
        connection.query_opt(&prepared[1], &key),
        connection.query(&prepared[2], &key),
        connection.query(&prepared[3], &key),
        connection.query(&prepared[4], &key),
        connection.query(&prepared[5], &key),
        connection.query_one(&prepared[6], &key),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let (head, snapshot, steps, tail, carrying, files) = (head?, snapshot?, steps?, tail?, carrying?, files?);
    let counted = counted?;
    ended?;
    let Some(head) = head else { return Ok(None) };
    let projection = match snapshot {
        None => None,
        Some(row) => Some((columns::snapshot(&row)?, steps.iter().map(columns::step).collect::<Result<_>>()?)),
    };
    Ok(Some(RunRows {
        head: columns::head(&head, 0)?,
        projection,
        tail: events(&tail)?,
        carrying: events(&carrying)?,
        events: columns::seq(col(&counted, 0)?)?,
        stale_from: col::<Option<i64>>(&counted, 1)?.map(columns::seq).transpose()?,
        artifacts: files.iter().map(artifacts::artifact_row).collect::<Result<_>>()?,
    }))
}

fn tail() -> String {
    format!(
        "SELECT {EVENT} FROM run_events AS e WHERE e.run_id = $2 AND e.org_id = $1 AND e.run_seq > coalesce(
             (SELECT s.last_event_seq FROM run_snapshots AS s WHERE s.org_id = $1 AND s.run_id = $2), 0)
         ORDER BY e.run_seq LIMIT {}",
        RunRows::TAIL
    )
}

fn carrying() -> String {
    format!(
        "SELECT {EVENT} FROM (
             SELECT 1 AS seq FROM run_snapshots AS s WHERE s.org_id = $1 AND s.run_id = $2
             UNION ALL
             (SELECT t.output_seq FROM run_steps AS t
              WHERE t.run_id = $2 AND t.org_id = $1 AND t.output_seq IS NOT NULL LIMIT {})
         ) AS q JOIN run_events AS e ON e.run_id = $2 AND e.org_id = $1 AND e.run_seq = q.seq",
        RunRows::CARRYING - 1
    )
}

fn events(rows: &[Row]) -> Result<Vec<EventRow>> {
    rows.iter().map(|row| columns::event(row, 0)).collect()
}

pub(super) async fn step_events(
    connection: &Object,
    org: OrgId,
    run: RunId,
    step: &str,
    after_seq: u64,
    limit: u32,
) -> Result<Vec<EventRow>> {
    let sql = format!(
        "SELECT {EVENT} FROM run_events AS e
         WHERE e.run_id = $1 AND e.org_id = $2 AND e.run_seq > $3 AND e.step_id = $4 ORDER BY e.run_seq LIMIT $5"
    );
    let rows = query(connection, &sql, &[&run.0, &org.0, &int8(after_seq), &step, &i64::from(limit)]).await?;
    events(&rows)
}
