//! Plain lines: `12:00:01.123 step brief completed 12 ms`. Items of `foreach` steps are counted, not listed.

use std::time::{Duration, Instant};

use milepost_core::event::{Body, Event, StepRef};
use milepost_core::status::StepStatus;
use milepost_core::time::Timestamp;

use super::model::{Model, Step};
use crate::output::time;

/// How often a `foreach` step says how far it is.
const COUNT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Lines {
    counted: Option<Instant>,
}

impl Lines {
    pub(super) fn event(&mut self, model: &Model, event: &Event) {
        let text = match event.step {
            Some(step) => step_text(model, event, step),
            None => run_text(&event.body),
        };
        if let Some(text) = text {
            eprintln!("{} {text}", time::clock_time(event.at));
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        eprintln!("{text}");
    }

    pub(super) fn tick(&mut self, model: &Model) {
        if self.counted.get_or_insert_with(Instant::now).elapsed() < COUNT_EVERY {
            return;
        }
        self.counted = Some(Instant::now());
        for (step, planned) in model.steps.iter().zip(&model.plan.steps) {
            if let (StepStatus::Running, Some(items)) = (step.status, &step.items) {
                let now = time::clock_time(time::now());
                eprintln!("{now} step {} {}", planned.id, super::tree::counter(items));
            }
        }
    }
}

fn run_text(body: &Body) -> Option<String> {
    Some(match body {
        Body::RunFailed { error } => format!("run failed: {}: {}", error.code, error.message),
        Body::RunCancelled { reason } => format!("run cancelled: {reason}"),
        Body::RunTerminated { reason } => format!("run terminated: {reason}"),
        Body::SignalAccepted { name, .. } => format!("signal {name} accepted"),
        Body::SignalRejected { name, reason } => format!("signal {name} rejected: {reason}"),
        Body::RunContinued { .. } => return None,
        other => format!("run {}", other.run_status()?),
    })
}

fn step_text(model: &Model, event: &Event, at: StepRef) -> Option<String> {
    let name = at.name(&model.plan);
    let step = &model.steps[at.step as usize];
    let attempt =
        if event.logical_attempt > 1 { format!(" (attempt {})", event.logical_attempt) } else { String::new() };
    // A step with a thousand items is one line that counts; an item that fails is worth a line of its own.
    if at.item.is_some() && !matches!(event.body, Body::StepFailed { .. } | Body::StepRetryScheduled { .. }) {
        return None;
    }
    Some(match &event.body {
        Body::StepStarted(started) => match (started.items, &started.waits_for) {
            (Some(items), _) => format!("step {name} started, {items} items"),
            (None, Some(signal)) => format!("step {name} waits for the signal {signal}"),
            (None, None) => format!("step {name} started{attempt}"),
        },
        Body::StepCompleted { .. } => format!("step {name} completed{}{attempt}", took(step, event.at)),
        Body::StepFailed { error } => format!("step {name} failed{attempt}: {}: {}", error.code, error.message),
        Body::StepSkipped { reason } => format!("step {name} skipped ({reason})"),
        Body::StepRetryScheduled { retry_at, .. } => {
            let wait = time::span(retry_at.ms_since(event.at));
            format!("step {name} tries again in {wait} (attempt {})", event.logical_attempt)
        }
        _ => return None,
    })
}

fn took(step: &Step, at: Timestamp) -> String {
    step.started_at.map(|from| format!(" {}", time::span(at.ms_since(from)))).unwrap_or_default()
}
