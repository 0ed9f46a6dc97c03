//! A database that an older release wrote: it is opened, shown, and its runs go on.

use std::fmt::Write as _;

use milepost_core::document;
use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::limits::Limits;
use milepost_core::status::RunStatus;
use milepost_engine::NewRun;
use milepost_store::migrations::{Migration, POSTGRES, SQLITE};
use milepost_store::rows::RunFilter;
use serde_json::json;

use crate::support::{Home, ORG, config, ended, output, payload, sound, within};

/// The last schema of the release that wrote it.
const SCHEMA: u32 = 8;
const DOCUMENT: &str = "{name: old, version: 1.0.0, steps: {a: {skill: echo, input: '${{ payload }}'}}}";

/// How bytes and ids are written in a statement.
#[derive(Clone, Copy)]
enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    fn bytes(self, bytes: &[u8]) -> String {
        let mut hex = String::new();
        bytes.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
        match self {
            Dialect::Sqlite => format!("x'{hex}'"),
            Dialect::Postgres => format!("'\\x{hex}'::bytea"),
        }
    }

    fn id(self, id: uuid::Uuid) -> String {
        match self {
            Dialect::Sqlite => self.bytes(id.as_bytes()),
            Dialect::Postgres => format!("'{id}'::uuid"),
        }
    }

    fn yes(self) -> &'static str {
        match self {
            Dialect::Sqlite => "1",
            Dialect::Postgres => "true",
        }
    }
}

/// What was in the database.
struct Old {
    ended: RunId,
    open: RunId,
    plan: Digest,
}

impl Old {
    fn new() -> Old {
        let [ended, open] = [(); 2].map(|()| RunId(uuid::Uuid::now_v7()));
        Old { ended, open, plan: document::load(DOCUMENT, &Limits::default()).unwrap().hash }
    }

    /// A document with a tag that has moved, a run that ended and one whose node died in the middle.
    fn statements(&self, dialect: Dialect) -> String {
        let canonical = document::load(DOCUMENT, &Limits::default()).unwrap().canonical;
        let (hash, content) = (dialect.bytes(&self.plan.0), dialect.bytes(canonical.as_bytes()));
        let [version, snapshot] = [(); 2].map(|()| dialect.id(uuid::Uuid::now_v7()));
        let mut sql = format!(
            "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content)
                 VALUES (1, {hash}, 'application/vnd.milepost.workflow+json', 1, {}, {content});
             INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
                 VALUES (1, {version}, 'dag_version', {hash}, {hash}, 0, 1);
             INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, plan_hash, depth, created_at)
                 VALUES (1, {snapshot}, 'run_snapshot', {hash}, {hash}, {hash}, 0, 1);
             INSERT INTO tags (org_id, tag, target_kind, target_id, target_hash, version, at_move, moved_by, moved_at)
                 VALUES (1, 'old', 'dag_version', {version}, {hash}, 2, 2, 'ada', 2);
             INSERT INTO tag_moves (org_id, tag, move_id, kind, to_kind, to_revision_id, to_version_hash, moved_by, moved_at)
                 VALUES (1, 'old', 1, 'move', 'dag_version', {version}, {hash}, 'ada', 1);
             INSERT INTO tag_moves (org_id, tag, move_id, kind, from_revision_id, to_kind, to_revision_id, to_version_hash,
                                    before_move, moved_by, moved_at)
                 VALUES (1, 'old', 2, 'move', {version}, 'dag_version', {version}, {hash}, 1, 'ada', 2);
             INSERT INTO nodes VALUES (5, 0, {});",
            canonical.len(),
            dialect.yes(),
        );
        let heads =
            [(self.ended, "ended", 3, "completed", "NULL", "7"), (self.open, "open", 2, "running", "5", "NULL")];
        for (run, request, last, status, owner, completed) in heads {
            let id = dialect.id(run.0);
            write!(
                sql,
                "INSERT INTO runs (org_id, run_id, last_seq, status, owner, priority, created_at, started_at, completed_at,
                                   workflow, workflow_version, plan_hash, request_id)
                     VALUES (1, {id}, {last}, '{status}', {owner}, 0, 1, 2, {completed}, 'old', '1.0.0', {hash}, '{request}');"
            )
            .unwrap();
            if let Dialect::Postgres = dialect {
                write!(sql, "INSERT INTO run_requests VALUES (1, '{request}', {id});").unwrap();
            }
            let queued = json!({"org": 1, "plan_hash": self.plan, "status": "queued", "request_id": request, "payload": {"n": 1}});
            let events = [("RunQueued", queued), ("RunStarted", json!({})), ("RunCompleted", json!({}))];
            for (seq, (event_type, data)) in (1..=last).zip(events) {
                let key = dialect.bytes(&Digest::of(format!("{run}{seq}").as_bytes()).0);
                write!(
                    sql,
                    "INSERT INTO run_events (org_id, run_id, run_seq, format, event_type, idempotency_key, emitted_at,
                                             persisted_at, data)
                         VALUES (1, {id}, {seq}, 1, '{event_type}', {key}, {seq}, {seq}, '{data}');"
                )
                .unwrap();
            }
        }
        let id = dialect.id(self.ended.0);
        write!(
            sql,
            "INSERT INTO run_snapshots (org_id, run_id, last_event_seq, status, workflow, workflow_version, request_id, priority,
                                        steps_total, steps_done, steps_failed, created_at, started_at, completed_at)
                 VALUES (1, {id}, 3, 'completed', 'old', '1.0.0', 'ended', 0, 1, 1, 0, 1, 2, 7);"
        )
        .unwrap();
        sql
    }
}

