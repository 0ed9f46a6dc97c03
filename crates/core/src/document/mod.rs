//! Documents: read from YAML or JSON, checked in one go, brought into their canonical form and planned.
//!
//! ```text
//! text ─▶ yaml | json ─▶ builder ─▶ tree with positions ─▶ planner ─▶ plan
//!                                                      └▶ canonical form ─▶ hash
//! ```
//!
//! **Invariant:** no problem hides another: all are found and told at once, each with its place. A plan read from the
//! canonical form equals the plan of the text it came from.

mod builder;
mod builtin;
mod compile;
mod diff;
mod extras;
mod graph;
mod json;
mod merge;
pub(crate) mod near;
mod node;
mod numbered;
mod patch;
mod planner;
mod problem;
mod push;
mod schema;
mod section;
mod settings;
mod steps;
mod yaml;

use serde_json::{Map, Value};

use crate::canonical;
use crate::hash::Digest;
use crate::limits::Limits;
use crate::plan::Plan;

pub use diff::{Diff, FieldDiff, Operation, StepChange, StepDiff, diff};
pub use merge::{Conflict, ConflictKind, Conflicts, Merged, merge};
use node::{Data, Node, Position};
pub use numbered::{patch_run, unpatch_run, without_numbers};
pub use patch::{PatchError, patch, patched};
pub use problem::Problem;
use problem::{Problems, Trail};
pub use schema::PayloadSchema;

/// A document that was read and checked.
#[derive(Debug)]
pub struct Loaded {
    /// RFC 8785 JSON of the document as written, steps as a map by id.
    pub canonical: String,
    /// SHA-256 of the canonical form.
    pub hash: Digest,
    pub plan: Plan,
}

/// Reads one document, YAML or JSON.
///
/// # Errors
/// All that is wrong with it.
pub fn load(source: &str, limits: &Limits) -> Result<Loaded, Vec<Problem>> {
    let mut all = load_all(source, limits)?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(single("bad_value", "one document is expected, and there are more")),
    }
}

/// Reads a YAML stream of one or more documents separated by `---`.
///
/// # Errors
/// All that is wrong with any of them.
pub fn load_all(source: &str, limits: &Limits) -> Result<Vec<Loaded>, Vec<Problem>> {
    check_size(source.len(), limits)?;
    let mut problems = Problems::default();
    let nodes = if json::is_json(source) {
        vec![json::read(source, limits, &mut problems)]
    } else {
        yaml::read(source, limits, &mut problems)
    };
    let nodes: Vec<Node> = nodes.into_iter().flatten().collect();
    if nodes.is_empty() && problems.is_empty() {
        return Err(single("empty_document", "there is no document in it"));
    }
    let loaded: Vec<Loaded> = nodes.iter().filter_map(|node| load_node(node, limits, &mut problems)).collect();
    if problems.is_empty() { Ok(loaded) } else { Err(problems.into_sorted()) }
}

/// Reads a document that came as JSON already.
///
/// # Errors
/// All that is wrong with it.
pub fn load_value(value: &Value, limits: &Limits) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Problems::default();
    if let Err(error) = canonical::check_value(value, limits.json_depth) {
        let (code, path) = match &error {
            canonical::NotCanonical::IntegerTooLarge { path } => ("integer_too_large", path),
            canonical::NotCanonical::TooDeep { path, .. } => ("too_deep", path),
        };
        problems.add(code, Position::default(), path, error.to_string());
        return Err(problems.into_sorted());
    }
    if canonical::count(value) > limits.document_values {
        return Err(single("too_many_values", &builder::too_many_values(limits.document_values)));
    }
    if canonical::has_longer_key(value, limits.key_bytes) {
        return Err(single("key_too_long", &builder::key_too_long(limits.key_bytes)));
    }
    let loaded = load_node(&Node::from(value), limits, &mut problems);
    match loaded.filter(|_| problems.is_empty()) {
        Some(loaded) => Ok(loaded),
        None => Err(problems.into_sorted()),
    }
}

/// Plans a document from its canonical form. It was checked when it was stored, so today's limits do not apply.
///
/// # Errors
/// The text is not a canonical document: it was damaged, or stored by a newer version.
pub fn load_stored(canonical: &str) -> Result<Plan, Vec<Problem>> {
    let mut node: Node = serde_json::from_str(canonical)
        .map_err(|error| single("not_yaml", &format!("the stored document is not JSON: {error}")))?;
    let mut problems = Problems::default();
    let numbering = numbered::take(&mut node).map_err(|reason| single("bad_value", &reason))?;
    let plan = planner::plan(&node, canonical, numbering.as_ref(), &unlimited(), &mut problems);
    plan.filter(|_| problems.is_empty()).ok_or_else(|| problems.into_sorted())
}

fn load_node(node: &Node, limits: &Limits, problems: &mut Problems) -> Option<Loaded> {
    let canonical = canonical::write(&canonical_value(node));
    // Numbers may be shorter in the source, and aliases stand for more than they are.
    if let Some(message) = too_large(canonical.len(), limits) {
        problems.add("document_too_large", node.at, &Trail::Root, message);
        return None;
    }
    let plan = planner::plan(node, &canonical, None, limits, problems)?;
    Some(Loaded { canonical, hash: plan.hash, plan })
}

/// The document with its steps as a map by id.
fn canonical_value(node: &Node) -> Value {
    let Data::Map(entries) = &node.data else { return node.to_value() };
    let value = |entry: &node::Entry| match (entry.key.as_str(), entry.node.as_list()) {
        ("steps", Some(steps)) => Value::Object(steps.iter().filter_map(canonical_step).collect()),
        _ => entry.node.to_value(),
    };
    Value::Object(entries.iter().map(|entry| (entry.key.clone(), value(entry))).collect())
}

fn canonical_step(step: &Node) -> Option<(String, Value)> {
    let entries = step.as_map()?;
    let id = entries.iter().find(|entry| entry.key == "id")?.node.as_text()?;
    let rest = entries.iter().filter(|entry| entry.key != "id");
    Some((id.to_owned(), Value::Object(rest.map(|e| (e.key.clone(), e.node.to_value())).collect::<Map<_, _>>())))
}

fn check_size(bytes: usize, limits: &Limits) -> Result<(), Vec<Problem>> {
    too_large(bytes, limits).map_or(Ok(()), |message| Err(single("document_too_large", &message)))
}

fn too_large(bytes: usize, limits: &Limits) -> Option<String> {
    let most = limits.document_bytes;
    (bytes > most).then(|| format!("the document has {bytes} bytes; {most} are allowed"))
}

fn single(code: &'static str, message: &str) -> Vec<Problem> {
    let mut problems = Problems::default();
    problems.add(code, Position::default(), &Trail::Root, message);
    problems.into_sorted()
}

fn unlimited() -> Limits {
    Limits {
        document_bytes: usize::MAX,
        steps: usize::MAX,
        expression_chars: usize::MAX,
        expression_depth: usize::MAX,
        key_bytes: usize::MAX,
        json_depth: usize::MAX,
        attempts: u32::MAX,
        name_chars: usize::MAX,
        ..Limits::default()
    }
}

#[cfg(test)]
mod tests;
