//! Timers.

use milepost_core::id::RunId;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{RunWrite, TimerRow, TimerWrite};

use super::written;
use crate::rows::{ORG, advance, new_run, start};

/// Before any other time there is, so that what others left comes after it.
fn long_ago(us: i64) -> Timestamp {
    Timestamp(-1_000_000_000 + us)
}

async fn due(store: &dyn Store, run: RunId, until: Timestamp) -> Vec<u64> {
    let due: Vec<TimerRow> = store.timers_until(None, until, 10_000).await.unwrap();
    assert!(due.is_sorted_by_key(|timer| timer.due_at), "earliest first");
    due.iter().filter(|timer| timer.run == run).map(|timer| timer.seq).collect()
}

pub(super) async fn check(store: &dyn Store) {
    timers_are_armed_found_and_disarmed(store).await;
}

async fn timers_are_armed_found_and_disarmed(store: &dyn Store) {
    let run = new_run();
    let arm = |seq, us| TimerWrite::Arm { seq, due_at: long_ago(us) };
    written(store, RunWrite { timers: vec![arm(1, 300), arm(2, 100), arm(3, 200)], ..start(run, 3) }).await;
    assert_eq!(due(store, run, long_ago(99)).await, [0; 0]);
    assert_eq!(due(store, run, long_ago(200)).await, [2, 3], "due at that very moment counts");
    assert_eq!(due(store, run, long_ago(1000)).await, [2, 3, 1]);
    let first = store.timers_until(None, long_ago(1000), 1).await.unwrap();
    let second = store.timers_until(first.last().copied(), long_ago(1000), 1).await.unwrap();
    assert_eq!((first.len(), second.len()), (1, 1), "a page at a time");
    assert!(first[0].due_at <= second[0].due_at && first[0] != second[0]);
    let mut armed = store.timers_of(ORG, run).await.unwrap();
    armed.sort_by_key(|timer| timer.seq);
    let expected = [(1, 300), (2, 100), (3, 200)];
    assert_eq!(armed, expected.map(|(seq, us)| TimerRow { org: ORG, run, seq, due_at: long_ago(us) }));

    let disarm = |seq| TimerWrite::Disarm { seq };
    let fired = RunWrite { timers: vec![disarm(2), disarm(77), arm(4, 50)], ..advance(run, 3, 1) };
    written(store, fired).await;
    assert_eq!(due(store, run, long_ago(1000)).await, [4, 3, 1]);
    written(store, RunWrite { timers: vec![disarm(1), disarm(3), disarm(4)], ..advance(run, 4, 1) }).await;
    assert_eq!(store.timers_of(ORG, run).await.unwrap(), []);
    assert_eq!(due(store, run, long_ago(1000)).await, [0; 0]);
}
