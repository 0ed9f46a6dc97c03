//! What only SQLite does: files, versions, full disks, lock files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use milepost_core::id::{NodeId, RunId};
use milepost_core::json::Json;
use milepost_store::migrations::{SQLITE, latest};
use milepost_store::rows::{Forgotten, HeadWrite, NewHead, Question, Recorded, RunFilter, RunWrite, WriteResult};
use milepost_store::sqlite::{self, Options, SqliteStore};
use milepost_store::{Store, StoreError};
use milepost_store_tests::conformance;
use milepost_store_tests::rows::{
    ORG, advance, at, batch, new_head, new_node, new_run, project, snapshot, start, start_with,
};
use tempfile::TempDir;

const READ_ONLY: Options = Options { migrate: false, read_only: true };
const NO_MIGRATION: Options = Options { migrate: false, read_only: false };

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn open(folder: &TempDir) -> SqliteStore {
    SqliteStore::open(&folder.path().join("runs.db")).expect("a database of ours")
}

/// Asserts that opening fails and that its text has these words.
#[track_caller]
fn unusable(path: &Path, options: Options, words: &[&str]) {
    match SqliteStore::open_with(path, options) {
        Err(StoreError::Unusable(text)) => {
            for word in words {
                assert!(text.contains(word), "`{word}` is not in: {text}");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    conformance(Arc::new(open(&folder()))).await;
}

#[tokio::test]
async fn what_was_committed_is_there_after_reopening() {
    let folder = folder();
    let run = new_run();
    let store = open(&folder);
    assert_eq!(store.schema_version().await.unwrap(), latest(SQLITE));
    store.commit(batch([start(run, 3)]).into()).await.unwrap();
    drop(store);
    assert!(!folder.path().join("runs.db-wal").exists(), "closed in good order, the file stands alone");
    assert_eq!(open(&folder).events(ORG, run, 0, 10).await.unwrap().len(), 3);
}

#[test]
fn missing_folders_are_made() {
    let folder = folder();
    SqliteStore::open(&folder.path().join("a/b/runs.db")).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = folder();
    fs::write(folder.path().join("file"), "").unwrap();
    unusable(&folder.path().join("file/runs.db"), Options::default(), &["file", "cannot be made", "another path"]);
    unusable(folder.path(), Options::default(), &["cannot be opened"]);
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let text = "not a database, but long enough to look like one at first sight ".repeat(20);
    fs::write(&path, &text).unwrap();
    for options in [Options::default(), NO_MIGRATION, READ_ONLY] {
        unusable(&path, options, &["notes.txt", "not an SQLite database", "another path"]);
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn another_programs_database_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("photos.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE photos (id INTEGER)").unwrap();
    let before = fs::read(&path).unwrap();
    for options in [Options::default(), NO_MIGRATION, READ_ONLY] {
        unusable(&path, options, &["photos.db", "another program", "another path"]);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_database_asks_for_an_upgrade() {
    let folder = folder();
    drop(open(&folder));
    let path = folder.path().join("runs.db");
    let later = "INSERT INTO schema_migrations (version, name, applied_at) VALUES (99, 'later', 0)";
    rusqlite::Connection::open(&path).unwrap().execute_batch(later).unwrap();
    for options in [Options::default(), NO_MIGRATION, READ_ONLY] {
        unusable(&path, options, &["newer", "schema 99", "upgrade milepost"]);
    }
}

#[tokio::test]
async fn an_older_database_is_brought_up_to_date_with_what_it_holds() {
    let folder = folder();
    let path = folder.path().join("runs.db");
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(SQLITE[0].sql).unwrap();
    old.execute_batch(
        "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT;
         INSERT INTO schema_migrations VALUES (1, 'init', 0);
         PRAGMA application_id = 0x4D696C65;
         INSERT INTO run_snapshots (org_id, run_id, last_event_seq, status, workflow, workflow_version, priority,
             steps_total, steps_done, steps_failed, created_at)
         VALUES (1, x'000102030405060708090a0b0c0d0e0f', 1, 'running', 'w', '1', 0, 1, 0, 0, 5);",
    )
    .unwrap();
    drop(old);
    unusable(&path, NO_MIGRATION, &["schema 1", "milepost migrate"]);
    let store = open(&folder);
    assert_eq!(store.schema_version().await.unwrap(), latest(SQLITE));
    let of_workflow = RunFilter { workflow: Some("w".to_owned()), limit: 5, ..RunFilter::default() };
    assert_eq!(store.list_runs(ORG, &of_workflow).await.unwrap().len(), 1);
}

#[test]
fn without_migration_nothing_is_made() {
    let folder = folder();
    let path = folder.path().join("runs.db");
    for options in [NO_MIGRATION, READ_ONLY] {
        unusable(&path, options, &["no database at", "milepost migrate"]);
        assert!(!path.exists());
    }
    fs::write(&path, "").unwrap();
    unusable(&path, NO_MIGRATION, &["schema 0", "milepost migrate"]);
}

#[test]
fn many_may_make_the_same_database_at_the_same_time() {
    let folder = folder();
    let path = folder.path().join("runs.db");
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..6).map(|_| scope.spawn(|| SqliteStore::open(&path))).collect();
        for store in opened {
            store.join().unwrap().unwrap();
        }
    });
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_each_commit_and_cannot_write() {
    let folder = folder();
    let store = open(&folder);
    let reader = SqliteStore::open_with(&folder.path().join("runs.db"), READ_ONLY).unwrap();
    let run = new_run();
    store.commit(batch([start(run, 1)]).into()).await.unwrap();
    for seq in 1..5 {
        store.commit(batch([advance(run, seq, 1)]).into()).await.unwrap();
        store.project(vec![project(seq - 1, snapshot(run, seq))]).await.unwrap();
        assert_eq!(reader.head(ORG, run).await.unwrap().unwrap().last_seq, seq + 1);
        let listed = reader.list_runs(ORG, &RunFilter { limit: 5, ..RunFilter::default() }).await.unwrap();
        assert_eq!(listed[0].last_event_seq, seq);
    }
    // Not even while a transaction is open does reading wait.
    let (transaction, _) = store.ask(Vec::new()).await.unwrap();
    assert_eq!(reader.head(ORG, run).await.unwrap().unwrap().last_seq, 5);
    drop(transaction);
    let refused = reader.commit(batch([advance(run, 5, 1)]).into()).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert!(matches!(reader.heartbeat(new_node(), at(0), 1).await, Err(StoreError::Refused(_))));
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_stops_nothing() {
    let folder = folder();
    let store = open(&folder);
    let (run, other) = (new_run(), new_run());
    store.commit(batch([start(run, 1)]).into()).await.unwrap();
    store.limit_pages(Some(2)).await.unwrap();
    let mut large = advance(run, 1, 1);
    large.events[0].data = Json::trusted(format!("\"{}\"", "x".repeat(100_000)));
    let full = store.commit(batch([start(other, 1), large.clone()]).into()).await;
    assert!(matches!(full, Err(StoreError::DiskFull(_))), "{full:?}");
    let (transaction, _) = store.ask(vec![Question::Event { org: ORG, run, seq: 1 }]).await.unwrap();
    let full = transaction.commit(batch([large.clone()]).into()).await;
    assert!(matches!(full, Err(StoreError::DiskFull(_))), "{full:?}");
    assert_eq!(store.head(ORG, run).await.unwrap().unwrap().last_seq, 1);
    assert_eq!(store.head(ORG, other).await.unwrap(), None);
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 1);
    store.limit_pages(None).await.unwrap();
    assert_eq!(store.commit(batch([large]).into()).await.unwrap(), [WriteResult::Written]);
}

/// A tag of before has the document it had, and a history that begins there; what runs ran has a snapshot.
#[tokio::test]
async fn tags_of_an_older_database_go_on_with_a_history() {
    let folder = folder();
    let old = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    old.execute_batch(
        "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)
             STRICT;
         PRAGMA application_id = 0x4D696C65;",
    )
    .unwrap();
    for step in SQLITE.iter().filter(|step| step.version < 6) {
        old.execute_batch(step.sql).unwrap();
        old.execute("INSERT INTO schema_migrations VALUES (?, ?, 0)", (step.version, step.name)).unwrap();
    }
    let hash = milepost_core::hash::Digest::of(b"{}");
    let blob = "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content) VALUES (1, ?, 'x', 1, 2, ?)";
    old.execute(blob, (hash.0, b"{}")).unwrap();
    old.execute("INSERT INTO tags VALUES (1, 't', ?, 3, 9)", [hash.0]).unwrap();
    let run = "INSERT INTO runs (org_id, run_id, last_seq, status, priority, created_at, workflow, workflow_version,
                                 plan_hash) VALUES (1, ?, 1, 'completed', 0, 1, 'w', '1', ?)";
    old.execute(run, (new_run().0.as_bytes(), hash.0)).unwrap();
    drop(old);
    let store = open(&folder);
    let definitions = store.definitions();
    let tag = definitions.tag(ORG, "t").await.unwrap().unwrap();
    assert_eq!((tag.version, tag.at_move, tag.version_hash), (3, 3, hash));
    assert_eq!(definitions.chain(ORG, tag.revision_id).await.unwrap()[0].content.content, b"{}");
    assert_eq!(definitions.moves(ORG, "t", None, 10).await.unwrap()[0].to_revision_id, tag.revision_id);
    assert!(definitions.use_plan(ORG, hash, at(1)).await.unwrap());
}

#[tokio::test]
async fn history_is_only_added_to() {
    let folder = folder();
    let store = open(&folder);
    let run = new_run();
    store.commit(Arc::new(batch([start(run, 3)]))).await.unwrap();
    let database = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    database
        .execute_batch(
            "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content) VALUES (1, x'00', 'x', 1, 0, x'');
             INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
                 VALUES (1, x'00000000000000000000000000000001', 'dag_version', x'00', x'00', 0, 0);
             INSERT INTO patch_chain_members (org_id, head_id, seq, member_id)
                 VALUES (1, x'00000000000000000000000000000001', 1, x'00000000000000000000000000000001');
             INSERT INTO tag_moves (org_id, tag, move_id, kind, to_kind, to_revision_id, to_version_hash, moved_at)
                 VALUES (1, 't', 1, 'move', 'dag_version', x'00000000000000000000000000000001', x'00', 0)",
        )
        .unwrap();
    for (sql, why) in [
        ("UPDATE run_events SET data = '{}'", "an event never changes"),
        ("DELETE FROM run_events WHERE run_seq = 3", "an event is kept as long as its run"),
        ("UPDATE tag_moves SET moved_by = 'somebody else'", "a move never changes"),
        ("DELETE FROM tag_moves", "a move is kept for ever"),
        ("UPDATE revisions SET message = 'other'", "a revision never changes"),
        ("DELETE FROM revisions", "a revision is kept as long as"),
        ("UPDATE patch_chain_members SET seq = 2", "a chain of patches never changes"),
    ] {
        let error = database.execute(sql, []).expect_err(sql).to_string();
        assert!(error.contains(why), "{sql}: {error}");
    }
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 3);
    // With its head the run is gone, and its events may follow.
    database.execute("DELETE FROM runs", []).unwrap();
    assert_eq!(database.execute("DELETE FROM run_events", []).unwrap(), 3);
}

#[tokio::test]
async fn a_blob_cannot_be_changed() {
    let folder = folder();
    let store = open(&folder);
    let blob = milepost_store::rows::BlobRow {
        hash: milepost_core::hash::Digest::of(b"x"),
        media_type: "text/plain".to_owned(),
        size: 1,
        content: b"x".to_vec(),
        blob: None,
        created_at: milepost_core::time::Timestamp(0),
    };
    let write = milepost_store::rows::DefinitionWrite { blobs: vec![blob], ..Default::default() };
    assert!(store.definitions().write(ORG, &write).await.unwrap());
    let conn = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    let changed = conn.execute("UPDATE cas_blobs SET content = x'00'", []);
    assert!(changed.unwrap_err().to_string().contains("a blob never changes"));
}

#[tokio::test]
async fn a_transaction_may_outlive_its_store() {
    let folder = folder();
    let store = open(&folder);
    let run = new_run();
    let (transaction, _) = store.ask(Vec::new()).await.unwrap();
    drop(store);
    assert_eq!(transaction.commit(batch([start(run, 1)]).into()).await.unwrap(), [WriteResult::Written]);
    assert!(open(&folder).head(ORG, run).await.unwrap().is_some());
}

async fn owned_by(store: &SqliteStore, node: NodeId) -> RunId {
    let run = new_run();
    let head = NewHead { owner: Some(node), ..new_head() };
    store.commit(batch([start_with(run, 1, head)]).into()).await.expect("a valid batch");
    run
}

#[tokio::test]
async fn a_lock_tells_who_lives_whatever_the_lease_says() {
    let folder = folder();
    let (ours, theirs) = (open(&folder), open(&folder));
    let (mine, other) = (new_node(), new_node());
    ours.heartbeat(mine, at(0), 1).await.unwrap();
    theirs.heartbeat(other, at(0), 1).await.unwrap();
    owned_by(&ours, mine).await;
    let run = owned_by(&theirs, other).await;
    let long_after = at(3_600_000_000);
    assert_eq!(ours.dead_nodes(long_after).await.unwrap(), [], "slow or stopped is not dead");
    assert_eq!(theirs.dead_nodes(long_after).await.unwrap(), []);

    drop(theirs);
    assert_eq!(ours.dead_nodes(at(0)).await.unwrap(), [other], "known at once, long before the lease runs out");
    let reader = SqliteStore::open_with(&folder.path().join("runs.db"), READ_ONLY).unwrap();
    assert_eq!(reader.dead_nodes(at(0)).await.unwrap(), [other]);

    let lock = folder.path().join(format!("runs.db.nodes/{other}.lock"));
    assert!(lock.exists(), "it stays while runs are owned");
    let claim = RunWrite { head: HeadWrite::Update { status: None, owner: Some(mine) }, ..advance(run, 1, 0) };
    ours.commit(batch([claim]).into()).await.unwrap();
    assert_eq!(ours.dead_nodes(at(0)).await.unwrap(), []);
    assert!(lock.exists(), "that it died was noticed by nobody yet");
    assert_eq!(ours.suspects().watch(mine, at(0)).await.unwrap().died, [other]);
    ours.suspects().charge(other, at(0)).await.unwrap();
    assert_eq!(ours.suspects().watch(mine, at(0)).await.unwrap().last_crash, Some(at(0)));
    assert_eq!(ours.dead_nodes(at(0)).await.unwrap(), []);
    assert!(lock.exists(), "that it crashed is remembered for a while");
    assert_eq!(ours.dead_nodes(long_after).await.unwrap(), []);
    assert!(!lock.exists());
    assert!(folder.path().join(format!("runs.db.nodes/{mine}.lock")).exists());
    let conn = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    let nodes: i64 = conn.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0)).unwrap();
    assert_eq!(nodes, 1);
}

