//! Writes and reads projections. A projection moves from one sequence number to the next by compare-and-swap, like the log.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use deadpool_postgres::{Object, Pool};
use milepost_core::id::{OrgId, RunId};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{self, SNAPSHOT, STEP, col, int4, int8};
use super::runs::query;
use super::transaction::Open;
use crate::Result;
use crate::rows::{ProjectionWrite, SnapshotRow, StepRow, WriteResult};

pub(super) async fn project(pool: &Pool, writes: &[ProjectionWrite]) -> Result<Vec<WriteResult>> {
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    let waves = waves(writes);
    if let [_] = waves.as_slice() {
        let connection = pool.get().await?;
        return write_waves(&connection, writes, waves).await;
    }
    let open = Open::on(pool).await?;
    open.connection()?.batch_execute("BEGIN").await?;
    let results = write_waves(open.connection()?, writes, waves).await?;
    open.commit().await?;
    Ok(results)
}

/// Several writes to one run go one after the other: the n-th write of each run is in the n-th wave.
fn waves(writes: &[ProjectionWrite]) -> Vec<Vec<usize>> {
    let mut waves: Vec<Vec<usize>> = Vec::new();
    let mut seen: BTreeMap<RunId, usize> = BTreeMap::new();
    for (index, write) in writes.iter().enumerate() {
        let nth = seen.entry(write.run).or_default();
        if waves.len() == *nth {
            waves.push(Vec::new());
        }
        waves[*nth].push(index);
        *nth += 1;
    }
    waves
}

async fn write_waves(
    connection: &Object,
    writes: &[ProjectionWrite],
    waves: Vec<Vec<usize>>,
) -> Result<Vec<WriteResult>> {
    let mut results = vec![WriteResult::Conflict; writes.len()];
    for wave in waves {
        let mut rows: Vec<&ProjectionWrite> = wave.iter().map(|index| &writes[*index]).collect();
        rows.sort_unstable_by_key(|write| (write.run, write.org));
        let written = write(connection, &rows).await?;
        for index in wave {
            if written.contains(&writes[index].run.0) {
                results[index] = WriteResult::Written;
            }
        }
    }
    Ok(results)
}

static WRITE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH projected AS MATERIALIZED (
    SELECT * FROM unnest($1::int4[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::int8[], $7::text[], $8::uuid[],
                         $9::uuid[], $10::int4[], $11::int4[], $12::int4[], $13::int4[], $14::text[], $15::int8[],
                         $16::int8[], $17::int8[], $18::text[], $19::int8[], $20::int8[], $21::int8[], $22::bool[])
        AS p ({SNAPSHOT}, expected_seq, release)
), updated AS (
    UPDATE run_snapshots AS s
    SET status = p.status, last_event_seq = p.last_event_seq, priority = p.priority, steps_total = p.steps_total,
        steps_done = p.steps_done, steps_failed = p.steps_failed, error = p.error, started_at = p.started_at,
        completed_at = p.completed_at, workflow_version = p.workflow_version, updated_at = p.updated_at,
        engine_node = p.engine_node
    FROM projected AS p
    WHERE s.run_id = p.run_id AND s.org_id = p.org_id AND s.last_event_seq = p.expected_seq
    RETURNING s.run_id
), inserted AS (
    INSERT INTO run_snapshots ({SNAPSHOT})
    SELECT {SNAPSHOT} FROM projected WHERE expected_seq = 0
    ON CONFLICT DO NOTHING
    RETURNING run_id
), written AS MATERIALIZED (
    SELECT run_id FROM updated UNION ALL SELECT run_id FROM inserted
), stepped AS (
    INSERT INTO run_steps (org_id, run_id, {STEP})
    SELECT t.* FROM unnest($23::int4[], $24::uuid[], $25::text[], $26::text[], $27::text[], $28::text[], $29::int4[],
                           $30::int4[], $31::bytea[], $32::int8[], $33::text[], $34::int8[], $35::int8[])
        AS t (org_id, run_id, {STEP})
    WHERE (t.run_id IN (SELECT run_id FROM written)) IS TRUE
    ON CONFLICT (run_id, step_id, org_id) DO UPDATE
    SET skill = excluded.skill, status = excluded.status, skip_reason = excluded.skip_reason,
        logical_attempt = excluded.logical_attempt, engine_attempt = excluded.engine_attempt,
        input_hash = excluded.input_hash, output_seq = excluded.output_seq, error = excluded.error,
        started_at = excluded.started_at, ended_at = excluded.ended_at
), released AS (
    UPDATE runs AS r SET owner = NULL
    FROM projected AS p
    WHERE p.release AND r.run_id = p.run_id AND r.org_id = p.org_id AND r.last_seq = p.last_event_seq
      AND r.owner IS NOT NULL AND (p.run_id IN (SELECT run_id FROM written)) IS TRUE
)
SELECT run_id FROM written"
    )
});

