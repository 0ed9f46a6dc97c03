//! What holds for every merge.

use proptest::prelude::*;
use serde_json::Value;

use crate::canonical;
use crate::document::tests::random::{Edit, document, edited, edits};
use crate::document::{Conflict, ConflictKind, Merged, Operation, diff, merge};
use crate::limits::Limits;

fn merged(base: &Value, ours: &Value, theirs: &Value) -> Result<Value, Vec<Conflict>> {
    match merge(base, ours, theirs, &Limits::default()) {
        Merged::Clean(loaded) => Ok(serde_json::from_str(&loaded.canonical).unwrap()),
        Merged::Conflicts(conflicts) => Err(conflicts.list),
    }
}

/// Both sides come from the base by a few edits, or are documents of their own.
fn three() -> impl Strategy<Value = (Value, Value, Value)> {
    let side = || prop_oneof![3 => edits(0..6, true).prop_map(Ok), 1 => document().prop_map(Err)];
    (document(), side(), side()).prop_map(|(base, ours, theirs)| {
        let of = |side: Result<Vec<Edit>, Value>| side.map_or_else(|whole| whole, |edits| edited(&base, &edits));
        let (ours, theirs) = (of(ours), of(theirs));
        (base, ours, theirs)
    })
}

/// Whether values fit and the document does not: both sides may also have removed what the other left, until no step remains.
fn is_of_the_whole(conflict: &Conflict) -> bool {
    match conflict.kind {
        ConflictKind::Cycle | ConflictKind::DanglingReference => true,
        ConflictKind::Invalid => conflict.message == "a document has at least one step",
        _ => false,
    }
}

fn path(op: &Operation) -> &str {
    match op {
        Operation::Add { path, .. } | Operation::Remove { path } | Operation::Replace { path, .. } => path,
    }
}

/// Whether one of the places is the other or lies in it.
fn overlap(a: &str, b: &str) -> bool {
    let inside = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    inside(a, b) || inside(b, a)
}

fn swapped(conflict: Conflict) -> Conflict {
    let swap = |word: &str| match word {
        "ours" => "theirs".to_owned(),
        "theirs" => "ours".to_owned(),
        other => other.to_owned(),
    };
    let message = conflict.message.split(' ').map(swap).collect::<Vec<_>>().join(" ");
    Conflict { message, ours: conflict.theirs, theirs: conflict.ours, ..conflict }
}

proptest! {
    #[test]
    fn a_side_that_did_nothing_changes_nothing((base, ours, _) in three()) {
        prop_assert_eq!(merged(&base, &ours, &base), Ok(ours.clone()));
        prop_assert_eq!(merged(&base, &base, &ours), Ok(ours.clone()));
        prop_assert_eq!(merged(&base, &ours, &ours), Ok(ours));
    }

    #[test]
    fn which_side_is_called_ours_does_not_matter((base, ours, theirs) in three()) {
        let other = merged(&base, &theirs, &ours).map_err(|all| all.into_iter().map(swapped).collect::<Vec<_>>());
        prop_assert_eq!(merged(&base, &ours, &theirs), other);
    }

    #[test]
    fn a_clean_merge_is_both_diffs((base, ours, theirs) in three()) {
        let Ok(result) = merged(&base, &ours, &theirs) else { return Ok(()) };
        let (mine, mut other) = (diff(&base, &ours).ops, diff(&base, &theirs).ops);
        other.retain(|op| !mine.contains(op));
        if mine.iter().any(|a| other.iter().any(|b| overlap(path(a), path(b)))) {
            return Ok(());
        }
        let mut patched = ours;
        let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(other).unwrap()).unwrap();
        json_patch::patch(&mut patched, &patch).unwrap();
        prop_assert_eq!(patched, result);
    }

    #[test]
    fn nothing_comes_from_nowhere_and_nothing_gets_lost((base, ours, theirs) in three()) {
        let Ok(result) = merged(&base, &ours, &theirs) else { return Ok(()) };
        let places = |to: &Value| diff(&base, to).ops.iter().map(|op| path(op).to_owned()).collect::<Vec<_>>();
        let (mine, other, made) = (places(&ours), places(&theirs), places(&result));
        for place in &made {
            prop_assert!(mine.iter().chain(&other).any(|changed| overlap(place, changed)), "{} is new", place);
        }
        for place in mine.iter().chain(&other) {
            prop_assert!(made.iter().any(|changed| overlap(place, changed)) || place.contains("/depends_on"), "{} is lost", place);
        }
    }

    #[test]
    fn edits_of_different_steps_are_all_in_it(base in document(), a in edits(0..3, false), b in edits(3..6, true)) {
        let (ours, theirs) = (edited(&base, &a), edited(&base, &b));
        match merged(&base, &ours, &theirs) {
            Ok(result) => {
                let mut union = theirs.clone();
                for id in ["a", "b", "c"] {
                    let steps = union["steps"].as_object_mut().unwrap();
                    match ours["steps"].get(id) {
                        Some(step) => steps.insert(id.to_owned(), step.clone()),
                        None => steps.remove(id),
                    };
                }
                prop_assert_eq!(canonical::to_string(&result), canonical::to_string(&union));
            }
            Err(conflicts) => prop_assert!(conflicts.iter().all(is_of_the_whole), "{:#?}", conflicts),
        }
    }

    #[test]
    fn conflicts_are_in_the_order_of_their_paths((base, ours, theirs) in three()) {
        let conflicts = merged(&base, &ours, &theirs).err().unwrap_or_default();
        prop_assert!(conflicts.is_sorted_by(|a, b| a.path.split('/').le(b.path.split('/'))));
        for conflict in conflicts.iter().filter(|conflict| !is_of_the_whole(conflict)) {
            prop_assert_eq!(base.pointer(&conflict.path), conflict.base.as_ref());
            prop_assert_eq!(ours.pointer(&conflict.path), conflict.ours.as_ref());
            prop_assert_eq!(theirs.pointer(&conflict.path), conflict.theirs.as_ref());
        }
    }
}
