//! The runs that are watched on this node. A topic lives as long as somebody subscribes to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_store::Store;
use tokio::sync::{Notify, Semaphore, mpsc};

use super::EventStream;
use super::topic::Topic;
use crate::error::EngineError;

/// Commits of watched runs that may wait to be taken in. One that finds no room is read from the log a moment later.
const QUEUE: usize = 1024;
/// As many pages are read at a time, so that the store always has room for others.
const READS: u32 = 3;

type Topics = HashMap<(OrgId, RunId), Watched>;

/// What a commit wrote to a watched run.
pub(super) type News = (Arc<Topic>, Arc<[EventRow]>);

#[derive(Debug)]
pub(crate) struct Hub {
    store: Arc<dyn Store>,
    topics: Mutex<Topics>,
    /// Told when the first topic comes.
    arrived: Notify,
    news: mpsc::Sender<News>,
    reads: Semaphore,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Watched {
    topic: Arc<Topic>,
    subscribers: usize,
}

impl Hub {
    pub(super) fn new(store: Arc<dyn Store>) -> (Arc<Hub>, mpsc::Receiver<News>) {
        let (news, inbox) = mpsc::channel(QUEUE);
        let hub = Hub {
            store,
            topics: Mutex::default(),
            arrived: Notify::new(),
            news,
            reads: Semaphore::new(READS as usize),
            closed: AtomicBool::new(false),
        };
        (Arc::new(hub), inbox)
    }

    /// A stream of the events after `after_seq`.
    pub(crate) async fn open(
        self: &Arc<Hub>,
        org: OrgId,
        run: RunId,
        after_seq: u64,
    ) -> Result<EventStream, EngineError> {
        // First ask to be told, then look: an event between the two is not missed.
        let subscription = self.subscribe(org, run);
        let head = {
            let _turn = self.reads.acquire().await.map_err(|_| EngineError::ShuttingDown)?;
            self.store.head(org, run).await?.ok_or(EngineError::NoSuchRun(run))?
        };
        if after_seq > head.last_seq {
            return Err(EngineError::AfterLastEvent { run, after_seq, last_seq: head.last_seq });
        }
        subscription.topic.raise(head.last_seq);
        Ok(EventStream::new(subscription, after_seq, &head))
    }

    pub(super) fn subscribe(self: &Arc<Hub>, org: OrgId, run: RunId) -> Subscription {
        let mut topics = self.topics();
        let first = topics.is_empty();
        let topic = match topics.entry((org, run)) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().subscribers += 1;
                entry.get().topic.clone()
            }
            Entry::Vacant(entry) => {
                let topic = Arc::new(Topic::new(org, run));
                entry.insert(Watched { topic, subscribers: 1 }).topic.clone()
            }
        };
        if first {
            self.arrived.notify_one();
        }
        if self.closed.load(Ordering::SeqCst) {
            topic.close();
        }
        Subscription { hub: self.clone(), topic }
    }

    fn leave(&self, topic: &Topic) {
        let mut topics = self.topics();
        let Entry::Occupied(mut entry) = topics.entry((topic.org, topic.run)) else { return };
        entry.get_mut().subscribers -= 1;
        if entry.get().subscribers == 0 {
            entry.remove();
            shrink(&mut topics);
        }
    }

    pub(crate) fn watches(&self, org: OrgId, run: RunId) -> bool {
        self.topics().contains_key(&(org, run))
    }

    /// How many runs are watched.
    pub(crate) fn len(&self) -> usize {
        self.topics().len()
    }

    /// What was just committed. Never waits, and costs the same however many watch.
    pub(crate) fn tell(&self, org: OrgId, run: RunId, rows: &Arc<[EventRow]>) {
        let topic = self.topics().get(&(org, run)).map(|watched| watched.topic.clone());
        if let Some(topic) = topic {
            let _ = self.news.try_send((topic, rows.clone()));
        }
    }

    /// Waits until there is something to watch.
    pub(super) async fn watched(&self) -> Vec<Arc<Topic>> {
        loop {
            let topics: Vec<_> = self.topics().values().map(|watched| watched.topic.clone()).collect();
            if !topics.is_empty() {
                return topics;
            }
            self.arrived.notified().await;
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(super) fn reads(&self) -> &Semaphore {
        &self.reads
    }

    /// All streams end; once this returns, none of them touches the store.
    pub(crate) async fn close(&self) {
        self.close_now();
        let _all = self.reads.acquire_many(READS).await;
        self.reads.close();
    }

    /// The same without waiting for what is being read.
    pub(crate) fn close_now(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for watched in self.topics().values() {
            watched.topic.close();
        }
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().expect("no holder of this lock panics")
    }
}

/// A crowd that has gone leaves no empty room behind.
fn shrink(topics: &mut Topics) {
    if topics.capacity() > 64 && topics.len() < topics.capacity() / 4 {
        topics.shrink_to(topics.len() * 2);
    }
}

/// A place in a topic, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) hub: Arc<Hub>,
    pub(super) topic: Arc<Topic>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.leave(&self.topic);
    }
}
