//! Turns: what one batch may cost, and whose requests are decided first.
//!
//! A decision is bounded, a thousand of them are not. So a batch that has cost enough is written, and the rest goes with the
//! next one. Runs that have cost much a moment ago wait behind all others: a run with much to decide delays itself.
//!
//! **Invariant:** whoever waits has its turn: of so many slices one is of those that cost much, and what a full batch does
//! besides requests it does for a few steps at least.

use std::collections::{HashMap, VecDeque};

use milepost_core::hash::Digest;
use milepost_core::time::Timestamp;

use super::states::Entry;
use super::{Committer, Request, RequestKind};

/// Bytes and work that a batch may cost, as decisions count them. A decision more than that is not divided.
const BATCH_WORK: u64 = 32 * 1024 * 1024;
/// The time that may be spent on deciding a batch.
const BATCH_MS: u64 = 100;
/// A run that has cost so much waits behind others. What it has cost counts half as much with each batch.
const MUCH: u64 = 2 * 1024 * 1024;
/// Requests that are decided together at most: what follows from them comes before the next.
const SLICE: usize = 256;
/// After so many slices of others comes the turn of one request of a run that costs much.
const SLICES: u32 = 4;
/// Requests that were taken and not decided; with more of them none is taken.
pub(super) const MOST_WAITING: usize = 16_384;
/// Of so many plans it is remembered that their runs cost much, for so many batches.
const DEAR_PLANS: usize = 1000;
const DEAR_BATCHES: u64 = 64;

/// What the gathering batch has cost.
#[derive(Debug)]
pub(super) struct Spent {
    work: u64,
    /// Before what is being decided now.
    ms: u64,
    since: Option<Timestamp>,
    until: Timestamp,
    over: bool,
}

impl Default for Spent {
    fn default() -> Spent {
        Spent { work: 0, ms: 0, since: None, until: Timestamp(0), over: false }
    }
}

impl Spent {
    /// Time that was spent on waiting for something else does not count.
    pub(super) fn go_on(&mut self, now: Timestamp) {
        self.ms += self.since.map_or(0, |since| self.until.ms_since(since));
        (self.since, self.until) = (Some(now), now);
    }

