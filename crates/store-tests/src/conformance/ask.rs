//! Questions, and the transaction in which their answers hold.

use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::request::{Asked, AskedParts, RequestDigest};
use milepost_store::Store;
use milepost_store::rows::{Answer, NewHead, Question, RequestedRun, RunWrite, SlotWrite, WriteResult};

use super::{commit, last_seq, written};
use crate::rows::{ORG, advance, at, batch, full_event, new_head, new_run, plain, start, start_with, unique};
use WriteResult::{Conflict, Written};

pub(super) async fn check(store: &Arc<dyn Store>) {
    questions_are_answered_in_order(&**store).await;
    what_was_asked_under_a_request_id_is_kept(&**store).await;
    a_transaction_sees_its_answers_and_commits(&**store).await;
    a_dropped_transaction_leaves_nothing_and_holds_nobody_up(&**store).await;
    a_conflict_inside_a_transaction_is_a_conflict(&**store).await;
    a_place_is_given_once_however_many_ask(store).await;
    many_commit_at_the_same_time(store).await;
}

fn held(key: &str) -> Question {
    Question::SlotsHeld { org: ORG, key: key.to_owned() }
}

fn holding(run: RunId, key: &str) -> RunWrite {
    RunWrite { slot: Some(SlotWrite::Hold { key: key.to_owned() }), ..start(run, 1) }
}

async fn slots_held(store: &dyn Store, key: &str) -> u32 {
    let (_, answers) = store.ask(vec![held(key)]).await.unwrap();
    match answers[..] {
        [Answer::SlotsHeld(count)] => count,
        _ => panic!("one question, one answer of its kind: {answers:?}"),
    }
}

async fn questions_are_answered_in_order(store: &dyn Store) {
    let (run, key, request) = (new_run(), unique("slot"), unique("request"));
    let event = full_event(run, 1);
    let head = NewHead { request_id: Some(request.clone()), ..new_head() };
    let slot = Some(SlotWrite::Hold { key: key.clone() });
    written(store, RunWrite { slot, events: vec![event.clone()], ..start_with(run, 1, head) }).await;
    let of_request = |request_id: &str| Question::RunOfRequest {
        org: ORG,
        workflow: new_head().workflow,
        request_id: request_id.to_owned(),
    };
    let at = |seq| Question::Event { org: ORG, run, seq };
    let questions =
        vec![of_request(&request), at(1), held(&key), at(2), of_request(&unique("other")), held("nobody's")];
    let (transaction, answers) = store.ask(questions).await.unwrap();
    drop(transaction);
    match &answers[..] {
        [
            Answer::RunOfRequest(Some(found)),
            Answer::Event(Some(stored)),
            Answer::SlotsHeld(1),
            Answer::Event(None),
            Answer::RunOfRequest(None),
            Answer::SlotsHeld(0),
        ] => {
            assert_eq!(found.run, run);
            assert_eq!(plain(stored.clone()), plain(event));
        }
        _ => panic!("{answers:?}"),
    }
}

async fn what_was_asked_under_a_request_id_is_kept(store: &dyn Store) {
    let request = unique("request");
    let payload = Json::trusted(r#"{"n":1}"#);
    let parts = AskedParts {
        tag: None,
        base: None,
        payload: &payload,
        patch: None,
        rebuild: None,
        priority: 3,
        start_at: Some(at(5)),
    };
    let asked = Asked { version_hash: Digest::of(b"document"), digest: RequestDigest::of(&parts, 64) };
    let (known, unknown) = (new_run(), new_run());
    let with = |workflow: &str, asked| NewHead {
        workflow: Arc::from(workflow),
        request_id: Some(request.clone()),
        asked,
        ..new_head()
    };
    written(store, start_with(known, 1, with("one", Some(asked)))).await;
    written(store, start_with(unknown, 1, with("two", None))).await;
    let of = |workflow: &str| Question::RunOfRequest {
        org: ORG,
        workflow: Arc::from(workflow),
        request_id: request.clone(),
    };
    let (transaction, answers) = store.ask(vec![of("two"), of("three"), of("one")]).await.unwrap();
    drop(transaction);
    let found: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Answer::RunOfRequest(found) => found,
            other => panic!("{other:?}"),
        })
        .collect();
    let two = RequestedRun { run: unknown, asked: None };
    assert_eq!(found, [Some(two), None, Some(RequestedRun { run: known, asked: Some(asked) })]);
}

async fn a_transaction_sees_its_answers_and_commits(store: &dyn Store) {
    let (run, key) = (new_run(), unique("slot"));
    let (mut transaction, _) = store.ask(vec![held(&key)]).await.unwrap();
    let again = transaction.ask(vec![held(&key), held(&key)]).await.unwrap();
    assert!(matches!(again[..], [Answer::SlotsHeld(0), Answer::SlotsHeld(0)]), "{again:?}");
    assert_eq!(transaction.commit(Arc::new(batch([holding(run, &key)]))).await.unwrap(), [Written]);
    assert_eq!(slots_held(store, &key).await, 1);
    assert_eq!(last_seq(store, run).await, Some(1));
}

async fn a_dropped_transaction_leaves_nothing_and_holds_nobody_up(store: &dyn Store) {
    let (run, key) = (new_run(), unique("slot"));
    let (mut transaction, _) = store.ask(vec![held(&key)]).await.unwrap();
    transaction.ask(vec![held(&key)]).await.unwrap();
    drop(transaction);
    assert_eq!(commit(store, batch([holding(run, &key)])).await, [Written]);
    assert_eq!(slots_held(store, &key).await, 1);
}

async fn a_conflict_inside_a_transaction_is_a_conflict(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    written(store, start(run, 2)).await;
    let (transaction, _) = store.ask(vec![Question::Event { org: ORG, run, seq: 2 }]).await.unwrap();
    let results = transaction.commit(Arc::new(batch([advance(run, 1, 1), start(other, 1)]))).await.unwrap();
    assert_eq!(results, [Conflict, Written]);
    assert_eq!((last_seq(store, run).await, last_seq(store, other).await), (Some(2), Some(1)));
}

async fn a_place_is_given_once_however_many_ask(store: &Arc<dyn Store>) {
    let key = unique("slot");
    let take = |store: Arc<dyn Store>, key: String| async move {
        let (transaction, answers) = store.ask(vec![held(&key)]).await.unwrap();
        if matches!(answers[..], [Answer::SlotsHeld(0)]) {
            assert_eq!(transaction.commit(Arc::new(batch([holding(new_run(), &key)]))).await.unwrap(), [Written]);
        }
    };
    let tasks: Vec<_> = (0..12).map(|_| tokio::spawn(take(Arc::clone(store), key.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(slots_held(&**store, &key).await, 1);
}

async fn many_commit_at_the_same_time(store: &Arc<dyn Store>) {
    let work = |store: Arc<dyn Store>| async move {
        let (run, rival) = (new_run(), new_run());
        commit(&*store, batch([start(run, 1), start(rival, 1)])).await;
        for seq in 1..10 {
            assert_eq!(commit(&*store, batch([advance(run, seq, 1), advance(rival, 0, 1)])).await, [Written, Conflict]);
            assert_eq!(last_seq(&*store, run).await, Some(seq + 1), "a read sees what was committed before it");
        }
        assert_eq!(store.events(ORG, run, 0, 100).await.unwrap().len(), 10);
    };
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(work(Arc::clone(store)))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}
