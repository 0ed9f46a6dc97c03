//! `bench server` and `bench streams`: a server in a process of its own, under load from this one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::apart;
use super::child::Server;
use super::follow::{self, Subscriber};
use super::http::Connection;
use super::load::Driven;
use super::measure::{self, round};

const WORKFLOW: &str =
    r#"{"document": {"name": "bench.http", "steps": {"only": {"skill": "echo", "input": {"n": "${{ payload.n }}"}}}}}"#;
const START: &str = r#"{"workflow":"bench.http","payload":{"n":1}}"#;

/// How long an idle server is left alone, and how long it is looked at then.
const SETTLE: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_secs(20);

/// What a server load is told.
pub(super) struct Load {
    pub(super) runs: usize,
    pub(super) concurrency: usize,
    pub(super) subscribers: usize,
}

#[derive(Deserialize)]
struct Started {
    run_id: String,
}

/// Starts runs over HTTP while others read runs and follow one, there or on another node; then reads pages of the list.
pub(super) async fn server(server: &Server, followed_on: &Server, load: &Load) -> anyhow::Result<Value> {
    let host = &server.host;
    deploy(host, WORKFLOW).await?;
    // A few to warm up.
    start_runs(host, 64, 8, &Mutex::default()).await?;
    let cpu = measure::process_cpu_s(&server.pid().to_string());
    let recent = Arc::new(Mutex::new(String::new()));
    let over = Arc::new(AtomicBool::new(false));
    let ticking = follow::start_ticking(host).await?;
    let (started, read, seen, ()) = tokio::try_join!(
        async {
            let started = start_runs(host, load.runs, load.concurrency, &recent).await?;
            over.store(true, Ordering::Relaxed);
            Ok(started)
        },
        apart(read_runs(host.clone(), recent.clone(), over.clone())),
        apart(follow::by_sse(followed_on.host.clone(), ticking.clone())),
        follow::go(host, &ticking),
    )?;
    let seen = Driven::of(0.0, seen.latencies_us);
    let used = measure::process_cpu_s(&server.pid().to_string()) - cpu;
    let listed = list_pages(host, 200).await?;
    Ok(json!({
        "scenario": "server", "runs": load.runs, "concurrency": load.concurrency,
        "wall_s": round(started.wall_s), "runs_per_s": round(load.runs as f64 / started.wall_s),
        "start_p50_ms": round(started.percentile_ms(50)), "start_p99_ms": round(started.percentile_ms(99)),
        "get_p50_ms": round(read.percentile_ms(50)), "get_p99_ms": round(read.percentile_ms(99)), "gets": read.count(),
        "list_p50_ms": round(listed.percentile_ms(50)), "list_p99_ms": round(listed.percentile_ms(99)),
        "sse_p50_ms": round(seen.percentile_ms(50)), "sse_p99_ms": round(seen.percentile_ms(99)), "sse_events": seen.count(),
        "server_cpu_s": round(used), "server_rss_mib": round(measure::process_rss_mib(server.pid())),
        "ready_s": round(server.ready_s),
    }))
}

/// Many subscribers of one run while many runs are started: nobody may miss an event.
pub(super) async fn streams(server: &Server, load: &Load) -> anyhow::Result<Value> {
    let host = &server.host;
    deploy(host, WORKFLOW).await?;
    start_runs(host, 64, 8, &Mutex::default()).await?;
    let ticking = follow::start_ticking(host).await?;
    let mut subscribers = Vec::with_capacity(load.subscribers);
    for _ in 0..load.subscribers {
        subscribers.push(Subscriber::open(host, &ticking).await?);
    }
    let subscribers: Vec<_> = subscribers.into_iter().map(|subscriber| tokio::spawn(subscriber.see())).collect();
    follow::go(host, &ticking).await?;
    let started = start_runs(host, load.runs, load.concurrency, &Mutex::default()).await?;
    let mut latencies = Vec::new();
    let mut events = None;
    for subscriber in subscribers {
        let seen = subscriber.await??;
        ensure!(*events.get_or_insert(seen.last) == seen.last, "subscribers saw different numbers of events");
        latencies.extend(seen.latencies_us);
    }
    let seen = Driven::of(0.0, latencies);
    Ok(json!({
        "scenario": "streams", "runs": load.runs, "concurrency": load.concurrency, "subscribers": load.subscribers,
        "wall_s": round(started.wall_s), "runs_per_s": round(load.runs as f64 / started.wall_s),
        "start_p50_ms": round(started.percentile_ms(50)), "start_p99_ms": round(started.percentile_ms(99)),
        "events_per_subscriber": events, "lost": 0,
        "seen_p50_ms": round(seen.percentile_ms(50)), "seen_p99_ms": round(seen.percentile_ms(99)),
        "server_rss_mib": round(measure::process_rss_mib(server.pid())),
    }))
}

