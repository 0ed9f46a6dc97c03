//! What a merge could not decide, for people: what was there, what each side made of it, and what to do.

use std::fmt::Write as _;

use console::Style;
use serde_json::{Value, json};

use super::diff::spread;
use crate::wire::Conflict;

/// So many lines of a value are shown.
const VALUE_LINES: usize = 12;

/// All conflicts of a merge of `from` into `tag`.
pub(crate) fn shown(tag: &str, from: &str, conflicts: &[Conflict], colours: bool) -> String {
    let paint = |style: Style, text: &str| style.force_styling(colours).apply_to(text).to_string();
    let count = if conflicts.len() == 1 { "1 conflict".to_owned() } else { format!("{} conflicts", conflicts.len()) };
    let title = format!("{count} between {tag} (ours) and {from} (theirs)");
    let mut text = format!("{}\n", paint(Style::new().bold(), &title));
    for conflict in conflicts {
        let path = if conflict.path.is_empty() { "the document" } else { &conflict.path };
        let _ = writeln!(text, "\n{} {path}", paint(Style::new().red().bold(), &conflict.kind.replace('_', " ")));
        let _ = writeln!(text, "  {}", conflict.message);
        if has_values(conflict) {
            value(&mut text, "base", conflict.base.as_ref(), |line| paint(Style::new().dim(), line));
            value(&mut text, "ours", conflict.ours.as_ref(), |line| paint(Style::new().cyan(), line));
            value(&mut text, "theirs", conflict.theirs.as_ref(), |line| paint(Style::new().yellow(), line));
        }
    }
    text
}

/// How to go on. Whoever makes the same change on both sides has no conflict there.
pub(crate) fn help(tag: &str, from: &str, conflicts: &[Conflict]) -> String {
    let steps = match conflicts.iter().find(|conflict| has_values(conflict)) {
        Some(conflict) => format!(
            "give both sides the same there, then merge again; to take theirs: `milepost workflows patch {tag} --ops '{}'`",
            json!([as_theirs(conflict)])
        ),
        None => {
            format!("change one side so that both fit, with `milepost workflows patch {tag} --ops …`, then merge again")
        }
    };
    format!("{steps}; to take all of theirs: `milepost tags set {tag} {from}`")
}

fn has_values(conflict: &Conflict) -> bool {
    conflict.base.is_some() || conflict.ours.is_some() || conflict.theirs.is_some()
}

/// The operation that makes our side say what theirs says.
fn as_theirs(conflict: &Conflict) -> Value {
    match (&conflict.ours, &conflict.theirs) {
        (_, None) => json!({"op": "remove", "path": conflict.path}),
        (None, Some(value)) => json!({"op": "add", "path": conflict.path, "value": value}),
        (Some(_), Some(value)) => json!({"op": "replace", "path": conflict.path, "value": value}),
    }
}

fn value(text: &mut String, name: &str, value: Option<&Value>, paint: impl Fn(&str) -> String) {
    let lines = value.map_or_else(|| vec!["(nothing)".to_owned()], spread);
    for (number, line) in lines.iter().take(VALUE_LINES).enumerate() {
        let name = if number == 0 { name } else { "" };
        let _ = writeln!(text, "    {}", paint(&format!("{name:<8}{line}")));
    }
    if lines.len() > VALUE_LINES {
        let _ = writeln!(text, "            … {} more lines; `-o json` has all", lines.len() - VALUE_LINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(all: Value) -> Vec<Conflict> {
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn both_sides_are_shown_with_what_was_there() {
        let all = conflicts(json!([
            {"kind": "both_changed", "path": "/steps/a/input/topic", "step_id": "a", "message": "both sides changed it",
                "base": "tea", "ours": null, "theirs": {"k": 1}},
            {"kind": "changed_and_removed", "path": "/steps/c", "message": "ours removed what theirs changed",
                "base": {"skill": "x"}, "theirs": {"skill": "y"}},
            {"kind": "cycle", "path": "/steps/a", "message": "steps wait for each other: a → d → a", "steps": ["a", "d", "a"]},
        ]));
        assert_eq!(
            shown("main", "next", &all, false),
            r#"
3 conflicts between main (ours) and next (theirs)

both changed /steps/a/input/topic
  both sides changed it
    base    "tea"
    ours    null
    theirs  {"k":1}

changed and removed /steps/c
  ours removed what theirs changed
    base    {"skill":"x"}
    ours    (nothing)
    theirs  {"skill":"y"}

cycle /steps/a
  steps wait for each other: a → d → a
"#
            .trim_start_matches('\n')
        );
        let help = help("main", "next", &all);
        let operation = r#"--ops '[{"op":"replace","path":"/steps/a/input/topic","value":{"k":1}}]'`"#;
        assert!(help.contains(operation) && help.ends_with("`milepost tags set main next`"), "{help}");
    }

    #[test]
    fn what_was_removed_is_taken_away_or_put_back() {
        let one = |ours: bool, theirs: bool| {
            let mut conflict = json!({"kind": "changed_and_removed", "path": "/steps/c", "base": 1});
            for (name, has) in [("ours", ours), ("theirs", theirs)] {
                if has {
                    conflict[name] = json!(2);
                }
            }
            as_theirs(&conflicts(json!([conflict]))[0])
        };
        assert_eq!(one(true, false), json!({"op": "remove", "path": "/steps/c"}));
        assert_eq!(one(false, true), json!({"op": "add", "path": "/steps/c", "value": 2}));
    }

    #[test]
    fn a_conflict_without_values_needs_a_patch() {
        let all = conflicts(json!([{"kind": "cycle", "path": "/steps/a", "message": "m"}]));
        assert!(help("main", "next", &all).starts_with("change one side so that both fit"));
    }

    #[test]
    fn long_values_are_cut() {
        let long: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let all = conflicts(json!([{"kind": "both_changed", "path": "/p", "base": long, "ours": 1, "theirs": 2}]));
        let text = shown("main", "next", &all, false);
        assert!(text.contains("line 11\n") && text.contains("… 8 more lines") && !text.contains("line 12\n"), "{text}");
    }
}
