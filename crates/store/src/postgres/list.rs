//! Lists of runs, newest first, and how long they are.
//!
//! Every index here ends with (status, run id), so a list is one range per status, put together. A range is written as
//! a comparison of the index's columns as one, and sorted by them: only that index can serve it. With equal signs the
//! planner would be free to walk along another one, and does so when it thinks that all runs are alike.

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

/// What the rows have in common and how they are sorted. Parameters: [`Values`].
fn rows(way: Way) -> String {
    const REST: &str = "s.org_id = $1 AND s.created_at >= $4 AND s.created_at < $5
        AND ($8::text IS NULL OR s.workflow = $8) AND ($9::uuid IS NULL OR s.base_run_id = $9)
        AND ($10::uuid IS NULL OR s.parent_run_id = $10)";
    let range = match way {
        Way::All => "AND s.run_id >= $2 AND s.run_id < $3 AND $11::text IS NULL ORDER BY s.run_id DESC".to_owned(),
        Way::Request => "AND s.run_id = (SELECT run_id FROM run_requests WHERE org_id = $1 AND request_id = $11)
            AND s.run_id >= $2 AND s.run_id < $3 AND s.status = w.status"
            .to_owned(),
        Way::Status => along(None),
        Way::Workflow => along(Some(("workflow", "$8"))),
        Way::Base => along(Some(("base_run_id", "$9"))),
        Way::Parent => along(Some(("parent_run_id", "$10"))),
    };
    format!("FROM run_snapshots AS s WHERE {REST} {range} LIMIT $6")
}

fn list_sql(way: Way) -> String {
    format!(
        "SELECT l.* FROM unnest($7::text[]) AS w (status) CROSS JOIN LATERAL (SELECT {} {}) AS l
         ORDER BY l.run_id DESC LIMIT $6",
        SNAPSHOT,
        rows(way)
    )
}

fn count_sql(way: Way) -> String {
    format!(
        "SELECT count(*) FROM (
             SELECT FROM unnest($7::text[]) AS w (status) CROSS JOIN LATERAL (SELECT {}) AS l LIMIT $6
         ) AS counted",
        rows(way)
    )
}

/// One range of an index that may have a key between org and status: its column, and the parameter it equals.
fn along(key: Option<(&str, &str)>) -> String {
    let (column, value) =
        key.map_or_else(Default::default, |(column, value)| (format!("s.{column}, "), format!("{value}, ")));
    // Indexes by a column that is mostly empty leave the empty ones out, and want to hear that they are not asked for.
    let is_there = key.map_or_else(String::new, |(column, _)| format!("AND s.{column} IS NOT NULL"));
    format!(
        "AND ({column}s.status, s.run_id) >= ({value}w.status, $2)
         AND ({column}s.status, s.run_id) < ({value}w.status, $3) {is_there} AND $11::text IS NULL
         ORDER BY {}s.status DESC, s.run_id DESC",
        column.replace(',', " DESC,")
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
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 11] {
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
    let rows = query(connection, STATUS_COUNTS, &[&open]).await?;
    rows.iter()
        .map(|row| Ok((OrgId(col(row, 0)?), columns::word(col(row, 1)?)?, columns::seq(col(row, 2)?)?)))
        .collect()
}

const STATUS_COUNTS: &str = "WITH RECURSIVE orgs AS (
        (SELECT org_id FROM run_snapshots ORDER BY org_id LIMIT 1)
        UNION ALL
        SELECT next.org_id FROM orgs AS o CROSS JOIN LATERAL (
            SELECT s.org_id FROM run_snapshots AS s WHERE s.org_id > o.org_id ORDER BY s.org_id LIMIT 1
        ) AS next
    )
    SELECT o.org_id, w.status, c.count
    FROM orgs AS o CROSS JOIN unnest($1::text[]) WITH ORDINALITY AS w (status, place) CROSS JOIN LATERAL (
        SELECT count(*) FROM run_snapshots AS s WHERE s.org_id = o.org_id AND s.status = w.status
    ) AS c
    WHERE c.count > 0 ORDER BY o.org_id, w.place";
