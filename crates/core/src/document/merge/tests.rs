use serde_json::json;

use super::*;

mod properties;

fn base() -> Value {
    json!({"name": "t", "on_failure": "stop", "steps": {
        "a": {"skill": "x", "input": {"topic": "tea", "n": 1}},
        "b": {"skill": "x", "depends_on": ["a"]},
        "c": {"skill": "x", "depends_on": ["b"]},
        "d": {"skill": "x"},
    }})
}

/// The base with some places set; null takes one away.
fn changed(changes: &[(&str, Value)]) -> Value {
    let mut document = base();
    for (path, value) in changes {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = document.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        if value.is_null() {
            parent.remove(key);
        } else {
            parent.insert(key.to_owned(), value.clone());
        }
    }
    document
}

fn merged(ours: &[(&str, Value)], theirs: &[(&str, Value)]) -> Merged {
    merge(&base(), &changed(ours), &changed(theirs), &Limits::default())
}

#[track_caller]
fn clean(ours: &[(&str, Value)], theirs: &[(&str, Value)], expected: &[(&str, Value)]) {
    match merged(ours, theirs) {
        Merged::Clean(loaded) => {
            assert_eq!(serde_json::from_str::<Value>(&loaded.canonical).unwrap(), changed(expected));
        }
        Merged::Conflicts(conflicts) => panic!("{conflicts:#?}"),
    }
}

#[track_caller]
fn conflicts(ours: &[(&str, Value)], theirs: &[(&str, Value)], expected: Value) {
    match merged(ours, theirs) {
        Merged::Clean(loaded) => panic!("it should have conflicts: {}", loaded.canonical),
        Merged::Conflicts(conflicts) => assert_eq!(serde_json::to_value(conflicts.list).unwrap(), expected),
    }
}

#[test]
fn fields_of_one_step_are_merged_one_by_one() {
    clean(
        &[("/steps/a/skill", json!("y")), ("/steps/a/input/topic", json!("rum"))],
        &[("/steps/a/input/n", json!(null)), ("/steps/a/env", json!(["K"])), ("/on_failure", json!("continue"))],
        &[
            ("/steps/a/skill", json!("y")),
            ("/steps/a/input/topic", json!("rum")),
            ("/steps/a/input/n", json!(null)),
            ("/steps/a/env", json!(["K"])),
            ("/on_failure", json!("continue")),
        ],
    );
}

#[test]
fn the_same_change_on_both_sides_is_no_conflict() {
    let both = [
        ("/steps/a/input/topic", json!("rum")),
        ("/steps/e", json!({"skill": "x"})),
        ("/steps/c", json!(null)),
        ("/description", json!("new")),
    ];
    clean(&both, &both, &both);
}

#[test]
fn maps_that_both_sides_added_are_merged_too() {
    clean(
        &[("/defaults", json!({"retry": {"max_attempts": 2}}))],
        &[("/defaults", json!({"timeout_ms": 5}))],
        &[("/defaults", json!({"retry": {"max_attempts": 2}, "timeout_ms": 5}))],
    );
}

#[test]
fn what_steps_wait_for_is_a_set() {
    clean(
        &[("/steps/c/depends_on", json!(["b", "d"]))],
        &[("/steps/e", json!({"skill": "x"})), ("/steps/c/depends_on", json!(["e"]))],
        &[("/steps/e", json!({"skill": "x"})), ("/steps/c/depends_on", json!(["d", "e"]))],
    );
}

#[test]
fn all_conflicts_are_told_at_once_in_the_order_of_their_paths() {
    conflicts(
        &[
            ("/steps/a/input/topic", json!("rum")),
            ("/steps/c", json!(null)),
            ("/steps/new", json!({"skill": "x"})),
            ("/description", json!("ours")),
        ],
        &[
            ("/steps/a/input/topic", json!(["gin"])),
            ("/steps/c/skill", json!("y")),
            ("/steps/new", json!({"skill": "x", "input": {}})),
            ("/description", json!("theirs")),
            ("/on_failure", json!("continue")),
        ],
        json!([
            {"kind": "both_added", "path": "/description", "message": "both sides added it, and not the same",
                "ours": "ours", "theirs": "theirs"},
            {"kind": "both_changed", "path": "/steps/a/input/topic", "step_id": "a",
                "message": "both sides changed it, and not to the same", "base": "tea", "ours": "rum", "theirs": ["gin"]},
            {"kind": "changed_and_removed", "path": "/steps/c", "step_id": "c",
                "message": "ours removed what theirs changed",
                "base": {"skill": "x", "depends_on": ["b"]}, "theirs": {"skill": "y", "depends_on": ["b"]}},
            {"kind": "both_added", "path": "/steps/new", "step_id": "new",
                "message": "both sides added it, and not the same",
                "ours": {"skill": "x"}, "theirs": {"skill": "x", "input": {}}},
        ]),
    );
}

