//! A run's events from a server, over as many connections as it takes.
//!
//! **Invariant:** every event is given once and in order. What comes twice is dropped; where something is missing the
//! connection is made anew, from the last event that was given.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::Client;
use super::sse::{Message, Parser};
use crate::error::Error;
use crate::wire::{Event, RunId, Stale};

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// A server says something now and then, be it only a comment.
const SILENCE: Duration = Duration::from_secs(60);
/// So long the server may be away.
const GIVE_UP: Duration = Duration::from_secs(60);

impl Client {
    /// The events of a run after `after_seq` as they happen, up to its end.
    #[must_use]
    pub fn watch(&self, run: RunId, after_seq: u64) -> EventStream {
        self.watch_as(run, after_seq)
    }

    /// The same, read as a type of your own.
    #[must_use]
    pub fn watch_as<T: DeserializeOwned>(&self, run: RunId, after_seq: u64) -> EventStream<T> {
        EventStream {
            client: self.clone(),
            run: run.to_string(),
            last_seq: after_seq,
            connection: None,
            given: VecDeque::new(),
            ended: false,
            not_before: None,
            wait: FIRST_WAIT,
            lost_since: None,
            told: false,
            stale: None,
        }
    }
}

/// What comes out of a stream.
#[derive(Debug)]
pub enum Seen<T> {
    /// In order, without a gap to those before.
    Events(Vec<T>),
    /// The server does not answer; it is tried again. Told once.
    Lost { why: String },
    /// It answers again.
    Back,
    /// The run's log lacks an event; the stream goes on when that is there again. Told once.
    Stale { from_seq: u64 },
}

/// A run's events. Dropping it ends it.
#[derive(Debug)]
pub struct EventStream<T = Event> {
    client: Client,
    run: String,
    last_seq: u64,
    connection: Option<Connection>,
    /// What `next` has not given yet.
    given: VecDeque<T>,
    ended: bool,
    not_before: Option<Instant>,
    wait: Duration,
    lost_since: Option<Instant>,
    /// Whoever watches knows that the connection is lost.
    told: bool,
    /// A gap in the log that whoever watches is to be told of.
    stale: Option<u64>,
}

#[derive(Debug)]
struct Connection {
    answer: Response,
    parser: Parser,
}

/// Why a connection is over.
enum Over {
    /// The run has ended.
    Ended,
    Lost(String),
}

