//! Runs that may bring a process down.

use std::sync::Arc;

use milepost_core::event::StepRef;
use milepost_core::id::{NodeId, RunId};
use milepost_core::status::RunStatus;
use milepost_store::Store;
use milepost_store::rows::{
    CacheWrite, FlightWrite, HeadWrite, Led, NewHead, Note, ResultKey, RunFilter, RunWrite, SlotWrite, SnapshotRow,
    StatusWrite, SuspectRow, SuspectState, WriteResult,
};

use super::{new_key, no_change, written};
use crate::rows::{ORG, advance, at, new_head, new_node, new_run, project, snapshot, start_with, unique};

pub(super) async fn check(store: &Arc<dyn Store>) {
    what_a_node_was_about_to_decide_is_held_against_it(&**store).await;
    of_several_none_is_charged(&**store).await;
    who_leaves_is_charged_with_nothing(&**store).await;
    a_parked_run_is_read_by_its_head_alone(&**store).await;
    a_parked_run_is_in_nobodys_way(&**store).await;
    a_parked_run_is_released_or_closed(&**store).await;
    parked_runs_are_listed(&**store).await;
    a_parked_run_that_is_forgotten_leaves_nothing(&**store).await;
}

/// A moment long after all leases of these checks.
const LATE: i64 = 3_600_000_000;

const DAY: i64 = 24 * 3600 * 1_000_000;

fn note(run: RunId, deed: &str) -> Note {
    Note { org: ORG, run, deed: deed.to_owned() }
}

async fn node(store: &dyn Store) -> NodeId {
    let node = new_node();
    store.heartbeat(node, at(0), 1).await.unwrap();
    node
}

async fn owned(store: &dyn Store) -> (RunId, NodeId) {
    let (run, owner) = (new_run(), new_node());
    written(store, start_with(run, 2, NewHead { owner: Some(owner), ..new_head() })).await;
    (run, owner)
}

async fn dies_deciding(store: &dyn Store, notes: &[Note]) -> Vec<SuspectRow> {
    let node = node(store).await;
    store.suspects().note(node, notes).await.unwrap();
    let charged = store.suspects().charge(node, at(LATE)).await.unwrap();
    store.leave(node).await.unwrap();
    charged
}

async fn parked(store: &dyn Store) -> (RunId, NodeId) {
    let (run, owner) = owned(store).await;
    for _ in 0..2 {
        dies_deciding(store, &[note(run, "adopt")]).await;
    }
    (run, owner)
}

async fn row(store: &dyn Store, run: RunId) -> Option<SuspectRow> {
    store.suspects().suspects().await.unwrap().into_iter().find(|row| (row.org, row.run) == (ORG, run))
}

async fn what_a_node_was_about_to_decide_is_held_against_it(store: &dyn Store) {
    let (run, owner) = owned(store).await;
    let suspects = store.suspects();
    let node = node(store).await;
    suspects.note(node, &[note(new_run(), "replaced")]).await.unwrap();
    suspects.note(node, &[note(run, "end step #3")]).await.unwrap();
    let charged = suspects.charge(node, at(LATE)).await.unwrap();
    let expected = SuspectRow {
        org: ORG,
        run,
        state: SuspectState::Suspected,
        crashes: 1,
        deed: "end step #3".to_owned(),
        changed_at: at(LATE),
        owner: None,
    };
    assert_eq!(charged, std::slice::from_ref(&expected));
    assert_eq!(suspects.charge(node, at(LATE)).await.unwrap(), [], "once");
    store.leave(node).await.unwrap();
    assert_eq!(row(store, run).await, Some(expected.clone()));
    assert_eq!(store.head(ORG, run).await.unwrap().unwrap().stuck, None);

    let again = dies_deciding(store, &[note(run, "adopt")]).await;
    let (state, deed) = (SuspectState::Stuck, "adopt".to_owned());
    let stuck = SuspectRow { state, crashes: 2, deed, owner: Some(owner), ..expected };
    assert_eq!(again, std::slice::from_ref(&stuck));
    let head = store.head(ORG, run).await.unwrap().unwrap();
    assert_eq!((head.stuck, head.owner), (stuck.stuck(), None), "nobody adopts it");
    assert!(!store.dead_nodes(at(LATE)).await.unwrap().contains(&owner));
}

async fn of_several_none_is_charged(store: &dyn Store) {
    let ((one, _), (other, _)) = (owned(store).await, owned(store).await);
    let charged = dies_deciding(store, &[note(one, "adopt"), note(other, "adopt")]).await;
    assert_eq!(charged.iter().map(|row| (row.run, row.crashes)).collect::<Vec<_>>(), [(one, 0), (other, 0)]);
    store.suspects().acquit(&[(ORG, one)]).await.unwrap();
    assert_eq!(row(store, one).await, None);
    assert_eq!(row(store, other).await.map(|row| row.state), Some(SuspectState::Suspected));
    assert_eq!(dies_deciding(store, &[note(other, "adopt")]).await[0].crashes, 1);
}

async fn who_leaves_is_charged_with_nothing(store: &dyn Store) {
    let (run, _) = owned(store).await;
    let node = node(store).await;
    store.suspects().note(node, &[note(run, "adopt")]).await.unwrap();
    store.leave(node).await.unwrap();
    assert_eq!(store.suspects().charge(node, at(LATE)).await.unwrap(), []);
    let nobody = new_node();
    store.suspects().note(nobody, &[note(run, "adopt")]).await.unwrap();
    assert_eq!(store.suspects().charge(nobody, at(LATE)).await.unwrap(), [], "a node that was never heard of");
    assert_eq!(dies_deciding(store, &[]).await, [], "one that was deciding nothing");
}

