//! Nodes, and the runs that they own.

use std::sync::Arc;

use milepost_core::id::{NodeId, RunId};
use milepost_store::Store;
use milepost_store::rows::{HeadWrite, NewHead, RunWrite};

use super::written;
use crate::rows::{ORG, advance, at, new_head, new_node, new_run, project, snapshot, start_with};

pub(super) async fn check(store: &dyn Store) {
    a_node_that_owns_runs_and_never_spoke_is_dead(store).await;
    a_node_that_left_is_dead_until_its_runs_are_taken(store).await;
    owned_runs_come_in_pages(store).await;
}

async fn owned_by(store: &dyn Store, node: NodeId) -> RunId {
    let run = new_run();
    written(store, start_with(run, 1, NewHead { owner: Some(node), ..new_head() })).await;
    run
}

async fn is_dead(store: &dyn Store, node: NodeId, now_us: i64) -> bool {
    store.dead_nodes(at(now_us)).await.unwrap().contains(&node)
}

/// Takes the run's owner away, so that no dead node stays in a database that others use.
async fn release(store: &dyn Store, run: RunId, seq: u64) {
    let write = milepost_store::rows::ProjectionWrite { release: true, ..project(0, snapshot(run, seq)) };
    store.project(vec![write]).await.unwrap();
    assert_eq!(store.head(ORG, run).await.unwrap().unwrap().owner, None);
}

async fn a_node_that_owns_runs_and_never_spoke_is_dead(store: &dyn Store) {
    let node = new_node();
    assert!(!is_dead(store, node, 0).await, "it owns nothing");
    let run = owned_by(store, node).await;
    assert!(is_dead(store, node, 0).await);
    release(store, run, 1).await;
    assert!(!is_dead(store, node, 0).await);
}

async fn a_node_that_left_is_dead_until_its_runs_are_taken(store: &dyn Store) {
    let (node, heir) = (new_node(), new_node());
    store.heartbeat(node, at(0), 1000).await.unwrap();
    store.heartbeat(heir, at(0), 1000).await.unwrap();
    let run = owned_by(store, node).await;
    assert!(!is_dead(store, node, 10).await);
    store.leave(node).await.unwrap();
    assert!(is_dead(store, node, 10).await);
    let claim = RunWrite { head: HeadWrite::Update { status: None, owner: Some(heir) }, ..advance(run, 1, 0) };
    written(store, claim).await;
    assert!(!is_dead(store, node, 10).await && !is_dead(store, heir, 10).await);
    assert_eq!(store.owned_runs(heir, None, 10).await.unwrap(), [(ORG, run)]);
    release(store, run, 1).await;
    store.leave(heir).await.unwrap();
}

async fn owned_runs_come_in_pages(store: &dyn Store) {
    let node = new_node();
    store.heartbeat(node, at(0), 1000).await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(owned_by(store, node).await);
    }
    let page = |range: std::ops::Range<usize>| runs[range].iter().map(|run| (ORG, *run)).collect::<Vec<_>>();
    assert_eq!(store.owned_runs(node, None, 2).await.unwrap(), page(0..2));
    assert_eq!(store.owned_runs(node, Some(runs[1]), 10).await.unwrap(), page(2..5));
    assert_eq!(store.owned_runs(new_node(), None, 10).await.unwrap(), []);
    for run in runs {
        release(store, run, 1).await;
    }
    store.leave(node).await.unwrap();
}

/// A lease that ran out makes a node dead, and a heartbeat brings it back. Not for SQLite, where a live process is seen to
/// live whatever its lease says.
pub async fn leases_run_out(store: Arc<dyn Store>) {
    let (store, node) = (&*store, new_node());
    store.heartbeat(node, at(0), 1000).await.unwrap();
    let run = owned_by(store, node).await;
    assert!(!is_dead(store, node, 999_999).await);
    assert!(is_dead(store, node, 1_000_001).await);
    store.heartbeat(node, at(1_000_001), 1000).await.unwrap();
    assert!(!is_dead(store, node, 1_000_002).await);
    release(store, run, 1).await;
    store.leave(node).await.unwrap();
}
