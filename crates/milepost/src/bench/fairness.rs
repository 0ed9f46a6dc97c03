//! Fairness: one org has queued very many runs, and another starts one. How long that one waits for a worker.
//!
//! Two nodes share a database and a queue, one for each org; busy workers of both orgs ask the node with the long line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_engine::workers::{Exchange, Outcome, WorkerResult};
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::Store;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::load;
use super::measure::round;

const LONG_LINE: &str = "name: bench.many\nsteps: {a: {skill: bench.elsewhere}}\n";
const OTHER: &str = "bench.other";
const MANY: OrgId = OrgId::DEFAULT;
const FEW: OrgId = OrgId(2);
/// Workers, each with a few tasks that take a moment: they are never idle while something waits.
const WORKERS: usize = 8;
const CAPACITY: usize = 4;
const TASK: Duration = Duration::from_millis(20);
/// How often the other org starts a run.
const SAMPLES: usize = 20;
/// How many of them are started at once while the line is made.
const STARTERS: usize = 512;

pub(super) async fn fairness(store: Arc<dyn Store>, runs: usize) -> anyhow::Result<Value> {
    let node = |org| {
        let config = Config { org, workers: true, ..Config::default() };
        Engine::open_with(store.clone(), config)
    };
    let (many, few) = (node(MANY).await?, node(FEW).await?);
    let plan = many.deploy(LONG_LINE).await?;
    let began = Instant::now();
    load::start_all(&many, &plan, runs, STARTERS).await?;
    let queued_s = began.elapsed().as_secs_f64();

    let plan = few.deploy(&LONG_LINE.replace("bench.many", OTHER)).await?;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let workers = (0..WORKERS).map(|n| worker(&many, n, &arrived));
    let waits_ms = tokio::select! {
        waits = samples(&few, &plan, &mut arrivals) => waits?,
        failed = futures::future::try_join_all(workers) => anyhow::bail!("the workers ended: {failed:?}"),
    };
    let left = many.queues().await?.iter().map(|queue| queue.waiting).sum::<u64>();
    let mut sorted = waits_ms.clone();
    sorted.sort_by(f64::total_cmp);
    many.shutdown().await;
    few.shutdown().await;
    Ok(json!({
        "peer": "milepost", "store": store.name(), "scenario": "fairness", "runs": runs, "workers": WORKERS,
        "queued_in_s": round(queued_s), "still_queued": left, "samples": sorted.len(),
        "ready_to_started_ms": round(waits_ms[0]), "p50_ms": round(sorted[SAMPLES / 2]),
        "max_ms": round(sorted[SAMPLES - 1]),
    }))
}

/// From a run of the other org being on disk, its step ready, until a worker has that.
async fn samples(
    few: &Engine,
    plan: &Arc<Plan>,
    arrivals: &mut mpsc::UnboundedReceiver<Instant>,
) -> anyhow::Result<Vec<f64>> {
    // The workers are at it.
    tokio::time::sleep(TASK * 5).await;
    let mut waits_ms = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let run = few.start_plan(plan, NewRun::default()).await?.run;
        let ready = Instant::now();
        let Some(started) = arrivals.recv().await else { break };
        waits_ms.push(started.saturating_duration_since(ready).as_secs_f64() * 1000.0);
        few.wait(run).await?;
    }
    Ok(waits_ms)
}

/// Does what it is given, whoever it is of, and tells when something of the other org came.
async fn worker(node: &Engine, n: usize, arrived: &mpsc::UnboundedSender<Instant>) -> anyhow::Result<()> {
    let mut results = Vec::new();
    loop {
        let exchange = Exchange {
            worker: format!("bench-{n}").into(),
            secret: None,
            queues: vec!["default".into()],
            every_org: true,
            skills: None,
            capacity: CAPACITY,
            wait: Duration::from_secs(10),
            results: std::mem::take(&mut results),
            heartbeats: Vec::new(),
        };
        let tasks = node.exchange(exchange, std::future::pending()).await?.tasks;
        if tasks.iter().any(|task| &*task.workflow == OTHER) {
            arrived.send(Instant::now())?;
        }
        tokio::time::sleep(TASK).await;
        results = tasks
            .into_iter()
            .map(|task| WorkerResult {
                task: task.task,
                token: task.token.to_string(),
                outcome: Outcome::Completed(Json::trusted("{}")),
                artifacts: Vec::new(),
                lines: Vec::new(),
            })
            .collect();
    }
}
