//! `changes` and `tunables`: checked for their shape; what they do is decided when they are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::node::{Entry, Node};
use super::problem::{Problems, Trail};
use super::section::Section;
use super::steps::no_such_step;
use crate::plan::{Change, Rebuild, StepIndex};

/// The number of the step with this id.
pub(super) type FindStep<'a> = dyn Fn(&str) -> Option<StepIndex> + 'a;

pub(super) fn read_changes(
    node: &Node,
    trail: &Trail<'_>,
    find: &FindStep<'_>,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, Change> {
    let Some(section) = Section::of(node, trail, problems) else { return BTreeMap::new() };
    let mut changes = BTreeMap::new();
    for entry in section.entries {
        if let Some(change) = read_change(entry, &trail.key(&entry.key), find, problems) {
            changes.insert(Arc::from(entry.key.as_str()), change);
        }
    }
    changes
}

fn read_change(entry: &Entry, trail: &Trail<'_>, find: &FindStep<'_>, problems: &mut Problems) -> Option<Change> {
    let change = Section::of(&entry.node, trail, problems)?;
    change.only(&["merge", "replace", "rebuild"], problems);
    if change.entries.len() != 1 {
        let message = "a change has exactly one of `merge`, `replace` and `rebuild`";
        problems.add("bad_value", entry.node.at, trail, message);
    }
    let merge = pointer(&change, "merge", problems).map(Change::Merge);
    let replace = pointer(&change, "replace", problems).map(Change::Replace);
    let rebuild = change.get("rebuild").and_then(|rebuild| read_rebuild(&change, rebuild, find, problems));
    merge.or(replace).or(rebuild.map(Change::Rebuild))
}

fn pointer(change: &Section<'_, '_>, key: &str, problems: &mut Problems) -> Option<Arc<str>> {
    let pointer = change.text(key, problems)?;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        let at = change.get(key).map_or(change.at, |entry| entry.node.at);
        let suggestion = Some(format!("write `/{pointer}`"));
        problems.add_with("bad_value", at, &change.trail.key(key), "a JSON pointer starts with `/`", suggestion);
    }
    Some(Arc::from(pointer))
}

fn read_rebuild(
    change: &Section<'_, '_>,
    rebuild: &Entry,
    find: &FindStep<'_>,
    problems: &mut Problems,
) -> Option<Rebuild> {
    if rebuild.node.as_text() == Some("all") {
        return Some(Rebuild::All);
    }
    if rebuild.node.as_list().is_none() {
        change.wrong_type(rebuild, "`all` or a list of step ids", None, problems);
        return None;
    }
    let mut steps = Vec::new();
    for id in change.texts("rebuild", problems).unwrap_or_default() {
        match find(id) {
            Some(step) => steps.push(step),
            None => {
                problems.add("unknown_step", rebuild.node.at, &change.trail.key("rebuild"), no_such_step(id));
            }
        }
    }
    steps.sort_unstable();
    steps.dedup();
    Some(Rebuild::Steps(steps))
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
