//! The hub alone, step by step: who is woken when, and what is left.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll as Polled, Wake, Waker};

use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;
use milepost_store::rows::HeadRow;

use super::event::tests::row;
use super::hub::Subscription;
use super::*;

const ORG: OrgId = OrgId::DEFAULT;
const RUN: RunId = RunId(uuid::Uuid::nil());

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn rows(seqs: std::ops::RangeInclusive<u64>) -> Arc<[EventRow]> {
    seqs.map(|seq| row(seq, "StepCompleted", "{}")).collect()
}

fn head(last_seq: u64) -> HeadRow {
    HeadRow {
        org: ORG,
        run: RUN,
        workflow: String::new(),
        workflow_version: String::new(),
        plan_hash: Digest::of(b""),
        request_id: None,
        base_run: None,
        parent_run: None,
        priority: 0,
        status: RunStatus::Running,
        last_seq,
        owner: None,
        created_at: Timestamp(0),
        started_at: None,
        completed_at: None,
        stuck: None,
    }
}

/// A stream of a run that the store does not have: what is kept of it is all there is.
fn stream(hub: &Arc<Hub>, cursor: u64) -> EventStream {
    let subscription: Subscription = hub.subscribe(ORG, RUN);
    EventStream::new(subscription, cursor, &head(cursor))
}

fn seqs(batch: &Batch) -> Vec<u64> {
    batch.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn a_commit_wakes_nobody_but_the_herald() {
    let (hub, mut herald, _) = open(Arc::new(MemoryStore::new()));
    let mut streams: Vec<_> = (0..1000).map(|_| stream(&hub, 0)).collect();
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<_> = streams.iter_mut().map(|stream| Box::pin(stream.next())).collect();
    for next in &mut waiting {
        assert!(next.as_mut().poll(&mut context).is_pending());
    }
    hub.tell(ORG, RUN, &rows(1..=3));
    assert_eq!(woken.0.load(Ordering::SeqCst), 0);
    let (topic, rows) = herald.inbox.try_recv().expect("told once");
    assert!(herald.inbox.try_recv().is_err(), "and only once");
    topic.absorb(&rows);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1000);
    let batches: Vec<Batch> = futures::future::try_join_all(waiting).await.unwrap();
    for batch in &batches {
        assert_eq!(seqs(batch), [1, 2, 3]);
        assert!(batch.iter().zip(&batches[0]).all(|(mine, other)| Arc::ptr_eq(mine, other)), "encoded once for all");
    }
}

#[tokio::test]
async fn news_in_the_middle_of_reading_are_not_lost() {
    let (hub, ..) = open(Arc::new(MemoryStore::new()));
    let mut reader = stream(&hub, 0);
    let topic = reader.subscription.topic.clone();
    topic.raise(2);
    let turn = topic.hold_page().await;
    {
        let mut next = pin!(reader.next());
        let mut context = Context::from_waker(Waker::noop());
        assert!(next.as_mut().poll(&mut context).is_pending(), "it waits for its turn to read");
        topic.absorb(&rows(1..=2));
        topic.absorb(&rows(3..=3));
        drop(turn);
        assert_eq!(seqs(&next.await.unwrap()), [1, 2, 3]);
    }
    // Told before it looks, and told between looking and waiting.
    topic.absorb(&rows(4..=4));
    assert_eq!(seqs(&reader.next().await.unwrap()), [4]);
    let mut next = pin!(reader.next());
    let woken = Arc::new(Count::default());
    let waker = Waker::from(woken.clone());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    topic.absorb(&rows(5..=5));
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    let Polled::Ready(Ok(batch)) = next.as_mut().poll(&mut Context::from_waker(&waker)) else { panic!("it was woken") };
    assert_eq!(seqs(&batch), [5]);
}

#[tokio::test]
async fn a_run_that_is_deleted_is_told() {
    let (hub, _, poll) = open(Arc::new(MemoryStore::new()));
    let mut young = stream(&hub, 0);
    let topic = young.subscription.topic.clone();
    poll.run_once(std::slice::from_ref(&topic)).await.unwrap();
    assert!(young.known.borrow().over.is_none(), "a run that is only just being looked up is not gone");
    topic.raise(1);
    assert!(matches!(young.next().await, Err(EngineError::NoSuchRun(RUN))), "its log should go on but is not there");
    let mut idle = stream(&hub, 1);
    poll.run_once(&[topic]).await.unwrap();
    assert!(matches!(idle.next().await, Err(EngineError::NoSuchRun(RUN))));
}

#[tokio::test]
async fn commits_beyond_the_queue_are_dropped_and_the_rest_is_kept() {
    let (hub, mut herald, _) = open(Arc::new(MemoryStore::new()));
    let mut reader = stream(&hub, 0);
    for seq in 1..=5000 {
        hub.tell(ORG, RUN, &rows(seq..=seq));
    }
    let mut taken = 0;
    while let Ok((topic, rows)) = herald.inbox.try_recv() {
        topic.absorb(&rows);
        taken += 1;
    }
    assert!(taken < 5000, "nothing grows without bound");
    let mut seen = 0;
    while seen < taken {
        seen += reader.next().await.unwrap().len() as u64;
    }
    assert_eq!(reader.cursor(), taken);
}

#[tokio::test]
async fn a_topic_goes_with_its_last_reader() {
    let (hub, ..) = open(Arc::new(MemoryStore::new()));
    let one = stream(&hub, 0);
    let other = stream(&hub, 0);
    let weak = Arc::downgrade(&one.subscription.topic);
    drop(one);
    assert_eq!(hub.len(), 1);
    drop(other);
    assert_eq!(hub.len(), 0);
    assert!(weak.upgrade().is_none());
}
