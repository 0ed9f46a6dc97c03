//! What commits ask for beyond the database.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::id::{NodeId, OrgId, OutboxId, RunId};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{
    Claim, OutboxEnd, OutboxFilter, OutboxOutcome, OutboxRow, OutboxState, OutboxWrite, RunWrite, WriteResult,
};

use super::{commit, written};
use crate::rows::{ORG, advance, at, batch, new_node, new_outbox, new_run, start};

/// Before any other time there is, so that what others left is not due yet.
fn long_ago(us: i64) -> Timestamp {
    Timestamp(-1_000_000_000 + us)
}

pub(super) async fn check(store: &Arc<dyn Store>) {
    rows_are_written_with_their_commit_or_not_at_all(&**store).await;
    a_claim_that_ends_is_free_for_others(&**store).await;
    what_became_of_a_claim_is_taken_down_once(&**store).await;
    the_claims_of_a_node_that_is_gone_are_free_at_once(&**store).await;
    lists_come_in_pages_and_by_org(&**store).await;
    what_waits_or_was_given_up_is_tried_again_when_asked(&**store).await;
    dead_letters_are_forgotten_when_they_are_old(&**store).await;
    a_row_is_given_to_one_of_many(store).await;
}

/// A row in the hands of a node until then.
fn claimed(node: NodeId, until: Timestamp) -> OutboxWrite {
    new_outbox(Claim { node, until })
}

async fn write(store: &dyn Store, outbox: Vec<OutboxWrite>) -> RunId {
    let run = new_run();
    written(store, RunWrite { outbox, ..start(run, 1) }).await;
    run
}

async fn get(store: &dyn Store, id: OutboxId) -> OutboxRow {
    store.outbox().get(ORG, id).await.unwrap().expect("the row is there")
}

async fn claim(store: &dyn Store, node: NodeId, now: Timestamp, until: Timestamp) -> Vec<(OutboxId, u32)> {
    let rows = store.outbox().claim(Claim { node, until }, now, 100).await.unwrap();
    rows.iter().for_each(|row| assert_eq!(row.state, OutboxState::Claimed(Claim { node, until })));
    rows.iter().map(|row| (row.id, row.attempts)).collect()
}

async fn settle(store: &dyn Store, node: NodeId, id: OutboxId, attempts: u32, outcome: OutboxOutcome) {
    store.outbox().settle(node, &[OutboxEnd { id, attempts, outcome }]).await.unwrap();
}

async fn done(store: &dyn Store, node: NodeId, id: OutboxId, attempts: u32) {
    settle(store, node, id, attempts, OutboxOutcome::Done).await;
    assert_eq!(store.outbox().get(ORG, id).await.unwrap(), None);
}

async fn rows_are_written_with_their_commit_or_not_at_all(store: &dyn Store) {
    let (node, until) = (new_node(), at(500));
    let (kept, lost) = (claimed(node, until), claimed(node, until));
    let run = write(store, vec![kept.clone()]).await;
    let late = RunWrite { outbox: vec![lost.clone()], ..advance(run, 7, 1) };
    assert_eq!(commit(store, batch([late])).await, [WriteResult::Conflict]);
    let expected = OutboxRow {
        id: kept.id,
        org: ORG,
        run,
        kind: kept.kind.clone(),
        payload: kept.payload.clone(),
        attempts: 1,
        state: OutboxState::Claimed(Claim { node, until }),
        last_error: None,
        created_at: kept.created_at,
    };
    assert_eq!(get(store, kept.id).await, expected);
    assert_eq!(store.outbox().get(ORG, lost.id).await.unwrap(), None);
    done(store, node, kept.id, 1).await;
}

async fn a_claim_that_ends_is_free_for_others(store: &dyn Store) {
    let (node, heir) = (new_node(), new_node());
    let (early, late) = (claimed(node, long_ago(200)), claimed(node, long_ago(300)));
    write(store, vec![late.clone(), early.clone()]).await;
    assert_eq!(store.outbox().next_due().await.unwrap(), Some(long_ago(200)));
    assert_eq!(claim(store, heir, long_ago(199), long_ago(900)).await, []);
    assert_eq!(claim(store, heir, long_ago(200), long_ago(900)).await, [(early.id, 2)], "a try is counted");
    assert_eq!(claim(store, heir, long_ago(500), long_ago(900)).await, [(late.id, 2)]);
    assert_eq!(claim(store, node, long_ago(500), long_ago(900)).await, [], "each row has one holder");
    done(store, heir, early.id, 2).await;
    done(store, heir, late.id, 2).await;
}

