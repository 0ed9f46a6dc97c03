//! Three-way merges of documents, by step id.
//!
//! ```text
//! base ─┬─ ours ───┐
//!       └─ theirs ─┴▶ fields ─▶ one tree ─▶ load ─▶ clean
//!                       └▶ clashing values    └▶ cycles, dangling references ─▶ conflicts
//! ```
//!
//! Maps are merged key by key, lists and the rest are values, `depends_on` is a set. The same change on both sides is no
//! conflict. Works on canonical forms.
//!
//! **Invariant:** a merge is clean only when its result is a document that loads. Which side is called ours changes the names
//! in conflicts and nothing else. No conflict hides another, but there is an end to how many are told.

mod conflict;
mod fields;
mod set;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use conflict::Side;
pub use conflict::{Conflict, ConflictKind, Conflicts};
use fields::Tree;

use super::node::{Node, Position};
use super::problem::{Problem, Problems};
use super::steps::no_such_step;
use super::{Loaded, check_size, load_node};
use crate::limits::Limits;

/// What came of a merge.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is looked at once and taken apart")]
pub enum Merged {
    Clean(Loaded),
    /// In the order of their paths.
    Conflicts(Conflicts),
}

/// Merges two documents that came from the same one, all in their canonical form.
#[must_use]
pub fn merge(base: &Value, ours: &Value, theirs: &Value, limits: &Limits) -> Merged {
    let sides = Sides { base, ours, theirs };
    let (tree, mut conflicts) = fields::merge(base, ours, theirs, Side::Ours);
    let mut graph = match sides.load(&tree, limits) {
        Ok(loaded) if conflicts.list.is_empty() => return Merged::Clean(loaded),
        Ok(_) => Vec::new(),
        Err(found) => found,
    };
    // With values open, only what is wrong whichever of them is taken is a conflict of its own.
    if !conflicts.list.is_empty() && !graph.is_empty() {
        let (tree, _) = fields::merge(base, ours, theirs, Side::Theirs);
        let also = sides.load(&tree, limits).err().unwrap_or_default();
        graph.retain(|conflict| also.contains(conflict));
    }
    conflicts.list.extend(graph);
    conflicts.list.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    Merged::Conflicts(conflicts)
}

struct Sides<'a> {
    base: &'a Value,
    ours: &'a Value,
    theirs: &'a Value,
}

impl Sides<'_> {
    /// Reads what was merged; what is wrong with it is wrong because of the combination.
    fn load(&self, tree: &Tree<'_>, limits: &Limits) -> Result<Loaded, Vec<Conflict>> {
        let mut problems = Problems::default();
        let loaded = load_node(&Node::from(tree), limits, &mut problems);
        if let Some(loaded) = loaded.filter(|_| problems.is_empty()) {
            let too_large =
                |problems: Vec<Problem>| problems.into_iter().map(|p| conflict_of(p, &[], &HashMap::new())).collect();
            return check_size(loaded.canonical.len(), limits).map(|()| loaded).map_err(too_large);
        }
        let circles = problems.take_circles();
        let removed = self.removed();
        Err(problems.into_sorted().into_iter().map(|problem| conflict_of(problem, &circles, &removed)).collect())
    }

    /// Steps that one side removed, by what is said where another step needs one of them.
    fn removed(&self) -> HashMap<String, (&str, Side)> {
        let sides = [(Side::Ours, self.ours), (Side::Theirs, self.theirs)];
        let removed = |id| sides.into_iter().find(|(_, document)| document["steps"].get(id).is_none());
        step_ids(self.base).filter_map(|id| Some((no_such_step(id), (id, removed(id)?.0)))).collect()
    }
}

fn conflict_of(problem: Problem, circles: &[Vec<Arc<str>>], removed: &HashMap<String, (&str, Side)>) -> Conflict {
    let step_id = problem.path.strip_prefix("/steps/").and_then(|below| below.split('/').next());
    let step_id = step_id.map(|id| id.replace("~1", "/").replace("~0", "~"));
    let (kind, message, steps) = match problem.code {
        "cycle" => (ConflictKind::Cycle, problem.message, circle_from(step_id.as_deref(), circles)),
        "unknown_step" => {
            let (message, missing) = dangling(problem.message, removed);
            (ConflictKind::DanglingReference, message, missing.into_iter().collect())
        }
        _ => (ConflictKind::Invalid, problem.message, Vec::new()),
    };
    Conflict { kind, path: problem.path, step_id, message, steps, base: None, ours: None, theirs: None }
}

/// Which step is missing, and who removed it.
fn dangling(message: String, removed: &HashMap<String, (&str, Side)>) -> (String, Option<String>) {
    match removed.get(&message) {
        Some((id, side)) => (format!("{message}: {side} removed it"), Some((*id).to_owned())),
        None => (message, None),
    }
}

fn step_ids(document: &Value) -> impl Iterator<Item = &str> {
    document["steps"].as_object().into_iter().flat_map(|steps| steps.keys().map(String::as_str))
}

/// The circle that starts at this step.
fn circle_from(step_id: Option<&str>, circles: &[Vec<Arc<str>>]) -> Vec<String> {
    let circle = circles.iter().find(|circle| circle.first().map(|id| &**id) == step_id);
    circle.into_iter().flatten().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
