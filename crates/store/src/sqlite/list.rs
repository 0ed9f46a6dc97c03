//! Lists of runs, newest first, and how long they are.
//!
//! Every index here ends with (status, run id), so a list is one range per status, put together. No filter walks through
//! history: what is neither in the index nor the last word on a row (times within a millisecond) is at most the second
//! of two keys.

use std::cmp::Reverse;

use rusqlite::{Connection, Params, params};

use milepost_core::id::{OrgId, RunId};
use milepost_core::status::RunStatus;

use super::columns::{all, id};
use super::projections::{SNAPSHOT, snapshot_row};
use crate::Result;
use crate::rows::{RunFilter, SnapshotRow, Way};

/// Named, because SQLite left to itself walks the primary key, which is the whole history when few runs match.
fn index(way: Way) -> &'static str {
    match way {
        Way::All | Way::Request | Way::Stuck => "",
        Way::Status => "INDEXED BY run_snapshots_by_status",
        Way::Workflow => "INDEXED BY run_snapshots_by_workflow",
        Way::Base => "INDEXED BY run_snapshots_by_base",
        Way::Parent => "INDEXED BY run_snapshots_by_parent",
        Way::Submitter => "INDEXED BY run_snapshots_by_submitter",
    }
}

/// What the rows have in common; keys of the index without an `OR`.
fn conditions(way: Way) -> String {
    let key = |ways: &[Way], column: &str, number: u8| match ways.contains(&way) {
        true => format!("{column} = ?{number}"),
        false => format!("(?{number} IS NULL OR {column} = ?{number})"),
    };
    let request = match way {
        Way::Request => "run_id IN (SELECT run_id FROM run_requests WHERE org_id = ?1 AND request_id = ?6)",
        Way::Stuck => {
            "(?6 IS NULL OR request_id = ?6)
             AND run_id IN (SELECT run_id FROM run_suspects WHERE org_id = ?1 AND state = 'stuck')"
        }
        _ => "?6 IS NULL",
    };
    [
        "org_id = ?1",
        &key(&[Way::Status, Way::Workflow, Way::Base, Way::Parent, Way::Submitter], "status", 2),
        &key(&[Way::Workflow], "workflow", 3),
        &key(&[Way::Base], "base_run_id", 4),
        &key(&[Way::Parent], "parent_run_id", 5),
        &key(&[Way::Submitter], "submitted_by", 12),
        request,
        "run_id >= ?7 AND run_id < ?8 AND created_at >= ?9 AND created_at < ?10",
    ]
    .join(" AND ")
}

fn list_sql(way: Way) -> String {
    format!("{SNAPSHOT} {} WHERE {} ORDER BY run_id DESC LIMIT ?11", index(way), conditions(way))
}

fn count_sql(way: Way) -> String {
    let (index, conditions) = (index(way), conditions(way));
    format!("SELECT count(*) FROM (SELECT 1 FROM run_snapshots {index} WHERE {conditions} LIMIT ?11)")
}

/// One range for each.
fn statuses(way: Way, filter: &RunFilter) -> Vec<Option<RunStatus>> {
    match way {
        Way::All | Way::Request | Way::Stuck if filter.statuses.is_empty() => vec![None],
        _ => filter.each_status().into_iter().map(Some).collect(),
    }
}

/// One range: `ids.0` to before `ids.1` of one status.
struct Range<'f> {
    org: OrgId,
    filter: &'f RunFilter,
    status: Option<RunStatus>,
    ids: (RunId, RunId),
    limit: i64,
}

impl Range<'_> {
    /// Hands the parameters to `run`, in the order of their numbers.
    fn with<T>(&self, run: impl FnOnce(&[&dyn rusqlite::ToSql]) -> Result<T>) -> Result<T> {
        let filter = self.filter;
        let (from, until) = filter.times();
        let key = |run: &Option<RunId>| run.as_ref().map(|run| id(run).to_vec());
        run(&[
            &self.org.0,
            &self.status.map(RunStatus::as_str),
            &filter.workflow,
            &key(&filter.base_run),
            &key(&filter.parent_run),
            &filter.request_id,
            &id(&self.ids.0),
            &id(&self.ids.1),
            &from.0,
            &until.0,
            &self.limit,
            &filter.submitted_by,
        ])
    }
}

