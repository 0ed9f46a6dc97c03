//! A plan as a build tool tells it: a line for each step, many alike folded, and what it comes to.

use console::{Style, style};

use super::time;
use crate::wire::{Planned, PlannedStep};

/// A plan of at most so many steps is shown whole.
const SHOWN: usize = 40;
/// In a longer one, of so many steps alike in a row the first and the last are shown.
const ALIKE: usize = 5;
/// A name or a reason takes so many columns at most; a longer one pushes its own line.
const NAME_COLUMNS: usize = 32;
const REASON_COLUMNS: usize = 56;

pub(crate) fn print(planned: &Planned, all: bool) {
    for line in lines(planned, all) {
        crate::print_line(&line);
    }
}

/// What becomes of a step, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    Reuse,
    Unknown,
    Skip,
    Fails,
}

impl Kind {
    fn of(step: &PlannedStep) -> Kind {
        match (&*step.decision, &*step.reason) {
            (_, "fails") => Kind::Fails,
            ("reuse", _) => Kind::Reuse,
            ("unknown", _) => Kind::Unknown,
            ("skip", _) => Kind::Skip,
            _ => Kind::Run,
        }
    }

    fn sign(self) -> &'static str {
        match self {
            Kind::Run => "●",
            Kind::Reuse => "○",
            Kind::Unknown => "?",
            Kind::Skip => "–",
            Kind::Fails => "✗",
        }
    }

    fn look(self) -> Style {
        match self {
            Kind::Run => Style::new().cyan(),
            Kind::Reuse => Style::new().green(),
            Kind::Unknown => Style::new().yellow(),
            Kind::Skip => Style::new().dim(),
            Kind::Fails => Style::new().red(),
        }
    }

    /// Of many in a row.
    fn many(self) -> &'static str {
        match self {
            Kind::Run => "to run",
            Kind::Reuse => "reused",
            Kind::Unknown => "unknown",
            Kind::Skip => "skipped",
            Kind::Fails => "that will fail",
        }
    }
}

fn lines(planned: &Planned, all: bool) -> Vec<String> {
    let steps = &planned.steps;
    let longest = |columns: usize, text: &dyn Fn(&PlannedStep) -> usize| {
        steps.iter().map(text).filter(|length| *length <= columns).max().unwrap_or(0)
    };
    let name = longest(NAME_COLUMNS, &|step| step.step_id.chars().count());
    let why = longest(REASON_COLUMNS, &|step| reason(step).chars().count());
    let mut lines = Vec::new();
    let mut rest = &steps[..];
    while let Some(first) = rest.first() {
        let kind = Kind::of(first);
        let (row, more) = rest.split_at(rest.iter().take_while(|step| Kind::of(step) == kind).count());
        rest = more;
        if all || steps.len() <= SHOWN || row.len() <= ALIKE {
            lines.extend(row.iter().map(|step| line(step, name, why)));
            continue;
        }
        lines.push(line(&row[0], name, why));
        let folded = format!("… {} steps {}", grouped(row.len() as u64 - 2), kind.many());
        lines.push(style(folded).dim().to_string());
        lines.push(line(&row[row.len() - 1], name, why));
    }
    lines.push(summary(planned));
    lines
}

fn line(step: &PlannedStep, name: usize, why: usize) -> String {
    let kind = Kind::of(step);
    let time = match step.predicted_ms.or(step.saved_ms) {
        Some(ms) if kind == Kind::Reuse => format!("saves {}", time::span(ms)),
        Some(ms) => time::span(ms),
        None => String::new(),
    };
    let reason = reason(step);
    let shown = format!("{} {:<name$}  {reason:<why$}  {time}", kind.look().apply_to(kind.sign()), step.step_id);
    shown.trim_end().to_owned()
}

