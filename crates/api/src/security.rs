//! The security log: one line per refusal (401, 403) and per deed that whoever keeps a server safe wants to know of, with
//! who did it and from where. All of it has the target `security`, so that it can be kept apart.
//!
//! **Invariant:** no line has a token, a secret or a payload in it.
//! **Invariant:** refusals fill no disk: they cost a caller nothing, so their lines are bounded per peer and altogether, and
//! those that are left out are counted. The metric counts all of them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{Extensions, Method, StatusCode};
use axum::response::Response;
use milepost_core::text::without_controls;

use crate::connections::network;
use crate::error::{Problem, Refusal, Result};
use crate::extract::Actor;
use crate::metrics;
use crate::state::AppState;

/// So that it can be told apart from all other lines.
const TARGET: &str = "security";
/// Lines about refusals are counted for this long.
const WINDOW: Duration = Duration::from_secs(60);
const LINES_PER_PEER: u32 = 10;
const LINES: u32 = 200;
/// Characters of a refusal's reason: some quote what was sent.
const MAX_DETAIL: usize = 300;

/// The other end of the connection that a request came over. Behind a proxy it is the proxy: what that says in a header,
/// anybody could say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peer(pub(crate) Option<SocketAddr>);

impl Peer {
    pub(crate) fn of(extensions: &Extensions) -> Peer {
        extensions.get::<Peer>().copied().unwrap_or_default()
    }

    fn shown(self) -> String {
        self.0.map_or_else(|| "unknown".to_owned(), |address| address.to_string())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Peer, Infallible> {
        Ok(Peer::of(&parts.extensions))
    }
}

/// Who does something, and from where.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) actor: Option<String>,
    peer: Peer,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Caller> {
        let Actor(actor) = Actor::from_request_parts(parts, state).await?;
        Ok(Caller { actor, peer: Peer::of(&parts.extensions) })
    }
}

impl Caller {
    /// Writes down that it was done, and to what.
    pub(crate) fn did(&self, action: &'static str, object: &str) {
        let (actor, from) = (self.actor.as_deref().unwrap_or("unnamed"), self.peer.shown());
        tracing::info!(target: TARGET, action, object, actor, from, "done");
    }
}

/// A request, as far as the log of refusals may tell of it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    method: Method,
    /// As it is declared: a path may have anything in it.
    route: Option<MatchedPath>,
    peer: Peer,
}

impl Asked {
    /// Of a request that reached no route.
    pub(crate) fn from_peer(method: &Method, peer: Peer) -> Asked {
        Asked { method: method.clone(), route: None, peer }
    }

    pub(crate) fn of(method: &Method, extensions: &Extensions) -> Asked {
        Asked { method: method.clone(), route: extensions.get().cloned(), peer: Peer::of(extensions) }
    }
}

/// Bounds what is written about refusals.
#[derive(Debug, Default)]
pub(crate) struct SecurityLog(Mutex<Option<Window>>);

/// What was written lately.
#[derive(Debug)]
struct Window {
    since: Instant,
    lines: u32,
    of_peer: HashMap<(IpAddr, StatusCode), u32>,
    left_out: u64,
}

impl SecurityLog {
    /// Counts an answer that refuses its caller, and writes it down.
    pub(crate) fn note(&self, asked: &Asked, response: &Response) {
        let status = response.status();
        if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return;
        }
        let refusal = response.extensions().get::<Refusal>();
        let code = refusal.map_or("forbidden", |refusal| refusal.code.as_str());
        metrics::refused(status, code);
        let Some(left_out) = self.has_room(asked.peer, status, Instant::now()) else { return };
        let detail: String = refusal.map_or("", |refusal| &refusal.detail).chars().take(MAX_DETAIL).collect();
        let route = asked.route.as_ref().map_or("unmatched", MatchedPath::as_str);
        tracing::warn!(
            target: TARGET,
            status = status.as_u16(),
            code,
            method = metrics::method_label(&asked.method),
            route,
            from = asked.peer.shown(),
            detail = &*without_controls(&detail),
            left_out,
            "refused"
        );
    }

    /// Whether there may be a line more of this peer and status, so that many without a token hide nobody who has one; then
    /// how many were left out since the last one.
    fn has_room(&self, Peer(peer): Peer, status: StatusCode, now: Instant) -> Option<u64> {
        // Numbers are whole after any panic.
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = window.get_or_insert_with(|| Window::new(now));
        if now.saturating_duration_since(window.since) >= WINDOW {
            *window = Window { left_out: window.left_out, ..Window::new(now) };
        }
        let peer = network(peer.map_or(IpAddr::from([0, 0, 0, 0]), |address| address.ip()));
        let key = (peer, status);
        let of_peer = window.of_peer.get(&key).copied().unwrap_or(0);
        if window.lines >= LINES || of_peer >= LINES_PER_PEER {
            window.left_out += 1;
            return None;
        }
        // As many entries as lines, at most.
        window.of_peer.insert(key, of_peer + 1);
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}

impl Window {
    fn new(since: Instant) -> Window {
        Window { since, lines: 0, of_peer: HashMap::new(), left_out: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(a: u8, b: u8) -> Peer {
        Peer(Some(([10, 0, a, b], 4711).into()))
    }

    const NO_TOKEN: StatusCode = StatusCode::UNAUTHORIZED;

    #[test]
    fn a_peer_that_is_refused_without_end_fills_no_disk() {
        let (log, now) = (SecurityLog::default(), Instant::now());
        let written = (0..10_000).filter(|_| log.has_room(peer(0, 1), NO_TOKEN, now).is_some()).count();
        assert_eq!(written, LINES_PER_PEER as usize);
        assert_eq!(
            log.has_room(peer(0, 2), NO_TOKEN, now),
            Some(10_000 - u64::from(LINES_PER_PEER)),
            "others are heard, and told of it"
        );
        assert_eq!(log.has_room(peer(0, 2), NO_TOKEN, now), Some(0));
        assert_eq!(log.has_room(peer(0, 1), StatusCode::FORBIDDEN, now), Some(0), "whoever has a token is no guesser");
        assert_eq!(log.has_room(peer(0, 1), NO_TOKEN, now), None);
        assert_eq!(log.has_room(peer(0, 1), NO_TOKEN, now + WINDOW), Some(1));
    }

    #[test]
    fn many_peers_together_have_a_bound_as_well() {
        let (log, now) = (SecurityLog::default(), Instant::now());
        let peers = (0..100).flat_map(|a| (0..100).map(move |b| peer(a, b)));
        assert_eq!(peers.filter(|peer| log.has_room(*peer, NO_TOKEN, now).is_some()).count(), LINES as usize);
        assert!(log.has_room(Peer(None), NO_TOKEN, now + WINDOW).is_some());
    }
}