impl<T: DeserializeOwned> EventStream<T> {
    /// The next event; `None` when the run has ended. May be dropped and called again: nothing is missed.
    ///
    /// # Errors
    /// There is no such run, or the server is away for long.
    pub async fn next(&mut self) -> Result<Option<T>, Error> {
        loop {
            if let Some(event) = self.given.pop_front() {
                return Ok(Some(event));
            }
            match self.next_seen().await? {
                Some(Seen::Events(events)) => self.given.extend(events),
                Some(Seen::Lost { .. } | Seen::Back | Seen::Stale { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// All events that have come, or how it stands with the connection; `None` when the run has ended. May be dropped and
    /// called again.
    ///
    /// # Errors
    /// As of `next`.
    pub async fn next_seen(&mut self) -> Result<Option<Seen<T>>, Error> {
        while !self.ended {
            if let Some(from_seq) = self.stale.take() {
                return Ok(Some(Seen::Stale { from_seq }));
            }
            let seen = match self.connection {
                Some(_) => self.listen().await?,
                None => self.connect().await?,
            };
            if seen.is_some() {
                return Ok(seen);
            }
        }
        Ok(None)
    }

    /// A new connection, from the last event on.
    async fn connect(&mut self) -> Result<Option<Seen<T>>, Error> {
        if let Some(moment) = self.not_before {
            tokio::time::sleep_until(moment).await;
        }
        let request = self.client.request(Method::GET, &["runs", &self.run, "stream"], &[]);
        let request = request.header(ACCEPT, "text/event-stream").header("Last-Event-ID", self.last_seq);
        match request.send().await {
            Ok(answer) if answer.status() == StatusCode::OK => self.connected(answer),
            // Nothing comes after what was given.
            Ok(answer) if answer.status() == StatusCode::NO_CONTENT => {
                self.ended = true;
                Ok(None)
            }
            Ok(answer) => {
                let says = format!("it says {}", answer.status());
                match self.client.refused(answer).await {
                    error if error.may_pass() => self.away(says),
                    error => Err(error),
                }
            }
            Err(error) => match Error::unreachable(self.client.url(), &error) {
                Error::Unreachable { why, .. } => self.away(why),
                other => Err(other),
            },
        }
    }

    fn connected(&mut self, answer: Response) -> Result<Option<Seen<T>>, Error> {
        let kind = answer.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if !kind.starts_with(b"text/event-stream") {
            return Err(Error::Stranger { url: self.client.url().to_owned(), status: answer.status() });
        }
        self.connection = Some(Connection { answer, parser: Parser::default() });
        self.lost_since = None;
        Ok(std::mem::take(&mut self.told).then_some(Seen::Back))
    }

    /// What comes next on the connection that is there.
    async fn listen(&mut self) -> Result<Option<Seen<T>>, Error> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let messages = match tokio::time::timeout(SILENCE, connection.answer.chunk()).await {
            Ok(Ok(Some(bytes))) => connection.parser.take(&bytes),
            Ok(Ok(None)) => return self.interrupted("it ended the stream".to_owned()),
            Ok(Err(error)) => return self.interrupted(error.to_string()),
            Err(_) => return self.interrupted("it is silent".to_owned()),
        };
        let (events, over) = self.take(&messages)?;
        if !events.is_empty() {
            self.wait = FIRST_WAIT;
        }
        match over {
            None => {}
            Some(Over::Ended) => self.ended = true,
            Some(Over::Lost(why)) => drop(self.interrupted(why)?),
        }
        Ok((!events.is_empty()).then_some(Seen::Events(events)))
    }

    /// What is new among these messages, and whether the connection is over.
    fn take(&mut self, messages: &[Message]) -> Result<(Vec<T>, Option<Over>), Error> {
        let mut events = Vec::new();
        for message in messages {
            let over = match message.event.as_str() {
                "end" => Some(Over::Ended),
                "dropped" | "shutdown" | "failed" => Some(Over::Lost(message.event.clone())),
                "stale" => {
                    let told = serde_json::from_str::<Stale>(&message.data).ok();
                    self.stale = told.map(|stale| stale.from_seq).or(self.stale);
                    None
                }
                _ => self.take_event(message, &mut events)?,
            };
            if over.is_some() {
                return Ok((events, over));
            }
        }
        Ok((events, None))
    }

    fn take_event(&mut self, message: &Message, events: &mut Vec<T>) -> Result<Option<Over>, Error> {
        // One without a number is of a kind that a later release has.
        let Some(seq) = message.id.as_deref().and_then(|id| id.parse::<u64>().ok()) else { return Ok(None) };
        if seq > self.last_seq + 1 {
            return Ok(Some(Over::Lost(format!("event {} is missing", self.last_seq + 1))));
        }
        if seq == self.last_seq + 1 {
            events.push(self.client.read(message.data.as_bytes())?);
            self.last_seq = seq;
        }
        Ok(None)
    }

    /// No connection came about. The first time whoever watches is told.
    fn away(&mut self, why: String) -> Result<Option<Seen<T>>, Error> {
        self.interrupted(why.clone())?;
        let told = std::mem::replace(&mut self.told, true);
        Ok((!told).then_some(Seen::Lost { why }))
    }

    /// A connection is over; another one is made in a moment, unless this goes on for too long.
    fn interrupted(&mut self, why: String) -> Result<Option<Seen<T>>, Error> {
        self.connection = None;
        let now = Instant::now();
        if now.duration_since(*self.lost_since.get_or_insert(now)) > GIVE_UP {
            return Err(Error::Unreachable { url: self.client.url().to_owned(), why });
        }
        self.not_before = Some(now + self.wait);
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
