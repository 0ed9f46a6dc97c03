//! Lists of runs, newest first, and how long they are.
//!
//! Every index here ends with (status, run id), so a list is one range per status, put together. A range is written as a
//! comparison of these two as one, and sorted by them: only an index that has them so can serve it. Written with equal
//! signs, the planner would be free to walk along the primary key, and does so when it thinks that all runs are alike.

use std::sync::LazyLock;

use deadpool_postgres::Object;
use milepost_core::id::OrgId;
use milepost_core::status::RunStatus;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::columns::{self, SNAPSHOT, col};
use super::runs::query;
use crate::Result;
use crate::rows::{RunFilter, SnapshotRow, Way};

type Parameter<'a> = &'a (dyn ToSql + Sync);

/// Which rows, one range of an index for each status, and at most $6 of each. Parameters: [`Values`].
fn rows(way: Way, columns: &str) -> String {
    const REST: &str = "s.org_id = $1 AND s.created_at >= $4 AND s.created_at < $5
        AND ($8::text IS NULL OR s.workflow = $8) AND ($9::uuid IS NULL OR s.base_run_id = $9)
        AND ($10::uuid IS NULL OR s.parent_run_id = $10) AND ($12::text IS NULL OR s.submitted_by = $12)";
    let range = match way {
        Way::All => "s.run_id >= $2 AND s.run_id < $3 ORDER BY s.run_id DESC".to_owned(),
        Way::Request | Way::Stuck => "s.run_id = q.run_id".to_owned(),
        Way::Status => along("s.org_id <> 0"),
        Way::Workflow => along("s.workflow = $8"),
        Way::Base => along("s.base_run_id = $9"),
        Way::Parent => along("s.parent_run_id = $10"),
        Way::Submitter => along("s.submitted_by = $12"),
    };
    let asked = match way {
        Way::Request => "",
        Way::Stuck => "AND ($11::text IS NULL OR s.request_id = $11)",
        _ => "AND $11::text IS NULL",
    };
    let found = format!("FROM run_snapshots AS s WHERE {REST} {asked} AND {range} LIMIT $6");
    match way {
        // One row for each workflow. What else it must have is looked at when it is there, so that no index by that is
        // thought of.
        Way::Request => format!(
            "SELECT {columns} FROM (
                 SELECT l.* FROM run_requests AS q CROSS JOIN LATERAL (SELECT s.* {found}) AS l
                 WHERE q.org_id = $1 AND q.request_id = $11
             ) AS l WHERE l.run_id >= $2 AND l.run_id < $3 AND l.status = ANY ($7::text[])"
        ),
        Way::Stuck => format!(
            "SELECT {columns} FROM (
                 SELECT l.* FROM run_suspects AS q CROSS JOIN LATERAL (SELECT s.* {found}) AS l
                 WHERE q.org_id = $1 AND q.state = 'stuck'
             ) AS l WHERE l.run_id >= $2 AND l.run_id < $3 AND l.status = ANY ($7::text[])"
        ),
        _ => format!(
            "SELECT l.* FROM unnest($7::text[]) AS w (status) CROSS JOIN LATERAL (SELECT {columns} {found}) AS l"
        ),
    }
}

fn list_sql(way: Way) -> String {
    format!("SELECT * FROM ({}) AS listed ORDER BY run_id DESC LIMIT $6", rows(way, SNAPSHOT))
}

fn count_sql(way: Way) -> String {
    format!("SELECT count(*) FROM ({} LIMIT $6) AS counted", rows(way, "1"))
}

/// One range of the index of which this is the key or the condition.
fn along(index: &str) -> String {
    format!(
        "{index} AND (s.status, s.run_id) >= (w.status, $2) AND (s.status, s.run_id) < (w.status, $3)
         ORDER BY s.status DESC, s.run_id DESC"
    )
}

/// The parameters of a list, in the order of their numbers.
struct Values<'f> {
    org: i32,
    ids: (Uuid, Uuid),
    times: (i64, i64),
    limit: i64,
    /// One range for each. A list along all runs has a single one, whatever its name.
    statuses: Vec<&'static str>,
    workflow: Option<&'f str>,
    base_run: Option<Uuid>,
    parent_run: Option<Uuid>,
    request_id: Option<&'f str>,
    submitted_by: Option<&'f str>,
}