fn reason(step: &PlannedStep) -> String {
    let said = match (Kind::of(step), step.message.is_empty()) {
        (Kind::Reuse, _) => "cached",
        (_, true) => &step.reason,
        (_, false) => &step.message,
    };
    match step.items {
        // That one counts them already.
        Some(items) if items.total > 0 && step.reason != "no_result" => format!("{said} ({} items)", items.total),
        _ => said.to_owned(),
    }
}

/// `3 to run, 12 reused, 2 unknown · about 41 s, saves 3 min 20 s`
fn summary(planned: &Planned) -> String {
    let counts = planned.counts;
    let named =
        [(counts.run, "to run"), (counts.reuse, "reused"), (counts.unknown, "unknown"), (counts.skip, "skipped")];
    let counts: Vec<String> = named
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    let version = if planned.workflow_version.is_empty() { "" } else { " " };
    let mut said = format!("{}{version}{}: {}", planned.workflow, planned.workflow_version, counts.join(", "));
    let predicted = planned.predicted_ms.filter(|ms| *ms > 0).map(|ms| {
        let sure = if planned.unpredicted > 0 { "at least" } else { "about" };
        format!("{sure} {}", time::span(ms))
    });
    let saved = (planned.saved_ms > 0).then(|| format!("saves {}", time::span(planned.saved_ms)));
    let times: Vec<String> = predicted.into_iter().chain(saved).collect();
    if !times.is_empty() {
        said.push_str(&format!(" · {}", times.join(", ")));
    }
    said
}

/// `9,990`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::plan::Counts;

    fn step(name: &str, decision: &str, message: &str, ms: u64) -> PlannedStep {
        let (step_id, message) = (name.to_owned(), message.to_owned());
        let (predicted_ms, saved_ms) = if decision == "reuse" { (None, Some(ms)) } else { (Some(ms), None) };
        PlannedStep {
            step_id,
            decision: decision.to_owned(),
            message,
            predicted_ms,
            saved_ms,
            ..PlannedStep::default()
        }
    }

    fn planned(steps: Vec<PlannedStep>, counts: Counts) -> Planned {
        Planned {
            workflow: "w".to_owned(),
            workflow_version: "2".to_owned(),
            steps,
            counts,
            predicted_ms: Some(41_000),
            saved_ms: 200_000,
            unpredicted: 0,
        }
    }

    fn shown(planned: &Planned, all: bool) -> Vec<String> {
        console::set_colors_enabled(false);
        lines(planned, all)
    }

    #[test]
    fn a_short_plan_is_aligned_and_summed_up() {
        let steps = vec![
            step("brief", "reuse", "", 1200),
            step("bgm", "run", "`prompt` of its input changed", 41_000),
            step("cut", "unknown", "known after bgm", 0),
        ];
        let counts = Counts { run: 1, reuse: 1, unknown: 1, skip: 0 };
        assert_eq!(
            shown(&planned(steps, counts), false),
            [
                "○ brief  cached                         saves 1.2 s",
                "● bgm    `prompt` of its input changed  41.0 s",
                "? cut    known after bgm                0 ms",
                "w 2: 1 to run, 1 reused, 1 unknown · about 41.0 s, saves 3 min 20 s",
            ]
        );
    }

    #[test]
    fn many_alike_are_folded_unless_all_are_wanted() {
        let mut steps: Vec<PlannedStep> = (0..1992).map(|n| step(&format!("s{n:04}"), "reuse", "", 1)).collect();
        steps.push(step("last", "run", "rebuilt on request", 5));
        let plan = planned(steps, Counts { run: 1, reuse: 1992, unknown: 0, skip: 0 });
        let folded = shown(&plan, false);
        assert_eq!(folded.len(), 5, "{folded:?}");
        assert_eq!((&*folded[1], folded[2].split("  ").next()), ("… 1,990 steps reused", Some("○ s1991")));
        assert!(folded[4].starts_with("w 2: 1 to run, 1,992 reused"), "{}", folded[4]);
        assert_eq!(shown(&plan, true).len(), 1994);
    }
}
