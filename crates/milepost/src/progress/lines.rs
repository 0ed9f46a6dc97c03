//! Plain lines: `12:00:01.123 step brief completed 12 ms`. Items of `foreach` steps are counted, not listed.

use std::time::{Duration, Instant};

use milepost_core::status::StepStatus;

use super::happening::{Happening, PatchData, StepName, What};
use super::model::Model;
use crate::output::time;

/// How often a `foreach` step says how far it is.
const COUNT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Lines {
    counted: Option<Instant>,
}

impl Lines {
    pub(super) fn happened(&mut self, model: &Model, happening: &Happening) {
        let text = match &happening.step {
            Some(name) => step_text(model, happening, name),
            None => run_text(&happening.what),
        };
        if let Some(text) = text {
            crate::say(&format!("{} {text}", time::clock_time(happening.at)));
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        crate::say(text);
    }

    pub(super) fn tick(&mut self, model: &Model) {
        if self.counted.get_or_insert_with(Instant::now).elapsed() < COUNT_EVERY {
            return;
        }
        self.counted = Some(Instant::now());
        for (step, id) in model.steps.iter().zip(&model.outline.ids) {
            if let (StepStatus::Running, Some(items)) = (step.status, &step.items) {
                let now = time::clock_time(time::now());
                crate::say(&format!("{now} step {id} {}", super::tree::counter(items)));
            }
        }
    }
}

fn run_text(what: &What) -> Option<String> {
    Some(match what {
        What::RunBecame(status) => format!("run {status}"),
        What::RunFailed(error) => format!("run failed: {}: {}", error.code, error.message),
        What::RunStopped(status, reason) => format!("run {status}: {reason}"),
        What::SignalAccepted(name) => format!("signal {name} accepted"),
        What::SignalRejected(name, reason) => format!("signal {name} rejected: {reason}"),
        What::StepsSkipped { reason, steps } => format!("{} steps skipped ({reason})", steps.len()),
        What::RunPatched(patch) => patch_text(patch),
        _ => return None,
    })
}

/// `run patched: +subtitles ~publish`.
fn patch_text(patch: &PatchData) -> String {
    let lists = [("+", &patch.added), ("~", &patch.changed), ("-", &patch.removed), ("again ", &patch.rerun)];
    let words = lists.iter().flat_map(|(sign, ids)| ids.iter().map(move |id| format!(" {sign}{id}")));
    format!("run patched:{}", words.collect::<String>())
}

fn step_text(model: &Model, happening: &Happening, name: &StepName) -> Option<String> {
    let attempt = if happening.attempt > 1 { format!(" (attempt {})", happening.attempt) } else { String::new() };
    // A step with a thousand items is one line that counts; an item that fails is worth a line of its own.
    if name.item.is_some() && !matches!(happening.what, What::StepFailed(_) | What::StepRetryScheduled { .. }) {
        return None;
    }
    Some(match &happening.what {
        What::StepStarted { items: Some(items), .. } => format!("step {name} started, {items} items"),
        What::StepStarted { waits_for: Some(signal), .. } => format!("step {name} waits for the signal {signal}"),
        What::StepStarted { .. } => format!("step {name} started{attempt}"),
        What::StepCompleted => format!("step {name} completed{}{attempt}", took(model, happening, name)),
        What::StepFailed(error) => format!("step {name} failed{attempt}: {}: {}", error.code, error.message),
        What::StepSkipped(reason) => format!("step {name} skipped ({reason})"),
        What::StepRetryScheduled { retry_at, .. } => {
            let wait = time::span(retry_at.ms_since(happening.at));
            format!("step {name} tries again in {wait} (attempt {})", happening.attempt)
        }
        _ => return None,
    })
}

fn took(model: &Model, happening: &Happening, name: &StepName) -> String {
    let started = model.step(&name.id).and_then(|step| step.started_at);
    started.map(|from| format!(" {}", time::span(happening.at.ms_since(from)))).unwrap_or_default()
}
