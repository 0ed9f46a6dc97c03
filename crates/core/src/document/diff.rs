//! What is different between two documents, for programs (RFC 6902) and for people (step by step).
//!
//! Works on canonical forms, where steps are a map by id: a step that is new shifts no other. Maps are walked side by side and
//! nothing is copied but what differs.
//!
//! **Invariant:** the operations make the second document of the first one, exactly; unless there are so many that not all are
//! told, and then the diff says so.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::canonical::{self, pointer_segment};
use crate::patience;

/// The most differences that a diff lists.
const MOST: usize = 10_000;
/// The most bytes that a diff lists. Each difference appears twice: as an operation and under its step.
const MOST_BYTES: usize = 32 << 20;

/// All differences, each list in the order of paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    pub ops: Vec<Operation>,
    pub steps: Vec<StepDiff>,
    /// Fields outside of the steps.
    pub settings: Vec<FieldDiff>,
    /// There are more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    Add { path: String, value: Value },
    Remove { path: String },
    Replace { path: String, value: Value },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepDiff {
    pub step_id: String,
    pub change: StepChange,
    /// What changed below the step; all keys of one that was added or removed.
    pub fields: Vec<FieldDiff>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepChange {
    Added,
    Removed,
    Changed,
}

/// A field that differs. A side that does not have it has no value, which is not the same as null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDiff {
    /// A JSON pointer: below the step for a step's field, below the document for a setting.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

impl Diff {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The operations as a patch has them.
    #[must_use]
    pub fn patch(&self) -> Value {
        serde_json::to_value(&self.ops)
            .expect("operations are JSON: their keys are texts and their values came from JSON")
    }
}

/// Compares two documents in their canonical form.
#[must_use]
pub fn diff(from: &Value, to: &Value) -> Diff {
    let mut walk = Walk { at: Vec::new(), found: Vec::new(), bytes_left: MOST_BYTES, is_cut: false };
    walk.compare(Some(from), Some(to));
    walk.found.sort_by(|a, b| a.at.cmp(&b.at));
    let mut diff = Diff { truncated: walk.is_cut, ..Diff::default() };
    for difference in &walk.found {
        difference.operations(&mut diff.ops);
        match difference.at[..] {
            ["steps", id, ref below @ ..] => difference.of_step(id, below, &mut diff.steps),
            _ => diff.settings.push(difference.field(&difference.at)),
        }
    }
    diff
}

/// A smallest place where the documents differ.
struct Difference<'a> {
    at: Vec<&'a str>,
    from: Option<&'a Value>,
    to: Option<&'a Value>,
}

struct Walk<'a> {
    at: Vec<&'a str>,
    found: Vec<Difference<'a>>,
    bytes_left: usize,
    is_cut: bool,
}

impl<'a> Walk<'a> {
    fn compare(&mut self, from: Option<&'a Value>, to: Option<&'a Value>) {
        patience::look();
        match (from, to) {
            _ if self.is_cut => {}
            (Some(Value::Object(from)), Some(Value::Object(to))) => self.compare_maps(from, to),
            (from, to) if from == to => {}
            (from, to) => self.tell(Difference { at: self.at.clone(), from, to }),
        }
    }

    fn tell(&mut self, difference: Difference<'a>) {
        match self.bytes_left.checked_sub(difference.bytes()).filter(|_| self.found.len() < MOST) {
            Some(left) => {
                self.bytes_left = left;
                self.found.push(difference);
            }
            None => self.is_cut = true,
        }
    }

    fn compare_maps(&mut self, from: &'a Map<String, Value>, to: &'a Map<String, Value>) {
        for (key, value) in from {
            self.compare_at(key, Some(value), to.get(key));
        }
        for (key, value) in to.iter().filter(|(key, _)| !from.contains_key(*key)) {
            self.compare_at(key, None, Some(value));
        }
    }

    fn compare_at(&mut self, key: &'a str, from: Option<&'a Value>, to: Option<&'a Value>) {
        self.at.push(key);
        self.compare(from, to);
        self.at.pop();
    }
}

impl Difference<'_> {
    /// About how long it is told.
    fn bytes(&self) -> usize {
        let path: usize = self.at.iter().map(|segment| segment.len() + 1).sum();
        let (from, to) = (self.from.map_or(0, canonical::written), self.to.map_or(0, canonical::written));
        // Each item that is appended has its path.
        let items = self.to.and_then(Value::as_array).filter(|_| self.at.last() == Some(&"depends_on"));
        path * (2 + items.map_or(0, Vec::len)) + from + 2 * to
    }

    fn operations(&self, ops: &mut Vec<Operation>) {
        let path = pointer(&self.at);
        match (self.from, self.to) {
            (None, Some(value)) => ops.push(Operation::Add { path, value: value.clone() }),
            (_, None) => ops.push(Operation::Remove { path }),
            (Some(from), Some(to)) => match self.appended(from, to) {
                Some(items) => ops
                    .extend(items.iter().map(|item| Operation::Add { path: format!("{path}/-"), value: item.clone() })),
                None => ops.push(Operation::Replace { path, value: to.clone() }),
            },
        }
    }

    /// What `depends_on` got at its end. It is a set in effect, so this fits also when others have added to it; positions
    /// would not, and a list that lost something or means something by its order is replaced as a whole.
    fn appended<'v>(&self, from: &Value, to: &'v Value) -> Option<&'v [Value]> {
        let (["steps", _, "depends_on"], Value::Array(from), Value::Array(to)) = (&self.at[..], from, to) else {
            return None;
        };
        to.strip_prefix(&from[..])
    }

    fn of_step(&self, id: &str, below: &[&str], steps: &mut Vec<StepDiff>) {
        let (change, fields) = match (below, self.from, self.to) {
            ([], None, Some(step)) => (StepChange::Added, keys(step, |value| (None, Some(value)))),
            ([], Some(step), None) => (StepChange::Removed, keys(step, |value| (Some(value), None))),
            _ => (StepChange::Changed, vec![self.field(below)]),
        };
        match steps.last_mut() {
            Some(last) if last.step_id == id => last.fields.extend(fields),
            _ => steps.push(StepDiff { step_id: id.to_owned(), change, fields }),
        }
    }

    fn field(&self, at: &[&str]) -> FieldDiff {
        FieldDiff { path: pointer(at), from: self.from.cloned(), to: self.to.cloned() }
    }
}

/// The keys of a step that only one of the documents has, in their order.
fn keys(step: &Value, sides: fn(Value) -> (Option<Value>, Option<Value>)) -> Vec<FieldDiff> {
    let mut keys: Vec<(&String, &Value)> = step.as_object().into_iter().flatten().collect();
    keys.sort_by_key(|(key, _)| *key);
    let field = |(key, value): (&String, &Value)| {
        let (from, to) = sides(value.clone());
        FieldDiff { path: pointer_segment(key), from, to }
    };
    keys.into_iter().map(field).collect()
}

fn pointer(segments: &[&str]) -> String {
    segments.iter().map(|segment| pointer_segment(segment)).collect()
}

#[cfg(test)]
mod tests;
