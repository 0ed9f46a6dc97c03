//! Prometheus: the recorder that the engine counts with, what HTTP adds to it, and the page that is scraped.
//!
//! **Invariant:** labels come from routes and words of our own, never from what a caller sends: their number is bounded.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use metrics::Gauge;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use milepost_core::status::RunStatus;
use milepost_engine::Engine;
use milepost_engine::telemetry::metrics::{Kind, METRICS, Metric, SECONDS};
use tokio::sync::Mutex;

use crate::connections::Why;

/// What is recorded is put into buckets this often, whether somebody scrapes or not: until then every value is kept.
const UPKEEP: Duration = Duration::from_secs(5);
/// Counting open runs costs the database something: it is done this often at most.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// A database that does not answer must not keep the other metrics back.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

const REQUESTS: Metric = Metric::counter(
    "milepost_http_requests_total",
    &["method", "route", "status"],
    "Requests that were answered, by the route that matched and the status of the answer.",
);
const REQUEST_SECONDS: Metric = Metric::histogram(
    "milepost_http_request_seconds",
    &["method", "route"],
    SECONDS,
    "How long it took until an answer began; a stream's answer begins at once.",
);
const STREAMS: Metric =
    Metric::gauge("milepost_streams_open", &["kind"], "Streams of events that somebody reads now: `sse` or `ws`.");
const OPEN_RUNS: Metric = Metric::gauge(
    "milepost_open_runs",
    &["status"],
    "Runs in the whole database that have not ended, by status; at most five seconds old.",
);

const OUTBOX_PENDING: Metric = Metric::gauge(
    "milepost_outbox_pending",
    &[],
    "What is owed to others in the whole database; at most five seconds old.",
);
const DEAD_LETTERS: Metric = Metric::gauge(
    "milepost_dead_letters",
    &[],
    "What was given up in the whole database, until it is tried again; at most five seconds old.",
);

const CONNECTIONS: Metric =
    Metric::gauge("milepost_connections_open", &[], "Connections that are open now, WebSockets among them.");
const LET_GO: Metric = Metric::counter(
    "milepost_connections_let_go_total",
    &["reason"],
    "Connections that the server closed by itself: `full`, `head`, `idle`, `stalled`.",
);

const REFUSED: Metric = Metric::counter(
    "milepost_http_refused_total",
    &["status", "code"],
    "Requests that were answered with 401 or 403, by the code of the answer: `unauthorized`, `tag_protected`, …",
);

/// The metrics of the HTTP side. Those of the engine are in `milepost_engine::telemetry::metrics`.
pub const HTTP_METRICS: &[&Metric] = &[
    &REQUESTS,
    &REQUEST_SECONDS,
    &REFUSED,
    &CONNECTIONS,
    &LET_GO,
    &STREAMS,
    &OPEN_RUNS,
    &OUTBOX_PENDING,
    &DEAD_LETTERS,
];

const STATEMENTS: Metric = Metric::counter(
    "milepost_store_statements_total",
    &["store", "kind"],
    "Round trips of this process to its database.",
);

/// What stores count by themselves. One in memory has nothing to count.
pub const STORE_METRICS: &[&Metric] = &[&STATEMENTS];

/// Installs the recorder, once per process. Has to happen before a store or an engine is opened, which take their handles
/// then.
pub fn install() -> PrometheusHandle {
    static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
    INSTALLED.get_or_init(build).clone()
}

fn build() -> PrometheusHandle {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS.iter().chain(HTTP_METRICS) {
        if let Kind::Histogram(buckets) = metric.kind {
            let matcher = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(matcher, buckets).expect("a histogram of ours has buckets");
        }
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("another recorder of metrics is installed in this process; /metrics shows nothing");
    }
    HTTP_METRICS.iter().chain(STORE_METRICS).for_each(|metric| metric.describe());
    connections_open(0);
    for why in Why::ALL {
        metrics::counter!(LET_GO.name, "reason" => why.as_str()).increment(0);
    }
    metrics::counter!(REFUSED.name, "status" => "401", "code" => "unauthorized").increment(0);
    keep_up(handle.clone());
    handle
}