    /// The time is that of the decision: nobody asks the clock for this.
    pub(super) fn add(&mut self, work: u64, now: Timestamp) {
        self.work = self.work.saturating_add(work);
        let since = *self.since.get_or_insert(now);
        self.until = now;
        self.over = self.over || self.work >= BATCH_WORK || self.ms + now.ms_since(since) >= BATCH_MS;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

/// What a run has cost lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    work: u64,
    batch: u64,
}

impl Cost {
    fn now(self, batch: u64) -> u64 {
        self.work.checked_shr(u32::try_from(batch - self.batch).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    fn add(&mut self, work: u64, batch: u64) {
        *self = Cost { work: self.now(batch).saturating_add(work), batch };
    }

    fn is_much(self, batch: u64) -> bool {
        self.now(batch) >= MUCH
    }
}

/// Requests that wait to be decided.
#[derive(Debug, Default)]
pub(super) struct Turns {
    others: VecDeque<Request>,
    dear: VecDeque<Request>,
    /// Slices since one of the dear had its turn.
    slices: u32,
    /// Counts batches.
    pub(super) batch: u64,
    plans: HashMap<Digest, u64>,
}

impl Turns {
    pub(super) fn len(&self) -> usize {
        self.others.len() + self.dear.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.others.is_empty() && self.dear.is_empty()
    }

    fn next_slice(&mut self) -> Vec<Request> {
        let dear = self.slices >= SLICES || self.others.is_empty();
        if let Some(request) = self.dear.pop_front_if(|_| dear) {
            self.slices = 0;
            return vec![request];
        }
        self.slices = if self.dear.is_empty() { 0 } else { self.slices + 1 };
        let count = self.others.len().min(SLICE);
        self.others.drain(..count).collect()
    }

    fn remember(&mut self, plan: Digest) {
        if self.plans.len() >= DEAR_PLANS {
            self.plans.clear();
        }
        self.plans.insert(plan, self.batch);
    }

    fn is_dear_plan(&self, plan: Digest) -> bool {
        !self.plans.is_empty() && self.plans.get(&plan).is_some_and(|batch| self.batch - batch < DEAR_BATCHES)
    }
}

impl Committer {
    fn is_dear(&self, request: &Request) -> bool {
        match &request.kind {
            RequestKind::Start { plan, .. } => self.turns.is_dear_plan(plan.hash),
            kind => self.states.peek(kind.run()).is_some_and(|entry| entry.cost.is_much(self.turns.batch)),
        }
    }

    pub(super) fn line_up(&mut self, request: Request) {
        match self.is_dear(&request) {
            true => self.turns.dear.push_back(request),
            false => self.turns.others.push_back(request),
        }
    }

    /// They were taken, and their turn is not yet over.
    pub(super) fn line_up_first(&mut self, requests: impl DoubleEndedIterator<Item = Request>) {
        for request in requests.rev() {
            match self.is_dear(&request) {
                true => self.turns.dear.push_front(request),
                false => self.turns.others.push_front(request),
            }
        }
    }

    /// Decides what waits, until that is enough for one batch.
    pub(super) async fn take_turns(&mut self) {
        loop {
            let slice = self.turns.next_slice();
            self.take(slice).await;
            if self.turns.is_empty() || self.pending.is_full() {
                return;
            }
        }
    }
}

/// A decision about a run has cost what its state says.
pub(super) fn pay(spent: &mut Spent, turns: &mut Turns, entry: &mut Entry, now: Timestamp) {
    let work = entry.state.spent();
    spent.add(work, now);
    if work > 0 {
        let before = entry.cost.is_much(turns.batch);
        entry.cost.add(work, turns.batch);
        if !before && entry.cost.is_much(turns.batch) {
            turns.remember(entry.state.plan.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use milepost_core::id::{OrgId, RunId};

    use super::*;

    fn request(n: u128) -> Request {
        Request::care(OrgId::DEFAULT, RunId(uuid::Uuid::from_u128(n)))
    }

    fn runs(slice: &[Request]) -> Vec<u128> {
        slice.iter().map(|request| request.kind.run().0.as_u128()).collect()
    }

    #[test]
    fn a_batch_is_full_when_deciding_it_has_cost_enough() {
        let (mut spent, at) = (Spent::default(), |ms: i64| Timestamp(ms * 1000));
        spent.add(BATCH_WORK - 1, at(0));
        assert!(!spent.is_over());
        spent.add(1, at(0));
        assert!(spent.is_over());
        let mut spent = Spent::default();
        spent.go_on(at(0));
        spent.add(0, at(60));
        spent.go_on(at(5_000));
        spent.add(0, at(5_030));
        assert!(!spent.is_over(), "in between it waited for the database");
        spent.add(0, at(5_040));
        assert!(spent.is_over());
    }

    #[test]
    fn what_a_run_has_cost_is_forgotten_in_time() {
        let mut cost = Cost::default();
        cost.add(4 * MUCH, 7);
        assert!(cost.is_much(7) && cost.is_much(9) && !cost.is_much(10) && !cost.is_much(1_000));
    }

    #[test]
    fn those_that_cost_much_come_after_others_and_come_all_the_same() {
        let mut turns = Turns::default();
        turns.dear.extend([request(1), request(2)]);
        turns.others.extend((0..SLICE * 10).map(|_| request(9)));
        let firsts: Vec<u128> = (0..10).map(|_| runs(&turns.next_slice())[0]).collect();
        assert_eq!(firsts, [9, 9, 9, 9, 1, 9, 9, 9, 9, 2]);
    }
}
