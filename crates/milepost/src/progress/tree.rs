//! The tree: one line per step, indented by how deep it stands, drawn over itself.

use console::{Style, Term, style, truncate_str};
use milepost_core::status::StepStatus;
use milepost_core::time::Timestamp;

use super::model::{Items, Model, Step};
use super::outline::Outline;
use crate::output::plain::{plain, shown};
use crate::output::{table, time};

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Deeper steps stand no further to the right.
const MAX_INDENT: usize = 8;
/// Step ids up to this width stand in one column.
const MAX_ID: usize = 32;

#[derive(Debug)]
pub(crate) struct Tree {
    term: Term,
    id_width: usize,
    drawn: usize,
    frame: usize,
    /// Lines that go above the tree when it is drawn next.
    said: Vec<String>,
}

impl Tree {
    pub(super) fn new(outline: &Outline) -> Tree {
        let width = |(id, depth): (&String, &usize)| id.chars().count().min(MAX_ID) + 2 * depth.min(&MAX_INDENT);
        let id_width = outline.ids.iter().zip(&outline.depth).map(width).max().unwrap_or(0);
        Tree { term: Term::buffered_stderr(), id_width, drawn: 0, frame: 0, said: Vec::new() }
    }

    /// A line that stays, above the tree.
    pub(super) fn say(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }

    /// Draws the tree over the last one. A terminal that is gone is not worth an error.
    pub(super) fn draw(&mut self, model: &Model) {
        let _ = self.term.clear_last_lines(self.drawn);
        for line in self.said.drain(..) {
            let _ = self.term.write_line(&shown(&line, true));
        }
        self.frame += 1;
        let (rows, columns) = self.term.size();
        let lines = self.lines(model, usize::from(rows).saturating_sub(2).max(3), time::now());
        for line in &lines {
            let _ = self.term.write_line(&truncate_str(&shown(line, true), usize::from(columns).max(20) - 1, "…"));
        }
        self.drawn = lines.len();
        let _ = self.term.flush();
    }

    fn lines(&self, model: &Model, room: usize, now: Timestamp) -> Vec<String> {
        let chosen = chosen(model, room - 1);
        let mut lines: Vec<String> = chosen.iter().map(|index| self.line(model, *index, now)).collect();
        let counts = format!(
            "{} of {} steps completed, {} running, {} failed, {} skipped",
            model.count(StepStatus::Completed),
            model.steps.len(),
            model.count(StepStatus::Running),
            model.count(StepStatus::Failed),
            model.count(StepStatus::Skipped),
        );
        let status = table::run_status(model.status).for_stderr();
        let (run, counts) = (style("run").bold().for_stderr(), style(counts).dim().for_stderr());
        lines.push(format!("{run} {status} {counts}"));
        lines
    }

    fn line(&self, model: &Model, index: usize, now: Timestamp) -> String {
        let step = &model.steps[index];
        let indent = 2 * model.outline.depth[index].min(MAX_INDENT);
        let id = truncate_str(&model.outline.ids[index], MAX_ID, "…").into_owned();
        let width = (self.id_width - indent).max(1);
        format!("{:indent$}{} {id:<width$}  {}", "", self.glyph(step), detail(step, now))
    }

    fn glyph(&self, step: &Step) -> String {
        let (look, sign) = match (step.status, step.retry_at) {
            (StepStatus::Running, _) if step.waits_for.is_some() => (Style::new().yellow(), "◷"),
            (StepStatus::Running, _) => (Style::new().cyan(), SPINNER[self.frame % SPINNER.len()]),
            (StepStatus::Completed, _) => (Style::new().green(), "✓"),
            (StepStatus::Failed, _) => (Style::new().red(), "✗"),
            (StepStatus::Skipped, _) => (Style::new().yellow(), "–"),
            (StepStatus::Pending, Some(_)) => (Style::new().yellow(), "↻"),
            (StepStatus::Pending, None) => (Style::new().dim(), "○"),
        };
        look.for_stderr().apply_to(sign).to_string()
    }
}

