//! What every route has at hand.

use std::sync::Arc;

use axum::http::HeaderMap;
use milepost_engine::Engine;
use milepost_engine::room::Room;
use tokio::sync::watch;

use crate::bodies::Bodies;
use crate::doorway::Doorway;
use crate::error::Result;
use crate::guard::check_token;
use crate::metrics::Scrape;
use crate::peers::Peers;
use crate::readiness::DatabaseProbe;
use crate::security::SecurityLog;
use crate::sending::ANSWER_BYTES;
use crate::streams::{Places, StreamPlace};
use crate::tls::Tls;
use crate::token::KnownToken;

/// How a server knows who does something, for histories and for tags that are protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Actors {
    /// By the names of tokens alone. Whoever comes without such a name has none.
    #[default]
    Tokens,
    /// By what callers say (`Milepost-Actor`), as all of them are one person, whose name it is otherwise. Where there are
    /// tokens, they count alone all the same.
    Said { otherwise: Option<String> },
}

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who may come in; without any, everybody who reaches the address.
    pub tokens: Vec<KnownToken>,
    /// Who does what is done.
    pub actors: Actors,
    /// Lets a browser have the token, where it is one person's.
    pub doorway: Option<Arc<Doorway>>,
    /// Whose connections are answered, among the users of this machine.
    pub peers: Peers,
    /// Only requests that name this machine itself (`localhost`, `127.0.0.1`, `[::1]`) are answered. Without tokens
    /// this keeps pages of other sites, open in a browser on this machine, from talking to the server.
    pub loopback_only: bool,
    /// A reader of a stream that takes nothing for this long is let go.
    pub slow_reader_ms: u64,
    /// A WebSocket that is let go has this long to read why.
    pub goodbye_ms: u64,
    /// A stream of server-sent events that has been quiet for this long says that it is still there.
    pub keep_alive_ms: u64,
    /// How often clients of WebSockets are asked whether they are still there; one that does not answer twice is not.
    pub ping_ms: u64,
    /// How long requests under way may take once the server is drained.
    pub drain_ms: u64,
    /// Connections at once.
    pub connections: usize,
    /// The head of a request arrives within this time, a TLS handshake included.
    pub header_ms: u64,
    /// A connection on which no request came for this long is closed.
    pub idle_ms: u64,
    /// A body arrives within this time, and longer as long as it comes fast. An upload may pause for this long.
    pub body_ms: u64,
    /// A peer that takes nothing of an answer for this long is let go.
    pub write_ms: u64,
    /// Bytes of request bodies in memory, of all requests together.
    pub body_bytes: usize,
    /// Streams of events at once, of both kinds.
    pub streams: usize,
    /// The certificate of this server; without one it speaks in clear text.
    pub tls: Option<Tls>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tokens: Vec::new(),
            actors: Actors::Tokens,
            doorway: None,
            peers: Peers::All,
            loopback_only: true,
            slow_reader_ms: 10_000,
            goodbye_ms: 5_000,
            keep_alive_ms: 15_000,
            ping_ms: 20_000,
            drain_ms: 10_000,
            connections: 10_000,
            header_ms: 15_000,
            idle_ms: 120_000,
            body_ms: 30_000,
            write_ms: 30_000,
            body_bytes: 192 * 1024 * 1024,
            streams: 4_000,
            tls: None,
        }
    }
}

/// Cheap to clone: one per request.
#[derive(Clone, Debug)]
pub struct AppState {
    pub engine: Arc<Engine>,
    pub settings: Arc<Settings>,
    pub(crate) scrape: Arc<Scrape>,
    pub(crate) database: Arc<DatabaseProbe>,
    pub(crate) bodies: Arc<Bodies>,
    /// Memory for responses that are waiting to be sent.
    pub(crate) answers: Room,
    pub(crate) streams: Arc<Places>,
    pub(crate) security: Arc<SecurityLog>,
    draining: Arc<watch::Sender<bool>>,
    /// WebSockets: the HTTP server does not know of them any more.
    sockets: Arc<watch::Sender<usize>>,
}

/// A WebSocket is open as long as this lives.
pub(crate) struct Opened(Arc<watch::Sender<usize>>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl AppState {
    #[must_use]
    pub fn new(engine: Arc<Engine>, settings: Settings) -> AppState {
        let (draining, sockets) = (Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(0)));
        let bodies = Arc::new(Bodies::new(&settings, engine.limits().large_output_bytes));
        let streams = Places::new(settings.streams, settings.tokens.len());
        let (settings, scrape, database, security) =
            (Arc::new(settings), Arc::default(), Arc::default(), Arc::default());
        let answers = Room::new(ANSWER_BYTES);
        AppState { engine, settings, scrape, database, bodies, answers, streams, security, draining, sockets }
    }

    /// From now on this server is not ready, and streams end.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Returns once the server is being drained.
    pub async fn drained(&self) {
        // The sender lives as long as this state, so waiting cannot fail.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// A place for one more stream.
    pub(crate) fn stream_place(&self, headers: &HeaderMap) -> Result<StreamPlace> {
        self.streams.enter(check_token(self, headers)?.map(|token| token.hash))
    }

    /// How many WebSockets are open.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        *self.sockets.borrow()
    }

    pub(crate) fn opened(&self) -> Opened {
        self.sockets.send_modify(|open| *open += 1);
        Opened(self.sockets.clone())
    }

    /// Returns once no WebSocket is open.
    pub(crate) async fn sockets_closed(&self) {
        let _ = self.sockets.subscribe().wait_for(|open| *open == 0).await;
    }
}
