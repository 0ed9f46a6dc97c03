//! Plans that patches make. Steps are numbered in the order of their ids; but those of a run keep their numbers while it
//! lasts, so the plan that a patch made of another says in its text which numbers its steps have.
//!
//! ```text
//! {…, "patched": {"after": "<the plan before>", "removed": {"b": "<its skill>"}, "steps": ["a", "b", "c"]}}
//! ```
//!
//! Only stored documents have this key; in one that somebody writes it is unknown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::node::{Data, Node};
use super::problem::{Problems, Trail};
use super::{Loaded, PatchError, load_stored, patch};
use crate::canonical;
use crate::expression::{Part, Template};
use crate::hash::Digest;
use crate::limits::Limits;
use crate::plan::{Action, CachePolicy, Plan, PlanStep, RetryPolicy, StepIndex};

const KEY: &str = "patched";

/// What a run was started as; a patch of it changes none of these.
const FROZEN: [&str; 6] = ["kind", "name", "version", "params", "concurrency", "approval"];

/// Which step has which number.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Numbering {
    /// The plan that the patch was applied to.
    pub(super) after: Digest,
    /// The skills of steps that are gone, by id.
    #[serde(default)]
    removed: BTreeMap<String, Arc<str>>,
    /// All that the run has ever had, by number.
    steps: Vec<Arc<str>>,
}

/// Takes the numbers out of a stored document.
pub(super) fn take(node: &mut Node) -> Result<Option<Numbering>, String> {
    let Data::Map(entries) = &mut node.data else { return Ok(None) };
    let Some(at) = entries.iter().position(|entry| entry.key == KEY) else { return Ok(None) };
    let value = entries.remove(at).node.to_value();
    serde_json::from_value(value).map(Some).map_err(|error| format!("`{KEY}` of a stored document: {error}"))
}

impl Numbering {
    /// The steps of `after` keep their numbers, new ones follow in the order of their ids.
    fn following(before: &Plan, next: &Plan) -> Numbering {
        let mut steps: Vec<Arc<str>> = before.steps.iter().map(|step| step.id.clone()).collect();
        let is_new = |step: &&PlanStep| before.find(&step.id).is_none();
        steps.extend(next.steps.iter().filter(is_new).map(|step| step.id.clone()));
        let gone = before.steps.iter().filter(|step| next.find(&step.id).is_none());
        let removed = gone.map(|step| (step.id.to_string(), step.skill.clone())).collect();
        Numbering { after: before.hash, removed, steps }
    }

    /// The numbers of the steps that are there.
    pub(super) fn index_of(&self, ids: &[Arc<str>], problems: &mut Problems) -> Option<HashMap<Arc<str>, StepIndex>> {
        let all = self.all();
        let index: HashMap<Arc<str>, StepIndex> =
            ids.iter().filter_map(|id| all.get(id).map(|number| (id.clone(), *number))).collect();
        let gone = self.steps.iter().filter(|id| !index.contains_key(*id));
        let whole = index.len() == ids.len() && gone.clone().all(|id| self.removed.contains_key(&**id));
        if !whole {
            let at = super::Position::default();
            problems.add("bad_value", at, &Trail::Root.key(KEY), "it does not number the steps that are there");
        }
        whole.then_some(index)
    }

    pub(super) fn all(&self) -> HashMap<Arc<str>, StepIndex> {
        self.steps.iter().cloned().zip(0..).collect()
    }

    /// Each step at its number, and something that is never run where one is gone.
    pub(super) fn place(&self, steps: Vec<PlanStep>) -> Vec<PlanStep> {
        let mut there: HashMap<Arc<str>, PlanStep> = steps.into_iter().map(|step| (step.id.clone(), step)).collect();
        let at = |id: &Arc<str>| there.remove(id).unwrap_or_else(|| self.gone(id));
        self.steps.iter().map(at).collect()
    }

    fn gone(&self, id: &Arc<str>) -> PlanStep {
        PlanStep {
            id: id.clone(),
            skill: self.removed.get(&**id).cloned().unwrap_or_else(|| "".into()),
            action: Action::Task,
            input: Template::new(Part::Constant(Value::Object(Map::new()))),
            when: None,
            foreach: None,
            depends_on: Vec::new(),
            dependents: Vec::new(),
            retry: RetryPolicy::default(),
            timeout_ms: None,
            heartbeat_timeout_ms: None,
            runtime: None,
            queue: None,
            concurrency: None,
            push: None,
            cache: CachePolicy::default(),
            env: Vec::new(),
            secrets: Vec::new(),
            digest: Digest([0; 32]),
            removed: true,
        }
    }
}

/// A stored document as somebody would write it.
///
/// # Errors
/// The text is not a document.
pub fn without_numbers(canonical: &str) -> Result<String, PatchError> {
    let mut document = read(canonical)?;
    Ok(match document.remove(KEY) {
        None => canonical.to_owned(),
        Some(_) => canonical::write(&Value::Object(document)),
    })
}

/// Applies a patch to the document of a run, whose plan is `before` and whose stored text is `canonical`.
///
/// # Errors
/// An operation does not fit, the result has problems, or it is another workflow than the run was started as.
pub fn patch_run(before: &Plan, canonical: &str, operations: &Value, limits: &Limits) -> Result<Loaded, PatchError> {
    let plain = without_numbers(canonical)?;
    let next = patch(&plain, operations, limits)?;
    let (was, is) = (read(&plain)?, read(&next.canonical)?);
    if let Some(key) = FROZEN.iter().find(|key| was.get(**key) != is.get(**key)) {
        let message = format!("a run keeps the `{key}` that it was started with; start another run with the new one");
        return Err(PatchError::Failed(message));
    }
    if next.canonical == plain {
        return Err(PatchError::Failed("the patch changes nothing".to_owned()));
    }
    numbered(before, next)
}

