//! The load over HTTP: runs are started and followed from outside, steps are carried out by a worker in a process of its own.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};

use super::child::{Server, Worker};
use super::http::Connection;
use super::load::Driven;
use super::measure::{self, round};

/// A few runs to warm up: connections, plans, pages, and the worker itself.
const WARM_UP: usize = 16;
/// How long connected workers are left alone, and how long they are looked at then.
const SETTLE: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_secs(20);
/// As long as a worker of the SDK waits.
const PARK_MS: u64 = 20_000;

/// What such a load took.
pub(super) struct Remote {
    pub(super) driven: Driven,
    /// Of the server and the worker.
    pub(super) cpu_s: f64,
    pub(super) rss_mib: f64,
    pub(super) peak_rss_mib: f64,
    /// From a step being ready to its start, if the server counts it: p50 and p99.
    pub(super) delay_ms: Option<(f64, f64)>,
}

/// Starts `runs` runs of a document, `concurrency` at a time, and waits for each.
pub(super) async fn drive(
    server: &Server,
    worker: &Worker,
    document: &str,
    runs: usize,
    concurrency: usize,
) -> anyhow::Result<Remote> {
    let mut connection = Connection::open(&server.host).await?;
    let (status, answer) =
        connection.call("POST", "/api/v1/workflows", &json!({ "document": document }).to_string()).await?;
    ensure!(status < 300, "deploying answered {status}: {}", String::from_utf8_lossy(answer));
    start_and_wait(&server.host, WARM_UP.min(runs), 4).await?;
    in_step(&mut connection).await?;
    let delays = Delays::read(&mut connection).await?;
    let cpu_s = || [server.pid(), worker.pid()].iter().map(|pid| measure::process_cpu_s(&pid.to_string())).sum::<f64>();
    let before = cpu_s();
    let driven = start_and_wait(&server.host, runs, concurrency).await?;
    in_step(&mut connection).await?;
    let pids = [server.pid(), worker.pid()];
    Ok(Remote {
        driven,
        cpu_s: cpu_s() - before,
        rss_mib: pids.iter().map(|pid| measure::process_rss_mib(*pid)).sum(),
        peak_rss_mib: pids.iter().map(|pid| measure::process_peak_rss_mib(*pid)).sum(),
        delay_ms: Delays::read(&mut connection).await?.since(&delays),
    })
}

async fn start_and_wait(host: &str, runs: usize, concurrency: usize) -> anyhow::Result<Driven> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let callers = (0..concurrency.max(1)).map(|_| async {
        // Each has a connection for its starts and one for its streams.
        let (mut starts, mut streams) = (Connection::open(host).await?, Connection::open(host).await?);
        let mut latencies = Vec::new();
        while next.fetch_add(1, Ordering::Relaxed) < runs {
            let began = Instant::now();
            let run = super::server::start(&mut starts, r#"{"workflow":"bench","payload":{"n":0}}"#).await?;
            let status = streams.wait_for_end(&run).await?;
            ensure!(status == "completed", "run {run} is {status}");
            latencies.push(super::server::micros(began));
        }
        anyhow::Ok(latencies)
    });
    let latencies: anyhow::Result<Vec<Vec<u64>>> = futures::future::join_all(callers).await.into_iter().collect();
    Ok(Driven::of(began.elapsed().as_secs_f64(), latencies?.concat()))
}

/// Waits until lists show no run under way: the projections are written.
async fn in_step(connection: &mut Connection) -> anyhow::Result<()> {
    loop {
        let (status, body) = connection.call("GET", "/api/v1/runs?status=queued,running&limit=1", "").await?;
        ensure!(status == 200, "listing answered {status}");
        let page: Value = serde_json::from_slice(body)?;
        if page["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How long steps waited for their start, as the server counts it: upper bounds in seconds, and how many were below.
struct Delays(Vec<(f64, f64)>);

impl Delays {
    async fn read(connection: &mut Connection) -> anyhow::Result<Delays> {
        let (_, body) = connection.call("GET", "/metrics", "").await?;
        Ok(Delays::parse(std::str::from_utf8(body)?))
    }

    fn parse(text: &str) -> Delays {
        let buckets = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("milepost_ready_to_started_seconds_bucket{")?;
            let (labels, count) = rest.split_once("} ")?;
            let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
            Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?))
        });
        Delays(buckets.collect())
    }

    /// p50 and p99 of what came since, in milliseconds: the upper bounds of the buckets they are in.
    fn since(&self, before: &Delays) -> Option<(f64, f64)> {
        let below = |at: usize| self.0[at].1 - before.0.get(at).map_or(0.0, |bucket| bucket.1);
        let all = below(self.0.len().checked_sub(1)?);
        let within = |share: f64| {
            let at = (0..self.0.len()).find(|at| below(*at) >= all * share)?;
            Some(self.0[at].0 * 1000.0)
        };
        (all > 0.0).then_some((within(0.5)?, within(0.99)?))
    }
}

/// Workers that wait for tasks which do not come: what they cost the server.
pub(super) async fn idle(server: &Server, workers: usize) -> anyhow::Result<Value> {
    let mut parked = tokio::task::JoinSet::new();
    for n in 0..workers {
        // One after the other: so many at once are more than a backlog takes.
        parked.spawn(park(Connection::open(&server.host).await?, n));
    }
    let look = async {
        tokio::time::sleep(SETTLE).await;
        let pid = server.pid().to_string();
        let (cpu, began) = (measure::process_cpu_s(&pid), Instant::now());
        tokio::time::sleep(WATCH).await;
        let seconds = began.elapsed().as_secs_f64();
        let share = (measure::process_cpu_s(&pid) - cpu) / seconds * 100.0;
        json!({
            "scenario": "workers", "workers": workers, "watched_s": round(seconds), "cpu_percent": round(share),
            "server_rss_mib": round(measure::process_rss_mib(server.pid())),
        })
    };
    tokio::select! {
        report = look => Ok(report),
        Some(ended) = parked.join_next() => match ended?? {},
    }
}

/// Waits for a task, again and again.
async fn park(mut connection: Connection, n: usize) -> anyhow::Result<Infallible> {
    let body = json!({"worker_id": format!("bench-{n}"), "capacity": 1, "wait_ms": PARK_MS}).to_string();
    loop {
        let (status, answer) = connection.call("POST", "/api/v1/worker/exchange", &body).await?;
        ensure!(status == 200, "an exchange answered {status}: {}", String::from_utf8_lossy(answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_those_that_came_since() {
        let text = |one: u32, ten: u32, all: u32| {
            Delays::parse(&format!(
                "# TYPE x\nmilepost_ready_to_started_seconds_bucket{{le=\"0.001\"}} {one}\n\
                 milepost_ready_to_started_seconds_bucket{{le=\"0.01\"}} {ten}\n\
                 milepost_ready_to_started_seconds_bucket{{le=\"+Inf\"}} {all}\nmilepost_ready_to_started_seconds_sum 1"
            ))
        };
        assert_eq!(text(60, 109, 110).since(&text(0, 10, 10)), Some((1.0, 10.0)));
        assert_eq!(text(1, 1, 1).since(&text(1, 1, 1)), None);
        assert_eq!(Delays::parse("").since(&Delays::parse("")), None);
    }
}
