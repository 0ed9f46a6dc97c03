//! One step in words: its attempts, its input, its output.

use comfy_table::Cell;
use milepost_core::id::RunId;

use super::run::print_value;
use super::{table, time};
use crate::wire::{Attempt, StepDetail};

pub(crate) fn print(detail: &StepDetail, run: RunId) {
    let line = |name: &str, value: &str| crate::print_line(&format!("{:<12}{value}", format!("{name}:")));
    let step = &detail.step;
    line("step", &step.step_id);
    line("skill", &step.skill);
    let reason = step.skip_reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    line("status", &format!("{}{reason}", table::step_status(step.status)));
    if !detail.more.depends_on.is_empty() {
        line("depends on", &detail.more.depends_on.join(", "));
    }
    for (name, at) in [("started", step.started_at), ("ended", step.ended_at)] {
        if let Some(at) = at {
            line(name, &at.to_string());
        }
    }
    if let Some(took) = step.duration_ms {
        line("took", &time::span(took));
    }
    if let Some(error) = &step.error {
        line("error", &format!("{}: {}", error.code, error.message));
    }
    print_attempts(&detail.more.attempts);
    for (name, value) in [("input", &detail.more.input), ("output", &step.output)] {
        if let Some(value) = value {
            print_value(name, value, &run.to_string());
        }
    }
}

fn print_attempts(attempts: &[Attempt]) {
    if attempts.is_empty() {
        return;
    }
    table::heading("attempts:");
    let mut rows = table::new(&["ATTEMPT", "STATUS", "STARTED", "TOOK", ""]);
    for attempt in attempts {
        let took = attempt.started_at.zip(attempt.ended_at).map(|(from, to)| time::span(to.ms_since(from)));
        let error =
            attempt.error.as_ref().map(|error| format!("{}: {}", error.code, error.message.replace('\n', " ⏎ ")));
        rows.add_row([
            Cell::new(super::run::attempt(attempt.logical_attempt, attempt.engine_attempt)),
            Cell::new(&attempt.status),
            Cell::new(attempt.started_at.map(time::clock_time).unwrap_or_default()),
            Cell::new(took.unwrap_or_default()),
            Cell::new(error.unwrap_or_default()),
        ]);
    }
    table::print(&rows);
}
