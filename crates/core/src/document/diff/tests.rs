use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::document::patch;
use crate::document::tests::random::{IDS, document, edited, edits};
use crate::limits::Limits;

#[track_caller]
fn check(from: Value, to: Value, expected: Value) {
    let found = diff(&from, &to);
    assert_eq!(serde_json::to_value(&found).unwrap(), expected);
    let mut patched = from;
    json_patch::patch(&mut patched, &serde_json::from_value::<json_patch::Patch>(found.patch()).unwrap()).unwrap();
    assert_eq!(patched, to);
}

#[test]
fn a_changed_leaf_is_replaced_and_nothing_else() {
    check(
        json!({"name": "t", "steps": {"a": {"skill": "x", "input": {"topic": "tea", "n": 1}}, "b": {"skill": "x"}}}),
        json!({"name": "t", "steps": {"a": {"skill": "x", "input": {"topic": "rum", "n": 1}}, "b": {"skill": "x"}}}),
        json!({
            "ops": [{"op": "replace", "path": "/steps/a/input/topic", "value": "rum"}],
            "steps": [{"step_id": "a", "change": "changed",
                "fields": [{"path": "/input/topic", "from": "tea", "to": "rum"}]}],
            "settings": [],
        }),
    );
}

#[test]
fn steps_and_settings_come_and_go() {
    check(
        json!({"name": "t", "on_failure": "stop", "steps": {"a": {"skill": "x"}, "b": {"skill": "y", "input": {"k": 1}}}}),
        json!({"name": "t", "defaults": {"retry": {"max_attempts": 2}},
            "steps": {"a": {"skill": "z", "when": null}, "c": {"skill": "y", "depends_on": ["a"]}}}),
        json!({
            "ops": [
                {"op": "add", "path": "/defaults", "value": {"retry": {"max_attempts": 2}}},
                {"op": "remove", "path": "/on_failure"},
                {"op": "replace", "path": "/steps/a/skill", "value": "z"},
                {"op": "add", "path": "/steps/a/when", "value": null},
                {"op": "remove", "path": "/steps/b"},
                {"op": "add", "path": "/steps/c", "value": {"skill": "y", "depends_on": ["a"]}},
            ],
            "steps": [
                {"step_id": "a", "change": "changed",
                    "fields": [{"path": "/skill", "from": "x", "to": "z"}, {"path": "/when", "to": null}]},
                {"step_id": "b", "change": "removed",
                    "fields": [{"path": "/input", "from": {"k": 1}}, {"path": "/skill", "from": "y"}]},
                {"step_id": "c", "change": "added",
                    "fields": [{"path": "/depends_on", "to": ["a"]}, {"path": "/skill", "to": "y"}]},
            ],
            "settings": [
                {"path": "/defaults", "to": {"retry": {"max_attempts": 2}}},
                {"path": "/on_failure", "from": "stop"},
            ],
        }),
    );
}

#[test]
fn what_a_step_waits_for_as_well_is_appended() {
    let depends_on = |ids: Value| json!({"steps": {"z": {"depends_on": ids}}});
    let ops = |from: Value, to: Value| serde_json::to_value(diff(&depends_on(from), &depends_on(to)).ops).unwrap();
    let path = "/steps/z/depends_on";
    let appended = json!([{"op": "add", "path": format!("{path}/-"), "value": "c"}]);
    assert_eq!(ops(json!(["b", "a"]), json!(["b", "a", "c"])), appended);
    for other in [json!(["b"]), json!(["a", "b"]), json!(["c", "b", "a"])] {
        assert_eq!(ops(json!(["b", "a"]), other.clone()), json!([{"op": "replace", "path": path, "value": other}]));
    }
}

#[test]
fn paths_are_escaped_and_in_order() {
    let found = diff(&json!({"steps": {}}), &json!({"steps": {"a-b": {}, "a": {}, "x/y~z": {}}}));
    let paths: Vec<Value> = found.ops.iter().map(|op| serde_json::to_value(op).unwrap()["path"].clone()).collect();
    assert_eq!(paths, ["/steps/a", "/steps/a-b", "/steps/x~1y~0z"]);
    assert_eq!(found.steps[2].step_id, "x/y~z");
}

/// Any JSON with few keys, so that two of them have much in common.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), (0..3_i64).prop_map(Value::from), "[a-c/~]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let keys = prop_oneof![Just("steps"), Just("a"), Just("depends_on"), Just("/"), Just("~1"), Just("")];
        let map = prop::collection::btree_map(keys.prop_map(str::to_owned), inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            map.prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

proptest! {
    #[test]
    fn the_operations_make_one_document_of_the_other(from in document(), to in document()) {
        let canonical = crate::canonical::to_string(&from).unwrap();
        let patched = patch(&canonical, &diff(&from, &to).patch(), &Limits::default()).unwrap();
        prop_assert_eq!(patched.canonical, crate::canonical::to_string(&to).unwrap());
    }

    #[test]
    fn the_operations_make_any_json_of_any_other(from in any_json(), to in any_json()) {
        let found = diff(&from, &to);
        prop_assert_eq!(found.is_empty(), from == to);
        let mut patched = from;
        json_patch::patch(&mut patched, &serde_json::from_value::<json_patch::Patch>(found.patch()).unwrap()).unwrap();
        prop_assert_eq!(patched, to);
    }

    #[test]
    fn steps_that_were_left_alone_are_not_in_it(from in document(), all in edits(0..3, false)) {
        let found = diff(&from, &edited(&from, &all));
        prop_assert!(found.settings.is_empty());
        prop_assert!(found.steps.iter().all(|step| IDS[..3].contains(&step.step_id.as_str())), "{:?}", found);
    }

    #[test]
    fn the_way_back_swaps_the_sides(from in document(), to in document()) {
        let (there, back) = (diff(&from, &to), diff(&to, &from));
        let swap = |field: FieldDiff| FieldDiff { from: field.to, to: field.from, ..field };
        let settings: Vec<FieldDiff> = back.settings.into_iter().map(swap).collect();
        prop_assert_eq!(there.settings, settings);
        let fields = |step: StepDiff| step.fields.into_iter().map(swap).collect::<Vec<_>>();
        prop_assert_eq!(
            there.steps.into_iter().map(|step| step.fields).collect::<Vec<_>>(),
            back.steps.into_iter().map(fields).collect::<Vec<_>>()
        );
    }
}

#[test]
fn there_is_an_end_to_what_is_told() {
    let wide = |n: u32, keys: usize| -> Value {
        (0..keys).map(|i| (format!("k{i:06}"), json!(n))).collect::<Map<_, _>>().into()
    };
    let found = diff(&wide(1, MOST), &wide(2, MOST));
    assert!(!found.truncated && found.ops.len() == MOST);
    let found = diff(&wide(1, MOST + 1), &wide(2, MOST + 1));
    assert!(found.truncated && found.ops.len() == MOST && found.settings.len() == MOST);
    let deep = |n: u32| (0..50).fold(wide(n, 5000), |inner, _| json!({ "k".repeat(1000): inner }));
    let found = diff(&deep(1), &deep(2));
    let told = serde_json::to_string(&found).unwrap();
    assert!(found.truncated && told.len() < 2 * MOST_BYTES, "{} bytes", told.len());
    // What stands for all of them.
    let after = wide(2, 3);
    let whole = json!([{"op": "replace", "path": "", "value": after}]).to_string();
    assert_eq!(crate::document::patched("{}", &[whole]).unwrap(), after.to_string());
}
