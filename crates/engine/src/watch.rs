//! Who is told when something happens to a run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::id::RunId;
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use tokio::sync::{mpsc, oneshot};

/// A watcher that falls this far behind is let go; it can read the log and come back.
const QUEUE: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Watchers {
    events: Mutex<HashMap<RunId, Vec<mpsc::Sender<Arc<[EventRow]>>>>>,
    ends: Mutex<HashMap<RunId, Vec<oneshot::Sender<RunStatus>>>>,
}

impl Watchers {
    /// Events of a run from now on. The stream ends when its reader is too slow.
    pub(crate) fn events(&self, run: RunId) -> mpsc::Receiver<Arc<[EventRow]>> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.events.lock().expect("no holder of this lock panics").entry(run).or_default().push(sender);
        receiver
    }

    pub(crate) fn end(&self, run: RunId) -> oneshot::Receiver<RunStatus> {
        let (sender, receiver) = oneshot::channel();
        self.ends.lock().expect("no holder of this lock panics").entry(run).or_default().push(sender);
        receiver
    }

    pub(crate) fn wants_events(&self, run: RunId) -> bool {
        self.events.lock().expect("no holder of this lock panics").contains_key(&run)
    }

    pub(crate) fn tell_events(&self, run: RunId, rows: &Arc<[EventRow]>) {
        let mut events = self.events.lock().expect("no holder of this lock panics");
        if let Some(watchers) = events.get_mut(&run) {
            watchers.retain(|watcher| watcher.try_send(rows.clone()).is_ok());
            if watchers.is_empty() {
                events.remove(&run);
            }
        }
    }

    pub(crate) fn tell_end(&self, run: RunId, status: RunStatus) {
        let waiting = self.ends.lock().expect("no holder of this lock panics").remove(&run);
        for waiter in waiting.into_iter().flatten() {
            // One that no longer waits is no loss.
            let _ = waiter.send(status);
        }
    }
}
