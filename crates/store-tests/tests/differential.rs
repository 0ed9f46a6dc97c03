mod common;

use std::sync::Arc;

use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use milepost_store::sqlite::SqliteStore;
use milepost_store_tests::differential;

#[tokio::test]
async fn memory_and_sqlite_keep_the_same() {
    for seed in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&folder.path().join("runs.db")).unwrap();
        let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(sqlite)];
        differential(&stores, seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_sqlite_and_postgres_keep_the_same() {
    for seed in 100..104 {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&folder.path().join("runs.db")).unwrap();
        let postgres = common::postgres().await;
        let stores: [Arc<dyn Store>; 3] = [Arc::new(MemoryStore::new()), Arc::new(sqlite), Arc::new(postgres)];
        differential(&stores, seed, 200).await;
    }
}
