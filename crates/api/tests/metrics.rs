//! The page that Prometheus reads, and the page that tells people what is on it. In a process of its own: counters are
//! shared by all that a process does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use milepost_api::metrics::{HTTP_METRICS, OpenStream, STORE_METRICS, install};
use milepost_api::{AppState, Settings, router};
use milepost_engine::telemetry::metrics::{Kind, METRICS};
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::memory::MemoryStore;
use tower::ServiceExt as _;

const DOCS: &str = include_str!("../../../docs/observability.md");

/// What a metric is called without what a histogram adds to its name.
fn base(name: &str) -> &str {
    let histogram = |name: &str| {
        METRICS
            .iter()
            .chain(HTTP_METRICS)
            .any(|metric| metric.name == name && matches!(metric.kind, Kind::Histogram(_)))
    };
    let ends = ["_bucket", "_sum", "_count"];
    ends.iter().filter_map(|end| name.strip_suffix(end)).find(|name| histogram(name)).unwrap_or(name)
}

/// All names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let word = |c: char| !(c.is_ascii_lowercase() || c == '_');
    text.split(word).filter(|word| word.starts_with("milepost_") && word.len() > 9).map(base).collect()
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels_and_no_other_is() {
    let mut known = BTreeSet::new();
    for metric in METRICS.iter().chain(HTTP_METRICS).chain(STORE_METRICS) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!("| `{}` | {kind} | {} |", metric.name, labels.join(", "));
        assert!(DOCS.contains(&row), "docs/observability.md has no row that begins with\n{row}");
        known.insert(metric.name);
    }
    // Crates are called like that, too.
    let modules = ["milepost_engine", "milepost_api", "milepost_store", "milepost_core"];
    let unknown: Vec<&str> = names(DOCS).into_iter().filter(|name| !known.contains(name)).collect();
    let unknown: Vec<&str> = unknown.into_iter().filter(|name| !modules.contains(name)).collect();
    assert!(unknown.is_empty(), "docs/observability.md names metrics that do not exist: {unknown:?}");
}

async fn page(router: &axum::Router, path: &str) -> (u16, String) {
    let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits to be told of the end, which is counted before.
async fn run(engine: &Engine, document: &str) {
    let plan = engine.deploy(document).await.unwrap();
    let run = engine.run_plan(&plan, NewRun::default());
    tokio::time::timeout(Duration::from_secs(30), run).await.unwrap().unwrap();
}

/// The value on the line that begins with this.
#[track_caller]
fn value(page: &str, series: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
}

#[tokio::test]
async fn the_page_tells_what_was_done() {
    install();
    // Twice is once.
    install();
    let config = Config { inline_concurrency: 1, ..Config::default() };
    let engine = Arc::new(Engine::open_with(Arc::new(MemoryStore::new()), config).await.unwrap());
    let router = router(AppState::new(engine.clone(), Settings::default()));
    let retried = "{name: r, defaults: {retry: {max_attempts: 2, backoff_ms: 4}}, \
                   steps: {a: {skill: fail, input: {times: 1}}, b: {skill: noop, when: false}}}";
    run(&engine, retried).await;
    run(&engine, "{name: f, steps: {a: {skill: fail, input: {retryable: false}}}}").await;
    run(&engine, "{name: s, steps: {a: {skill: sleep, input: {ms: 5}}}}").await;
    let waits = "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}";
    engine.start_document(waits, NewRun::default()).await.unwrap();
    engine.flush_projections().await;
    assert_eq!(page(&router, "/api/v1/runs/01900000-0000-7000-8000-000000000001").await.0, 404);
    assert_eq!(page(&router, "/nowhere/7").await.0, 404);
    let stream = OpenStream::new("sse");
    let (status, text) = page(&router, "/metrics").await;
    assert_eq!(status, 200);
    let is = |series: &str, expected: f64| assert_eq!(value(&text, series), expected, "{series}");
    is("milepost_runs_total{status=\"completed\"}", 2.0);
    is("milepost_runs_total{status=\"failed\"}", 1.0);
    is("milepost_runs_total{status=\"cancelled\"}", 0.0);
    is("milepost_steps_total{status=\"completed\"}", 2.0);
    is("milepost_steps_total{status=\"failed\"}", 2.0);
    is("milepost_steps_total{status=\"skipped\"}", 1.0);
    is("milepost_events_total{type=\"RunQueued\"}", 4.0);
    is("milepost_events_total{type=\"StepRetryScheduled\"}", 1.0);
    is("milepost_ready_to_started_seconds_count", 3.0);
    // The retry and the sleep.
    is("milepost_timers_late_seconds_count", 2.0);
    is("milepost_alerts_total{code=\"PROJECTOR_LAG_HIGH\"}", 0.0);
    is("milepost_committer_queue_depth", 0.0);
    is("milepost_ready_steps", 0.0);
    is("milepost_executing_steps", 0.0);
    is("milepost_open_runs{status=\"running\"}", 1.0);
    is("milepost_open_runs{status=\"paused\"}", 0.0);
    is("milepost_streams_open{kind=\"sse\"}", 1.0);
    is("milepost_http_requests_total{method=\"GET\",route=\"/api/v1/runs/{run_id}\",status=\"404\"}", 1.0);
    is("milepost_http_requests_total{method=\"GET\",route=\"unmatched\",status=\"404\"}", 1.0);
    let commits = value(&text, "milepost_commits_total");
    assert!(commits >= 7.0);
    is("milepost_commit_seconds_count", commits);
    is("milepost_commit_batch_runs_count", commits);
    let events: f64 = text
        .lines()
        .filter(|line| line.starts_with("milepost_events_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    is("milepost_commit_batch_events_sum", events);
    // All that the code has is there from the beginning, and nothing else is.
    let known: BTreeSet<&str> = METRICS.iter().chain(HTTP_METRICS).map(|metric| metric.name).collect();
    assert_eq!(names(&text), known);
    drop(stream);
    run(&engine, "{name: c, steps: {a: {skill: noop}}}").await;
    engine.start_document(waits, NewRun::default()).await.unwrap();
    engine.flush_projections().await;
    let (_, later) = page(&router, "/metrics").await;
    assert_eq!(value(&later, "milepost_streams_open{kind=\"sse\"}"), 0.0);
    assert_eq!(value(&later, "milepost_runs_total{status=\"completed\"}"), 3.0);
    // Open runs are counted now and then, requests always.
    assert_eq!(value(&later, "milepost_open_runs{status=\"running\"}"), 1.0);
    let first = "milepost_http_requests_total{method=\"GET\",route=\"/metrics\",status=\"200\"}";
    assert_eq!(value(&later, first), 1.0);
    engine.shutdown().await;
}
