//! Results that are there: what a plan of a large graph costs, and a run that has all of it already.
//!
//! The graph has layers of a hundred steps. Each step uses the outputs of two of the layer before and a field of the payload.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::status::RunStatus;
use milepost_engine::{ChangeRequest, Config, Engine, NewRun};
use milepost_store::Store;
use serde_json::{Value, json};

use super::load::{self, Driven};
use super::measure::round;

const LAYER: usize = 100;
/// How often each is done.
const SAMPLES: usize = 21;

fn document(steps: usize) -> String {
    let mut text = String::from(
        "name: bench.reuse\ndefaults: {cache: {enabled: true}}\nchanges: {first: {replace: /first}, last: {replace: /last}}\nsteps:\n",
    );
    for step in 0..steps {
        let before =
            |side: usize| format!("steps.s{:06}.output.n", step - LAYER - step % LAYER + (step + side) % LAYER);
        let n = match step {
            ..LAYER => "payload.first".to_owned(),
            _ => format!("{} + {}", before(0), before(1)),
        };
        let n = if step + 1 == steps { format!("{n} + payload.last") } else { n };
        let written = writeln!(text, "  s{step:06}: {{skill: bench.part, input: {{n: \"${{{{ ({n}) % 1000 }}}}\"}}}}");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    text
}

/// An engine with one run of the graph behind it.
struct Made {
    engine: Engine,
    plan: Arc<Plan>,
    base: RunId,
}

fn payload() -> NewRun {
    NewRun { payload: Json::trusted(r#"{"first":0,"last":0}"#), ..NewRun::default() }
}

async fn make(store: Arc<dyn Store>, steps: usize) -> anyhow::Result<Made> {
    let config = Config::default().skill("bench.part", |_, input: load::Number| async move { Ok(input) });
    let engine = Engine::open_with(store, config).await?;
    let plan = engine.deploy(&document(steps)).await?;
    let (base, status) = engine.run_plan(&plan, payload()).await?;
    anyhow::ensure!(status == RunStatus::Completed, "run {base} is {status}");
    engine.flush_projections().await;
    Ok(Made { engine, plan, base })
}

/// What a plan costs: of a change that the last step sees, and of one that all see.
pub(super) async fn plan(store: Arc<dyn Store>, steps: usize) -> anyhow::Result<Value> {
    let Made { engine, base, .. } = make(store, steps).await?;
    let mut line = json!({
        "peer": "milepost", "store": engine.store().name(), "scenario": "plan", "steps_per_run": steps,
    });
    for (name, field) in [("last_changed", "last"), ("first_changed", "first")] {
        let change = || vec![ChangeRequest { kind: field.to_owned(), payload: Json::trusted("1") }];
        let (mut times, mut view) = (Vec::new(), None);
        for _ in 0..SAMPLES {
            let began = Instant::now();
            view = Some(engine.plan_update(base, None, change(), NewRun::default()).await?);
            times.push(micros(began));
        }
        let took = Driven::of(0.0, times);
        let answer = serde_json::to_string(&view)?;
        let counts = view.map(|view| json!(view.counts));
        line[name] = json!({
            "p50_ms": round(took.percentile_ms(50)), "p99_ms": round(took.percentile_ms(99)),
            "bytes": answer.len(), "counts": counts,
        });
    }
    engine.shutdown().await;
    Ok(line)
}

/// What a run costs whose results are all there, from its start to its end.
pub(super) async fn reuse(store: Arc<dyn Store>, steps: usize) -> anyhow::Result<Value> {
    let Made { engine, plan, .. } = make(store, steps).await?;
    let (mut times, mut commits) = (Vec::new(), 0);
    for _ in 0..SAMPLES {
        let began = Instant::now();
        let (run, status) = engine.run_plan(&plan, payload()).await?;
        times.push(micros(began));
        anyhow::ensure!(status == RunStatus::Completed, "run {run} is {status}");
        let events = engine.store().events(engine.org(), run, 0, u32::MAX).await?;
        let skipped = events.iter().filter(|event| &*event.event_type == "StepSkipped").count();
        anyhow::ensure!(skipped == steps, "{skipped} of {steps} steps were reused");
        commits = events.iter().map(|event| event.persisted_at).collect::<BTreeSet<_>>().len();
    }
    let took = Driven::of(0.0, times);
    let line = json!({
        "peer": "milepost", "store": engine.store().name(), "scenario": "reuse", "steps_per_run": steps,
        "p50_ms": round(took.percentile_ms(50)), "p99_ms": round(took.percentile_ms(99)), "commits": commits,
    });
    engine.shutdown().await;
    Ok(line)
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}
