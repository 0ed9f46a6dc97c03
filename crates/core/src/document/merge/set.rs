//! `depends_on` as the set that it is in effect: what either side added is in, what either side removed is out.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

/// What is left of the base in its order, then what is new, sorted: the same whichever side is called ours. No list at all
/// where one side has none and nothing remains. `None` when one of them is not a list of ids.
pub(super) fn merge(base: Option<&Value>, ours: Option<&Value>, theirs: Option<&Value>) -> Option<Option<Value>> {
    let (before, a, b) = (ids(base)?, ids(ours)?, ids(theirs)?);
    let (in_base, in_ours, in_theirs) = (members(&before), members(&a), members(&b));
    let mut seen = HashSet::new();
    let kept = before.iter().filter(|id| in_ours.contains(*id) && in_theirs.contains(*id) && seen.insert(**id));
    let kept: Vec<&str> = kept.copied().collect();
    let added: BTreeSet<&str> = a.iter().chain(&b).filter(|id| !in_base.contains(*id)).copied().collect();
    let merged: Vec<Value> = kept.into_iter().chain(added).map(Value::from).collect();
    let gone = merged.is_empty() && (ours.is_none() || theirs.is_none());
    Some((!gone).then_some(Value::Array(merged)))
}

fn members<'a>(ids: &[&'a str]) -> HashSet<&'a str> {
    ids.iter().copied().collect()
}

fn ids(list: Option<&Value>) -> Option<Vec<&str>> {
    match list {
        None => Some(Vec::new()),
        Some(list) => list.as_array()?.iter().map(Value::as_str).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(base: Value, ours: Value, theirs: Value) -> Value {
        let some = |value: &Value| if value.is_null() { None } else { Some(value.clone()) };
        let (base, ours, theirs) = (some(&base), some(&ours), some(&theirs));
        let one = merge(base.as_ref(), ours.as_ref(), theirs.as_ref());
        assert_eq!(one, merge(base.as_ref(), theirs.as_ref(), ours.as_ref()), "sides do not matter");
        one.expect("they are lists").unwrap_or_default()
    }

    #[test]
    fn what_either_side_added_is_in_and_what_either_removed_is_out() {
        assert_eq!(merged(json!(["b", "a"]), json!(["b", "a", "z"]), json!(["c", "a"])), json!(["a", "c", "z"]));
        assert_eq!(merged(json!(["a"]), json!(["b", "a"]), json!(["b", "a", "c"])), json!(["a", "b", "c"]));
        assert_eq!(merged(json!(["a", "a"]), json!(["a", "b"]), json!(["a", "c"])), json!(["a", "b", "c"]));
    }

    #[test]
    fn no_list_is_an_empty_one() {
        assert_eq!(merged(json!(null), json!(["b"]), json!(["a"])), json!(["a", "b"]));
        assert_eq!(merged(json!(["a"]), json!(null), json!(["a", "c"])), json!(["c"]));
        assert_eq!(merged(json!(["a", "b"]), json!(null), json!(["a"])), json!(null));
        assert_eq!(merged(json!(["a", "b"]), json!(["a"]), json!(["b"])), json!([]));
    }

    #[test]
    fn what_is_no_list_of_ids_is_left_to_others() {
        for other in [json!("a"), json!([1]), json!({"a": 1})] {
            assert_eq!(merge(None, Some(&other), Some(&json!(["a"]))), None);
        }
    }
}