impl<'f> Values<'f> {
    fn of(org: OrgId, filter: &'f RunFilter, limit: u64) -> Values<'f> {
        let ((first, end), (from, until)) = (filter.ids(), filter.times());
        let statuses = match Way::of(filter) {
            Way::All => vec![""],
            _ => filter.each_status().into_iter().map(RunStatus::as_str).collect(),
        };
        Values {
            org: org.0,
            ids: (first.0, end.0),
            times: (from.0, until.0),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            statuses,
            workflow: filter.workflow.as_deref(),
            base_run: filter.base_run.map(|run| run.0),
            parent_run: filter.parent_run.map(|run| run.0),
            request_id: filter.request_id.as_deref(),
            submitted_by: filter.submitted_by.as_deref(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 12] {
        [
            &self.org,
            &self.ids.0,
            &self.ids.1,
            &self.times.0,
            &self.times.1,
            &self.limit,
            &self.statuses,
            &self.workflow,
            &self.base_run,
            &self.parent_run,
            &self.request_id,
            &self.submitted_by,
        ]
    }
}

pub(super) async fn list_runs(connection: &Object, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
    let values = Values::of(org, filter, u64::from(filter.limit));
    let rows = query(connection, &list_sql(Way::of(filter)), &values.parameters()).await?;
    rows.iter().map(columns::snapshot).collect()
}

pub(super) async fn count_matching(connection: &Object, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
    let values = Values::of(org, filter, up_to);
    let rows = query(connection, &count_sql(Way::of(filter)), &values.parameters()).await?;
    rows.first().map_or(Ok(0), |row| columns::seq(col(row, 0)?))
}

/// Hops from org to org along the index and counts its entries of the open statuses.
pub(super) async fn status_counts(connection: &Object) -> Result<Vec<(OrgId, RunStatus, u64)>> {
    let open: Vec<&str> =
        RunStatus::ALL.iter().filter(|status| !status.is_terminal()).map(|status| status.as_str()).collect();
    let rows = query(connection, &STATUS_COUNTS, &[&open]).await?;
    rows.iter()
        .map(|row| Ok((OrgId(col(row, 0)?), columns::word(col(row, 1)?)?, columns::seq(col(row, 2)?)?)))
        .collect()
}

static STATUS_COUNTS: LazyLock<String> = LazyLock::new(|| {
    let ids = along("s.org_id <> 0")
        .replace("$2", &format!("'{}'", Uuid::nil()))
        .replace("$3", &format!("'{}'", Uuid::max()));
    format!(
        "WITH RECURSIVE orgs AS (
             (SELECT org_id FROM run_snapshots ORDER BY org_id LIMIT 1)
             UNION ALL
             SELECT next.org_id FROM orgs AS o CROSS JOIN LATERAL (
                 SELECT s.org_id FROM run_snapshots AS s WHERE s.org_id > o.org_id ORDER BY s.org_id LIMIT 1
             ) AS next
         )
         SELECT o.org_id, w.status, c.count
         FROM orgs AS o CROSS JOIN unnest($1::text[]) WITH ORDINALITY AS w (status, place) CROSS JOIN LATERAL (
             SELECT count(*) FROM (SELECT FROM run_snapshots AS s WHERE s.org_id = o.org_id AND {ids}) AS open
         ) AS c
         WHERE c.count > 0 ORDER BY o.org_id, w.place"
    )
});

#[cfg(test)]
mod tests {
    use milepost_core::id::RunId;

    use super::super::testing::{ALIKE, BASE, Plan, client};
    use super::*;

    /// More pages than any list needs; walking through the runs takes hundreds.
    const FEW: u64 = 150;

    fn literals(filter: &RunFilter) -> Vec<String> {
        let values = Values::of(OrgId(1), filter, 50);
        let text = |value: Option<String>| value.map_or("NULL".to_owned(), |value| format!("'{value}'"));
        vec![
            values.org.to_string(),
            text(Some(values.ids.0.to_string())),
            text(Some(values.ids.1.to_string())),
            values.times.0.to_string(),
            values.times.1.to_string(),
            values.limit.to_string(),
            text(Some(format!("{{{}}}", values.statuses.join(",")))),
            text(values.workflow.map(str::to_owned)),
            text(values.base_run.map(|run| run.to_string())),
            text(values.parent_run.map(|run| run.to_string())),
            text(values.request_id.map(str::to_owned)),
            text(values.submitted_by.map(str::to_owned)),
        ]
    }

    #[tokio::test]
    async fn every_list_is_a_range_of_an_index_however_many_runs_there_are() {
        let all = RunFilter::default();
        let of_workflow = |name: &str| RunFilter { workflow: Some(name.to_owned()), ..RunFilter::default() };
        let some = vec![RunStatus::Failed, RunStatus::Paused];
        let lists = [
            (all.clone(), "pkey"),
            (RunFilter { statuses: RunStatus::ALL.to_vec(), ..all.clone() }, "org_id_status_run_id_idx"),
            (RunFilter { statuses: some.clone(), ..all.clone() }, "org_id_status_run_id_idx"),
            (of_workflow("render"), "org_id_workflow_status_run_id_idx"),
            (of_workflow("other"), "org_id_workflow_status_run_id_idx"),
            (RunFilter { statuses: some.clone(), ..of_workflow("render") }, "org_id_workflow_status_run_id_idx"),
            (RunFilter { base_run: Some(RunId(BASE)), ..all.clone() }, "org_id_base_run_id_status_run_id_idx"),
            (RunFilter { parent_run: Some(RunId(BASE)), ..all.clone() }, "org_id_parent_run_id_status_run_id_idx"),
            (
                RunFilter { parent_run: Some(RunId(BASE)), statuses: some, ..all.clone() },
                "org_id_parent_run_id_status_run_id_idx",
            ),
            (
                RunFilter { submitted_by: Some("ada".to_owned()), ..all.clone() },
                "org_id_submitted_by_status_run_id_idx",
            ),
            (RunFilter { request_id: Some("r".to_owned()), ..all }, "pkey"),
        ];
        let client = client().await;
        for fill in ["SELECT", ALIKE, "ANALYZE run_snapshots"] {
            client.batch_execute(fill).await.unwrap();
            for (filter, index) in &lists {
                let way = Way::of(filter);
                for sql in [list_sql(way), count_sql(way)] {
                    let plan = Plan::of(&client, &sql, &literals(filter)).await;
                    let indexed = plan.goes_along("run_snapshots", index);
                    assert!(indexed, "{filter:?} does not go along {index} alone\n{}", plan.text);
                    assert!(plan.buffers < FEW, "{filter:?} reads {} pages\n{}", plan.buffers, plan.text);
                }
            }
        }
    }

    #[tokio::test]
    async fn open_runs_are_counted_along_the_index_by_status() {
        let client = client().await;
        client.batch_execute(ALIKE).await.unwrap();
        let plan = Plan::of(&client, &STATUS_COUNTS, &["'{running,paused}'".to_owned()]).await;
        assert!(plan.text.contains("org_id_status_run_id_idx") && plan.buffers < FEW, "{}", plan.text);
    }
}