/// One statement. No run may be in it twice. Answers the runs that were written.
async fn write(connection: &Object, writes: &[&ProjectionWrite]) -> Result<HashSet<Uuid>> {
    fn all<'a, T>(writes: &[&'a ProjectionWrite], field: impl Fn(&'a ProjectionWrite) -> T) -> Vec<T> {
        writes.iter().map(|write| field(write)).collect()
    }
    let steps = Steps::of(writes);
    let parameters: [&(dyn ToSql + Sync); 35] = [
        &all(writes, |w| w.org.0),
        &all(writes, |w| w.run.0),
        &all(writes, |w| w.snapshot.workflow.as_str()),
        &all(writes, |w| w.snapshot.workflow_version.as_str()),
        &all(writes, |w| w.snapshot.status.as_str()),
        &all(writes, |w| int8(w.snapshot.last_event_seq)),
        &all(writes, |w| w.snapshot.request_id.as_deref()),
        &all(writes, |w| w.snapshot.base_run.map(|run| run.0)),
        &all(writes, |w| w.snapshot.parent_run.map(|run| run.0)),
        &all(writes, |w| w.snapshot.priority),
        &all(writes, |w| int4(w.snapshot.steps_total)),
        &all(writes, |w| int4(w.snapshot.steps_done)),
        &all(writes, |w| int4(w.snapshot.steps_failed)),
        &all(writes, |w| w.snapshot.error.as_ref().map(|error| error.as_str())),
        &all(writes, |w| w.snapshot.created_at.0),
        &all(writes, |w| w.snapshot.started_at.map(|at| at.0)),
        &all(writes, |w| w.snapshot.completed_at.map(|at| at.0)),
        &all(writes, |w| w.snapshot.submitted_by.as_deref()),
        &all(writes, |w| w.snapshot.updated_at.0),
        &all(writes, |w| w.snapshot.engine_node.map(|node| node.0)),
        &all(writes, |w| int8(w.expected_seq)),
        &all(writes, |w| w.release),
        &steps.org,
        &steps.run,
        &steps.all(|step| step.step_id.as_str()),
        &steps.all(|step| step.skill.as_str()),
        &steps.all(|step| step.status.as_str()),
        &steps.all(|step| step.skip_reason.map(|reason| reason.as_str())),
        &steps.all(|step| int4(step.logical_attempt)),
        &steps.all(|step| int4(step.engine_attempt)),
        &steps.all(|step| step.input_hash.as_ref().map(|hash| hash.0.as_slice())),
        &steps.all(|step| step.output_seq.map(int8)),
        &steps.all(|step| step.error.as_ref().map(|error| error.as_str())),
        &steps.all(|step| step.started_at.map(|at| at.0)),
        &steps.all(|step| step.ended_at.map(|at| at.0)),
    ];
    let rows = query(connection, &WRITE, &parameters).await?;
    rows.iter().map(|row| col(row, 0)).collect()
}

