//! Steps that go to workers only while there is room: under a queue's limits, under a step's concurrency key.
//!
//! What is taken is counted from the leases there are, in the transaction that hands a step over, so a slot cannot leak: it is
//! free when its lease is gone. What finds no room stays out of the line until some is given back, or for a moment.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost_core::id::{OrgId, TaskId};
use milepost_core::time::Timestamp;
use milepost_store::rows::{Answer, Question, QueueRow, Rate, RateWrite, TaskLimits, TaskWrite};

use super::decide::FollowUps;
use super::hand_over::A_FEW;
use super::{Committer, Message, Waiting};

/// How often what found no room is tried again though nothing was given back here: another node may have.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Of each limit at a time.
const AT_A_TIME: usize = 16;

/// The queues that have limits, as far as this node knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitedQueues(Arc<Mutex<HashSet<OrgQueue>>>);

type OrgQueue = (OrgId, Arc<str>);

impl LimitedQueues {
    pub(crate) fn set(&self, queues: &[QueueRow]) {
        let known = queues.iter().map(|row| (row.org, row.queue.clone())).collect();
        *self.0.lock().expect("no holder of this lock panics") = known;
    }

    fn has(&self, org: OrgId, queue: &Arc<str>) -> bool {
        let known = self.0.lock().expect("no holder of this lock panics");
        !known.is_empty() && known.contains(&(org, queue.clone()))
    }
}

/// A step that an offer would take if there is room.
#[derive(Debug)]
pub(super) struct LimitedTask {
    pub(super) offer: u64,
    pub(super) worker: Arc<str>,
    pub(super) waiting: Waiting,
}

/// What there is room under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Limit {
    Queue(OrgId, Arc<str>),
    Key(OrgId, Arc<str>),
}

/// What found no room, and who has what there is.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_limit: HashMap<Limit, VecDeque<Waiting>>,
    /// The limits that leases of this node count against.
    held: HashMap<TaskId, Vec<Limit>>,
    /// They are about to be tried again.
    armed: bool,
}

impl Parked {
    pub(super) fn len(&self) -> usize {
        self.by_limit.values().map(VecDeque::len).sum()
    }

    pub(super) fn queues(&self) -> HashSet<Arc<str>> {
        self.by_limit.values().flatten().map(|waiting| waiting.queue.clone()).collect()
    }

    fn park(&mut self, limit: Limit, waiting: Waiting) {
        self.by_limit.entry(limit).or_default().push_back(waiting);
    }

    fn take(&mut self, limit: &Limit, count: usize) -> Vec<Waiting> {
        let Some(line) = self.by_limit.get_mut(limit) else { return Vec::new() };
        let taken = line.drain(..count.min(line.len())).collect();
        if line.is_empty() {
            self.by_limit.remove(limit);
        }
        taken
    }
}

impl Committer {
    pub(super) fn is_limited(&self, waiting: &Waiting) -> bool {
        waiting.slot.is_some() || self.parts.limited_queues.has(waiting.org, &waiting.queue)
    }

    /// What has to be known, each thing once.
    pub(super) fn limit_questions(tasks: &[LimitedTask]) -> Vec<Question> {
        let distinct: BTreeSet<_> = tasks.iter().map(|task| asked(&task.waiting)).collect();
        distinct.into_iter().map(|(org, queue, key)| Question::Limits { org, queue, key }).collect()
    }

    /// Hands over what there is room for; each sees what those before it took.
    pub(super) async fn decide_limited(
        &mut self,
        tasks: Vec<LimitedTask>,
        questions: &[Question],
        answers: Vec<Answer>,
        follow_ups: &mut FollowUps,
    ) {
        let now = self.parts.clock.now();
        let mut room = Room::of(questions, answers);
        // They may have gone from the cache since they were offered.
        let runs = tasks.iter().map(|task| (task.waiting.org, task.waiting.run)).collect();
        self.load(runs).await;
        for (nth, LimitedTask { offer, worker, waiting }) in tasks.into_iter().enumerate() {
            if nth >= A_FEW && self.pending.is_full() {
                self.offers.give_back(offer);
                self.lines.push(waiting);
                continue;
            }
            match room.look(&waiting, now) {
                Look::Free => {
                    let (task, limits) = (waiting.task, room.limits_of(&waiting));
                    let taken = waiting.clone();
                    if self.hand_one(offer, worker, waiting, follow_ups) {
                        room.take(&taken, now);
                        self.parked.held.insert(task, limits);
                    }
                }
                Look::Full(limit) => {
                    self.offers.give_back(offer);
                    self.parked.park(limit, waiting);
                    self.try_parked_later();
                }
                Look::NotBefore(at) => {
                    self.offers.give_back(offer);
                    self.wait_until(waiting, at.ms_since(now));
                }
            }
        }
        self.pending.rates.extend(room.rates());
    }

