//! Random documents that load, and random edits that leave them so.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::document::load_value;
use crate::limits::Limits;

/// The steps that there may be.
pub(in crate::document) const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// One thing that somebody does to a document.
#[derive(Clone, Debug)]
pub(in crate::document) enum Edit {
    Skill(usize, u8),
    Topic(usize, u8),
    Deep(usize, u8),
    NoInput(usize),
    Depend(usize, usize),
    Refer(usize, usize),
    Free(usize, usize),
    Add(usize, u8),
    Remove(usize),
    OnFailure(bool),
    Attempts(u8),
    Describe(u8),
}

/// An edit of one of these steps, or of a setting where `settings` says so.
pub(in crate::document) fn edit(steps: std::ops::Range<usize>, settings: bool) -> BoxedStrategy<Edit> {
    let all = 0..IDS.len();
    let (step, n) = (move || steps.clone(), || 0..3_u8);
    let of_steps = prop_oneof![
        (step(), n()).prop_map(|(s, n)| Edit::Skill(s, n)),
        (step(), n()).prop_map(|(s, n)| Edit::Topic(s, n)),
        (step(), n()).prop_map(|(s, n)| Edit::Deep(s, n)),
        step().prop_map(Edit::NoInput),
        (step(), all.clone()).prop_map(|(s, on)| Edit::Depend(s, on)),
        (step(), all.clone()).prop_map(|(s, on)| Edit::Refer(s, on)),
        (step(), all).prop_map(|(s, on)| Edit::Free(s, on)),
        (step(), n()).prop_map(|(s, n)| Edit::Add(s, n)),
        step().prop_map(Edit::Remove),
    ];
    let of_settings = prop_oneof![
        any::<bool>().prop_map(Edit::OnFailure),
        (1..4_u8).prop_map(Edit::Attempts),
        n().prop_map(Edit::Describe),
    ];
    if settings { prop_oneof![4 => of_steps, 1 => of_settings].boxed() } else { of_steps.boxed() }
}

pub(in crate::document) fn edits(steps: std::ops::Range<usize>, settings: bool) -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(edit(steps, settings), 0..8)
}

/// A document, as edits make it.
pub(in crate::document) fn document() -> impl Strategy<Value = Value> {
    let seed = json!({"name": "t", "steps": {"a": {"skill": "s0"}, "d": {"skill": "s0", "input": {"topic": 0}}}});
    prop::collection::vec(edit(0..IDS.len(), true), 0..20).prop_map(move |all| edited(&seed, &all))
}

/// The document after these edits; an edit that would leave none that loads does not happen.
pub(in crate::document) fn edited(document: &Value, edits: &[Edit]) -> Value {
    let apply = |document: Value, edit: &Edit| {
        let next = applied(document.clone(), edit);
        if load_value(&next, &Limits::default()).is_ok() { next } else { document }
    };
    edits.iter().fold(document.clone(), apply)
}

fn applied(mut document: Value, edit: &Edit) -> Value {
    let steps = document["steps"].as_object_mut().expect("documents have steps");
    match *edit {
        Edit::Add(step, n) => {
            steps.entry(IDS[step]).or_insert_with(|| json!({"skill": format!("s{n}"), "input": {"topic": n}}));
        }
        Edit::Remove(step) => {
            steps.remove(IDS[step]);
        }
        Edit::OnFailure(go_on) => document["on_failure"] = json!(if go_on { "continue" } else { "stop" }),
        Edit::Attempts(n) => document["defaults"] = json!({"retry": {"max_attempts": n}}),
        Edit::Describe(n) => document["description"] = json!(format!("{n}")),
        Edit::Skill(step, _)
        | Edit::Topic(step, _)
        | Edit::Deep(step, _)
        | Edit::NoInput(step)
        | Edit::Depend(step, _)
        | Edit::Refer(step, _)
        | Edit::Free(step, _) => {
            if let Some(Value::Object(step)) = steps.get_mut(IDS[step]) {
                apply_to(step, edit);
            }
        }
    }
    document
}

fn apply_to(step: &mut Map<String, Value>, edit: &Edit) {
    let mut input = |key: &str, value: Value| {
        step.entry("input").or_insert_with(|| json!({}))[key] = value;
    };
    match *edit {
        Edit::Skill(_, n) => step["skill"] = json!(format!("s{n}")),
        Edit::Topic(_, n) => input("topic", if n == 0 { Value::Null } else { json!([n]) }),
        Edit::Deep(_, n) => input("deep", json!({"x": n, format!("y/{n}"): {"z~": n}})),
        Edit::Refer(_, on) => input("from", json!(format!("${{{{ steps.{}.output }}}}", IDS[on]))),
        Edit::NoInput(_) => {
            step.remove("input");
        }
        Edit::Depend(_, on) => {
            if let Value::Array(ids) = step.entry("depends_on").or_insert_with(|| json!([])) {
                ids.retain(|id| id != IDS[on]);
                ids.push(json!(IDS[on]));
            }
        }
        Edit::Free(_, on) => {
            if let Some(Value::Array(ids)) = step.get_mut("depends_on") {
                ids.retain(|id| id != IDS[on]);
            }
        }
        _ => {}
    }
}
