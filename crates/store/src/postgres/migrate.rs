//! Brings the schema of the connection's current namespace up to date, whoever else is doing the same right now.

use std::time::{SystemTime, UNIX_EPOCH};

use milepost_core::time::Timestamp;
use tokio_postgres::Client;

use crate::migrations::{self, Migration, POSTGRES};
use crate::{Result, StoreError};

/// Partitions are made this many months ahead.
const MONTHS_AHEAD: i32 = 2;

/// What each step of the schema made.
const TABLES: &[(i32, &str)] = &[
    (1, "orgs"),
    (1, "runs"),
    (1, "run_requests"),
    (1, "run_events"),
    (1, "run_checkpoints"),
    (1, "timers"),
    (1, "run_slots"),
    (1, "nodes"),
    (1, "cas_blobs"),
    (1, "tags"),
    (1, "run_snapshots"),
    (1, "run_steps"),
    (1, "run_state_transitions"),
    (2, "revisions"),
    (2, "step_logs"),
    (2, "forgotten_runs"),
    (4, "secrets"),
    (4, "secret_versions"),
    (4, "run_blobs"),
    (5, "outbox"),
    (5, "dead_letters"),
];

/// The schema that this release works with.
#[must_use]
pub fn latest() -> u32 {
    migrations::latest(POSTGRES)
}

/// What a look at the schema found.
enum Found {
    Empty,
    Version(i32),
}

pub(super) async fn migrate(client: &Client) -> Result<()> {
    client.batch_execute("BEGIN; SET LOCAL lock_timeout = 0").await?;
    let migrated = apply(client).await;
    client.batch_execute(if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    migrated
}

async fn apply(client: &Client) -> Result<()> {
    // Nodes that start together take turns; the second finds nothing left to do.
    let schema = current_schema(client).await?;
    client
        .execute("SELECT pg_advisory_xact_lock(hashtextextended('milepost schema of ' || $1::text, 0))", &[&schema])
        .await?;
    let version = match look(client, &schema).await? {
        Found::Empty => {
            client
                .batch_execute(
                    "CREATE TABLE schema_migrations (
                         version    integer PRIMARY KEY,
                         name       text NOT NULL,
                         applied_at bigint NOT NULL
                     )",
                )
                .await?;
            0
        }
        Found::Version(version) => version,
    };
    refuse_newer(version, &schema)?;
    for migration in POSTGRES.iter().filter(|migration| migration.version > version.cast_unsigned()) {
        step(client, migration).await?;
    }
    ensure_partitions(client, now()).await?;
    Ok(())
}

async fn step(client: &Client, migration: &Migration) -> Result<()> {
    let Migration { version, name, sql } = *migration;
    client.batch_execute(sql).await?;
    let sql = "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)";
    client.execute(sql, &[&version.cast_signed(), &name, &now().0]).await?;
    tracing::info!(version, name, "migrated the Postgres schema");
    Ok(())
}

/// Refuses a schema that this release cannot work with, and changes nothing.
pub(super) async fn check(client: &Client) -> Result<()> {
    let schema = current_schema(client).await?;
    let version = match look(client, &schema).await? {
        Found::Empty => 0,
        Found::Version(version) => version,
    };
    refuse_newer(version, &schema)?;
    if version.cast_unsigned() < latest() {
        return Err(StoreError::Unusable(format!(
            "the schema `{schema}` is at version {version}, this Milepost needs {}; run `milepost migrate`",
            latest()
        )));
    }
    Ok(())
}

pub(super) async fn version(client: &Client) -> Result<u32> {
    let schema = current_schema(client).await?;
    Ok(match look(client, &schema).await? {
        Found::Empty => 0,
        Found::Version(version) => version.cast_unsigned(),
    })
}

/// Makes what is missing of this month's partitions and the next ones'. Answers how many it made.
pub(super) async fn ensure_partitions(client: &Client, now: Timestamp) -> Result<u32> {
    let row = client.query_one("SELECT ensure_run_partitions($1, $2)", &[&now.0, &MONTHS_AHEAD]).await?;
    Ok(row.try_get::<_, i32>(0)?.cast_unsigned())
}

async fn current_schema(client: &Client) -> Result<String> {
    let row = client.query_one("SELECT current_schema()::text, current_setting('search_path')", &[]).await?;
    row.try_get::<_, Option<String>>(0)?.ok_or_else(|| {
        let path: String = row.try_get(1).unwrap_or_default();
        StoreError::Unusable(format!(
            "none of the schemas in this connection's search_path ({path}) exists; make one: CREATE SCHEMA …"
        ))
    })
}

async fn look(client: &Client, schema: &str) -> Result<Found> {
    let names: Vec<&str> = TABLES.iter().map(|(_, name)| *name).chain(["schema_migrations"]).collect();
    let rows = client
        .query(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND c.relname = ANY ($2::text[]) ORDER BY 1",
            &[&schema, &names],
        )
        .await?;
    let found: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let foreign = |what: &str| {
        StoreError::Unusable(format!(
            "the schema `{schema}` has a table `{what}` that is not Milepost's; give Milepost a database of its own \
             (createdb milepost) or a schema of its own (…?options=-c%20search_path%3Dmilepost)"
        ))
    };
    if !found.iter().any(|name| name == "schema_migrations") {
        return match found.first() {
            None => Ok(Found::Empty),
            Some(name) => Err(foreign(name)),
        };
    }
    // Other programs keep a table of this name as well, with other columns.
    let columns = client
        .query_one(
            "SELECT count(*) FROM information_schema.columns
             WHERE table_schema = $1 AND table_name = 'schema_migrations'
               AND (column_name, data_type) IN (('version', 'integer'), ('name', 'text'), ('applied_at', 'bigint'))",
            &[&schema],
        )
        .await?;
    if columns.try_get::<_, i64>(0)? != 3 {
        return Err(foreign("schema_migrations"));
    }
    let row = client.query_one("SELECT coalesce(max(version), 0) FROM schema_migrations", &[]).await?;
    let version: i32 = row.try_get(0)?;
    let is_missing = |(made, name): &&(i32, &str)| *made <= version && !found.iter().any(|have| have == name);
    match TABLES.iter().find(is_missing) {
        Some((_, missing)) => Err(StoreError::Unusable(format!(
            "the schema `{schema}` was made by Milepost, but its table `{missing}` is gone; restore a backup or start \
             with an empty schema"
        ))),
        None => Ok(Found::Version(version)),
    }
}

fn refuse_newer(version: i32, schema: &str) -> Result<()> {
    if version.cast_unsigned() > latest() {
        return Err(StoreError::Unusable(format!(
            "the schema `{schema}` is at version {version}, made by a newer Milepost; this one knows versions up to {}: \
             upgrade milepost",
            latest()
        )));
    }
    Ok(())
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
