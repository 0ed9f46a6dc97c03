//! The exporter: reads the logs of runs that ended here and sends their spans to a collector, many at once.
//!
//! ```text
//!   committer ──► bounded queue ──► read the log ──► spans ──► batch ──► POST /v1/traces
//!                 (full: dropped)   (in the background)          (again on 429, 503 and lost connections, then dropped)
//! ```

use std::sync::Arc;
use std::time::Duration;

use milepost_core::codec;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_store::Store;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::config::OtlpConfig;
use super::metrics::Metrics;
use super::otlp::{Request, Response, Span};
use super::spans::{MOST_SPANS, RunSpans};

/// How long spans are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(500);
/// A batch with so many spans is sent at once.
const FULL: usize = MOST_SPANS;
/// Events read at once; they carry outputs.
const PAGE: u32 = 200;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Waits between tries: twice as long each time, about half a minute in all.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
const TRIES: u32 = 8;

/// A run whose terminal event this node wrote.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) org: OrgId,
    pub(super) run: RunId,
    pub(super) plan: Arc<Plan>,
    /// Of the terminal event; the log may go on after it.
    pub(super) seq: u64,
}

pub(super) struct Exporter {
    config: OtlpConfig,
    store: Arc<dyn Store>,
    node: NodeId,
    metrics: Arc<Metrics>,
    client: Client,
    queue: mpsc::Receiver<Ended>,
    /// Closed when the engine ends.
    hurry: watch::Receiver<()>,
    batch: Batch,
    /// The last try failed and somebody was told.
    complained: bool,
}

#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    runs: u64,
    since: Option<Instant>,
}

/// Why a batch was not taken.
enum NotTaken {
    /// Worth another try, after so long if the collector said so.
    Busy(String, Option<Duration>),
    /// The same again would fail again.
    Refused(String),
}

impl Exporter {
    pub(super) fn new(
        config: OtlpConfig,
        store: Arc<dyn Store>,
        node: NodeId,
        metrics: Arc<Metrics>,
        queue: mpsc::Receiver<Ended>,
        hurry: watch::Receiver<()>,
    ) -> Exporter {
        let client = Client::builder().timeout(REQUEST_TIMEOUT).redirect(reqwest::redirect::Policy::none()).build();
        // It fails where the machine has no certificates to trust; plain HTTP needs none.
        let client = client.unwrap_or_default();
        Exporter { config, store, node, metrics, client, queue, hurry, batch: Batch::default(), complained: false }
    }

    /// Runs until nobody is left who could end a run; then sends what there is.
    pub(super) async fn run(mut self) {
        loop {
            match self.next().await {
                Some(Some(ended)) => self.gather(ended).await,
                Some(None) => self.send().await,
                None => return self.send().await,
            }
            if self.batch.spans.len() >= FULL {
                self.send().await;
            }
        }
    }

    /// The next run; or nothing, when the batch has gathered for long enough.
    async fn next(&mut self) -> Option<Option<Ended>> {
        match self.batch.since {
            None => self.queue.recv().await.map(Some),
            Some(since) => match tokio::time::timeout_at(since + GATHER, self.queue.recv()).await {
                Ok(received) => received.map(Some),
                Err(_) => Some(None),
            },
        }
    }

    async fn gather(&mut self, ended: Ended) {
        let run = ended.run;
        match self.read(ended).await {
            Ok(spans) if spans.is_empty() => {}
            Ok(mut spans) => {
                self.batch.spans.append(&mut spans);
                self.batch.runs += 1;
                self.batch.since = self.batch.since.or_else(|| Some(Instant::now()));
            }
            Err(reason) => {
                tracing::debug!(%run, reason, "a run cannot be traced");
                self.metrics.traces_unreadable.increment(1);
            }
        }
    }

    async fn read(&self, ended: Ended) -> Result<Vec<Span>, String> {
        let mut spans = RunSpans::new(ended.run, ended.plan.clone());
        let mut after = 0;
        while after < ended.seq {
            let page = self.store.events(ended.org, ended.run, after, PAGE).await;
            let page = page.map_err(|error| error.to_string())?;
            let Some(last) = page.last() else { return Err("its log ends too early".to_owned()) };
            after = last.seq;
            for row in page.iter().filter(|row| row.seq <= ended.seq) {
                spans.apply(codec::decode(row, &ended.plan).map_err(|error| error.to_string())?);
            }
            if spans.is_unwanted() {
                return Ok(Vec::new());
            }
        }
        Ok(spans.finish())
    }

    async fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.spans.is_empty() {
            return;
        }
        let request = Request::new(&self.config.service_name, self.node, &batch.spans);
        let body = serde_json::to_vec(&request).expect("spans have no failing serializer");
        match self.deliver(&body).await {
            Ok(rejected) => {
                self.metrics.traces_exported.increment(batch.runs);
                self.complained = false;
                if let Some(reason) = rejected {
                    self.complain(&reason, "the collector rejected some spans");
                }
            }
            Err(NotTaken::Busy(reason, _)) => {
                self.metrics.traces_unreachable.increment(batch.runs);
                self.complain(&reason, "traces cannot be delivered and are dropped; is there an OTLP/HTTP receiver?");
            }
            Err(NotTaken::Refused(reason)) => {
                self.metrics.traces_refused.increment(batch.runs);
                self.complain(&reason, "the collector refuses traces; they are dropped");
            }
        }
    }

    /// Once per trouble, not once per batch.
    fn complain(&mut self, reason: &str, what: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(node = %self.node, url = self.config.shown_url(), reason, "{what}");
        }
    }

    /// Tries until the batch is taken, is refused, or patience ends. Answers what the collector did not like about it.
    async fn deliver(&mut self, body: &[u8]) -> Result<Option<String>, NotTaken> {
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            match self.post(body.to_vec()).await {
                Err(NotTaken::Busy(reason, asked)) if attempt < TRIES => {
                    let pause = asked.unwrap_or(wait).min(LONGEST_WAIT);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = self.hurry.changed() => return Err(NotTaken::Busy(reason, None)),
                    }
                    wait *= 2;
                }
                outcome => return outcome,
            }
        }
        unreachable!("the last try returns")
    }

    async fn post(&self, body: Vec<u8>) -> Result<Option<String>, NotTaken> {
        let request = self.client.post(self.config.traces_url.clone()).headers(self.config.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        let response = request.send().await.map_err(|error| NotTaken::Busy(causes(error), None))?;
        let status = response.status();
        if status.is_success() {
            return Ok(rejection(&response.text().await.unwrap_or_default()));
        }
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let answer = format!("it answered {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(NotTaken::Busy(answer, seconds.map(Duration::from_secs))),
            _ => Err(NotTaken::Refused(answer)),
        }
    }
}

/// What the collector left out although it took the rest.
fn rejection(body: &str) -> Option<String> {
    let answer: Response = serde_json::from_str(body).unwrap_or_default();
    let partial = answer.partial_success.filter(|partial| partial.rejected() > 0)?;
    Some(format!("{} spans: {}", partial.rejected(), partial.error_message))
}

/// The address is left out: it is told beside, without what it may have of a password.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collector_left_out_is_told() {
        let partly =
            |rejected| format!(r#"{{"partialSuccess":{{"rejectedSpans":{rejected},"errorMessage":"too old"}}}}"#);
        assert_eq!(rejection(&partly("3")).as_deref(), Some("3 spans: too old"));
        assert_eq!(rejection(&partly(r#""3""#)).as_deref(), Some("3 spans: too old"));
        assert_eq!(rejection(&partly("0")), None);
        assert_eq!(rejection("{}"), None);
        assert_eq!(rejection(""), None);
    }
}
