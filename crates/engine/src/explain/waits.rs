//! What a step waits for: what its run knows, put into words.

use milepost_core::event::StepRef;
use milepost_core::plan::StepIndex;
use milepost_core::run::{RunState, WaitsFor};

use super::{Subject, Wait};
use crate::care::refuse_parked;
use crate::engine::Engine;
use crate::error::EngineError;

/// So many steps are named.
const NAMED: usize = 10;

impl Engine {
    pub(super) async fn waits(&self, subject: &Subject) -> Result<Vec<Wait>, EngineError> {
        let mut waits = Vec::new();
        for waits_for in subject.state.waits_for(subject.step, self.clock.now()) {
            match waits_for {
                WaitsFor::Turn => waits.extend(self.turn(subject).await?),
                WaitsFor::Outcome(_) => waits.push(under_way(subject)),
                other => waits.push(in_words(&subject.state, other)),
            }
        }
        for wait in &mut waits {
            let Some(other) = wait.run_id else { continue };
            let head = self.store.head(self.org, other).await?;
            if let Some(Err(error)) = head.filter(|head| !head.status.is_terminal()).map(|head| refuse_parked(&head)) {
                wait.message = format!("{}; {error}", wait.message);
            }
        }
        Ok(waits)
    }
}

fn under_way(subject: &Subject) -> Wait {
    let started = subject.started().map(|(_, started)| started);
    let who = started.and_then(|started| {
        let worker = started.lease.as_ref().map(|lease| format!("worker {}", lease.worker));
        worker.or_else(|| started.worker.map(|node| format!("node {node}")))
    });
    Wait::new("worker", format!("it is under way on {}", who.unwrap_or_else(|| "somebody".to_owned())))
}

fn in_words(state: &RunState, waits_for: WaitsFor) -> Wait {
    match waits_for {
        WaitsFor::Approval => Wait::new("approval", "the run waits for approval: `milepost runs approve`"),
        WaitsFor::Start(at) => Wait { until: Some(at), ..Wait::new("start", format!("the run starts at {at}")) },
        WaitsFor::Slot { key, limit } => {
            let message =
                format!("the run waits for room under its concurrency key `{key}`, of which {limit} may be under way");
            Wait { key: Some(key), limit: Some(limit), ..Wait::new("run_slot", message) }
        }
        WaitsFor::Resume => Wait::new("pause", "the run is paused: `milepost runs resume`"),
        WaitsFor::Failure(step) => {
            let name = step.name(&state.plan);
            let message = format!("step `{name}` failed, and the document says that nothing new begins then");
            Wait { steps: vec![name], ..Wait::new("failure", message) }
        }
        WaitsFor::Cancellation => Wait::new("cancellation", "the run is being cancelled"),
        WaitsFor::Steps(steps) => dependencies(state, &steps),
        WaitsFor::Retry(at) => Wait { until: Some(at), ..Wait::new("retry", format!("it is tried again at {at}")) },
        WaitsFor::Sleep(until) => {
            let message = until.map_or("it sleeps".to_owned(), |at| format!("it sleeps until {at}"));
            Wait { until, ..Wait::new("sleep", message) }
        }
        WaitsFor::Signal { name, until } => {
            let message = format!("it waits for the signal `{name}`: `milepost runs signal`");
            Wait { signal: Some(name), until, ..Wait::new("signal", message) }
        }
        WaitsFor::Child(run) => {
            Wait { run_id: Some(run), ..Wait::new("child", format!("it waits for its child run {run}")) }
        }
        WaitsFor::Items(counts) => {
            let open = counts.pending + counts.running;
            Wait::new("items", format!("{open} of its {} items have not ended", counts.total))
        }
        WaitsFor::Turn | WaitsFor::Outcome(_) => Wait::new("executor", "its turn has come"),
    }
}

/// `a` (running) and `b` (pending)
fn dependencies(state: &RunState, steps: &[StepIndex]) -> Wait {
    let name = |step: &StepIndex| state.plan.step(*step).id.to_string();
    let shown: Vec<String> = steps
        .iter()
        .take(NAMED)
        .map(|step| {
            let status = state.step_status(StepRef::whole(*step)).map_or("", |status| status.as_str());
            format!("`{}` ({status})", name(step))
        })
        .collect();
    let more = match steps.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!(" and {more} more"),
        _ => String::new(),
    };
    let message = format!("it waits for {}{more}", shown.join(", "));
    Wait { steps: steps.iter().take(NAMED).map(name).collect(), ..Wait::new("dependency", message) }
}