#[tokio::test]
async fn without_a_lock_file_the_lease_decides() {
    let folder = folder();
    let (ours, theirs) = (open(&folder), open(&folder));
    let node = new_node();
    theirs.heartbeat(node, at(0), 1000).await.unwrap();
    owned_by(&theirs, node).await;
    fs::remove_file(folder.path().join(format!("runs.db.nodes/{node}.lock"))).unwrap();
    assert_eq!(ours.dead_nodes(at(999_999)).await.unwrap(), []);
    assert_eq!(ours.dead_nodes(at(1_000_001)).await.unwrap(), [node]);
    assert_eq!(theirs.dead_nodes(at(1_000_001)).await.unwrap(), [], "nobody declares itself dead");
}

#[tokio::test]
async fn who_leaves_takes_its_lock_file_along() {
    let folder = folder();
    let store = open(&folder);
    let node = new_node();
    store.heartbeat(node, at(0), 1000).await.unwrap();
    owned_by(&store, node).await;
    store.leave(node).await.unwrap();
    assert_eq!(fs::read_dir(folder.path().join("runs.db.nodes")).unwrap().count(), 0);
    assert_eq!(store.dead_nodes(at(0)).await.unwrap(), [node]);
}

#[tokio::test]
async fn what_a_process_left_that_died_while_forgetting_goes_the_next_time() {
    let folder = folder();
    let store = open(&folder);
    let (run, other) = (new_run(), new_run());
    for run in [run, other] {
        store.commit(batch([start(run, 2500)]).into()).await.unwrap();
    }
    // As it is after the first of several transactions.
    let conn = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    conn.execute("DELETE FROM runs WHERE run_id = ?", [run.0.as_bytes()]).unwrap();
    conn.execute("INSERT INTO forgotten_runs (org_id, run_id) VALUES (1, ?)", [run.0.as_bytes()]).unwrap();
    assert_eq!(store.log_gaps(10).await.unwrap(), []);
    assert_eq!(store.forget_runs(at(0), 10).await.unwrap(), Forgotten::default());
    let count = |table: &str| conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0));
    assert_eq!((count("run_events").unwrap(), count("forgotten_runs").unwrap()), (2500, 0));
    assert_eq!(store.events(ORG, other, 0, 10_000).await.unwrap().len(), 2500);
}

#[tokio::test]
async fn a_replay_writes_the_same_rows() {
    let folder = folder();
    let run = new_run();
    let path = folder.path().join("replay.db");
    let recorded = [
        Recorded::Commit(batch([start(run, 2)]).into()),
        Recorded::Commit(batch([advance(run, 2, 2)]).into()),
        Recorded::Project(vec![project(0, snapshot(run, 4))]),
    ];
    sqlite::replay(&path, &recorded).unwrap();
    assert!(matches!(sqlite::replay(&path, &recorded), Err(StoreError::Unusable(_))));
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 4);
    assert_eq!(store.snapshot(ORG, run).await.unwrap().unwrap().last_event_seq, 4);
}
