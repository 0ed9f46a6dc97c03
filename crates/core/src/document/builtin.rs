//! The inputs of built-in skills, checked as far as a document tells them: values that are expressions are left to the run.

use super::compile::holds_expression;
use super::node::{Data, Node, Position};
use super::problem::{Problems, Trail};
use super::section::Section;
use crate::canonical::MAX_SAFE_INTEGER;
use crate::plan::Action;

enum Kind {
    Any,
    Count,
    Flag,
    Text,
    Texts,
    Map,
}

struct Skill {
    name: &'static str,
    keys: &'static [(&'static str, Kind)],
    required: &'static [&'static str],
    /// Whether further keys are part of the input.
    open: bool,
}

use Kind::{Any, Count, Flag, Map, Text, Texts};

/// `noop` and `echo` take anything.
const SKILLS: [Skill; 6] = [
    Skill { name: "sleep", keys: &[("ms", Count)], required: &["ms"], open: false },
    Skill { name: "fail", keys: &[("times", Count), ("code", Text), ("retryable", Flag)], required: &[], open: true },
    Skill {
        name: "shell",
        keys: &[("command", Text), ("argv", Texts), ("env", Map), ("cwd", Text), ("stdin", Text)],
        required: &[],
        open: false,
    },
    Skill {
        name: "http",
        keys: &[("method", Text), ("url", Text), ("headers", Map), ("body", Any)],
        required: &["url"],
        open: false,
    },
    Skill { name: "wait", keys: &[("signal", Text)], required: &["signal"], open: false },
    Skill { name: "workflow", keys: &[("ref", Text), ("payload", Any)], required: &["ref"], open: false },
];

/// Carried out in the server's own process, unless the step says otherwise.
pub(super) fn is_built_in(skill: &str) -> bool {
    matches!(skill, "noop" | "echo") || SKILLS.iter().any(|known| known.name == skill)
}

/// Who carries a skill out.
pub(super) fn action(skill: &str) -> Action {
    match skill {
        "sleep" => Action::Sleep,
        "wait" => Action::Wait,
        "workflow" => Action::Child,
        _ => Action::Task,
    }
}

/// Checks the input of a step; `at` is the step's own place, for an input that is missing.
pub(super) fn check(skill: &str, input: Option<&Node>, at: Position, trail: &Trail<'_>, problems: &mut Problems) {
    let Some(skill) = SKILLS.iter().find(|known| known.name == skill) else { return };
    let section = match input {
        None => Some(Section { entries: &[], at, trail }),
        Some(node) if node.as_text().is_some() && holds_expression(node) => None,
        Some(node) => Section::of(node, trail, problems),
    };
    let Some(section) = section else { return };
    if !skill.open {
        section.only(&skill.keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(), problems);
    }
    for key in skill.required {
        section.required(key, problems);
    }
    if skill.name == "shell" {
        command_or_argv(&section, problems);
    }
    skill.keys.iter().for_each(|(key, kind)| value(&section, key, kind, problems));
}

fn command_or_argv(section: &Section<'_, '_>, problems: &mut Problems) {
    match (section.get("command"), section.get("argv")) {
        (None, None) => {
            problems.add("missing_key", section.at, section.trail, "`command` or `argv` is missing");
        }
        (Some(_), Some(argv)) => {
            let message = "`command` and `argv` exclude each other";
            problems.add("bad_value", argv.at, &section.trail.key("argv"), message);
        }
        _ => {}
    }
}

fn value(section: &Section<'_, '_>, key: &str, kind: &Kind, problems: &mut Problems) {
    let Some(entry) = section.get(key).filter(|entry| !holds_expression(&entry.node)) else { return };
    let (fits, wanted) = match (kind, &entry.node.data) {
        (Count, Data::Number(_)) => {
            section.integer(key, 0, MAX_SAFE_INTEGER, problems);
            return;
        }
        (Count, _) => (false, "a whole number"),
        (Flag, data) => (matches!(data, Data::Bool(_)), "`true` or `false`"),
        (Text, data) => (matches!(data, Data::Text(_)), "a text"),
        (Texts, Data::List(items)) => (items.iter().all(|item| item.as_text().is_some()), "a list of texts"),
        (Texts, _) => (false, "a list of texts"),
        (Map, data) => (matches!(data, Data::Map(_)), "a map"),
        (Any, _) => (true, ""),
    };
    if !fits {
        section.wrong_type(entry, wanted, None, problems);
    }
}
