//! All connections of a server: how many there may be, who makes room when they are too many, and who has been silent for
//! too long.
//!
//! **Invariant:** a new connection finds room as long as one other is between two requests. Requests never take the last
//! places, so `/healthz` is answered at all times.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::connection::{Phase, Pulse, Working};
use crate::metrics;
use crate::state::Settings;

/// How often silent connections are looked for.
const SWEEP: Duration = Duration::from_millis(500);
/// Connections that requests leave free: for those that ask whether the server lives, and for answers to the others.
const SPARE: usize = 32;
/// With fewer connections a server is of no use.
const FEWEST: usize = 2 * SPARE;

/// Why a connection is let go before its peer closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A newer one needs its place.
    Full,
    /// The head of a request did not arrive in time.
    Head,
    /// No request came.
    Idle,
    /// The peer takes nothing of an answer.
    Stalled,
}

impl Why {
    pub(crate) const ALL: [Why; 4] = [Why::Full, Why::Head, Why::Idle, Why::Stalled];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Why::Full => "full",
            Why::Head => "head",
            Why::Idle => "idle",
            Why::Stalled => "stalled",
        }
    }
}

/// How long a connection may be at what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    head: Duration,
    idle: Duration,
    stalled: Duration,
}

impl Patience {
    fn ends(self, pulse: &Pulse) -> Option<Why> {
        if pulse.stalled().is_some_and(|stalled| stalled > self.stalled) {
            return Some(Why::Stalled);
        }
        match pulse.phase() {
            Phase::Head if pulse.lasted() > self.head => Some(Why::Head),
            Phase::Idle if pulse.lasted() > self.idle => Some(Why::Idle),
            _ => None,
        }
    }
}

/// The connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    patience: Patience,
    /// Requests under way, and WebSockets.
    working: AtomicUsize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    places: HashMap<u64, Arc<Place>>,
    /// How many connections each peer has; shared with them.
    peers: HashMap<IpAddr, Arc<AtomicUsize>>,
}

/// A connection among the others. It is given back when its socket is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) pulse: Pulse,
    number: u64,
    peer: IpAddr,
    of_peer: Arc<AtomicUsize>,
    all: Arc<Connections>,
}

impl Connections {
    pub(crate) fn new(settings: &Settings) -> Arc<Connections> {
        Arc::new(Connections {
            most: settings.connections.max(FEWEST),
            patience: Patience {
                head: Duration::from_millis(settings.header_ms),
                idle: Duration::from_millis(settings.idle_ms),
                stalled: Duration::from_millis(settings.write_ms),
            },
            working: AtomicUsize::new(0),
            open: Mutex::default(),
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // A table of places is whole after any panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection; another makes room if need be. None if all others are at work.
    pub(crate) fn enter(self: &Arc<Connections>, peer: IpAddr) -> Option<Guest> {
        let peer = network(peer);
        let mut open = self.open();
        let live = open.places.values().filter(|place| !place.pulse.is_let_go());
        if open.places.len() >= self.most && live.count() >= self.most {
            open.let_one_go()?;
        }
        let number = open.next;
        open.next += 1;
        let of_peer = open.peers.entry(peer).or_default().clone();
        of_peer.fetch_add(1, Ordering::Relaxed);
        let place = Arc::new(Place { pulse: Pulse::new(), number, peer, of_peer, all: self.clone() });
        open.places.insert(number, place.clone());
        metrics::connections_open(open.places.len());
        Some(Guest(place))
    }

    /// There are no more file descriptors: a connection that does nothing gives its own back.
    pub(crate) fn make_room(&self) {
        self.open().let_one_go();
    }

    /// Lets go those that have been silent for too long.
    pub(crate) fn sweep(&self) {
        for place in self.open().places.values().filter(|place| !place.pulse.is_let_go()) {
            if let Some(why) = self.patience.ends(&place.pulse) {
                place.let_go(why);
            }
        }
    }

    /// Sweeps for ever.
    pub(crate) async fn keep_sweeping(self: Arc<Connections>) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sweep();
        }
    }
}

impl Open {
    /// Of the peer that has the most connections, the one that has been between two requests for longest. So whoever opens
    /// many makes room himself.
    fn let_one_go(&self) -> Option<()> {
        let idle = self.places.values().filter(|place| place.pulse.is_between_requests());
        let key =
            |place: &Arc<Place>| (place.of_peer.load(Ordering::Relaxed), place.pulse.lasted(), Reverse(place.number));
        let (_, place) = idle.map(|place| (key(place), place)).max_by_key(|(key, _)| *key)?;
        place.let_go(Why::Full);
        Some(())
    }
}

impl Place {
    fn let_go(&self, why: Why) {
        metrics::connection_let_go(why);
        self.pulse.let_go();
    }