async fn what_became_of_a_claim_is_taken_down_once(store: &dyn Store) {
    let node = new_node();
    let new = claimed(node, long_ago(100));
    let run = write(store, vec![new.clone()]).await;
    settle(store, new_node(), new.id, 1, OutboxOutcome::Done).await;
    settle(store, node, new.id, 2, OutboxOutcome::Done).await;
    assert_eq!(get(store, new.id).await.attempts, 1, "neither was its holder");

    let again = |us, attempts, error: Option<&str>| OutboxOutcome::Again {
        at: long_ago(us),
        attempts,
        error: error.map(ToOwned::to_owned),
    };
    settle(store, node, new.id, 1, again(400, 1, Some("the host is away"))).await;
    let row = get(store, new.id).await;
    assert_eq!(row.state, OutboxState::Waiting { available_at: long_ago(400) });
    assert_eq!((row.attempts, row.last_error.as_deref()), (1, Some("the host is away")));
    settle(store, node, new.id, 1, OutboxOutcome::Done).await;
    assert_eq!(claim(store, node, long_ago(399), long_ago(800)).await, []);
    assert_eq!(claim(store, node, long_ago(400), long_ago(800)).await, [(new.id, 2)]);
    settle(store, node, new.id, 2, again(500, 1, None)).await;
    let row = get(store, new.id).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (1, Some("the host is away")), "nothing new");

    assert_eq!(claim(store, node, long_ago(500), long_ago(800)).await, [(new.id, 2)]);
    let before = store.outbox().counts().await.unwrap();
    settle(store, node, new.id, 2, OutboxOutcome::Dead { at: at(3), error: "“gone” for good".to_owned() }).await;
    let after = store.outbox().counts().await.unwrap();
    assert_eq!((after.pending, after.dead), (before.pending - 1, before.dead + 1));
    let dead = get(store, new.id).await;
    assert_eq!(dead.state, OutboxState::Dead { died_at: at(3) });
    assert_eq!((dead.run, dead.attempts, dead.kind, dead.payload), (run, 2, new.kind, new.payload));
    assert_eq!((dead.last_error.as_deref(), dead.created_at), (Some("“gone” for good"), new.created_at));
    assert_eq!(claim(store, node, long_ago(900_000), long_ago(900_001)).await, [], "nobody claims the dead");
    assert!(store.outbox().discard(ORG, new.id).await.unwrap());
    assert!(!store.outbox().discard(ORG, new.id).await.unwrap());
}

async fn the_claims_of_a_node_that_is_gone_are_free_at_once(store: &dyn Store) {
    let (gone, other) = (new_node(), new_node());
    let (left, kept) = (claimed(gone, at(60_000_000)), claimed(other, at(60_000_000)));
    write(store, vec![left.clone(), kept.clone()]).await;
    assert_eq!(store.outbox().free_claims(gone, long_ago(10)).await.unwrap(), 1);
    assert_eq!(store.outbox().free_claims(gone, long_ago(10)).await.unwrap(), 0);
    assert_eq!(claim(store, other, long_ago(10), long_ago(800)).await, [(left.id, 2)]);
    done(store, other, left.id, 2).await;
    done(store, other, kept.id, 1).await;
}