fn before(migrations: &'static [Migration]) -> impl Iterator<Item = &'static Migration> {
    migrations.iter().filter(|step| step.version <= SCHEMA)
}

fn sqlite(old: &Old) -> Home {
    let folder = tempfile::tempdir().unwrap();
    let database = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)
                 STRICT;
             PRAGMA application_id = 0x4D696C65;",
        )
        .unwrap();
    for step in before(SQLITE) {
        database.execute_batch(step.sql).unwrap();
        database.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (step.version, step.name)).unwrap();
    }
    database.execute_batch(&old.statements(Dialect::Sqlite)).unwrap();
    Home::Sqlite(folder)
}

async fn postgres(old: &Old) -> Home {
    let home = Home::postgres().await;
    let Home::Postgres(url) = &home else { unreachable!() };
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let made =
        "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL)";
    client.batch_execute(made).await.unwrap();
    for step in before(POSTGRES) {
        client.batch_execute(step.sql).await.unwrap();
        let sql = "INSERT INTO schema_migrations VALUES ($1, $2, 0)";
        client.execute(sql, &[&step.version.cast_signed(), &step.name]).await.unwrap();
    }
    let now = i64::try_from(uuid::Timestamp::now(uuid::NoContext).to_unix().0).unwrap() * 1_000_000;
    client.execute("SELECT ensure_run_partitions($1, 2)", &[&now]).await.unwrap();
    client.batch_execute(&old.statements(Dialect::Postgres)).await.unwrap();
    home
}

async fn it_opens_and_goes_on(home: Home, old: &Old) {
    let engine = home.open(config()).await;
    assert_eq!(ended(&engine, old.open).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(old.open).await.unwrap(), "a"), json!({"n": 1}));
    sound(&engine, old.open).await;
    assert_eq!(engine.run(old.ended).await.unwrap().summary.status, RunStatus::Completed);
    // Request ids are those of before; what was asked for is not known, so it is not compared.
    for (request, run) in [("ended", old.ended), ("open", old.open)] {
        let new = NewRun { request_id: Some(request.to_owned()), ..payload(&json!({"n": 2})) };
        let again = within(engine.start("old", new)).await.unwrap();
        assert_eq!((again.run, again.existing), (run, true), "{request}");
        let filter = RunFilter { request_id: Some(request.to_owned()), limit: 5, ..RunFilter::default() };
        let found: Vec<RunId> = engine.list(&filter).await.unwrap().iter().map(|run| run.run_id).collect();
        assert_eq!(found, [run]);
    }
    let new = NewRun { request_id: Some("new".to_owned()), ..payload(&json!({"n": 1})) };
    assert!(!within(engine.start("old", new)).await.unwrap().existing);
    // Tags go on with the history that they have.
    engine.deploy(&DOCUMENT.replace("1.0.0", "2.0.0")).await.unwrap();
    let moves = engine.store().definitions().moves(ORG, "old", None, 10).await.unwrap();
    assert_eq!(moves.iter().map(|row| row.move_id).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(moves[2].moved_by.as_deref(), Some("ada"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_sqlite_database_opens_and_goes_on() {
    let old = Old::new();
    it_opens_and_goes_on(sqlite(&old), &old).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_postgres_schema_opens_and_goes_on() {
    let old = Old::new();
    it_opens_and_goes_on(postgres(&old).await, &old).await;
}