    /// A request begins, unless too many are under way. Those that ask how the server is always begin.
    pub(crate) fn begin(self: &Arc<Place>, is_question_of_health: bool) -> Option<Working> {
        let most = self.all.most - SPARE;
        let before = self.all.working.fetch_add(1, Ordering::Relaxed);
        if before >= most && !is_question_of_health {
            self.release();
            return None;
        }
        Some(Working::new(self.clone()))
    }

    /// A request has ended.
    pub(crate) fn release(&self) {
        self.all.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of a socket, which leaves it when the socket is closed.
#[derive(Debug)]
pub(crate) struct Guest(pub(crate) Arc<Place>);

impl Drop for Guest {
    fn drop(&mut self) {
        let place = &self.0;
        if place.pulse.phase() == Phase::Upgraded {
            place.release();
        }
        let mut open = place.all.open();
        open.places.remove(&place.number);
        if place.of_peer.fetch_sub(1, Ordering::Relaxed) == 1 {
            open.peers.remove(&place.peer);
        }
        metrics::connections_open(open.places.len());
    }
}

/// Whose connections count together: one address, or the network that one household of IPv6 has.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = FEWEST;

    fn connections() -> Arc<Connections> {
        Connections::new(&Settings { connections: MOST, ..Settings::default() })
    }

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn let_go(guests: &[Guest]) -> Vec<usize> {
        (0..guests.len()).filter(|at| guests[*at].0.pulse.is_let_go()).collect()
    }

    #[test]
    fn the_peer_with_the_most_connections_makes_room() {
        let all = connections();
        let honest = [all.enter(address(1)).unwrap(), all.enter(address(1)).unwrap()];
        let greedy: Vec<Guest> = (2..MOST).map(|_| all.enter(address(2)).unwrap()).collect();
        let mut more = Vec::new();
        for _ in 0..2 * MOST {
            more.push(all.enter(address(2)).unwrap());
        }
        assert_eq!(let_go(&honest), [0; 0], "older, and of a peer that has two");
        assert_eq!(let_go(&greedy).len(), greedy.len());
        let live = all.open().places.values().filter(|place| !place.pulse.is_let_go()).count();
        assert_eq!(live, MOST);
    }

    #[test]
    fn what_is_at_work_is_never_let_go_and_leaves_places_free() {
        let all = connections();
        let guests: Vec<Guest> = (0..MOST).map(|_| all.enter(address(1)).unwrap()).collect();
        let working: Vec<Option<Working>> = guests.iter().map(|guest| guest.0.begin(false)).collect();
        assert_eq!(working.iter().flatten().count(), MOST - SPARE);
        let health: Vec<Option<Working>> = guests[MOST - SPARE..].iter().map(|guest| guest.0.begin(true)).collect();
        assert_eq!(health.iter().flatten().count(), SPARE);
        assert!(all.enter(address(1)).is_none(), "all are at work");
        drop(health);
        assert!(all.enter(address(1)).is_some());
        assert!(let_go(&guests[..MOST - SPARE]).is_empty());
        drop(working);
        assert!(guests[0].0.begin(false).is_some());
    }

    #[test]
    fn places_are_given_back() {
        let all = connections();
        let mut guest = all.enter(address(1)).unwrap();
        let mut working = guest.0.begin(false).unwrap();
        working.upgraded();
        drop(working);
        assert_eq!(all.working.load(Ordering::Relaxed), 1, "a WebSocket is at work until it is closed");
        guest = all.enter(address(2)).unwrap();
        assert_eq!(all.working.load(Ordering::Relaxed), 0);
        drop(guest);
        assert!(all.open().places.is_empty() && all.open().peers.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let same = |a: &str, b: &str| network(a.parse().unwrap()) == network(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
    }
}
