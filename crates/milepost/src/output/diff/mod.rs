//! What is different between two documents, for people: step by step, what went in red and what came in green.
//!
//! Texts of several lines and large values are compared line by line, as files are.

mod lines;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use console::Style;
use serde_json::Value;

use crate::output::hash;
use crate::wire::{Change, Diff, Difference, FieldDiff};
use lines::Line;

/// A value that is longer is spread over lines.
const LINE_CHARS: usize = 80;

/// Two documents by their names, then all that differs, then how much that is.
pub(crate) fn titled(difference: &Difference, colours: bool) -> String {
    let end = |end: &crate::wire::DiffEnd| format!("{} ({})", end.reference, hash(&end.version_hash));
    let title = format!("{} → {}", end(&difference.from), end(&difference.to));
    format!("{}\n{}", paint(Style::new().bold(), &title, colours), shown(&difference.diff, colours))
}

/// All that differs, then how much that is.
pub(crate) fn shown(diff: &Diff, colours: bool) -> String {
    let mut page = Page { text: String::new(), colours };
    if !diff.settings.is_empty() {
        page.heading(Change::Changed, "settings");
        diff.settings.iter().for_each(|field| page.field(field));
    }
    for step in &diff.steps {
        page.heading(step.change, &format!("step {}", step.step_id));
        step.fields.iter().for_each(|field| page.field(field));
    }
    let summary = paint(Style::new().bold(), &summary(diff), colours);
    let gap = if page.text.is_empty() { "" } else { "\n" };
    format!("{}{gap}{summary}\n", page.text)
}

/// `1 step added, 2 changed; 1 setting changed`.
pub(crate) fn summary(diff: &Diff) -> String {
    let count = |change: Change| diff.steps.iter().filter(|step| step.change == change).count();
    let mut steps: Vec<String> = Vec::new();
    for (change, word) in [(Change::Added, "added"), (Change::Removed, "removed"), (Change::Changed, "changed")] {
        let noun = match (steps.is_empty(), count(change)) {
            (_, 0) => continue,
            (true, 1) => " step",
            (true, _) => " steps",
            (false, _) => "",
        };
        steps.push(format!("{}{noun} {word}", count(change)));
    }
    let settings = match diff.settings.len() {
        0 => None,
        1 => Some("1 setting changed".to_owned()),
        count => Some(format!("{count} settings changed")),
    };
    let parts: Vec<String> =
        Some(steps.join(", ")).filter(|steps| !steps.is_empty()).into_iter().chain(settings).collect();
    let more = if diff.truncated { ", and more than can be shown" } else { "" };
    if parts.is_empty() { format!("no differences{more}") } else { parts.join("; ") + more }
}

struct Page {
    text: String,
    colours: bool,
}

impl Page {
    fn heading(&mut self, change: Change, what: &str) {
        let (sign, style) = match change {
            Change::Added => ('+', Style::new().green().bold()),
            Change::Removed => ('-', Style::new().red().bold()),
            Change::Changed => ('~', Style::new().yellow().bold()),
        };
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let heading = paint(style, &format!("{sign} {what}"), self.colours);
        let _ = writeln!(self.text, "{gap}{heading}");
    }

    fn minus(&mut self, line: &str) {
        let line = paint(Style::new().red(), &format!("- {line}"), self.colours);
        let _ = writeln!(self.text, "  {line}");
    }

    fn plus(&mut self, line: &str) {
        let line = paint(Style::new().green(), &format!("+ {line}"), self.colours);
        let _ = writeln!(self.text, "  {line}");
    }

    fn field(&mut self, field: &FieldDiff) {
        let name = name(&field.path);
        match (&field.from, &field.to) {
            (Some(from), Some(to)) => self.changed(&name, from, to),
            (Some(from), None) => labelled(&name, from).iter().for_each(|line| self.minus(line)),
            (None, Some(to)) => labelled(&name, to).iter().for_each(|line| self.plus(line)),
            (None, None) => {}
        }
    }

    fn changed(&mut self, name: &str, from: &Value, to: &Value) {
        if name == "depends_on"
            && let (Some(from), Some(to)) = (ids(from), ids(to))
        {
            return self.depends_on(&from, &to);
        }
        let (before, after) = (spread(from), spread(to));
        if let ([before], [after]) = (&before[..], &after[..]) {
            self.minus(&format!("{name}: {before}"));
            return self.plus(&format!("{name}: {after}"));
        }
        let _ = writeln!(self.text, "    {name}:");
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        for line in lines::compare(&before, &after) {
            match line {
                Line::Gone(text) => self.minus(&format!("  {text}")),
                Line::New(text) => self.plus(&format!("  {text}")),
                Line::Same(text) => {
                    let _ = writeln!(self.text, "{}", format!("      {text}").trim_end());
                }
                Line::LeftOut(count) => {
                    let noun = if count == 1 { "line" } else { "lines" };
                    let note = paint(Style::new().dim(), &format!("… {count} {noun}"), self.colours);
                    let _ = writeln!(self.text, "      {note}");
                }
            }
        }
    }

    /// A set in effect: what a step no longer waits for, and what it waits for as well.
    fn depends_on(&mut self, from: &BTreeSet<&str>, to: &BTreeSet<&str>) {
        let listed = |ids: Vec<&&str>| ids.into_iter().copied().collect::<Vec<_>>().join(", ");
        let (gone, new) = (listed(from.difference(to).collect()), listed(to.difference(from).collect()));
        if !gone.is_empty() {
            self.minus(&format!("depends_on: {gone}"));
        }
        if !new.is_empty() {
            self.plus(&format!("depends_on: {new}"));
        }
        if gone.is_empty() && new.is_empty() {
            let _ = writeln!(self.text, "    depends_on: the same in another order");
        }
    }
}

fn ids(value: &Value) -> Option<BTreeSet<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// A field that only one side has.
fn labelled(name: &str, value: &Value) -> Vec<String> {
    match &spread(value)[..] {
        [only] => vec![format!("{name}: {only}")],
        lines => std::iter::once(format!("{name}:")).chain(lines.iter().map(|line| format!("  {line}"))).collect(),
    }
}

/// A value as lines: texts as they are where they have several, what is long spread out.
pub(crate) fn spread(value: &Value) -> Vec<String> {
    let short = value.to_string();
    match value {
        Value::String(text) if text.trim_end().contains('\n') => text.lines().map(ToOwned::to_owned).collect(),
        Value::Array(_) | Value::Object(_) if short.chars().count() > LINE_CHARS => {
            let spread = serde_json::to_string_pretty(value).unwrap_or(short);
            spread.lines().map(ToOwned::to_owned).collect()
        }
        _ => vec![short],
    }
}

/// `/input/topic` as people write it: `input.topic`. A key that has a dot or a blank in it stays in quotes.
fn name(pointer: &str) -> String {
    let segment = |segment: &str| {
        let key = segment.replace("~1", "/").replace("~0", "~");
        let plain = !key.is_empty() && !key.contains(['.', '"']) && !key.contains(char::is_whitespace);
        if plain { key } else { format!("{key:?}") }
    };
    match pointer.strip_prefix('/') {
        Some(path) => path.split('/').map(segment).collect::<Vec<_>>().join("."),
        None => "(all of it)".to_owned(),
    }
}

fn paint(style: Style, text: &str, colours: bool) -> String {
    style.force_styling(colours).apply_to(text).to_string()
}

#[cfg(test)]
mod tests;
