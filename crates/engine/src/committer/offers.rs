//! Workers that wait for something to do, each with room for so much.
//!
//! **Invariant:** an offer is in here, or its answer is on its way, or nobody waits for it any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::OrgId;
use tokio::sync::oneshot;

use super::lines::{Lines, Taker, Waiting};
use crate::workers::Handed;

/// A queue is looked after so long after its last worker had room.
const WANTED_FOR: Duration = Duration::from_secs(10);

/// What a worker was given, once that is written. Nothing comes of an offer that is withdrawn.
pub(crate) type OfferReply = oneshot::Sender<Vec<Handed>>;

/// A worker has room.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Offers that came earlier have lower numbers.
    pub(crate) id: u64,
    pub(crate) org: Option<OrgId>,
    pub(crate) worker: Arc<str>,
    pub(crate) queues: Vec<Arc<str>>,
    pub(crate) skills: Option<Vec<Arc<str>>>,
    pub(crate) room: usize,
    /// Not only for what is there now.
    pub(crate) waits: bool,
    pub(crate) reply: OfferReply,
}

impl Offer {
    fn taker(&self) -> Taker<'_> {
        Taker { org: self.org, skills: self.skills.as_deref() }
    }

    fn keys(&self) -> impl Iterator<Item = Key> {
        let of_queue = |queue: &Arc<str>| -> Vec<Key> {
            match &self.skills {
                None => vec![(queue.clone(), None)],
                Some(skills) => skills.iter().map(|skill| (queue.clone(), Some(skill.clone()))).collect(),
            }
        };
        self.queues.iter().flat_map(of_queue).collect::<Vec<_>>().into_iter()
    }
}

/// A queue, and a skill if only that is taken.
type Key = (Arc<str>, Option<Arc<str>>);

#[derive(Debug, Default)]
pub(super) struct Offers {
    by_id: HashMap<u64, Offer>,
    /// Those that have room, the oldest first.
    by_key: HashMap<Key, BTreeSet<u64>>,
    /// Those that were given something by the gathering batch: how much.
    given: HashMap<u64, usize>,
    /// When somebody last had room for something of a queue.
    asked: HashMap<Arc<str>, Instant>,
}

impl Offers {
    pub(super) fn add(&mut self, offer: Offer) {
        let now = Instant::now();
        for queue in &offer.queues {
            if let Some(at) = self.asked.get_mut(queue) {
                *at = now;
            } else {
                self.asked.insert(queue.clone(), now);
            }
        }
        self.list(&offer);
        self.by_id.insert(offer.id, offer);
    }

    fn list(&mut self, offer: &Offer) {
        for key in offer.keys() {
            self.by_key.entry(key).or_default().insert(offer.id);
        }
    }