    fn wait_until(&self, waiting: Waiting, wait_ms: u64) {
        let inbox = self.parts.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(wait_ms + 1)).await;
            // After shutdown the row is another node's.
            let _ = inbox.send(Message::Waiting(vec![waiting])).await;
        });
    }

    fn try_parked_later(&mut self) {
        if std::mem::replace(&mut self.parked.armed, true) {
            return;
        }
        let inbox = self.parts.inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(TRY_AGAIN).await;
            let _ = inbox.send(Message::TryParked).await;
        });
    }

    pub(super) fn try_parked(&mut self) {
        self.parked.armed = false;
        let limits: Vec<Limit> = self.parked.by_limit.keys().cloned().collect();
        for limit in limits {
            for waiting in self.parked.take(&limit, AT_A_TIME) {
                self.lines.push(waiting);
            }
        }
    }

    /// Leases that ended make room for as many.
    pub(super) fn give_room(&mut self, tasks: &BTreeMap<TaskId, TaskWrite>) {
        if self.parked.held.is_empty() {
            return;
        }
        for write in tasks.values() {
            let over = match write {
                TaskWrite::Delete(_) => true,
                TaskWrite::Put(row) => row.lease.is_none(),
                TaskWrite::Withdraw(_) => false,
            };
            let limits = if over { self.parked.held.remove(&write.task()) } else { None };
            let waiting: Vec<Waiting> =
                limits.into_iter().flatten().flat_map(|limit| self.parked.take(&limit, 1)).collect();
            if !waiting.is_empty() {
                // As a message: this is called when nothing is being decided.
                self.parts.inbox.try_send(Message::Waiting(waiting));
            }
        }
    }
}

fn asked(waiting: &Waiting) -> (OrgId, Arc<str>, Option<Arc<str>>) {
    (waiting.org, waiting.queue.clone(), waiting.slot.as_ref().map(|slot| slot.key.clone()))
}

enum Look {
    Free,
    Full(Limit),
    NotBefore(Timestamp),
}

/// What the database answered, and what this batch takes of it.
struct Room {
    queues: HashMap<(OrgId, Arc<str>), QueueRoom>,
    keys: HashMap<(OrgId, Arc<str>), u32>,
}

struct QueueRoom {
    row: QueueRow,
    leased: u32,
    taken_until: Timestamp,
    begun: bool,
}

impl Room {
    fn of(questions: &[Question], answers: Vec<Answer>) -> Room {
        let mut room = Room { queues: HashMap::new(), keys: HashMap::new() };
        for (question, answer) in questions.iter().zip(answers) {
            let (Question::Limits { org, queue, key }, Answer::Limits(limits)) = (question, answer) else { continue };
            let TaskLimits { in_queue, with_key, queue: row, taken_until } = limits;
            if let Some(row) = row {
                let taken_until = taken_until.unwrap_or(Timestamp(0));
                let of_queue = QueueRoom { row, leased: in_queue, taken_until, begun: false };
                room.queues.insert((*org, queue.clone()), of_queue);
            }
            if let Some(key) = key {
                room.keys.insert((*org, key.clone()), with_key);
            }
        }
        room
    }

    fn look(&self, waiting: &Waiting, now: Timestamp) -> Look {
        if let Some(slot) = &waiting.slot {
            let key = (waiting.org, slot.key.clone());
            if self.keys.get(&key).is_some_and(|leased| *leased >= slot.limit) {
                return Look::Full(Limit::Key(key.0, key.1));
            }
        }
        let Some(queue) = self.queues.get(&(waiting.org, waiting.queue.clone())) else { return Look::Free };
        if queue.row.concurrency.is_some_and(|limit| queue.leased >= limit) {
            return Look::Full(Limit::Queue(waiting.org, waiting.queue.clone()));
        }
        match queue.row.rate.map(|rate| earliest(rate, queue.taken_until)) {
            Some(at) if at > now => Look::NotBefore(at),
            _ => Look::Free,
        }
    }

    fn take(&mut self, waiting: &Waiting, now: Timestamp) {
        if let Some(slot) = &waiting.slot {
            *self.keys.entry((waiting.org, slot.key.clone())).or_default() += 1;
        }
        if let Some(queue) = self.queues.get_mut(&(waiting.org, waiting.queue.clone())) {
            queue.leased += 1;
            if let Some(rate) = queue.row.rate {
                queue.taken_until = Timestamp(queue.taken_until.0.max(now.0) + interval_us(rate));
                queue.begun = true;
            }
        }
    }

    fn limits_of(&self, waiting: &Waiting) -> Vec<Limit> {
        let key = waiting.slot.as_ref().map(|slot| Limit::Key(waiting.org, slot.key.clone()));
        let queue = Limit::Queue(waiting.org, waiting.queue.clone());
        key.into_iter().chain([queue]).collect()
    }

    fn rates(self) -> impl Iterator<Item = RateWrite> {
        self.queues.into_values().filter(|queue| queue.begun).map(|queue| RateWrite {
            org: queue.row.org,
            queue: queue.row.queue,
            taken_until: queue.taken_until,
        })
    }
}

fn interval_us(rate: Rate) -> i64 {
    let per_us = i64::try_from(rate.per_ms.saturating_mul(1000)).unwrap_or(i64::MAX / 2);
    (per_us / i64::from(rate.limit.max(1))).max(1)
}

/// A bucket of `limit` tokens that fills up within `per`: when the next one is there.
fn earliest(rate: Rate, taken_until: Timestamp) -> Timestamp {
    let interval = interval_us(rate);
    Timestamp(taken_until.0 - interval.saturating_mul(i64::from(rate.limit.max(1)) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_tokens_at_once_and_then_one_at_a_time() {
        let rate = Rate { limit: 3, per_ms: 3000 };
        let start = 1_000_000_000;
        let mut taken_until = Timestamp(0);
        let mut begun = Vec::new();
        for tenth in 0..50 {
            let now = Timestamp(start + tenth * 100_000);
            while earliest(rate, taken_until) <= now {
                taken_until = Timestamp(taken_until.0.max(now.0) + interval_us(rate));
                begun.push(tenth);
            }
        }
        assert_eq!(begun, [0, 0, 0, 10, 20, 30, 40]);
    }
}