/// Runs that sleep, and nothing else: what the server does all the same.
pub(super) async fn idle(server: &Server, load: &Load) -> anyhow::Result<Value> {
    let sleeper = json!({"document": {"name": "bench.sleeper", "steps": {"nap": {"skill": "sleep", "input": {"ms": 36_000_000}}}}});
    deploy(&server.host, &sleeper.to_string()).await?;
    let start = r#"{"workflow":"bench.sleeper"}"#;
    start_all(&server.host, load.runs, load.concurrency, start, &Mutex::default()).await?;
    tokio::time::sleep(SETTLE).await;
    let pid = server.pid().to_string();
    let (cpu, statements, began) = (measure::process_cpu_s(&pid), statements(&server.host).await?, Instant::now());
    tokio::time::sleep(WATCH).await;
    let seconds = began.elapsed().as_secs_f64();
    let share = (measure::process_cpu_s(&pid) - cpu) / seconds * 100.0;
    let asked = self::statements(&server.host).await? - statements;
    Ok(json!({
        "scenario": "idle", "runs": load.runs, "watched_s": round(seconds), "cpu_percent": round(share),
        "statements_per_s": round(asked / seconds), "server_rss_mib": round(measure::process_rss_mib(server.pid())),
    }))
}

/// Statements that the server has sent to its database so far.
async fn statements(host: &str) -> anyhow::Result<f64> {
    let mut connection = Connection::open(host).await?;
    let (_, body) = connection.call("GET", "/metrics", "").await?;
    let text = std::str::from_utf8(body)?;
    let lines = text.lines().filter(|line| line.starts_with("milepost_store_statements_total"));
    let counts: Vec<f64> = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    ensure!(!counts.is_empty(), "the server does not count its statements");
    Ok(counts.iter().sum())
}

async fn deploy(host: &str, body: &str) -> anyhow::Result<()> {
    let mut connection = Connection::open(host).await?;
    let (status, body) = connection.call("POST", "/api/v1/workflows", body).await?;
    ensure!(status < 300, "deploying answered {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}

pub(super) async fn start(connection: &mut Connection, body: &str) -> anyhow::Result<String> {
    let (status, body) = connection.call("POST", "/api/v1/runs", body).await?;
    ensure!(status == 201, "starting answered {status}: {}", String::from_utf8_lossy(body));
    Ok(serde_json::from_slice::<Started>(body)?.run_id)
}

async fn start_runs(host: &str, runs: usize, concurrency: usize, recent: &Mutex<String>) -> anyhow::Result<Driven> {
    start_all(host, runs, concurrency, START, recent).await
}

async fn start_all(
    host: &str,
    runs: usize,
    concurrency: usize,
    body: &str,
    recent: &Mutex<String>,
) -> anyhow::Result<Driven> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let callers = (0..concurrency).map(|_| async {
        let mut connection = Connection::open(host).await?;
        let mut latencies = Vec::new();
        while next.fetch_add(1, Ordering::Relaxed) < runs {
            let began = Instant::now();
            let run = start(&mut connection, body).await?;
            latencies.push(micros(began));
            *recent.lock().expect("no holder of this lock panics") = run;
        }
        anyhow::Ok(latencies)
    });
    let latencies: anyhow::Result<Vec<Vec<u64>>> = futures::future::join_all(callers).await.into_iter().collect();
    Ok(Driven::of(began.elapsed().as_secs_f64(), latencies?.concat()))
}

/// Reads the run that was started last, every two milliseconds.
async fn read_runs(host: String, recent: Arc<Mutex<String>>, over: Arc<AtomicBool>) -> anyhow::Result<Driven> {
    let mut connection = Connection::open(&host).await?;
    let mut latencies = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let run = recent.lock().expect("no holder of this lock panics").clone();
        if !run.is_empty() {
            let began = Instant::now();
            let (status, _) = connection.call("GET", &format!("/api/v1/runs/{run}"), "").await?;
            ensure!(status == 200, "reading run {run} answered {status}");
            latencies.push(micros(began));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(Driven::of(0.0, latencies))
}

async fn list_pages(host: &str, times: usize) -> anyhow::Result<Driven> {
    let mut connection = Connection::open(host).await?;
    let mut latencies = Vec::new();
    for query in ["", "&status=completed", "&workflow=bench.http", "&workflow=bench.http&status=failed"] {
        for _ in 0..times / 4 {
            let began = Instant::now();
            let (status, _) = connection.call("GET", &format!("/api/v1/runs?limit=50{query}"), "").await?;
            ensure!(status == 200, "listing answered {status}");
            latencies.push(micros(began));
        }
    }
    Ok(Driven::of(0.0, latencies))
}

pub(super) fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
