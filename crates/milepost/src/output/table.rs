//! Tables without lines, and the colours of statuses.

use comfy_table::{Cell, ContentArrangement, Table, presets};
use console::{Style, StyledObject, style};
use milepost_core::status::{RunStatus, StepStatus};

pub(crate) fn new(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    table
}

/// The rows as text, without the blanks that cells end with.
pub(crate) fn print(table: &Table) {
    for line in table.lines() {
        let line = line.trim_end();
        crate::print_line(line.strip_prefix(' ').unwrap_or(line));
    }
}

pub(crate) fn run_status(status: RunStatus) -> StyledObject<&'static str> {
    let look = match status {
        RunStatus::Completed => Style::new().green(),
        RunStatus::Failed | RunStatus::Terminated => Style::new().red(),
        RunStatus::Cancelled | RunStatus::Paused => Style::new().yellow(),
        _ => Style::new().cyan(),
    };
    look.apply_to(status.as_str())
}

pub(crate) fn run_cell(status: RunStatus) -> Cell {
    let cell = Cell::new(status.as_str());
    match status {
        RunStatus::Completed => cell.fg(comfy_table::Color::Green),
        RunStatus::Failed | RunStatus::Terminated => cell.fg(comfy_table::Color::Red),
        RunStatus::Cancelled | RunStatus::Paused => cell.fg(comfy_table::Color::Yellow),
        _ => cell.fg(comfy_table::Color::Cyan),
    }
}

pub(crate) fn step_status(status: StepStatus) -> StyledObject<&'static str> {
    let look = match status {
        StepStatus::Completed => Style::new().green(),
        StepStatus::Failed => Style::new().red(),
        StepStatus::Skipped => Style::new().yellow(),
        StepStatus::Running => Style::new().cyan(),
        StepStatus::Pending => Style::new(),
    };
    look.apply_to(status.as_str())
}

pub(crate) fn step_cell(status: StepStatus) -> Cell {
    let cell = Cell::new(status.as_str());
    match status {
        StepStatus::Completed => cell.fg(comfy_table::Color::Green),
        StepStatus::Failed => cell.fg(comfy_table::Color::Red),
        StepStatus::Skipped => cell.fg(comfy_table::Color::Yellow),
        StepStatus::Running => cell.fg(comfy_table::Color::Cyan),
        StepStatus::Pending => cell,
    }
}

pub(crate) fn heading(text: &str) {
    crate::print_line(&style(text).bold().to_string());
}
