//! Ready steps of this node, and the room its executor has for them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyStep {
    pub(super) priority: i32,
    pub(super) age: u64,
    pub(super) org: OrgId,
    pub(super) run: RunId,
    pub(super) step: StepRef,
    pub(super) since: Instant,
}

impl Ord for ReadyStep {
    /// By priority, then by age: the greatest goes first.
    fn cmp(&self, other: &ReadyStep) -> Ordering {
        self.priority.cmp(&other.priority).then_with(|| other.age.cmp(&self.age))
    }
}

impl PartialOrd for ReadyStep {
    fn partial_cmp(&self, other: &ReadyStep) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Steps that wait for an executor. An entry may be out of date; the core says so when it is taken.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    heap: BinaryHeap<ReadyStep>,
    age: u64,
    room: usize,
    /// As of the requests that are being decided; asking the clock for each step would cost more than it tells.
    now: Instant,
}

impl ReadyQueue {
    pub(super) fn new(room: usize) -> ReadyQueue {
        ReadyQueue { heap: BinaryHeap::new(), age: 0, room, now: Instant::now() }
    }

    pub(super) fn push(&mut self, priority: i32, org: OrgId, run: RunId, step: StepRef) {
        self.age += 1;
        self.heap.push(ReadyStep { priority, age: self.age, org, run, step, since: self.now });
    }

    /// As many as there is room for.
    pub(super) fn take(&mut self) -> Vec<ReadyStep> {
        let count = self.room.min(self.heap.len());
        (0..count).filter_map(|_| self.heap.pop()).collect()
    }

    pub(super) fn occupy(&mut self) {
        self.room = self.room.saturating_sub(1);
    }

    pub(super) fn free(&mut self, slots: usize) {
        self.room += slots;
    }

    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn has_work(&self) -> bool {
        self.room > 0 && !self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(n: u128) -> RunId {
        RunId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn higher_priority_goes_first_then_the_older() {
        let mut queue = ReadyQueue::new(2);
        for (n, priority) in [(1, 0), (2, 5), (3, 5), (4, 9)] {
            queue.push(priority, OrgId::DEFAULT, run(n), StepRef::whole(0));
        }
        let taken: Vec<RunId> = queue.take().into_iter().map(|ready| ready.run).collect();
        assert_eq!(taken, [run(4), run(2)]);
    }
}
