//! A run that somebody follows: how late its events are seen, and that none is missed.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use milepost_core::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Connection;
use super::server::start;

/// Steps of the run that streams are measured with: some events a moment, for some seconds.
const TICKS: usize = 100;

/// Starts a run that waits until it is told to [`go`], and then makes a few events every 30 ms for some seconds.
pub(super) async fn start_ticking(host: &str) -> anyhow::Result<String> {
    let first = ("t000".to_owned(), json!({"skill": "wait", "input": {"signal": "go"}}));
    let ticks = (1..=TICKS).map(|n| {
        let before = [format!("t{:03}", n - 1)];
        (format!("t{n:03}"), json!({"skill": "sleep", "input": {"ms": 30}, "depends_on": before}))
    });
    let steps: serde_json::Map<String, Value> = std::iter::once(first).chain(ticks).collect();
    let body = json!({ "document": {"name": "bench.ticking", "steps": steps} }).to_string();
    start(&mut Connection::open(host).await?, &body).await
}

pub(super) async fn go(host: &str, run: &str) -> anyhow::Result<()> {
    let mut connection = Connection::open(host).await?;
    let (status, body) = connection.call("POST", &format!("/api/v1/runs/{run}/signals"), r#"{"type":"go"}"#).await?;
    ensure!(status < 300, "the signal answered {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}

/// What a follower has seen.
pub(super) struct Seen {
    opened_at: Timestamp,
    pub(super) last: u64,
    /// How long after its commit each event was seen that was committed while the stream was open.
    pub(super) latencies_us: Vec<u64>,
}

impl Seen {
    fn nothing() -> anyhow::Result<Seen> {
        Ok(Seen { opened_at: now()?, last: 0, latencies_us: Vec::new() })
    }

    /// An event, which must be the next one.
    fn note(&mut self, event: &[u8]) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Event {
            run_seq: u64,
            persisted_at: Timestamp,
        }
        let Event { run_seq, persisted_at } = serde_json::from_slice(event)?;
        ensure!(run_seq == self.last + 1, "event {run_seq} came after {}", self.last);
        self.last = run_seq;
        if persisted_at >= self.opened_at {
            self.latencies_us.push(u64::try_from(now()?.0 - persisted_at.0).unwrap_or(0));
        }
        Ok(())
    }
}

fn now() -> anyhow::Result<Timestamp> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(Timestamp(i64::try_from(since.as_micros())?))
}

/// Follows a run over SSE to its end.
pub(super) async fn by_sse(host: String, run: String) -> anyhow::Result<Seen> {
    let mut connection = Connection::open(&host).await?;
    let status = connection.begin(&format!("/api/v1/runs/{run}/stream"), "accept: text/event-stream\r\n").await?;
    ensure!(status == 200, "the stream answered {status}");
    let mut seen = Seen::nothing()?;
    while let Some(line) = connection.next_line().await? {
        if line.starts_with("event: end") {
            return Ok(seen);
        }
        if let Some(data) = line.strip_prefix("data: ") {
            seen.note(data.as_bytes())?;
        }
    }
    anyhow::bail!("the stream was closed after event {}", seen.last)
}

/// A WebSocket that follows a run.
pub(super) struct Subscriber {
    connection: Connection,
    seen: Seen,
}

impl Subscriber {
    pub(super) async fn open(host: &str, run: &str) -> anyhow::Result<Subscriber> {
        let mut connection = Connection::open(host).await?;
        let headers = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        let status = connection.begin(&format!("/api/v1/ws?run_id={run}&after_seq=0"), headers).await?;
        ensure!(status == 101, "the WebSocket answered {status}");
        Ok(Subscriber { connection, seen: Seen::nothing()? })
    }

    /// Sees the run to its end.
    pub(super) async fn see(mut self) -> anyhow::Result<Seen> {
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            #[serde(borrow)]
            event: Option<&'a serde_json::value::RawValue>,
        }
        while let Some(text) = self.connection.next_message().await? {
            let message: Message = serde_json::from_slice(text)?;
            match (message.kind, message.event) {
                ("event", Some(event)) => self.seen.note(event.get().as_bytes())?,
                ("end", _) => return Ok(self.seen),
                ("error", _) => anyhow::bail!("the WebSocket said {}", String::from_utf8_lossy(text)),
                _ => {}
            }
        }
        anyhow::bail!("the WebSocket was closed after event {}", self.seen.last)
    }
}
