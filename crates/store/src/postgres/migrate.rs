//! Brings the schema of the connection's current namespace up to date, whoever else is doing the same right now.

use std::time::{SystemTime, UNIX_EPOCH};

use milepost_core::time::Timestamp;
use tokio_postgres::Client;

use crate::{Result, StoreError};

/// Numbered like SQLite's. Never changed once released: a correction is another step.
const MIGRATIONS: &[(i32, &str, &str)] = &[(1, "init", include_str!("../migrations/postgres/0001_init.sql"))];

/// Partitions are made this many months ahead.
const MONTHS_AHEAD: i32 = 2;

const TABLES: &[&str] = &[
    "orgs",
    "runs",
    "run_requests",
    "run_events",
    "run_checkpoints",
    "timers",
    "run_slots",
    "nodes",
    "cas_blobs",
    "tags",
    "run_snapshots",
    "run_steps",
    "run_state_transitions",
];

/// The schema that this release works with.
#[must_use]
pub fn latest() -> u32 {
    MIGRATIONS.last().map_or(0, |(version, _, _)| version.cast_unsigned())
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
    for (number, name, sql) in MIGRATIONS.iter().filter(|(number, _, _)| *number > version) {
        client.batch_execute(sql).await?;
        client
            .execute(
                "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)",
                &[number, name, &now().0],
            )
            .await?;
        tracing::info!(version = number, name, "migrated the Postgres schema");
    }
    ensure_partitions(client, now()).await?;
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
    let names: Vec<&str> = TABLES.iter().copied().chain(["schema_migrations"]).collect();
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
    match (row.try_get(0)?, TABLES.iter().find(|name| !found.iter().any(|have| have == *name))) {
        (1.., Some(missing)) => Err(StoreError::Unusable(format!(
            "the schema `{schema}` was made by Milepost, but its table `{missing}` is gone; restore a backup or start \
             with an empty schema"
        ))),
        (version, _) => Ok(Found::Version(version)),
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

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
