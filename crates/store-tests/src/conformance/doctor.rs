//! What `doctor` asks of the whole database.

use milepost_core::status::RunStatus;
use milepost_store::Store;
use milepost_store::rows::{HeadWrite, RunWrite, WriteResult};

use super::{commit, written};
use crate::rows::{ORG, advance, batch, event, just_before, new_run, project, snapshot, start, status};

/// More than there is in any database that tests use.
const ALL: u32 = 1_000_000;

pub(super) async fn check(store: &dyn Store) {
    open_runs_leave_out_those_that_ended(store).await;
    a_run_is_unprojected_while_its_projection_is_behind(store).await;
    a_gap_in_a_log_is_found(store).await;
    a_run_is_noted_to_be_stale(store).await;
    runs_are_counted(store).await;
}

async fn open_runs_leave_out_those_that_ended(store: &dyn Store) {
    let (open, ended, also_open) = (new_run(), new_run(), new_run());
    commit(store, batch([start(open, 1), start(ended, 1), start(also_open, 1)])).await;
    let end = HeadWrite::Update { status: Some(status(RunStatus::Completed)), owner: None };
    written(store, RunWrite { head: end, ..advance(ended, 1, 1) }).await;
    let from_here = store.open_runs(Some(just_before(open)), ALL).await.unwrap();
    let found: Vec<_> = from_here.iter().map(|head| head.run).collect();
    assert!(found.is_sorted());
    assert_eq!(found.first(), Some(&open));
    assert!(found.contains(&also_open) && !found.contains(&ended));
    assert_eq!(store.open_runs(Some(just_before(open)), 1).await.unwrap().len(), 1);
    assert!(!store.open_runs(Some(open), ALL).await.unwrap().iter().any(|head| head.run == open));
    assert_eq!(store.open_runs(None, 1).await.unwrap().len(), 1);
}

async fn a_run_is_unprojected_while_its_projection_is_behind(store: &dyn Store) {
    let run = new_run();
    let behind = async || {
        let rows = store.unprojected(ALL).await.unwrap();
        rows.into_iter().find(|row| row.1 == run).map(|row| row.2)
    };
    written(store, start(run, 5)).await;
    assert_eq!(behind().await, Some(5));
    store.project(vec![project(0, snapshot(run, 3))]).await.unwrap();
    assert_eq!(behind().await, Some(2));
    store.project(vec![project(3, snapshot(run, 5))]).await.unwrap();
    assert_eq!(behind().await, None);
}

async fn a_gap_in_a_log_is_found(store: &dyn Store) {
    let (whole, holey) = (new_run(), new_run());
    let third = event(holey, 3, "StepCompleted");
    let mut write = start(holey, 4);
    write.events.retain(|event| event.seq != 3);
    assert_eq!(commit(store, batch([start(whole, 4), write])).await, [WriteResult::Written; 2]);
    let gaps = async || store.log_gaps(ALL).await.unwrap();
    let found = gaps().await;
    assert!(found.iter().any(|gap| gap.org == ORG && gap.run == holey && !gap.message.is_empty()));
    assert!(!found.iter().any(|gap| gap.run == whole));
    let missing = async |run| store.first_missing(ORG, run).await.unwrap();
    assert_eq!((missing(whole).await, missing(holey).await, missing(new_run()).await), (5, 3, 1));
    let held = async |run| store.read_run(ORG, run).await.unwrap().unwrap().events;
    assert_eq!((held(whole).await, held(holey).await), (4, 3));
    // Closed again, for whoever else looks at this database.
    written(store, RunWrite { events: vec![third], ..advance(holey, 4, 0) }).await;
    assert!(!gaps().await.iter().any(|gap| gap.run == holey));
    assert_eq!(missing(holey).await, 5);
}

async fn a_run_is_noted_to_be_stale(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    commit(store, batch([start(run, 2), start(other, 2)])).await;
    let noted = async || store.stale_runs(ORG, &[run, other, new_run()]).await.unwrap();
    let shown = async || store.read_run(ORG, run).await.unwrap().unwrap().stale_from;
    assert_eq!((noted().await, shown().await), (Vec::new(), None));
    store.mark_stale(ORG, run, Some(2)).await.unwrap();
    store.mark_stale(ORG, run, Some(1)).await.unwrap();
    assert_eq!((noted().await, shown().await), (vec![(run, 1)], Some(1)));
    assert_eq!(store.stale_runs(milepost_core::id::OrgId(2), &[run]).await.unwrap(), []);
    assert_eq!(store.stale_runs(ORG, &[]).await.unwrap(), []);
    // Without its first event there is a row all the same, and it goes on from there.
    assert_eq!(store.project(vec![project(0, snapshot(run, 0))]).await.unwrap(), [WriteResult::Written]);
    assert_eq!(store.snapshot(ORG, run).await.unwrap().unwrap().last_event_seq, 0);
    assert_eq!(store.project(vec![project(0, snapshot(run, 2))]).await.unwrap(), [WriteResult::Written]);
    assert_eq!(store.project(vec![project(0, snapshot(run, 2))]).await.unwrap(), [WriteResult::Conflict]);
    for _ in 0..2 {
        store.mark_stale(ORG, run, None).await.unwrap();
        assert_eq!((noted().await, shown().await), (Vec::new(), None));
    }
}

async fn runs_are_counted(store: &dyn Store) {
    written(store, start(new_run(), 1)).await;
    // Some databases only estimate.
    store.count_runs().await.unwrap();
}
