//! Ready steps of this node, and the room its executor has for them.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyStep {
    pub(super) priority: i32,
    pub(super) turn: u64,
    pub(super) age: u64,
    pub(super) org: OrgId,
    pub(super) run: RunId,
    pub(super) step: StepRef,
    pub(super) since: Instant,
}

impl Ord for ReadyStep {
    /// By priority, then by turn, then by age: the greatest goes first.
    fn cmp(&self, other: &ReadyStep) -> Ordering {
        let before = (other.turn, other.age).cmp(&(self.turn, self.age));
        self.priority.cmp(&other.priority).then(before)
    }
}

impl PartialOrd for ReadyStep {
    fn partial_cmp(&self, other: &ReadyStep) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Steps that wait for an executor. Runs take turns: the first steps of all of them go before the second of one. An entry may be
/// out of date; the core says so when it is taken.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    heap: BinaryHeap<ReadyStep>,
    age: u64,
    /// Whose turn it is.
    turn: u64,
    room: usize,
    /// As of the requests that are being decided; asking the clock for each step would cost more than it tells.
    now: Instant,
}

impl ReadyQueue {
    pub(super) fn new(room: usize) -> ReadyQueue {
        ReadyQueue { heap: BinaryHeap::new(), age: 0, turn: 0, room, now: Instant::now() }
    }

    /// `next` is the turn of the run's next step.
    pub(super) fn push(&mut self, priority: i32, (org, run): (OrgId, RunId), step: StepRef, next: &mut u64) {
        self.age += 1;
        let turn = self.turn.max(*next);
        *next = turn + 1;
        self.heap.push(ReadyStep { priority, turn, age: self.age, org, run, step, since: self.now });
    }

    /// As many as there is room for, and no more than `most`.
    pub(super) fn take(&mut self, most: usize) -> Vec<ReadyStep> {
        let count = self.room.min(self.heap.len()).min(most);
        let taken: Vec<ReadyStep> = (0..count).filter_map(|_| self.heap.pop()).collect();
        self.turn = taken.iter().map(|ready| ready.turn).fold(self.turn, u64::max);
        taken
    }

    /// Its turn comes with the next batch.
    pub(super) fn put_back(&mut self, ready: ReadyStep) {
        self.heap.push(ready);
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
            queue.push(priority, (OrgId::DEFAULT, run(n)), StepRef::whole(0), &mut 0);
        }
        let taken: Vec<RunId> = queue.take(9).into_iter().map(|ready| ready.run).collect();
        assert_eq!(taken, [run(4), run(2)]);
    }

    #[test]
    fn a_run_with_many_steps_does_not_keep_others_waiting() {
        let mut queue = ReadyQueue::new(3);
        let mut wide = 0;
        (0..1000).for_each(|step| queue.push(0, (OrgId::DEFAULT, run(1)), StepRef::whole(step), &mut wide));
        let runs = |taken: Vec<ReadyStep>| taken.into_iter().map(|ready| ready.run).collect::<Vec<RunId>>();
        assert_eq!(runs(queue.take(3)), [run(1), run(1), run(1)]);
        queue.push(0, (OrgId::DEFAULT, run(2)), StepRef::whole(0), &mut 0);
        assert_eq!(runs(queue.take(3)), [run(2), run(1), run(1)]);
    }
}