    fn unlist(&mut self, id: u64) {
        let Some(offer) = self.by_id.get(&id) else { return };
        for key in offer.keys() {
            if let Some(ids) = self.by_key.get_mut(&key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Offer> {
        self.unlist(id);
        self.given.remove(&id);
        self.by_id.remove(&id)
    }

    /// Lets go of all that one worker offers.
    pub(super) fn remove_of(&mut self, worker: &str) {
        let ids: Vec<u64> =
            self.by_id.values().filter(|offer| *offer.worker == *worker).map(|offer| offer.id).collect();
        // What one was given by the gathering batch is on its way to it.
        for id in ids {
            self.let_go(id);
        }
    }

    /// A step, and who gets it. Nothing, when nobody who waits can take what is in line.
    pub(super) fn next(&mut self, lines: &mut Lines) -> Option<(u64, Arc<str>, Waiting)> {
        if self.by_key.is_empty() {
            return None;
        }
        for queue in lines.queues() {
            let skills = lines.skills(&queue);
            while let Some(id) = self.first(&queue, &skills, lines) {
                let offer = self.by_id.get(&id)?;
                if offer.reply.is_closed() {
                    self.remove(id);
                    continue;
                }
                let Some(taken) = lines.take(&queue, offer.taker()) else { break };
                let (worker, room) = (offer.worker.clone(), offer.room);
                let given = self.given.entry(id).or_default();
                *given += 1;
                if *given >= room {
                    self.unlist(id);
                }
                return Some((id, worker, taken));
            }
        }
        None
    }

    /// The oldest offer that something in a queue's line could go to.
    fn first(&self, queue: &Arc<str>, skills: &BTreeSet<Arc<str>>, lines: &Lines) -> Option<u64> {
        let of = |skill: Option<Arc<str>>| self.by_key.get(&(queue.clone(), skill)).into_iter().flatten();
        let fits = |id: &&u64| self.by_id.get(*id).is_some_and(|offer| lines.has_for(queue, offer.taker()));
        let anything = of(None).find(fits);
        skills.iter().filter_map(|skill| of(Some(skill.clone())).find(fits)).chain(anything).min().copied()
    }

    /// Something that was given does not go there after all.
    pub(super) fn give_back(&mut self, id: u64) {
        let Some(given) = self.given.get_mut(&id) else { return };
        *given -= 1;
        if *given == 0 {
            self.given.remove(&id);
        }
        if let Some(offer) = self.by_id.remove(&id) {
            self.add(offer);
        }
    }

    /// Takes out those that were given something: they are answered when it is written.
    pub(super) fn take_given(&mut self) -> Vec<Offer> {
        let ids: Vec<u64> = self.given.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// One that does not wait is answered, if it was given nothing. Says whether that is settled.
    pub(super) fn let_go(&mut self, id: u64) -> bool {
        let settled = !self.given.contains_key(&id);
        if settled {
            self.remove(id);
        }
        settled
    }

    /// Queues that somebody takes from: waits for, or has asked for a moment ago.
    pub(super) fn wanted_queues(&mut self) -> BTreeSet<String> {
        self.asked.retain(|_, at| at.elapsed() < WANTED_FOR);
        let waited = self.by_key.keys().map(|(queue, _)| queue);
        waited.chain(self.asked.keys()).map(|queue| queue.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::waiting;
    use super::*;

    fn offer(id: u64, skills: Option<&[&str]>, room: usize) -> (Offer, oneshot::Receiver<Vec<Handed>>) {
        let (reply, answer) = oneshot::channel();
        let skills = skills.map(|skills| skills.iter().map(|skill| (*skill).into()).collect());
        let worker = format!("w{id}").into();
        (Offer { id, org: None, worker, queues: vec!["q".into()], skills, room, waits: true, reply }, answer)
    }

    fn given(offers: &mut Offers, lines: &mut Lines) -> Vec<(u64, u128)> {
        std::iter::from_fn(|| offers.next(lines)).map(|(id, _, taken)| (id, taken.run.0.as_u128())).collect()
    }

    #[test]
    fn the_one_who_waits_longest_is_filled_first() {
        let (mut offers, mut lines) = (Offers::default(), Lines::default());
        let (first, _a) = offer(1, None, 2);
        let (second, _b) = offer(2, None, 5);
        offers.add(second);
        offers.add(first);
        (1..=4).for_each(|n| lines.push(waiting(n, 1, "w", "s", 0)));
        assert_eq!(given(&mut offers, &mut lines), [(1, 1), (1, 2), (2, 3), (2, 4)]);
        assert_eq!(offers.take_given().len(), 2);
    }

    #[test]
    fn a_step_goes_to_somebody_who_can_do_it() {
        let (mut offers, mut lines) = (Offers::default(), Lines::default());
        let (first, _a) = offer(1, Some(&["a"]), 5);
        let (second, _b) = offer(2, Some(&["b"]), 5);
        offers.add(first);
        offers.add(second);
        lines.push(waiting(1, 1, "w", "c", 9));
        lines.push(waiting(2, 1, "w", "b", 0));
        assert_eq!(given(&mut offers, &mut lines), [(2, 2)]);
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn who_waits_no_more_is_given_nothing() {
        let (mut offers, mut lines) = (Offers::default(), Lines::default());
        let (gone, answer) = offer(1, None, 1);
        drop(answer);
        let (there, _answer) = offer(2, None, 1);
        offers.add(gone);
        offers.add(there);
        lines.push(waiting(1, 1, "w", "s", 0));
        assert_eq!(given(&mut offers, &mut lines), [(2, 1)]);
        assert_eq!(offers.by_id.len(), 1);
    }

    #[test]
    fn room_that_is_given_back_is_there_again() {
        let (mut offers, mut lines) = (Offers::default(), Lines::default());
        let (one, _answer) = offer(1, None, 1);
        offers.add(one);
        (1..=2).for_each(|n| lines.push(waiting(n, 1, "w", "s", 0)));
        assert_eq!(given(&mut offers, &mut lines), [(1, 1)]);
        offers.give_back(1);
        assert_eq!(given(&mut offers, &mut lines), [(1, 2)]);
    }
}