fn keep_up(handle: PrometheusHandle) {
    let work = move || {
        loop {
            thread::sleep(UPKEEP);
            handle.run_upkeep();
        }
    };
    // Without it the page is as right, and memory grows until somebody scrapes.
    if let Err(error) = thread::Builder::new().name("metrics".to_owned()).spawn(work) {
        tracing::warn!(%error, "no thread for metrics");
    }
}

/// What a server remembers between two scrapes.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    counted_at: Mutex<Option<Instant>>,
}

impl Scrape {
    /// The page.
    pub(crate) async fn page(&self, engine: &Engine) -> String {
        let handle = install();
        engine.observe_gauges();
        self.count_runs(engine).await;
        handle.run_upkeep();
        handle.render()
    }

    async fn count_runs(&self, engine: &Engine) {
        let mut counted_at = self.counted_at.lock().await;
        if counted_at.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        match tokio::time::timeout(COUNT_TIMEOUT, engine.store().status_counts()).await {
            Ok(Ok(counts)) => {
                for status in RunStatus::ALL.iter().filter(|status| !status.is_terminal()) {
                    let count: u64 = counts.iter().filter(|(_, of, _)| of == status).map(|(_, _, count)| count).sum();
                    metrics::gauge!(OPEN_RUNS.name, "status" => status.as_str()).set(count as f64);
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "open runs cannot be counted"),
            Err(_) => tracing::warn!("open runs cannot be counted: the database does not answer"),
        }
        match tokio::time::timeout(COUNT_TIMEOUT, engine.store().outbox().counts()).await {
            Ok(Ok(counts)) => {
                metrics::gauge!(OUTBOX_PENDING.name).set(counts.pending as f64);
                metrics::gauge!(DEAD_LETTERS.name).set(counts.dead as f64);
            }
            Ok(Err(error)) => tracing::warn!(%error, "the outbox cannot be counted"),
            Err(_) => tracing::warn!("the outbox cannot be counted: the database does not answer"),
        }
        *counted_at = Some(Instant::now());
    }
}

/// Counts requests and how long they took.
pub(crate) async fn measure(request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let method = method_label(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.map_or_else(|| "unmatched".to_owned(), |route| route.as_str().to_owned());
    let status = response.status().as_u16().to_string();
    metrics::counter!(REQUESTS.name, "method" => method, "route" => route.clone(), "status" => status).increment(1);
    metrics::histogram!(REQUEST_SECONDS.name, "method" => method, "route" => route).record(begin.elapsed());
    response
}

/// Callers may make up methods.
pub(crate) fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    known.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

/// A caller was refused. Codes are words of our own.
pub(crate) fn refused(status: StatusCode, code: &str) {
    let status = if status == StatusCode::UNAUTHORIZED { "401" } else { "403" };
    metrics::counter!(REFUSED.name, "status" => status, "code" => code.to_owned()).increment(1);
}

/// So many connections are open.
pub(crate) fn connections_open(count: usize) {
    metrics::gauge!(CONNECTIONS.name).set(count as f64);
}

/// The server closes a connection by itself.
pub(crate) fn connection_let_go(why: Why) {
    metrics::counter!(LET_GO.name, "reason" => why.as_str()).increment(1);
}

/// A stream that is counted as open as long as this lives.
#[derive(Debug)]
pub struct OpenStream(Gauge);

impl OpenStream {
    /// `kind` is `sse` or `ws`.
    #[must_use]
    pub fn new(kind: &'static str) -> OpenStream {
        let gauge = metrics::gauge!(STREAMS.name, "kind" => kind);
        gauge.increment(1);
        OpenStream(gauge)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
