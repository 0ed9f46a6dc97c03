//! `changes` and `tunables`: checked for their shape and kept; what they do is decided when they are used.

use super::node::{Entry, Node};
use super::problem::{Problems, Trail};
use super::section::Section;

/// Whether a step with this id exists.
pub(super) type KnowsStep<'a> = dyn Fn(&str) -> bool + 'a;

pub(super) fn check_changes(node: &Node, trail: &Trail<'_>, knows: &KnowsStep<'_>, problems: &mut Problems) {
    let Some(section) = Section::of(node, trail, problems) else { return };
    for entry in section.entries {
        let trail = trail.key(&entry.key);
        let Some(change) = Section::of(&entry.node, &trail, problems) else { continue };
        change.only(&["merge", "replace", "rebuild"], problems);
        if change.entries.len() != 1 {
            let message = "a change has exactly one of `merge`, `replace` and `rebuild`";
            problems.add("bad_value", entry.node.at, &trail, message);
        }
        check_pointer(&change, "merge", problems);
        check_pointer(&change, "replace", problems);
        if let Some(rebuild) = change.get("rebuild") {
            check_rebuild(&change, rebuild, knows, problems);
        }
    }
}

fn check_pointer(change: &Section<'_, '_>, key: &str, problems: &mut Problems) {
    let Some(pointer) = change.text(key, problems) else { return };
    if !pointer.is_empty() && !pointer.starts_with('/') {
        let at = change.get(key).map_or(change.at, |entry| entry.node.at);
        let suggestion = Some(format!("write `/{pointer}`"));
        problems.add_with("bad_value", at, &change.trail.key(key), "a JSON pointer starts with `/`", suggestion);
    }
}

fn check_rebuild(change: &Section<'_, '_>, rebuild: &Entry, knows: &KnowsStep<'_>, problems: &mut Problems) {
    if rebuild.node.as_text() == Some("all") {
        return;
    }
    if rebuild.node.as_list().is_none() {
        return change.wrong_type(rebuild, "`all` or a list of step ids", None, problems);
    }
    for id in change.texts("rebuild", problems).unwrap_or_default() {
        if !knows(id) {
            let message = format!("there is no step `{id}`");
            problems.add("unknown_step", rebuild.node.at, &change.trail.key("rebuild"), message);
        }
    }
}

pub(super) fn check_tunables(node: &Node, trail: &Trail<'_>, problems: &mut Problems) {
    let Some(items) = node.as_list() else {
        problems.add("wrong_type", node.at, trail, format!("a list is needed here, not {}", node.kind()));
        return;
    };
    for (i, item) in items.iter().enumerate() {
        let trail = trail.index(i);
        let Some(section) = Section::of(item, &trail, problems) else { continue };
        section.only(&["path", "type", "min", "max", "values", "default", "description"], problems);
        for key in ["path", "type"] {
            section.required(key, problems);
            section.text(key, problems);
        }
        section.text("description", problems);
    }
}