async fn a_parked_run_is_read_by_its_head_alone(store: &dyn Store) {
    let (run, _) = parked(store).await;
    let loaded = store.load_runs(&[(ORG, run)]).await.unwrap();
    let [loaded] = &loaded[..] else { panic!("{loaded:?}") };
    assert!(loaded.tail.is_empty() && loaded.checkpoint.is_none() && loaded.head.stuck.is_some());
    let open = store.open_runs(None, 1_000_000).await.unwrap();
    assert!(open.iter().any(|head| head.run == run && head.stuck.is_some()));
    store.suspects().acquit(&[(ORG, run)]).await.unwrap();
    assert!(row(store, run).await.is_some(), "one that is parked stays so");
}

async fn a_parked_run_is_in_nobodys_way(store: &dyn Store) {
    let (key, result) = (unique("key"), ResultKey { key: new_key(), run: None });
    let (first, second) = (new_run(), new_run());
    for run in [first, second] {
        let wait = SlotWrite::Wait { key: key.clone(), limit: 1, priority: 0 };
        written(store, RunWrite { slot: Some(wait), ..start_with(run, 1, new_head()) }).await;
    }
    let led = Led { key: result, step: StepRef { step: 1, item: None }, anyway: false };
    let flights = FlightWrite { led: vec![led], ..FlightWrite::default() };
    let cache = Some(Box::new(CacheWrite { flights, ..no_change(at(1)) }));
    written(store, RunWrite { cache, ..advance(first, 1, 1) }).await;
    for _ in 0..2 {
        dies_deciding(store, &[note(first, "adopt")]).await;
    }
    let woken = store.slots_to_wake_of(ORG, &key, 10).await.unwrap();
    assert_eq!(woken.iter().map(|slot| slot.run).collect::<Vec<_>>(), [second]);
    assert_eq!(store.flights().under_way(&[(ORG, result)]).await.unwrap(), [None]);
}

async fn a_parked_run_is_released_or_closed(store: &dyn Store) {
    let (run, owner) = parked(store).await;
    let suspects = store.suspects();
    assert!(suspects.release(ORG, run).await.unwrap());
    assert!(!suspects.release(ORG, run).await.unwrap() && !suspects.close(ORG, run).await.unwrap());
    let head = store.head(ORG, run).await.unwrap().unwrap();
    assert_eq!((head.stuck, head.owner), (None, Some(owner)), "whoever finds that node dead adopts it");
    let now = row(store, run).await.unwrap();
    assert_eq!((now.state, now.crashes), (SuspectState::Suspected, 0));
    // One that nobody had when it was parked is adopted, too.
    let asleep = new_run();
    written(store, start_with(asleep, 1, new_head())).await;
    for _ in 0..2 {
        dies_deciding(store, &[note(asleep, "fire timer 1")]).await;
    }
    assert!(suspects.release(ORG, asleep).await.unwrap());
    assert_eq!(store.head(ORG, asleep).await.unwrap().unwrap().owner, Some(NodeId(0)));
    let claim = HeadWrite::Update { status: None, owner: Some(owner) };
    written(store, RunWrite { head: claim, ..advance(asleep, 1, 0) }).await;

    let (ended, _) = parked(store).await;
    assert!(suspects.close(ORG, ended).await.unwrap() && !suspects.close(ORG, ended).await.unwrap());
    assert!(!suspects.release(ORG, ended).await.unwrap());
    assert!(store.head(ORG, ended).await.unwrap().unwrap().stuck.is_some(), "it is never loaded again");
}

async fn parked_runs_are_listed(store: &dyn Store) {
    let ((run, _), (free, _)) = (parked(store).await, owned(store).await);
    for run in [run, free] {
        assert_eq!(store.project(vec![project(0, snapshot(run, 2))]).await.unwrap(), [WriteResult::Written]);
    }
    let filter = RunFilter { stuck: true, limit: 100_000, ..RunFilter::default() };
    let status = snapshot(run, 2).status;
    for (filter, found) in [
        (filter.clone(), vec![run]),
        (RunFilter { statuses: vec![status], ..filter.clone() }, vec![run]),
        (RunFilter { statuses: vec![RunStatus::Cancelled], ..filter.clone() }, vec![]),
        (RunFilter { before: Some(run), ..filter.clone() }, vec![]),
        (RunFilter { request_id: Some("none".to_owned()), ..filter.clone() }, vec![]),
    ] {
        let rows = store.list_runs(ORG, &filter).await.unwrap();
        let ours: Vec<RunId> = rows.iter().map(|row| row.run).filter(|one| [run, free].contains(one)).collect();
        assert_eq!(ours, found, "{filter:?}");
    }
    assert!(store.count_matching(ORG, &filter, 1_000_000).await.unwrap() >= 1);
}

async fn a_parked_run_that_is_forgotten_leaves_nothing(store: &dyn Store) {
    let (run, _) = parked(store).await;
    let long_ago = at(-40 * DAY);
    let over = StatusWrite { status: RunStatus::Terminated, started_at: None, completed_at: Some(long_ago) };
    let head = HeadWrite::Update { status: Some(over), owner: None };
    written(store, RunWrite { head, ..advance(run, 2, 1) }).await;
    let (status, completed_at) = (RunStatus::Terminated, Some(long_ago));
    let row_of = SnapshotRow { status, completed_at, ..snapshot(run, 3) };
    store.project(vec![project(0, row_of)]).await.unwrap();
    while store.forget_runs(at(-39 * DAY), 1000).await.unwrap().more {}
    assert_eq!(store.head(ORG, run).await.unwrap(), None);
    assert_eq!(row(store, run).await, None);
}