pub(super) fn list_runs(conn: &Connection, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
    let way = Way::of(filter);
    let sql = list_sql(way);
    let (mut ids, limit) = (filter.ids(), filter.limit as usize);
    let mut page: Vec<SnapshotRow> = Vec::new();
    for status in statuses(way, filter) {
        let range = Range { org, filter, status, ids, limit: i64::from(filter.limit) };
        page.extend(range.with(|values| all(conn, &sql, values, snapshot_row))?);
        page.sort_unstable_by_key(|row| Reverse(row.run));
        page.truncate(limit);
        if let (true, Some(oldest)) = (page.len() == limit, page.last()) {
            // The page is full: of the statuses to come, only what is newer matters.
            ids.0 = oldest.run;
        }
    }
    Ok(page)
}

pub(super) fn count_matching(conn: &Connection, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
    let way = Way::of(filter);
    let sql = count_sql(way);
    let mut counted = 0;
    for status in statuses(way, filter) {
        let limit = i64::try_from(up_to - counted).unwrap_or(i64::MAX);
        let range = Range { org, filter, status, ids: filter.ids(), limit };
        counted += range.with(|values| count(conn, &sql, values))?;
    }
    Ok(counted)
}

fn count(conn: &Connection, sql: &str, values: impl Params) -> Result<u64> {
    Ok(conn.prepare_cached(sql)?.query_row(values, |row| row.get::<_, i64>(0))?.cast_unsigned())
}

const NEXT_ORG: &str = "SELECT org_id FROM run_snapshots INDEXED BY run_snapshots_by_status WHERE org_id > ?
    ORDER BY org_id LIMIT 1";

const OF_STATUS: &str =
    "SELECT count(*) FROM run_snapshots INDEXED BY run_snapshots_by_status WHERE org_id = ? AND status = ?";

/// Hops from org to org in the index and counts its entries of the open statuses.
pub(super) fn status_counts(conn: &Connection) -> Result<Vec<(OrgId, RunStatus, u64)>> {
    let mut counts = Vec::new();
    let mut after = i32::MIN;
    while let Some(org) = super::columns::one(conn, NEXT_ORG, [after], |row| row.get::<_, i32>(0))? {
        for status in RunStatus::ALL.iter().copied().filter(|status| !status.is_terminal()) {
            let found = count(conn, OF_STATUS, params![org, status.as_str()])?;
            counts.extend((found > 0).then_some((OrgId(org), status, found)));
        }
        after = org;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{plan, schema};
    use super::*;

    #[test]
    fn every_list_is_a_range_of_an_index() {
        for (way, range) in [
            (Way::All, "USING PRIMARY KEY (org_id=? AND run_id>? AND run_id<?)"),
            (Way::Status, "run_snapshots_by_status (org_id=? AND status=? AND run_id>? AND run_id<?)"),
            (
                Way::Workflow,
                "run_snapshots_by_workflow (org_id=? AND workflow=? AND status=? AND run_id>? AND run_id<?)",
            ),
            (Way::Base, "run_snapshots_by_base (org_id=? AND base_run_id=? AND status=? AND run_id>? AND run_id<?)"),
            (
                Way::Parent,
                "run_snapshots_by_parent (org_id=? AND parent_run_id=? AND status=? AND run_id>? AND run_id<?)",
            ),
            (
                Way::Submitter,
                "run_snapshots_by_submitter (org_id=? AND submitted_by=? AND status=? AND run_id>? AND run_id<?)",
            ),
            (Way::Request, "SEARCH run_snapshots USING PRIMARY KEY (org_id=? AND run_id=?)"),
        ] {
            for sql in [list_sql(way), count_sql(way)] {
                let plan = plan(&schema(), &sql);
                let only_this = plan.contains(range) && !plan.contains("SCAN run") && !plan.contains("TEMP B-TREE");
                assert!(only_this, "{sql}\n{plan}");
            }
        }
        assert!(
            plan(&schema(), &list_sql(Way::Request))
                .contains("run_requests USING PRIMARY KEY (org_id=? AND request_id=?)")
        );
    }

    #[test]
    fn parked_runs_are_found_by_their_ids() {
        for sql in [list_sql(Way::Stuck), count_sql(Way::Stuck)] {
            let plan = plan(&schema(), &sql);
            let found = plan.contains("SEARCH run_snapshots USING PRIMARY KEY (org_id=? AND run_id=?)");
            assert!(found && plan.contains("SEARCH run_suspects USING PRIMARY KEY (org_id=?)"), "{sql}\n{plan}");
        }
    }

    #[test]
    fn open_runs_are_counted_in_the_index_alone() {
        for sql in [NEXT_ORG, OF_STATUS] {
            let plan = plan(&schema(), sql);
            assert!(plan.contains("USING COVERING INDEX run_snapshots_by_status (org_id"), "{sql}\n{plan}");
        }
    }
}
