//! The hosts that steps are pushed to: how many requests each has under way, and whether it answers at all.
//!
//! ```text
//!   closed ── so many failures in a row ──► open: nobody goes there ── after a while ──► one may try
//!      ▲                                                    ▲                               │
//!      └────────────── it answers ──────────────────────────┴──────── it does not ◄─────────┘
//! ```
//!
//! **Invariant:** a place at a host is held by a [`Slot`] and by nothing else, so none can leak.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use milepost_core::time::Timestamp;
use tokio::sync::Notify;

/// So many failures in a row, and the host is left alone.
const FAILURES: u32 = 5;
/// For how long at first; twice as long each time it fails again, up to the longest.
const OPEN_MS: u64 = 5_000;
const LONGEST_OPEN_MS: u64 = 60_000;
/// With so many hosts, those that only have failures to their name are forgotten: documents choose the names.
const MANY: usize = 10_000;
/// When somebody who found no room may ask again.
const FULL_MS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Hosts {
    by_name: Mutex<HashMap<Arc<str>, Host>>,
    per_host: usize,
    /// There is room where somebody found none.
    pub(crate) room: Notify,
}

#[derive(Debug, Default)]
struct Host {
    under_way: usize,
    /// In a row.
    failures: u32,
    open_until: Option<Timestamp>,
    open_ms: u64,
    /// Steps wait for room.
    wanted: bool,
}

impl Host {
    fn is_open(&self, now: Timestamp) -> bool {
        self.open_until.is_some_and(|until| until > now)
    }

    fn limit(&self, per_host: usize) -> usize {
        if self.failures >= FAILURES { 1 } else { per_host }
    }
}

/// A place at a host, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    hosts: Arc<Hosts>,
    host: Arc<str>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_name = self.hosts.lock();
        let Some(host) = by_name.get_mut(&self.host) else { return };
        host.under_way -= 1;
        let wanted = std::mem::take(&mut host.wanted);
        if host.under_way == 0 && host.failures == 0 {
            by_name.remove(&self.host);
        }
        drop(by_name);
        if wanted {
            self.hosts.room.notify_one();
        }
    }
}