/// The document that a run had once, `former`, again: as what follows its plan `before`.
///
/// # Errors
/// The text is not a document that can be run.
pub fn unpatch_run(before: &Plan, former: &str) -> Result<Loaded, PatchError> {
    let canonical = without_numbers(former)?;
    let plan = load_stored(&canonical).map_err(PatchError::Invalid)?;
    numbered(before, Loaded { hash: plan.hash, canonical, plan })
}

fn numbered(before: &Plan, next: Loaded) -> Result<Loaded, PatchError> {
    let mut document = read(&next.canonical)?;
    let numbering = Numbering::following(before, &next.plan);
    let numbering = serde_json::to_value(&numbering).expect("numbers have string keys and no failing serializer");
    document.insert(KEY.to_owned(), numbering);
    let canonical = canonical::write(&Value::Object(document));
    let plan = load_stored(&canonical).map_err(PatchError::Invalid)?;
    Ok(Loaded { hash: plan.hash, canonical, plan })
}

fn read(canonical: &str) -> Result<Map<String, Value>, PatchError> {
    serde_json::from_str(canonical)
        .map_err(|error| PatchError::Failed(format!("the document to be patched is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document::load;

    fn loaded(yaml: &str) -> Loaded {
        load(&format!("kind: workflow\nname: t\nversion: 1.0.0\n{yaml}\n"), &Limits::default()).unwrap()
    }

    fn next(before: &Loaded, operations: Value) -> Result<Loaded, PatchError> {
        patch_run(&before.plan, &before.canonical, &operations, &Limits::default())
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        plan.steps.iter().map(|step| &*step.id).collect()
    }

    #[test]
    fn steps_keep_their_numbers_and_new_ones_follow() {
        let first = loaded("steps: {b: {skill: x}, d: {skill: x, depends_on: [b]}}");
        let second = next(
            &first,
            json!([
                {"op": "add", "path": "/steps/c", "value": {"skill": "y", "depends_on": ["b"]}},
                {"op": "add", "path": "/steps/a", "value": {"skill": "y"}},
            ]),
        )
        .unwrap();
        assert_eq!(ids(&second.plan), ["b", "d", "a", "c"]);
        assert_eq!((second.plan.after, second.plan.step(0).dependents.as_slice()), (Some(first.hash), &[1, 3][..]));
        let third = next(&second, json!([{"op": "remove", "path": "/steps/d"}])).unwrap();
        assert_eq!((ids(&third.plan), third.plan.steps_total()), (vec!["b", "d", "a", "c"], 3));
        assert!(third.plan.step(1).removed && &*third.plan.step(1).skill == "x");
        assert_eq!((third.plan.last_steps.as_slice(), third.plan.find("d")), (&[2, 3][..], Some(1)));
        let fourth = next(&third, json!([{"op": "add", "path": "/steps/d", "value": {"skill": "z"}}])).unwrap();
        assert_eq!((ids(&fourth.plan), &*fourth.plan.step(1).skill), (vec!["b", "d", "a", "c"], "z"));
    }

    #[test]
    fn numbers_are_nothing_that_people_see_or_write() {
        let first = loaded("steps: {a: {skill: x}}");
        let second = next(&first, json!([{"op": "add", "path": "/steps/b", "value": {"skill": "x"}}])).unwrap();
        let plain = without_numbers(&second.canonical).unwrap();
        assert_eq!(plain, loaded("steps: {a: {skill: x}, b: {skill: x}}").canonical);
        let value: Value = serde_json::from_str(&second.canonical).unwrap();
        assert_eq!(crate::document::load_value(&value, &Limits::default()).unwrap_err()[0].code, "unknown_key");
    }

    #[test]
    fn a_plan_that_is_back_is_another_plan_with_the_same_steps() {
        let first = loaded("steps: {a: {skill: x}}");
        let second = next(&first, json!([{"op": "add", "path": "/steps/b", "value": {"skill": "x"}}])).unwrap();
        let back = unpatch_run(&second.plan, &first.canonical).unwrap();
        assert_ne!(back.hash, first.hash);
        assert_eq!((back.plan.steps_total(), back.plan.steps.len()), (1, 2));
        assert!(back.plan.step(0).is_the_same(first.plan.step(0)));
    }

    #[test]
    fn what_a_run_was_started_as_stays() {
        let first = loaded("steps: {a: {skill: x}}");
        for key in FROZEN {
            let value = if key == "approval" { json!(true) } else { json!("other") };
            let value = match key {
                "params" => json!({"type": "object"}),
                "concurrency" => json!({"key": "k", "limit": 1}),
                "kind" => json!("pipeline"),
                _ => value,
            };
            let refused = next(&first, json!([{"op": "add", "path": format!("/{key}"), "value": value}]));
            assert!(matches!(refused, Err(PatchError::Failed(text)) if text.contains(key)), "{key}");
        }
        assert!(matches!(next(&first, json!([])), Err(PatchError::Failed(text)) if text.contains("nothing")));
    }

    #[test]
    fn numbers_that_do_not_fit_their_document_are_refused() {
        let first = loaded("steps: {a: {skill: x}}");
        let second = next(&first, json!([{"op": "add", "path": "/steps/b", "value": {"skill": "x"}}])).unwrap();
        let damaged = second.canonical.replace("\"steps\":[\"a\",\"b\"]", "\"steps\":[\"a\"]");
        assert_ne!(damaged, second.canonical);
        assert!(load_stored(&damaged).is_err());
    }
}