#[test]
fn edits_that_fit_may_close_a_circle() {
    conflicts(
        &[("/steps/a/depends_on", json!(["d"]))],
        &[("/steps/d/input", json!({"v": "${{ steps.c.output }}"}))],
        json!([{"kind": "cycle", "path": "/steps/a", "step_id": "a",
            "message": "steps wait for each other: a → d → c → b → a", "steps": ["a", "d", "c", "b", "a"]}]),
    );
}

#[test]
fn a_step_that_one_side_removed_may_be_needed_by_the_other() {
    conflicts(
        &[("/steps/c", json!(null))],
        &[
            ("/steps/d", json!({"skill": "x", "depends_on": ["a", "c"]})),
            ("/steps/e", json!({"skill": "x", "input": {"v": ["${{ steps.c.output }}"]}})),
        ],
        json!([
            {"kind": "dangling_reference", "path": "/steps/d/depends_on/1", "step_id": "d",
                "message": "there is no step `c`: ours removed it", "steps": ["c"]},
            {"kind": "dangling_reference", "path": "/steps/e/input/v/0", "step_id": "e",
                "message": "there is no step `c`: ours removed it", "steps": ["c"]},
        ]),
    );
}

#[test]
fn open_values_hide_no_circle() {
    let (ours, theirs) = (("/steps/a/skill", json!("y")), ("/steps/a/skill", json!("z")));
    let circle = (("/steps/a/depends_on", json!(["d"])), ("/steps/d/depends_on", json!(["c"])));
    let Merged::Conflicts(found) = merged(&[ours, circle.0], &[theirs, circle.1]) else { panic!("two conflicts") };
    let kinds: Vec<ConflictKind> = found.list.iter().map(|conflict| conflict.kind).collect();
    assert_eq!(kinds, [ConflictKind::Cycle, ConflictKind::BothChanged]);
}

#[test]
fn what_only_one_choice_would_break_is_not_told_yet() {
    let Merged::Conflicts(found) =
        merged(&[("/steps/c", json!(null))], &[("/steps/c/skill", json!("y")), ("/steps/d/depends_on", json!(["c"]))])
    else {
        panic!("`c` is changed and removed")
    };
    assert_eq!(found.list.len(), 1, "taking theirs needs nothing else: {found:#?}");
}

#[test]
fn limits_hold_for_the_result() {
    let limits = Limits { steps: 5, ..Limits::default() };
    let added = |id: &str| changed(&[(&format!("/steps/{id}"), json!({"skill": "x"}))]);
    let Merged::Conflicts(found) = merge(&base(), &added("e"), &added("f"), &limits) else { panic!("too many steps") };
    assert_eq!((found.list[0].kind, found.list[0].path.as_str()), (ConflictKind::Invalid, "/steps"));
    assert_eq!(found.list[0].message, "the document has 6 steps; 5 are allowed");
    let limits = Limits { document_bytes: 200, ..Limits::default() };
    let Merged::Conflicts(found) = merge(&base(), &added("e"), &added("f"), &limits) else { panic!("too many bytes") };
    assert_eq!((found.list[0].kind, found.list[0].path.as_str()), (ConflictKind::Invalid, ""));
}

#[test]
fn there_is_an_end_to_conflicts_that_are_told() {
    let sides = |wrap: fn(Value) -> Value| {
        let side = |n: u32| -> Value {
            let input: serde_json::Map<_, _> = (0..12_000).map(|i| (format!("k{i}"), json!(n))).collect();
            json!({"name": "t", "steps": {"a": {"skill": "x", "input": wrap(input.into())}}})
        };
        merge(&side(0), &side(1), &side(2), &Limits::default())
    };
    let Merged::Conflicts(found) = sides(|input| input) else { panic!("all of them clash") };
    assert!(found.truncated && found.list.len() == 10_000);
    let deep = |input| (0..50).fold(input, |inner, _| json!({ "k".repeat(1000): inner }));
    let Merged::Conflicts(found) = sides(deep) else { panic!("all of them clash") };
    let told = serde_json::to_string(&found.list).unwrap();
    assert!(found.truncated && told.len() < 64 << 20, "{} bytes", told.len());
}
