//! One WebSocket: what its client says, what its runs do, and whether it is still there.
//!
//! One task reads and writes, so nothing queues up: while the client takes nothing, nothing more is fetched for it.

use std::pin::Pin;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures::{Sink as _, SinkExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::Stop;
use super::message::{Place, Said, Told};
use super::places::Place as StreamPlace;
use super::subscriptions::Subscriptions;
use crate::metrics::OpenStream;
use crate::state::{AppState, Opened};

/// Messages of a client beyond this are refused.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// Beyond this they are not even read, and the socket is closed.
pub(crate) const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// Bytes that are read at a time. Clients say little, and what is set aside for them is cleared before every look.
pub(crate) const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Bytes that gather before they are written.
pub(crate) const WRITE_BUFFER_BYTES: usize = 32 * 1024;

pub(crate) struct Socket {
    socket: WebSocket,
    runs: Subscriptions,
    state: AppState,
    /// When the client last gave a sign of life.
    heard: Instant,
    _open: (Opened, OpenStream, StreamPlace),
}

impl Socket {
    pub(crate) fn new(socket: WebSocket, state: AppState, open: Opened, place: StreamPlace) -> Socket {
        let runs = Subscriptions::new(state.engine.clone(), state.streams.clone());
        Socket { socket, runs, state, heard: Instant::now(), _open: (open, OpenStream::new("ws"), place) }
    }

    /// Serves the client until it goes, or has to go.
    pub(crate) async fn run(mut self, first: Option<Place>) {
        if let Some(place) = first {
            // The only one: it cannot be one too many.
            self.runs.add(place);
        }
        if let Err(stop) = self.talk().await {
            self.say_goodbye(&stop).await;
        }
    }

    async fn talk(&mut self) -> Result<(), Stop> {
        let pause = Duration::from_millis(self.state.settings.ping_ms);
        let mut ping = interval_at(Instant::now() + pause, pause);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let messages = tokio::select! {
                message = self.socket.recv() => match message {
                    Some(Ok(Message::Close(_))) | None => return self.socket.flush().await.map_err(|_| Stop::Gone),
                    Some(Err(_)) => return Err(Stop::Unreadable),
                    Some(Ok(message)) => self.hear(message),
                },
                step = self.runs.next() => self.runs.take(step)?,
                _ = ping.tick() => match self.heard.elapsed() > pause * 2 {
                    true => return Err(Stop::Gone),
                    false => vec![Message::Ping(bytes::Bytes::new())],
                },
                () = self.state.drained() => return Err(Stop::Shutdown),
            };
            self.send(messages).await?;
        }
    }

    fn hear(&mut self, message: Message) -> Vec<Message> {
        self.heard = Instant::now();
        let said = match &message {
            Message::Text(text) if text.len() > MAX_MESSAGE_BYTES => {
                let message = format!("a message has {MAX_MESSAGE_BYTES} bytes at most; send several");
                Err(Told::error("message_too_large", message, None))
            }
            Message::Text(text) => Said::parse(text),
            Message::Binary(_) => Err(Told::error("bad_message", "messages are JSON texts, not binary", None)),
            _ => return Vec::new(),
        };
        let told = match said {
            Err(told) => vec![told],
            Ok(Said::Ping {}) => vec![Told::Pong],
            Ok(Said::Unsubscribe { run_id }) => vec![self.runs.remove(run_id)],
            Ok(Said::Subscribe { run_id: Some(run_id), after_seq, runs: None }) => {
                self.runs.add(Place { run_id, after_seq: after_seq.unwrap_or(0) }).into_iter().collect()
            }
            Ok(Said::Subscribe { run_id: None, after_seq: None, runs: Some(places) }) => {
                places.into_iter().filter_map(|place| self.runs.add(place)).collect()
            }
            Ok(Said::Subscribe { .. }) => {
                let message = r#"say "run_id" (and "after_seq"), or "runs": a list of them"#;
                vec![Told::error("bad_message", message, None)]
            }
        };
        told.into_iter().map(Message::from).collect()
    }

    /// Each message has its time to be taken.
    async fn send(&mut self, messages: Vec<Message>) -> Result<(), Stop> {
        for message in messages {
            in_time(&self.state, self.socket.feed(message)).await?;
        }
        in_time(&self.state, self.socket.flush()).await
    }

    /// Says why it ends, behind what the client has not taken yet, and gives it a moment to read that far.
    async fn say_goodbye(&mut self, stop: &Stop) {
        let code = match stop {
            Stop::Gone => return,
            Stop::Slow => close_code::AGAIN,
            Stop::Shutdown => close_code::AWAY,
            Stop::Unreadable => close_code::PROTOCOL,
            Stop::Failed(_) => close_code::ERROR,
        };
        // What it followed costs nothing any more.
        self.runs = Subscriptions::new(self.state.engine.clone(), self.state.streams.clone());
        let reason = format!("{}: {}", stop.code(), stop.message()).into();
        // Not by `send`, which would wait for room first.
        let close = Message::Close(Some(CloseFrame { code, reason }));
        if Pin::new(&mut self.socket).start_send(close).is_err() {
            return;
        }
        let grace = Duration::from_millis(self.state.settings.goodbye_ms);
        let _ = timeout(grace, async {
            if self.socket.flush().await.is_ok() {
                // Until the client has closed its side; what it still says is of no interest.
                while let Some(Ok(_)) = self.socket.recv().await {}
            }
        })
        .await;
    }
}

async fn in_time<E>(state: &AppState, sent: impl Future<Output = Result<(), E>>) -> Result<(), Stop> {
    let patience = Duration::from_millis(state.settings.slow_reader_ms);
    tokio::select! {
        biased;
        sent = timeout(patience, sent) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Stop::Gone),
            Err(_) => Err(Stop::Slow),
        },
        () = state.drained() => Err(Stop::Shutdown),
    }
}
