//! The load: documents, opaque skills, and callers that start runs and wait for them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::status::{RunStatus, StepStatus};
use milepost_engine::{Config, Engine, NewRun};
use serde::{Deserialize, Serialize};

pub(super) const SLEEPER: &str = "name: bench.sleeper\nsteps: {nap: {skill: sleep, input: {ms: 3600000}}}\n";

/// Many items, and then it waits for ever.
pub(super) const LONG: &str = r#"
name: bench.long
steps:
  many: {skill: bench.step, foreach: "${{ range(payload.n) }}", input: {n: "${{ item }}"}}
  gate: {skill: wait, input: {signal: never}, depends_on: [many]}
"#;

/// A bit of everything that needs a wake-up.
const MIXED: &str = r#"
name: bench.mixed
concurrency: {key: "${{ payload.n }}", limit: 16}
defaults: {retry: {max_attempts: 5, backoff_ms: 5, max_backoff_ms: 20}}
steps:
  flaky: {skill: fail, input: {times: 2}}
  nap: {skill: sleep, input: {ms: 10}, depends_on: [flaky]}
  many: {skill: bench.step, foreach: [1, 2, 3, 4, 5], input: {n: "${{ item }}"}, depends_on: [flaky]}
  child: {skill: workflow, input: {ref: bench.child, payload: {n: "${{ steps.many.output[4].n }}"}}}
  last: {skill: bench.step, input: {n: "${{ steps.child.output.b.n }}"}, depends_on: [nap]}
"#;
const MIXED_CHILD: &str = r#"
name: bench.child
steps:
  a: {skill: bench.step, input: {n: "${{ payload.n }}"}}
  b: {skill: bench.step, input: {n: "${{ steps.a.output.n }}"}}
"#;
/// With the items and the child's steps.
pub(super) const MIXED_STEPS: usize = 12;

pub(super) async fn deploy_mixed(engine: &Engine) -> anyhow::Result<Arc<Plan>> {
    engine.deploy(MIXED_CHILD).await?;
    Ok(engine.deploy(MIXED).await?)
}

#[derive(Serialize, Deserialize)]
pub(super) struct Number {
    pub(super) n: u64,
}

/// A skill that the engine cannot see into: an async function with a small JSON result.
pub(super) fn skills(config: Config) -> Config {
    config.skill("bench.step", |_, input: Number| async move {
        tokio::task::yield_now().await;
        Ok(Number { n: input.n + 1 })
    })
}

/// A chain in which each step uses the output of the one before, or steps side by side.
pub(super) fn document(fan: bool, steps: usize) -> String {
    let mut text = String::from("name: bench\nsteps:\n");
    for step in 0..steps {
        let input = match step {
            0 => "${{ payload.n }}".to_owned(),
            _ if fan => "${{ payload.n }}".to_owned(),
            _ => format!("${{{{ steps.s{:05}.output.n }}}}", step - 1),
        };
        let written = writeln!(text, "  s{step:05}: {{skill: bench.step, input: {{n: \"{input}\"}}}}");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    text
}

/// What a load took.
pub(super) struct Driven {
    pub(super) wall_s: f64,
    latencies_us: Vec<u64>,
}

impl Driven {
    pub(super) fn of(wall_s: f64, mut latencies_us: Vec<u64>) -> Driven {
        latencies_us.sort_unstable();
        Driven { wall_s, latencies_us }
    }

    pub(super) fn count(&self) -> usize {
        self.latencies_us.len()
    }

    pub(super) fn percentile_ms(&self, percent: usize) -> f64 {
        let at = (self.latencies_us.len() * percent / 100).min(self.latencies_us.len().saturating_sub(1));
        self.latencies_us.get(at).map_or(0.0, |us| *us as f64 / 1000.0)
    }
}

/// Starts `runs` runs, `concurrency` at a time, and waits for each.
pub(super) async fn drive(
    engine: &Engine,
    plan: &Arc<Plan>,
    runs: usize,
    concurrency: usize,
    print_acks: bool,
) -> anyhow::Result<Driven> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let callers = (0..concurrency.max(1)).map(|_| caller(engine, plan, &next, runs, print_acks));
    let mut latencies_us: Vec<u64> = Vec::with_capacity(runs);
    for caller in futures::future::join_all(callers).await {
        latencies_us.extend(caller?);
    }
    Ok(Driven::of(began.elapsed().as_secs_f64(), latencies_us))
}

async fn caller(
    engine: &Engine,
    plan: &Arc<Plan>,
    next: &AtomicUsize,
    runs: usize,
    print_acks: bool,
) -> anyhow::Result<Vec<u64>> {
    let mut latencies = Vec::new();
    while next.fetch_add(1, Ordering::Relaxed) < runs {
        let began = Instant::now();
        if print_acks {
            let accepted = engine.start_plan(plan, new()).await?;
            crate::print_line(&format!("ack {}", accepted.run));
            let status = engine.wait(accepted.run).await?;
            anyhow::ensure!(status == RunStatus::Completed, "{} is {status}", accepted.run);
        } else {
            let (run, status) = engine.run_plan(plan, new()).await?;
            anyhow::ensure!(status == RunStatus::Completed, "run {run} is {status}");
        }
        latencies.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}

fn new() -> NewRun {
    NewRun { payload: milepost_core::json::Json::trusted(r#"{"n":0}"#), ..NewRun::default() }
}

/// Starts runs without waiting for their end.
pub(super) async fn start_all(
    engine: &Engine,
    plan: &Arc<Plan>,
    runs: usize,
    concurrency: usize,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let callers = (0..concurrency.max(1)).map(|_| async {
        while next.fetch_add(1, Ordering::Relaxed) < runs {
            engine.start_plan(plan, new()).await?;
        }
        anyhow::Ok(())
    });
    futures::future::join_all(callers).await.into_iter().collect()
}

/// Starts a `LONG` run and waits until nothing but its last step is left.
pub(super) async fn start_long(engine: &Engine, plan: &Arc<Plan>, items: usize) -> anyhow::Result<RunId> {
    let payload = milepost_core::json::Json::trusted(format!(r#"{{"n":{items}}}"#));
    let run = engine.start_plan(plan, NewRun { payload, ..NewRun::default() }).await?.run;
    let gate = ["gate".to_owned()];
    loop {
        engine.flush_projections().await;
        let rows = engine.store().steps_by_id(OrgId::DEFAULT, run, &gate).await?;
        if rows.iter().any(|row| row.status == StepStatus::Running) {
            return Ok(run);
        }
        let head = engine.store().head(OrgId::DEFAULT, run).await?;
        anyhow::ensure!(head.is_some_and(|head| !head.status.is_terminal()), "run {run} did not come to its last step");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Loads a run's state as often as asked.
pub(super) async fn load_again(engine: &Engine, plan: &Arc<Plan>, run: RunId, times: usize) -> anyhow::Result<Driven> {
    let began = Instant::now();
    let mut latencies_us = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        std::hint::black_box(milepost_engine::load_state(engine.store(), plan, OrgId::DEFAULT, run).await?);
        latencies_us.push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(Driven::of(began.elapsed().as_secs_f64(), latencies_us))
}

/// Fills the database with finished one-step runs.
pub(super) async fn prefill(engine: &Engine, runs: usize) -> anyhow::Result<()> {
    if runs > 0 {
        let plan = engine.deploy(&document(false, 1).replace("name: bench", "name: bench.prefill")).await?;
        drive(engine, &plan, runs, 512, false).await?;
        engine.flush_projections().await;
    }
    Ok(())
}
