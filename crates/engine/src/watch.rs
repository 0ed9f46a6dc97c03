//! Who is told when something happens to a run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use tokio::sync::{mpsc, oneshot};

use crate::streams::Hub;

/// A watcher that falls this far behind is let go; it can read the log and come back.
const QUEUE: usize = 4096;

type ByRun<T> = HashMap<RunId, Vec<T>>;

#[derive(Debug)]
pub(crate) struct Watchers {
    streams: Arc<Hub>,
    events: Mutex<ByRun<mpsc::Sender<Arc<[EventRow]>>>>,
    ends: Mutex<ByRun<oneshot::Sender<RunStatus>>>,
}

impl Watchers {
    pub(crate) fn new(streams: Arc<Hub>) -> Watchers {
        Watchers { streams, events: Mutex::default(), ends: Mutex::default() }
    }

    /// Events of a run from now on. The stream ends when its reader is too slow.
    pub(crate) fn events(&self, run: RunId) -> mpsc::Receiver<Arc<[EventRow]>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut events = self.events.lock().expect("no holder of this lock panics");
        sweep(&mut events, mpsc::Sender::is_closed);
        events.entry(run).or_default().push(sender);
        receiver
    }

    pub(crate) fn end(&self, run: RunId) -> oneshot::Receiver<RunStatus> {
        let (sender, receiver) = oneshot::channel();
        let mut ends = self.ends.lock().expect("no holder of this lock panics");
        sweep(&mut ends, oneshot::Sender::is_closed);
        ends.entry(run).or_default().push(sender);
        receiver
    }

    pub(crate) fn wants_events(&self, org: OrgId, run: RunId) -> bool {
        self.streams.watches(org, run) || self.events.lock().expect("no holder of this lock panics").contains_key(&run)
    }

    pub(crate) fn tell_events(&self, org: OrgId, run: RunId, rows: &Arc<[EventRow]>) {
        self.streams.tell(org, run, rows);
        let mut events = self.events.lock().expect("no holder of this lock panics");
        if let Some(watchers) = events.get_mut(&run) {
            watchers.retain(|watcher| watcher.try_send(rows.clone()).is_ok());
            if watchers.is_empty() {
                events.remove(&run);
            }
        }
    }

    /// Ends the streams of a run's events: something may have been missed, and the log has it.
    pub(crate) fn let_go(&self, run: RunId) {
        self.events.lock().expect("no holder of this lock panics").remove(&run);
    }

    pub(crate) fn tell_end(&self, run: RunId, status: RunStatus) {
        let waiting = self.ends.lock().expect("no holder of this lock panics").remove(&run);
        for waiter in waiting.into_iter().flatten() {
            // One that no longer waits is no loss.
            let _ = waiter.send(status);
        }
    }
}

/// Lets go of those who no longer wait, each time the map would have to grow: that costs little, and keeps it as small as
/// the number of those who do.
fn sweep<T>(waiting: &mut ByRun<T>, gone: impl Fn(&T) -> bool) {
    if waiting.len() == waiting.capacity() {
        waiting.retain(|_, waiters| {
            waiters.retain(|waiter| !gone(waiter));
            !waiters.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_no_longer_are_let_go() {
        let (streams, _, _) = crate::streams::open(Arc::new(milepost_store::memory::MemoryStore::new()));
        let watchers = Watchers::new(streams);
        let stays = watchers.end(RunId(uuid::Uuid::from_u128(7)));
        for n in 0..10_000 {
            drop(watchers.end(RunId(uuid::Uuid::from_u128(n))));
            drop(watchers.events(RunId(uuid::Uuid::from_u128(n))));
        }
        assert!(watchers.ends.lock().unwrap().len() < 100);
        assert!(watchers.events.lock().unwrap().len() < 100);
        watchers.tell_end(RunId(uuid::Uuid::from_u128(7)), RunStatus::Completed);
        assert_eq!(stays.blocking_recv(), Ok(RunStatus::Completed));
    }
}
