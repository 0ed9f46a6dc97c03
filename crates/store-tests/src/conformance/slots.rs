//! Places under a concurrency key.

use milepost_core::id::{OrgId, RunId};
use milepost_store::Store;
use milepost_store::rows::{RunWrite, SlotRow, SlotWrite};

use super::written;
use crate::rows::{ORG, advance, new_run, start, unique};

pub(super) async fn check(store: &dyn Store) {
    a_place_is_waited_for_held_and_released(store).await;
    those_that_wait_go_on_by_priority_then_age(store).await;
    keys_do_not_share_their_room(store).await;
}

async fn put(store: &dyn Store, run: RunId, slot: SlotWrite) {
    written(store, RunWrite { slot: Some(slot), ..start(run, 1) }).await;
}

fn hold(key: &str) -> SlotWrite {
    SlotWrite::Hold { key: key.to_owned() }
}

fn wait(key: &str, limit: u32, priority: i32) -> SlotWrite {
    SlotWrite::Wait { key: key.to_owned(), limit, priority }
}

async fn woken(store: &dyn Store, key: &str, limit: u32) -> Vec<RunId> {
    let rows = store.slots_to_wake_of(ORG, key, limit).await.unwrap();
    rows.iter().map(|row| row.run).collect()
}

async fn a_place_is_waited_for_held_and_released(store: &dyn Store) {
    let (run, key) = (new_run(), unique("slot"));
    put(store, run, wait(&key, 4, 9)).await;
    let row = |holding, limit, priority| Some(SlotRow { org: ORG, run, key: key.clone(), holding, limit, priority });
    assert_eq!(store.slot_of(ORG, run).await.unwrap(), row(false, Some(4), 9));
    written(store, RunWrite { slot: Some(hold(&key)), ..advance(run, 1, 1) }).await;
    let held = store.slot_of(ORG, run).await.unwrap().unwrap();
    assert!(held.holding && held.key == key);
    // A write that says nothing about the place leaves it.
    written(store, advance(run, 2, 1)).await;
    assert!(store.slot_of(ORG, run).await.unwrap().is_some());
    written(store, RunWrite { slot: Some(SlotWrite::Release), ..advance(run, 3, 1) }).await;
    assert_eq!(store.slot_of(ORG, run).await.unwrap(), None);
    written(store, RunWrite { slot: Some(SlotWrite::Release), ..advance(run, 4, 1) }).await;
}

async fn those_that_wait_go_on_by_priority_then_age(store: &dyn Store) {
    let key = unique("slot");
    let [holder, old, young, urgent] = [(); 4].map(|()| new_run());
    put(store, holder, hold(&key)).await;
    put(store, young, wait(&key, 1, 0)).await;
    put(store, old, wait(&key, 1, 0)).await;
    put(store, urgent, wait(&key, 1, 5)).await;
    assert_eq!(woken(store, &key, 10).await, [], "there is no room");
    written(store, RunWrite { slot: Some(SlotWrite::Release), ..advance(holder, 1, 1) }).await;
    assert_eq!(woken(store, &key, 10).await, [urgent]);
    assert!(store.slots_to_wake(100_000).await.unwrap().iter().any(|row| row.run == urgent));

    let roomy = unique("slot");
    for (run, priority) in [(old, 0), (young, 0), (urgent, 5)] {
        written(store, RunWrite { slot: Some(wait(&roomy, 3, priority)), ..advance(run, 1, 1) }).await;
    }
    assert_eq!(woken(store, &key, 10).await, []);
    assert_eq!(woken(store, &roomy, 10).await, [urgent, old, young]);
    assert_eq!(woken(store, &roomy, 2).await, [urgent, old]);
    written(store, RunWrite { slot: Some(hold(&roomy)), ..advance(holder, 2, 1) }).await;
    assert_eq!(woken(store, &roomy, 10).await, [urgent, old], "one of three places is taken");
    let all: Vec<RunId> = store.slots_to_wake(100_000).await.unwrap().iter().map(|row| row.run).collect();
    assert!(all.contains(&old) && all.contains(&urgent) && !all.contains(&young) && !all.contains(&holder));
    for (run, seq) in [(old, 2), (young, 2), (urgent, 2), (holder, 3)] {
        written(store, RunWrite { slot: Some(SlotWrite::Release), ..advance(run, seq, 1) }).await;
    }
}

async fn keys_do_not_share_their_room(store: &dyn Store) {
    let (key, other) = (unique("slot"), unique("slot"));
    let [holder, waiter] = [(); 2].map(|()| new_run());
    put(store, holder, hold(&other)).await;
    put(store, waiter, wait(&key, 1, 0)).await;
    // The same key of another org is another key.
    let elsewhere = RunWrite { org: OrgId(2), slot: Some(hold(&key)), ..start(new_run(), 1) };
    written(store, elsewhere).await;
    assert_eq!(woken(store, &key, 10).await, [waiter]);
    for run in [holder, waiter] {
        written(store, RunWrite { slot: Some(SlotWrite::Release), ..advance(run, 1, 1) }).await;
    }
}
