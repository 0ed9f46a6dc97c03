use std::sync::Arc;

use milepost_store::memory::MemoryStore;
use milepost_store_tests::{conformance, leases_run_out};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_conforms() {
    conformance(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn a_lease_that_ran_out_makes_a_node_dead() {
    leases_run_out(Arc::new(MemoryStore::new())).await;
}