impl Hosts {
    pub(crate) fn new(per_host: usize) -> Hosts {
        Hosts { by_name: Mutex::default(), per_host: per_host.max(1), room: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Host>> {
        self.by_name.lock().expect("no holder of this lock panics")
    }

    /// A place at the host, or when to ask again.
    pub(crate) fn enter(self: &Arc<Self>, host: &Arc<str>, now: Timestamp) -> Result<Slot, Timestamp> {
        self.enter_as(host, now, false)
    }

    /// The same for a step in line: when there is none, `room` tells of the next.
    pub(crate) fn enter_or_wait(self: &Arc<Self>, host: &Arc<str>, now: Timestamp) -> Option<Slot> {
        self.enter_as(host, now, true).ok()
    }

    /// Who finds no room says so before anybody can give some back.
    fn enter_as(self: &Arc<Self>, host: &Arc<str>, now: Timestamp, waits: bool) -> Result<Slot, Timestamp> {
        let mut by_name = self.lock();
        if by_name.len() >= MANY && !by_name.contains_key(host) {
            forget_idle(&mut by_name, now);
        }
        let state = by_name.entry(host.clone()).or_default();
        let full = state.under_way >= state.limit(self.per_host);
        let again = state.open_until.filter(|until| *until > now).or_else(|| full.then(|| now.plus_ms(FULL_MS)));
        if let Some(again) = again {
            state.wanted |= waits;
            return Err(again);
        }
        state.under_way += 1;
        Ok(Slot { hosts: self.clone(), host: host.clone() })
    }

    /// The host answered, whatever it said.
    pub(super) fn answered(&self, host: &Arc<str>) {
        if let Some(state) = self.lock().get_mut(host) {
            if state.failures >= FAILURES {
                tracing::info!(%host, "a host that steps are pushed to answers again");
            }
            (state.failures, state.open_until, state.open_ms) = (0, None, 0);
        }
    }

    /// It could not be reached, took too long, or failed by itself.
    pub(super) fn failed(&self, host: &Arc<str>, now: Timestamp) {
        let mut by_name = self.lock();
        let Some(state) = by_name.get_mut(host).filter(|state| !state.is_open(now)) else { return };
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURES {
            return;
        }
        state.open_ms = if state.open_ms == 0 { OPEN_MS } else { (state.open_ms * 2).min(LONGEST_OPEN_MS) };
        state.open_until = Some(now.plus_ms(state.open_ms));
        tracing::warn!(%host, failures = state.failures, wait_ms = state.open_ms, "a host that steps are pushed to is left alone");
    }

    /// Whether a host that was left alone may be tried by a step in line; asked once, it is told once.
    pub(crate) fn take_probe(&self, now: Timestamp) -> bool {
        let mut by_name = self.lock();
        let ready = |state: &&mut Host| state.wanted && state.open_until.is_some() && !state.is_open(now);
        by_name.values_mut().filter(ready).map(|state| state.wanted = false).count() > 0
    }

    /// When the next host that is waited for may be tried.
    pub(crate) fn next_probe(&self) -> Option<Timestamp> {
        self.lock().values().filter(|state| state.wanted).filter_map(|state| state.open_until).min()
    }
}

/// Hosts that have a request under way or steps in line stay; of the others those that may be tried go first.
fn forget_idle(by_name: &mut HashMap<Arc<str>, Host>, now: Timestamp) {
    by_name.retain(|_, host| host.under_way > 0 || host.wanted || host.is_open(now));
    if by_name.len() >= MANY {
        by_name.retain(|_, host| host.under_way > 0 || host.wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn hosts() -> (Arc<Hosts>, Arc<str>) {
        (Arc::new(Hosts::new(2)), "a.example".into())
    }

    fn fail(hosts: &Arc<Hosts>, host: &Arc<str>, now: Timestamp) {
        let _slot = hosts.enter(host, now).unwrap();
        hosts.failed(host, now);
    }

    #[test]
    fn a_host_has_so_many_places_and_others_have_their_own() {
        let (hosts, host) = hosts();
        let first = hosts.enter(&host, NOW).unwrap();
        let _second = hosts.enter(&host, NOW).unwrap();
        assert_eq!(hosts.enter(&host, NOW).unwrap_err(), NOW.plus_ms(FULL_MS));
        let _elsewhere = hosts.enter(&"b.example".into(), NOW).unwrap();
        drop(first);
        hosts.enter(&host, NOW).unwrap();
    }

    #[test]
    fn a_host_that_fails_is_left_alone_and_then_tried_by_one() {
        let (hosts, host) = hosts();
        (0..FAILURES).for_each(|_| fail(&hosts, &host, NOW));
        assert_eq!(hosts.enter(&host, NOW).unwrap_err(), NOW.plus_ms(OPEN_MS));
        let later = NOW.plus_ms(OPEN_MS);
        let probe = hosts.enter(&host, later).unwrap();
        hosts.enter(&host, later).unwrap_err();
        hosts.failed(&host, later);
        drop(probe);
        assert_eq!(hosts.enter(&host, later).unwrap_err(), later.plus_ms(2 * OPEN_MS), "longer each time");
        let probe = hosts.enter(&host, later.plus_ms(2 * OPEN_MS)).unwrap();
        hosts.answered(&host);
        let _second = hosts.enter(&host, later).unwrap();
        drop(probe);
    }

    #[test]
    fn failures_that_were_under_way_together_count_as_one_spell() {
        let (hosts, host) = hosts();
        for _ in 0..FAILURES * 10 {
            let slot = hosts.enter(&host, NOW);
            hosts.failed(&host, NOW);
            drop(slot);
        }
        assert_eq!(hosts.enter(&host, NOW).unwrap_err(), NOW.plus_ms(OPEN_MS));
    }

    #[test]
    fn an_answer_in_between_starts_the_count_anew() {
        let (hosts, host) = hosts();
        for _ in 0..3 {
            (0..FAILURES - 1).for_each(|_| fail(&hosts, &host, NOW));
            let _slot = hosts.enter(&host, NOW).unwrap();
            hosts.answered(&host);
        }
        hosts.enter(&host, NOW).unwrap();
        assert!(hosts.lock().is_empty(), "a host that is well and idle is not remembered");
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_of_it_once() {
        let (hosts, host) = hosts();
        let slots = [hosts.enter_or_wait(&host, NOW).unwrap(), hosts.enter_or_wait(&host, NOW).unwrap()];
        assert!(hosts.enter_or_wait(&host, NOW).is_none());
        drop(slots);
        hosts.room.notified().await;
        (0..FAILURES).for_each(|_| fail(&hosts, &host, NOW));
        assert!(hosts.enter_or_wait(&host, NOW).is_none());
        let until = NOW.plus_ms(OPEN_MS);
        assert_eq!(hosts.next_probe(), Some(until));
        assert!(!hosts.take_probe(NOW) && hosts.take_probe(until) && !hosts.take_probe(until));
        assert_eq!(hosts.next_probe(), None);
    }

    #[test]
    fn hosts_that_failed_are_not_remembered_without_end() {
        let (hosts, kept) = hosts();
        let _slot = hosts.enter(&kept, NOW).unwrap();
        for n in 0..2 * MANY {
            let host: Arc<str> = format!("{n}.example").into();
            (0..FAILURES).for_each(|_| fail(&hosts, &host, NOW));
        }
        let by_name = hosts.lock();
        assert!(by_name.len() <= MANY && by_name.contains_key(&kept), "{}", by_name.len());
    }
}
