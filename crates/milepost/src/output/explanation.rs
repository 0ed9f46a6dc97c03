//! Why a step ran, was reused or waits, in words.

use console::style;
use serde_json::Value;

use super::time;
use crate::wire::{Explanation, KeyDifference, Nearest, Origin};

/// So much of a key is shown to people.
const KEY_CHARS: usize = 12;
/// So much of a value is shown on its line.
const VALUE_CHARS: usize = 100;

pub(crate) fn print(told: &Explanation) {
    for line in lines(told) {
        crate::print_line(&line);
    }
}

fn lines(told: &Explanation) -> Vec<String> {
    let mut lines = vec![format!("{} {}", style(&told.step_id).bold(), sentence(told))];
    if let Some(key) = &told.cache_key {
        lines.push(format!("key:      {}", short(key)));
    }
    lines.extend(told.result.as_ref().map(origin));
    lines.extend(told.nearest.as_ref().map(nearest));
    for difference in &told.differences {
        lines.extend(shown(difference));
    }
    if told.more_differences > 0 {
        lines.push(format!("… {} more differences; -o json has some of them", told.more_differences));
    }
    // The first is the sentence already.
    for wait in told.waits.iter().skip(1) {
        lines.push(format!("and       {}", wait.message));
    }
    lines
}

/// What the message says of the step, with its name as the subject.
fn sentence(told: &Explanation) -> String {
    match &*told.decision {
        "ran" | "running" if told.message.starts_with("ran ") || told.message.starts_with("runs ") => {
            told.message.clone()
        }
        decision => format!("{decision}: {}", told.message),
    }
}

fn origin(result: &Origin) -> String {
    let when = result.created_at.map(|at| format!(", made {}", time::age(at, time::now()))).unwrap_or_default();
    let took = result.duration_ms.map(|ms| format!(" in {}", time::span(ms))).unwrap_or_default();
    format!("result:   of run {}{when}{took}", result.run_id)
}

fn nearest(nearest: &Nearest) -> String {
    let whose = if nearest.of_base_run { "base run" } else { "run" };
    let when = nearest.began_at.map(|at| format!(", {}", time::age(at, time::now()))).unwrap_or_default();
    format!("before:   {} of {whose} {}{when}", short(&nearest.cache_key), nearest.run_id)
}

fn shown(difference: &KeyDifference) -> Vec<String> {
    let value = |value: &Value| {
        let text = value.to_string();
        match text.char_indices().nth(VALUE_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    };
    let mut lines = vec![format!("  {} {}", difference.part, difference.path).trim_end().to_owned()];
    lines.extend(difference.before.as_ref().map(|before| style(format!("  - {}", value(before))).red().to_string()));
    lines.extend(difference.after.as_ref().map(|after| style(format!("  + {}", value(after))).green().to_string()));
    lines
}

fn short(key: &str) -> String {
    key.chars().take(KEY_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_as_a_diff() {
        console::set_colors_enabled(false);
        let told: Explanation = serde_json::from_str(
            r#"{"step_id":"bgm","decision":"ran","message":"ran because `prompt` of its input changed",
                "cache_key":"0123456789abcdef","differences":[{"part":"input","path":"/prompt","before":"calm","after":null},
                {"part":"definition","path":"","after":"d"}],"more_differences":2,
                "waits":[]}"#,
        )
        .unwrap();
        assert_eq!(
            lines(&told),
            [
                "bgm ran because `prompt` of its input changed",
                "key:      0123456789ab",
                "  input /prompt",
                "  - \"calm\"",
                "  + null",
                "  definition",
                "  + \"d\"",
                "… 2 more differences; -o json has some of them",
            ]
        );
    }

    #[test]
    fn a_step_that_waits_says_for_what() {
        console::set_colors_enabled(false);
        let told: Explanation = serde_json::from_str(
            r#"{"step_id":"cut","decision":"waiting","message":"the run is paused","waits":[{"message":"the run is paused"},
                {"message":"it waits for `a` (running)"}]}"#,
        )
        .unwrap();
        assert_eq!(lines(&told), ["cut waiting: the run is paused", "and       it waits for `a` (running)"]);
    }
}