async fn lists_come_in_pages_and_by_org(store: &dyn Store) {
    let node = new_node();
    let new: Vec<OutboxWrite> = (0..5).map(|_| claimed(node, at(60_000_000))).collect();
    let ids: Vec<OutboxId> = new.iter().map(|new| new.id).collect();
    write(store, new).await;
    settle(store, node, ids[1], 1, OutboxOutcome::Dead { at: at(1), error: "x".to_owned() }).await;
    settle(store, node, ids[3], 1, OutboxOutcome::Dead { at: at(1), error: "x".to_owned() }).await;
    let list = async |filter, after, limit| -> Vec<OutboxId> {
        let rows = store.outbox().list(ORG, filter, after, limit).await.unwrap();
        rows.iter().map(|row| row.id).filter(|id| ids.contains(id)).collect()
    };
    let before = Some(OutboxId(uuid::Uuid::from_u128(ids[0].0.as_u128() - 1)));
    assert_eq!(list(OutboxFilter::All, before, 3).await, ids[..3]);
    assert_eq!(list(OutboxFilter::All, Some(ids[2]), 10).await, ids[3..]);
    assert_eq!(list(OutboxFilter::Pending, before, 10).await, [ids[0], ids[2], ids[4]]);
    assert_eq!(list(OutboxFilter::Dead, before, 10).await, [ids[1], ids[3]]);
    assert_eq!(list(OutboxFilter::Dead, None, 10_000).await, [ids[1], ids[3]], "from the first");
    assert_eq!(store.outbox().list(OrgId(999), OutboxFilter::All, None, 10).await.unwrap(), []);
    assert_eq!(store.outbox().get(OrgId(999), ids[0]).await.unwrap(), None);
    assert!(!store.outbox().discard(OrgId(999), ids[1]).await.unwrap());
    assert_eq!(store.outbox().retry(OrgId(999), ids[1], at(0)).await.unwrap(), None);
    for (at, id) in ids.into_iter().enumerate() {
        match at {
            1 | 3 => assert!(store.outbox().discard(ORG, id).await.unwrap()),
            _ => done(store, node, id, 1).await,
        }
    }
}

async fn what_waits_or_was_given_up_is_tried_again_when_asked(store: &dyn Store) {
    let node = new_node();
    let new = claimed(node, at(60_000_000));
    write(store, vec![new.clone()]).await;
    let retry = async || store.outbox().retry(ORG, new.id, long_ago(50)).await.unwrap().map(|row| row.state);
    assert_eq!(retry().await, Some(OutboxState::Claimed(new.claim)), "one that is under way stays so");
    let again = OutboxOutcome::Again { at: at(60_000_000), attempts: 1, error: Some("x".to_owned()) };
    settle(store, node, new.id, 1, again).await;
    assert_eq!(retry().await, Some(OutboxState::Waiting { available_at: long_ago(50) }));
    assert_eq!(claim(store, node, long_ago(50), long_ago(800)).await, [(new.id, 2)]);
    settle(store, node, new.id, 2, OutboxOutcome::Dead { at: at(1), error: "y".to_owned() }).await;
    assert_eq!(retry().await, Some(OutboxState::Waiting { available_at: long_ago(50) }));
    let row = get(store, new.id).await;
    assert_eq!((row.attempts, row.last_error.as_deref()), (0, Some("y")), "tries are counted anew");
    assert_eq!(claim(store, node, long_ago(50), long_ago(800)).await, [(new.id, 1)]);
    done(store, node, new.id, 1).await;
    assert_eq!(retry().await, None);
}

async fn dead_letters_are_forgotten_when_they_are_old(store: &dyn Store) {
    let node = new_node();
    let (old, young) = (claimed(node, at(60_000_000)), claimed(node, at(60_000_000)));
    write(store, vec![old.clone(), young.clone()]).await;
    let dead = |us| OutboxOutcome::Dead { at: long_ago(us), error: "x".to_owned() };
    settle(store, node, old.id, 1, dead(10)).await;
    settle(store, node, young.id, 1, dead(20)).await;
    assert_eq!(store.outbox().forget_dead(long_ago(20)).await.unwrap(), 1);
    assert_eq!(store.outbox().get(ORG, old.id).await.unwrap(), None);
    assert!(store.outbox().discard(ORG, young.id).await.unwrap());
}

async fn a_row_is_given_to_one_of_many(store: &Arc<dyn Store>) {
    const ROWS: usize = 200;
    let node = new_node();
    let new: Vec<OutboxWrite> = (0..ROWS).map(|_| claimed(node, long_ago(1))).collect();
    let ids: BTreeSet<OutboxId> = new.iter().map(|new| new.id).collect();
    write(&**store, new).await;
    let takers = (0..4).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let node = new_node();
            let mut taken = Vec::new();
            while store.outbox().next_due().await.unwrap().is_some_and(|due| due <= long_ago(2)) {
                let claim = Claim { node, until: long_ago(900) };
                for row in store.outbox().claim(claim, long_ago(2), 7).await.unwrap() {
                    taken.push((node, row.id));
                }
            }
            taken
        })
    });
    let mut taken = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        taken.extend(taker.await.unwrap());
    }
    assert_eq!(taken.len(), ROWS, "none twice");
    assert_eq!(taken.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>(), ids, "and none left out");
    for (node, id) in taken {
        done(&**store, node, id, 2).await;
    }
}
