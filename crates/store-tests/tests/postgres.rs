//! The suite against a real server: `scripts/with-postgres cargo test -p milepost-store-tests`.

mod common;

use std::sync::Arc;

use milepost_store_tests::{conformance, leases_run_out};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    conformance(Arc::new(common::postgres().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ran_out_makes_a_node_dead() {
    leases_run_out(Arc::new(common::postgres().await)).await;
}
