//! Timers: rows until they are due. A sleeping run holds no thread, no lease and no memory.
//!
//! Those due soon are held in a heap; the rest stay in the database until their time comes near.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_core::run::Command;
use milepost_core::time::Timestamp;
use milepost_store::rows::TimerRow;
use milepost_store::{Result, Store};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::committer::{Inbox, Request};
use crate::supervisor::Pulse;

/// Timers due within this time are held in memory.
const HORIZON_MS: u64 = 60_000;
/// How often the database is asked for those that come near, and for those that another node left overdue.
const LOOK_MS: u64 = 10_000;
const PAGE: u32 = 1000;

/// What the heap holds: due, run, number, org.
type Due = Reverse<(Timestamp, RunId, u64, OrgId)>;

#[derive(Debug)]
struct Soon {
    heap: BinaryHeap<Due>,
    /// All timers due up to here have been read from the database.
    read_until: Timestamp,
    next_look: Timestamp,
}

/// Tells the timers of what was armed.
#[derive(Clone, Debug)]
pub(crate) struct TimerHandle {
    soon: Arc<Mutex<Soon>>,
    earlier: Arc<Notify>,
}

impl TimerHandle {
    pub(crate) fn new() -> TimerHandle {
        let soon = Soon { heap: BinaryHeap::new(), read_until: Timestamp(i64::MIN), next_look: Timestamp(i64::MIN) };
        TimerHandle { soon: Arc::new(Mutex::new(soon)), earlier: Arc::default() }
    }

    pub(crate) fn arm(&self, org: OrgId, run: RunId, seq: u64, due_at: Timestamp) {
        let mut soon = self.soon.lock().expect("no holder of this lock panics");
        if due_at > soon.read_until {
            return;
        }
        let first = soon.heap.peek().is_none_or(|Reverse((due, ..))| due_at < *due);
        soon.heap.push(Reverse((due_at, run, seq, org)));
        if first {
            self.earlier.notify_one();
        }
    }
}

pub(crate) struct Timers {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
    pub(crate) handle: TimerHandle,
}

impl Timers {
    /// Fires what is due at `now`. Answers when to look again.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<Timestamp> {
        let look = self.handle.soon.lock().expect("no holder of this lock panics").next_look <= now;
        if look {
            self.look(now).await?;
        }
        loop {
            let due = self.take_due(now);
            if due.is_empty() {
                break;
            }
            for Reverse((_, run, seq, org)) in due {
                self.inbox.report(Request::command(org, run, Command::FireTimer { seq })).await;
            }
        }
        let soon = self.handle.soon.lock().expect("no holder of this lock panics");
        let next = soon.heap.peek().map_or(soon.next_look, |Reverse((due, ..))| *due);
        Ok(next.min(soon.next_look))
    }

    fn take_due(&self, now: Timestamp) -> Vec<Due> {
        let mut soon = self.handle.soon.lock().expect("no holder of this lock panics");
        let mut due = Vec::new();
        while due.len() < PAGE as usize && soon.heap.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            due.extend(soon.heap.pop());
        }
        due
    }

    /// Reads the timers that come near, and again those that should have fired: a node that died may have held them.
    async fn look(&self, now: Timestamp) -> Result<()> {
        let horizon = now.plus_ms(HORIZON_MS);
        // From here on `arm` adds what it is told of; what it added before it was told is in the database.
        let read_until = {
            let mut soon = self.handle.soon.lock().expect("no holder of this lock panics");
            std::mem::replace(&mut soon.read_until, horizon)
        };
        let mut after: Option<TimerRow> = None;
        loop {
            let page = match self.store.timers_until(after, horizon, PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    // What was not read is read next time.
                    self.handle.soon.lock().expect("no holder of this lock panics").read_until = read_until;
                    return Err(error);
                }
            };
            let mut soon = self.handle.soon.lock().expect("no holder of this lock panics");
            for timer in &page {
                if timer.due_at > read_until || timer.due_at <= now {
                    soon.heap.push(Reverse((timer.due_at, timer.run, timer.seq, timer.org)));
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after = Some(*last),
                _ => break,
            }
        }
        self.handle.soon.lock().expect("no holder of this lock panics").next_look = now.plus_ms(LOOK_MS);
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            let now = self.clock.now();
            let wait = match self.run_once(now).await {
                Ok(next) => Duration::from_millis(next.ms_since(self.clock.now()).saturating_add(1)),
                Err(error) => {
                    tracing::warn!(%error, "timers cannot be read");
                    Duration::from_secs(1)
                }
            };
            let due = async {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.handle.earlier.notified() => {}
                    () = self.clock.set_from(now) => {}
                }
            };
            pulse.rest(due).await;
        }
    }
}