#[derive(Default)]
struct Steps<'a> {
    org: Vec<i32>,
    run: Vec<Uuid>,
    row: Vec<&'a StepRow>,
}

impl<'a> Steps<'a> {
    fn of(writes: &[&'a ProjectionWrite]) -> Steps<'a> {
        let mut steps = Steps::default();
        for write in writes {
            // One statement must not touch a row twice; the last word on a step counts.
            let last: BTreeMap<&str, &StepRow> = write.steps.iter().map(|step| (step.step_id.as_str(), step)).collect();
            for step in last.into_values() {
                steps.org.push(write.org.0);
                steps.run.push(write.run.0);
                steps.row.push(step);
            }
        }
        steps
    }

    fn all<T>(&self, field: impl Fn(&'a StepRow) -> T) -> Vec<T> {
        self.row.iter().map(|step| field(step)).collect()
    }
}

pub(super) async fn drop_projection(connection: &Object, org: OrgId, run: RunId) -> Result<()> {
    let sql = "WITH steps AS (DELETE FROM run_steps WHERE run_id = $1 AND org_id = $2)
               DELETE FROM run_snapshots WHERE run_id = $1 AND org_id = $2";
    query(connection, sql, &[&run.0, &org.0]).await?;
    Ok(())
}

fn snapshot_of_run() -> String {
    format!("SELECT {SNAPSHOT} FROM run_snapshots WHERE org_id = $1 AND run_id = $2")
}

pub(super) async fn snapshot(connection: &Object, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
    query(connection, &snapshot_of_run(), &[&org.0, &run.0]).await?.first().map(columns::snapshot).transpose()
}

/// Both in one transaction that sees one moment. All of it is sent at once: it costs one round trip, and a caller that
/// goes away in the middle leaves no transaction open.
pub(super) async fn projection(
    connection: &Object,
    org: OrgId,
    run: RunId,
) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
    let snapshot = connection.prepare_cached(&snapshot_of_run()).await?;
    let steps =
        format!("SELECT {STEP} FROM run_steps WHERE run_id = $2 AND org_id = $1 ORDER BY step_id COLLATE \"C\"");
    let steps = connection.prepare_cached(&steps).await?;
    let key: [&(dyn ToSql + Sync); 2] = [&org.0, &run.0];
    let (begun, snapshot, steps, ended) = tokio::join!(
        biased;
        connection.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        connection.query_opt(&snapshot, &key),
        connection.query(&steps, &key),
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let (snapshot, steps) = (snapshot?, steps?);
    ended?;
    let Some(snapshot) = snapshot else { return Ok(None) };
    Ok(Some((columns::snapshot(&snapshot)?, steps.iter().map(columns::step).collect::<Result<_>>()?)))
}

pub(super) async fn steps_by_id(connection: &Object, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
    let sql = format!(
        "SELECT {STEP} FROM run_steps WHERE run_id = $1 AND org_id = $2 AND step_id = ANY ($3::text[])
         ORDER BY step_id COLLATE \"C\""
    );
    let rows = query(connection, &sql, &[&run.0, &org.0, &ids]).await?;
    rows.iter().map(columns::step).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{ALIKE, Plan, client};
    use super::*;

    /// The planner must not take another index for the primary key, whatever it knows of a partition.
    #[tokio::test]
    async fn one_projection_is_found_by_its_key_however_many_there_are() {
        let client = client().await;
        let nobody = vec!["1".to_owned(), format!("'{}'", Uuid::nil())];
        let none = vec!["'{}'".to_owned(); 35];
        for fill in ["SELECT", ALIKE] {
            client.batch_execute(fill).await.unwrap();
            for (sql, values) in [(snapshot_of_run(), &nobody), (WRITE.clone(), &none)] {
                let plan = Plan::of(&client, &sql, values).await;
                assert!(plan.goes_along("run_snapshots", "pkey"), "{}", plan.text);
            }
        }
    }
}
