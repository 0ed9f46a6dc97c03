use std::sync::Arc;

use milepost_store::sqlite::SqliteStore;
use milepost_store_tests::conformance;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conformance(Arc::new(SqliteStore::open(&folder.path().join("runs.db")).unwrap())).await;
}