fn detail(step: &Step, now: Timestamp) -> String {
    let mut parts = Vec::new();
    parts.extend(step.items.as_ref().map(counter));
    if step.attempt > 1 {
        parts.push(format!("attempt {}", step.attempt));
    }
    match (step.status, step.retry_at) {
        (StepStatus::Pending, Some(at)) => parts.push(format!("again in {}", time::span(at.ms_since(now)))),
        _ => parts.extend(step.elapsed_ms(now).map(time::span)),
    }
    parts.extend(step.waits_for.as_ref().map(|signal| format!("waits for the signal {signal}")));
    parts.extend(step.skip_reason.clone().filter(|_| step.status == StepStatus::Skipped));
    parts.extend(step.error.as_ref().map(|error| plain(error).into_owned()));
    style(parts.join("  ")).dim().for_stderr().to_string()
}

/// `37/1000`, with those that failed.
pub(super) fn counter(items: &Items) -> String {
    let failed = if items.failed.is_empty() { String::new() } else { format!(" ({} failed)", items.failed.len()) };
    format!("{}/{}{failed}", items.done, items.total)
}

/// All steps in their order if there is room, else those where something happens.
fn chosen(model: &Model, room: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (0..model.steps.len()).collect();
    if chosen.len() <= room {
        return chosen;
    }
    let rank = |index: &usize| match model.steps[*index].status {
        StepStatus::Running => 0,
        StepStatus::Failed => 1,
        StepStatus::Pending if model.steps[*index].retry_at.is_some() => 2,
        StepStatus::Pending => 3,
        StepStatus::Skipped | StepStatus::Completed => 4,
    };
    chosen.sort_by_key(rank);
    chosen.truncate(room);
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use milepost_core::document;
    use milepost_core::limits::Limits;

    use super::super::happening::{Happening, StepName, What};
    use super::*;

    fn model(source: &str) -> Model {
        console::set_colors_enabled(false);
        console::set_colors_enabled_stderr(false);
        Model::new(Outline::of_plan(&document::load(source, &Limits::default()).unwrap().plan))
    }

    fn happening(step: &str, at_ms: i64, what: What) -> Happening {
        Happening { at: Timestamp(at_ms * 1000), step: Some(StepName::parse(step)), attempt: 2, what }
    }

    fn started(items: Option<u32>) -> What {
        What::StepStarted { items, waits_for: None }
    }

    #[test]
    fn steps_stand_below_what_they_need_and_items_are_counted() {
        let mut model = model(
            "name: t\nsteps:\n  z: {skill: noop}\n  b: {skill: noop, depends_on: [z], foreach: \"${{ [1, 2, 3] }}\"}\n",
        );
        model.apply(&happening("z", 0, started(None)));
        model.apply(&happening("z", 12, What::StepCompleted));
        model.apply(&happening("b", 12, started(Some(3))));
        model.apply(&happening("b[0]", 13, What::StepCompleted));
        let tree = Tree::new(&model.outline);
        let lines = tree.lines(&model, 20, Timestamp(1_512_000));
        assert_eq!(lines[0], "✓ z    attempt 2  12 ms");
        assert_eq!(lines[1], "  ⠋ b  1/3  attempt 2  1.5 s");
        assert_eq!(lines[2], "run queued 1 of 2 steps completed, 1 running, 0 failed, 0 skipped");
    }

    #[test]
    fn with_little_room_what_runs_is_shown() {
        let steps: String = (0..50).map(|n| format!("  s{n:02}: {{skill: noop}}\n")).collect();
        let mut model = model(&format!("name: t\nsteps:\n{steps}"));
        model.apply(&happening("s30", 0, started(None)));
        let chosen = chosen(&model, 3);
        assert_eq!(chosen.len(), 3);
        assert!(chosen.contains(&30));
    }
}
