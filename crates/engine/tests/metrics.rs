//! Counters that only several nodes, or a collector, move. Each test looks at its own: counters are shared by the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use milepost_engine::telemetry::OtlpConfig;
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Has to be called before an engine is opened.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| PrometheusBuilder::new().install_recorder().unwrap())
}

fn value(series: &str) -> u64 {
    let page = recorder().render();
    let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("this takes far too long: something is stuck")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_taken_over_and_races_that_are_lost_are_counted() {
    recorder();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (arrived, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let config = || {
        let (arrived, open) = (arrived.clone(), open.clone());
        Config::default().skill("gate", move |_, _: Value| {
            let (arrived, open) = (arrived.clone(), open.clone());
            async move {
                arrived.add_permits(1);
                open.acquire().await.unwrap().forget();
                Ok(0)
            }
        })
    };
    let first = Engine::open_with(store.clone(), config()).await.unwrap();
    let new = NewRun::default();
    let run = first.start_document("{name: t, steps: {a: {skill: gate}}}", new).await.unwrap().run;
    within(arrived.acquire()).await.unwrap().forget();
    let node = first.node();
    drop(first);
    store.leave(node).await.unwrap();
    let second = Engine::open_with(store.clone(), config()).await.unwrap();
    within(arrived.acquire()).await.unwrap().forget();
    assert_eq!(value("milepost_adopted_runs_total"), 1);
    // A third node writes to the run; the second, which has it in hand, finds out when it writes itself.
    let third = Engine::open_with(store, config()).await.unwrap();
    within(third.signal(run, Engine::new_signal("hello"))).await.unwrap();
    open.add_permits(1);
    within(second.wait(run)).await.unwrap();
    assert_eq!(value("milepost_commit_conflicts_total"), 1);
}

/// A collector that answers like this, for ever.
async fn collector(answer: StatusCode) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/traces", post(async move || answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// One run in an engine that exports to this address.
async fn run_once(address: &str) {
    let traces = Some(OtlpConfig::new(address).unwrap());
    let engine = Engine::open_with(Arc::new(MemoryStore::new()), Config { traces, ..Config::default() }).await.unwrap();
    let plan = engine.deploy("{name: t, steps: {a: {skill: noop}}}").await.unwrap();
    within(engine.run_plan(&plan, NewRun::default())).await.unwrap();
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traces_are_counted_whether_they_arrive_or_not() {
    recorder();
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    run_once(&collector(StatusCode::OK).await).await;
    run_once(&collector(StatusCode::UNAUTHORIZED).await).await;
    run_once(&collector(StatusCode::SERVICE_UNAVAILABLE).await).await;
    run_once(&format!("http://{gone}")).await;
    assert_eq!(value("milepost_traces_exported_total"), 1);
    assert_eq!(value("milepost_traces_dropped_total{reason=\"refused\"}"), 1);
    assert_eq!(value("milepost_traces_dropped_total{reason=\"unreachable\"}"), 2);
}
