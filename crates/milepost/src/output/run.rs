//! A run in words: how it ended, and all that is known of it.

use comfy_table::Cell;
use console::style;
use milepost_core::json::Json;
use milepost_core::status::{RunStatus, StepStatus};

use super::{table, time};
use crate::wire::{Run, Step, Summary, Transition};

/// So many lines of an output are shown; a program asks for JSON anyway.
const OUTPUT_LINES: usize = 40;
/// Items of `foreach` steps are listed up to this many; beyond, only those that did not complete.
const LISTED_ITEMS: usize = 20;

/// How a run ended, and what it gave.
pub(crate) fn print_outcome(view: &Run) {
    let run = &view.summary;
    let took = run.started_at.zip(run.completed_at).map(|(from, to)| time::span(to.ms_since(from)));
    let took = took.map(|took| format!(" in {took}")).unwrap_or_default();
    crate::print_line(&format!("run {} {}{took} ({})", run.run_id, table::run_status(run.status), counts(run)));
    if let Some(error) = &run.error {
        crate::print_line(&format!("{} {}: {}", style("error:").red().bold(), error.code, error.message));
    }
    let failed: Vec<&Step> = view.steps.iter().filter(|step| step.status == StepStatus::Failed).collect();
    // The run's own error has told of the first one already.
    if failed.len() > 1 || failed.iter().any(|step| step.logical_attempt > 1) {
        failed.iter().take(LISTED_ITEMS).for_each(|step| crate::print_line(&failure(step)));
    }
    if let Some(output) = &view.output {
        print_value("output", output, &run.run_id.to_string());
    }
}

fn counts(run: &Summary) -> String {
    let failed = if run.steps_failed > 0 { format!(", {} failed", run.steps_failed) } else { String::new() };
    format!("{} of {} steps done{failed}", run.steps_done, run.steps_total)
}

fn failure(step: &Step) -> String {
    let error = step.error.as_ref().map(|error| format!("{}: {}", error.code, error.message)).unwrap_or_default();
    let attempts =
        if step.logical_attempt > 1 { format!(" after {} attempts", step.logical_attempt) } else { String::new() };
    format!("  step {} failed{attempts}: {error}", step.step_id)
}

pub(super) fn print_value(name: &str, value: &Json, run: &str) {
    let text = serde_json::to_string_pretty(&value.to_value()).unwrap_or_else(|_| value.as_str().to_owned());
    let lines: Vec<&str> = text.lines().collect();
    table::heading(&format!("{name}:"));
    for line in lines.iter().take(OUTPUT_LINES) {
        crate::print_line(&format!("  {line}"));
    }
    if lines.len() > OUTPUT_LINES {
        let more = lines.len() - OUTPUT_LINES;
        crate::print_line(&format!("  … {more} more lines; `milepost runs show {run} -o json` has all"));
    }
}

/// Everything: the run, its steps, its changes of status.
pub(crate) fn print_all(view: &Run, transitions: &[Transition]) {
    let run = &view.summary;
    print_head(run);
    print_value("payload", &view.payload, &run.run_id.to_string());
    print_steps(view);
    table::heading("transitions:");
    for change in transitions {
        let from = change.from.map_or("", RunStatus::as_str);
        let by = match (&change.changed_by, change.signal_id) {
            (Some(name), _) => format!("  by {name}"),
            (None, Some(signal)) => format!("  by signal {signal}"),
            (None, None) => String::new(),
        };
        let arrow = if from.is_empty() { String::new() } else { format!("{from} → ") };
        crate::print_line(&format!("  {} #{} {arrow}{}{by}", change.at, change.run_seq, table::run_status(change.to)));
    }
    if let Some(output) = &view.output {
        print_value("output", output, &run.run_id.to_string());
    }
}

fn print_head(run: &Summary) {
    let line = |name: &str, value: &str| crate::print_line(&format!("{:<12}{value}", format!("{name}:")));
    line("run", &run.run_id.to_string());
    line("workflow", &format!("{} {}", run.workflow, run.workflow_version));
    line("status", &format!("{} ({})", table::run_status(run.status), counts(run)));
    if let Some(stale) = run.stale {
        let seq = stale.from_seq;
        line("stale", &format!("its log lacks event {seq}; what is shown may be as it was before that"));
    }
    if let Some(stuck) = &run.stuck {
        line("stuck", &format!("since {}: {}", stuck.since, stuck.reason));
        line(
            "",
            &format!("`milepost runs resume {0}` goes on with it, `milepost runs terminate {0}` ends it", run.run_id),
        );
    }
    let moments = [("created", Some(run.created_at)), ("started", run.started_at), ("ended", run.completed_at)];
    for (name, at) in moments {
        if let Some(at) = at {
            line(name, &at.to_string());
        }
    }
    if let Some((from, to)) = run.started_at.zip(run.completed_at) {
        line("took", &time::span(to.ms_since(from)));
    }
    if let Some(name) = &run.submitted_by {
        line("started by", name);
    }
    if let Some(parent) = run.parent_run_id {
        line("parent", &parent.to_string());
    }
    if let Some(base) = run.base_run_id {
        line("base run", &base.to_string());
    }
    if let Some(request) = &run.request_id {
        line("request id", request);
    }
    if run.priority != 0 {
        line("priority", &run.priority.to_string());
    }
    if let Some(error) = &run.error {
        line("error", &format!("{}: {}", error.code, error.message));
    }
}

fn print_steps(view: &Run) {
    table::heading("steps:");
    let mut rows = table::new(&["STEP", "SKILL", "STATUS", "ATTEMPT", "TOOK", ""]);
    let items = view.steps.iter().filter(|step| step.step_id.ends_with(']')).count();
    let mut hidden = 0;
    for step in &view.steps {
        let ordinary = step.status == StepStatus::Completed && step.step_id.ends_with(']');
        if ordinary && items > LISTED_ITEMS {
            hidden += 1;
            continue;
        }
        let took = step.duration_ms.map(time::span).unwrap_or_default();
        rows.add_row([
            Cell::new(&step.step_id),
            Cell::new(&step.skill),
            table::step_cell(step.status),
            Cell::new(attempt(step.logical_attempt, step.engine_attempt)),
            Cell::new(took),
            Cell::new(remark(step)),
        ]);
    }
    table::print(&rows);
    if hidden > 0 {
        crate::print_line(&format!("{hidden} completed items are not listed; `-o json` has all"));
    }
}

/// `2`, or `2.3` when a worker was lost on the way.
pub(super) fn attempt(logical: u32, engine: u32) -> String {
    match (logical, engine) {
        (0, _) => String::new(),
        (logical, 0 | 1) => logical.to_string(),
        (logical, engine) => format!("{logical}.{engine}"),
    }
}

fn remark(step: &Step) -> String {
    match (&step.error, &step.skip_reason) {
        (Some(error), _) => format!("{}: {}", error.code, error.message.replace('\n', " ⏎ ")),
        (None, Some(reason)) => reason.clone(),
        (None, None) => String::new(),
    }
}
