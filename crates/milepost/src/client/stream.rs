//! A run's events from a server, over as many connections as it takes.
//!
//! **Invariant:** every event is given once and in order. What comes twice is dropped; where something is missing the
//! connection is made anew, from the last event that was given.

use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_engine::view::EventView;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode};

use super::sse::{Message, Parser};
use super::{Client, error};
use crate::backend::feed::{Fed, Feed, FeedSender};
use crate::output::error::Refusal;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A server says something now and then, be it only a comment.
const SILENCE: Duration = Duration::from_secs(60);
/// So long the server may be away.
const GIVE_UP: Duration = Duration::from_secs(60);

impl Client {
    /// The events after `after_seq`.
    pub(crate) fn stream(&self, run: RunId, after_seq: u64) -> Feed {
        let client = self.clone();
        Feed::fill(|sender| Reader { client, run, last_seq: after_seq, sender, lost_since: None, told: false }.read())
    }
}

struct Reader {
    client: Client,
    run: RunId,
    last_seq: u64,
    sender: FeedSender,
    lost_since: Option<Instant>,
    /// Whoever watches knows that the connection is lost.
    told: bool,
}

/// Why a connection is over.
enum Over {
    /// The run has ended.
    Ended,
    Lost(String),
}

impl Reader {
    async fn read(mut self) -> anyhow::Result<()> {
        let mut wait = FIRST_WAIT;
        loop {
            let before = self.last_seq;
            let Over::Lost(why) = self.connect().await? else { return Ok(()) };
            if self.last_seq > before {
                wait = FIRST_WAIT;
            }
            let lost_since = *self.lost_since.get_or_insert_with(Instant::now);
            if lost_since.elapsed() > GIVE_UP {
                return Err(self.gave_up(&why));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// One connection, from the last event on.
    async fn connect(&mut self) -> anyhow::Result<Over> {
        let run = self.run.to_string();
        let request = self.client.request(Method::GET, &["runs", &run, "stream"], &[]);
        let request = request.header(ACCEPT, "text/event-stream").header("Last-Event-ID", self.last_seq);
        match request.send().await {
            Ok(answer) if answer.status() == StatusCode::OK => self.listen(answer).await,
            // Nothing comes after what was given.
            Ok(answer) if answer.status() == StatusCode::NO_CONTENT => Ok(Over::Ended),
            Ok(answer) if may_pass(answer.status()) => self.lost(format!("it says {}", answer.status())).await,
            Ok(answer) => {
                let status = answer.status();
                Err(error::refused(&self.client.server, status, &answer.bytes().await.unwrap_or_default()))
            }
            Err(error) => self.lost(error::cause(&error)).await,
        }
    }

    async fn listen(&mut self, mut answer: Response) -> anyhow::Result<Over> {
        let kind = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !kind.starts_with(b"text/event-stream") {
            return Err(error::refused(&self.client.server, answer.status(), b""));
        }
        self.lost_since = None;
        if std::mem::take(&mut self.told) {
            self.say("the server is back").await;
        }
        let mut parser = Parser::default();
        loop {
            let bytes = match tokio::time::timeout(SILENCE, answer.chunk()).await {
                Ok(Ok(Some(bytes))) => bytes,
                Ok(Ok(None)) => return Ok(Over::Lost("it ended the stream".to_owned())),
                Ok(Err(error)) => return Ok(Over::Lost(error::cause(&error))),
                Err(_) => return Ok(Over::Lost("it is silent".to_owned())),
            };
            if let Some(over) = self.take(&parser.take(&bytes)).await? {
                return Ok(over);
            }
        }
    }

    /// Gives what is new. Answers whether the connection is over.
    async fn take(&mut self, messages: &[Message]) -> anyhow::Result<Option<Over>> {
        let mut events = Vec::new();
        let mut over = None;
        for message in messages {
            match message.event.as_str() {
                "end" => over = Some(Over::Ended),
                "dropped" | "shutdown" | "failed" => over = Some(Over::Lost(message.event.clone())),
                _ => over = self.take_event(message, &mut events)?,
            }
            if over.is_some() {
                break;
            }
        }
        if !events.is_empty() {
            self.give(Fed::Events(events)).await;
        }
        Ok(over)
    }

    fn take_event(&mut self, message: &Message, events: &mut Vec<EventView>) -> anyhow::Result<Option<Over>> {
        let event: EventView = match serde_json::from_str(&message.data) {
            Ok(event) => event,
            // A message of a kind that a later release has.
            Err(_) if message.id.is_none() => return Ok(None),
            Err(error) => return Err(error::unreadable(&self.client.server, &error)),
        };
        if event.run_seq > self.last_seq + 1 {
            return Ok(Some(Over::Lost(format!("event {} is missing", self.last_seq + 1))));
        }
        if event.run_seq == self.last_seq + 1 {
            self.last_seq = event.run_seq;
            events.push(event);
        }
        Ok(None)
    }

    /// No connection came about. The first time whoever watches is told.
    async fn lost(&mut self, why: String) -> anyhow::Result<Over> {
        if !std::mem::replace(&mut self.told, true) {
            self.say(&format!("the server does not answer ({why}); trying again")).await;
        }
        Ok(Over::Lost(why))
    }

    async fn say(&self, text: &str) {
        self.give(Fed::Note(text.to_owned())).await;
    }

    async fn give(&self, fed: Fed) {
        // Whoever followed has gone, and with it, in a moment, this task.
        let _ = self.sender.send(Ok(fed)).await;
    }

    fn gave_up(&self, why: &str) -> anyhow::Error {
        let (url, run) = (&self.client.server.url, self.run);
        Refusal::no_server(format!(
            "the server at {url} is away: {why}; when it is back, `milepost runs watch {run}` follows the run again"
        ))
        .into()
    }
}

/// The server is overloaded, starting or stopping, or what stands before it finds none.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests;
