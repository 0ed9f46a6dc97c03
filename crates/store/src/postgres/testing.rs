//! How the server plans our statements: for tests.

use tokio_postgres::Client;
use uuid::Uuid;

use super::{connect, migrate};

/// A schema of its own, on a connection that is set up as the store's are.
pub(super) async fn client() -> Client {
    let server = std::env::var("MILEPOST_TEST_POSTGRES")
        .expect("MILEPOST_TEST_POSTGRES is not set; run this with `scripts/with-postgres cargo test`");
    let schema = format!("t_{}", Uuid::now_v7().simple());
    let config = connect::parse(&format!("{server}?options=-c%20search_path%3D{schema}")).unwrap();
    let client = connect::single(&config).await.unwrap();
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    migrate::migrate(&client).await.unwrap();
    client
}

/// The plan of a statement and what carrying it out with these values read.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) text: String,
    pub(super) buffers: u64,
}

impl Plan {
    /// Planned for any values, as on the store's connections.
    pub(super) async fn of(client: &Client, sql: &str, values: &[String]) -> Plan {
        client.batch_execute(&format!("DEALLOCATE ALL; PREPARE planned AS {sql}")).await.unwrap();
        let execute = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) EXECUTE planned {execute}");
        let rows = client.query(&explain, &[]).await.unwrap();
        let text = rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n");
        // The first line that tells is about the whole statement.
        let told = text.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared "));
        let counts =
            told.unwrap_or_default().split(' ').filter_map(|part| part.rsplit('=').next()?.parse::<u64>().ok());
        Plan { buffers: counts.sum(), text }
    }

    /// Whether every partition of this table is looked into by this index, those that are empty now as well: a plan is
    /// made once.
    pub(super) fn goes_along(&self, table: &str, index: &str) -> bool {
        let lines: Vec<&str> = self.text.lines().collect();
        let is_scan = |line: &str| line.contains(&format!(" on {table}_")) && line.contains("Scan");
        let mut scans = lines.windows(2).filter(|pair| is_scan(pair[0]));
        scans.all(|pair| pair[0].contains(&format!("{index} on")) && pair[1].contains("Index Cond"))
    }
}

/// A month of runs that are all alike, which is when the planner sees no use in an index by what they have in common.
pub(super) const ALIKE: &str = "
    INSERT INTO run_snapshots (org_id, run_id, workflow, workflow_version, status, last_event_seq, priority, steps_total,
        steps_done, steps_failed, created_at, started_at, completed_at, base_run_id, parent_run_id, submitted_by)
    SELECT 1, first_run_id(now() AT TIME ZONE 'UTC' + n * interval '1 millisecond'), 'render', '1', 'completed', 9, 0, 3,
        3, 0, 1, 1, 1, base, base, 'ada'
    FROM generate_series(1, 40000) AS n,
        LATERAL (SELECT CASE WHEN n % 2 = 0 THEN '7fffffff-0000-7000-8000-000000000000'::uuid END AS base) AS b;
    INSERT INTO runs (org_id, run_id, last_seq, status, priority, created_at, completed_at, workflow, workflow_version,
        plan_hash, base_run_id)
    SELECT org_id, run_id, 9, status, 0, 1, 1, workflow, '1', '', base_run_id FROM run_snapshots;
    DO $$ BEGIN
        EXECUTE format('ANALYZE run_snapshots_%1$s; ANALYZE runs_%1$s', to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM'));
    END $$";

/// What half of the runs of [`ALIKE`] come from.
pub(super) const BASE: Uuid = Uuid::from_u128(0x7fffffff_0000_7000_8000_000000000000);
