use std::fmt::Write as _;
use std::thread;

use serde_json::{Map, Value, json};

use super::PayloadSchema;

/// `d0` … `dN`, each made of a reference to the next; the last is the leaf.
fn chain(length: usize, link: impl Fn(Value) -> Value, leaf: Value) -> Value {
    let mut defs = Map::new();
    for i in 0..length {
        defs.insert(format!("d{i}"), link(json!({"$ref": format!("#/$defs/d{}", i + 1)})));
    }
    defs.insert(format!("d{length}"), leaf);
    json!({"$defs": defs, "$ref": "#/$defs/d0"})
}

fn refused(schema: &Value) -> String {
    PayloadSchema::compile(schema).map(|_| ()).unwrap_err()
}

#[test]
fn references_that_multiply_are_refused() {
    for keyword in ["anyOf", "allOf", "oneOf"] {
        for leaf in [json!({"type": "string"}), json!(false), json!({})] {
            let schema = chain(20, |next| json!({keyword: [next.clone(), next]}), leaf);
            assert!(refused(&schema).contains("multiply"), "{keyword}");
        }
    }
    let by_key = chain(20, |next| json!({"not": next.clone(), "if": next}), json!(false));
    assert!(refused(&by_key).contains("multiply"));
    // Where no schema is looked for, and as a property that is named like a keyword.
    let hidden = chain(20, |next| json!({"anyOf": [next.clone(), next]}), json!(false));
    let mut moved: Value = serde_json::from_str(&hidden.to_string().replace("#/$defs/", "#/default/")).unwrap();
    let defs = moved.as_object_mut().unwrap().remove("$defs").unwrap();
    moved["default"] = defs;
    assert!(refused(&moved).contains("multiply"));
    let property = json!({"properties": {"default": hidden["$defs"]["d0"]}, "$defs": hidden["$defs"]});
    assert!(refused(&property).contains("multiply"));
    let anchors = json!({"$defs": {
        "a": {"$anchor": "a", "anyOf": vec![json!({"$ref": "#b"}); 200]},
        "b": {"$anchor": "b", "anyOf": vec![json!({"$dynamicRef": "#c"}); 200]},
        "c": {"$dynamicAnchor": "c"},
    }});
    assert!(refused(&anchors).contains("multiply"));
}

#[test]
fn references_that_nest_are_refused() {
    assert!(refused(&chain(100, |next| json!({"allOf": [next]}), json!({}))).contains("nest"));
    assert!(refused(&chain(100, |next| next, json!({}))).contains("nest"));
    assert!(refused(&chain(20_000, |next| json!({"properties": {"a": next}}), json!({}))).contains("levels"));
    assert!(refused(&json!({"$ref": "#"})).contains("itself"));
    assert!(
        refused(&json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})).contains("itself")
    );
}

#[test]
fn references_that_cannot_be_followed_are_refused() {
    assert!(refused(&json!({"$ref": "other.json"})).contains("another document"));
    assert!(refused(&json!({"$ref": "#/$defs/none"})).contains("leads nowhere"));
    assert!(refused(&json!({"$defs": {"a": {"$id": "b"}}})).contains("`$id`"));
    let named = json!({"$id": "https://example.com/x", "$defs": {"a b": {"type": "null"}}, "$ref": "https://example.com/x#/$defs/a%20b"});
    let schema = PayloadSchema::compile(&named).unwrap();
    assert_eq!((schema.check(&json!(null)).len(), schema.check(&json!(1)).len()), (0, 1));
    let names =
        json!({"properties": {"$ref": {"type": "string"}, "id": {"const": {"$ref": "x"}}}, "default": {"$ref": "y"}});
    assert!(PayloadSchema::compile(&names).unwrap().check(&json!({"$ref": "a"})).is_empty());
}

#[test]
fn the_largest_schema_fits_the_stack() {
    // Dropped wherever its plan is, so with the stack of any thread.
    let schema = chain(2_000, |next| json!({"properties": {"a": next}}), json!({"type": "string"}));
    let compile = move || PayloadSchema::compile(&schema).unwrap();
    let compiled = thread::Builder::new().stack_size(8 << 20).spawn(compile).unwrap().join().unwrap();
    let check = move || compiled.check(&json!({"a": {"a": 1}})).len();
    assert_eq!(thread::Builder::new().stack_size(2 << 20).spawn(check).unwrap().join().unwrap(), 0);
}

#[test]
fn trees_are_checked_to_any_depth() {
    let schema = json!({
        "$defs": {"node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}},
            "additionalProperties": false,
        }},
        "$ref": "#/$defs/node",
    });
    let schema = PayloadSchema::compile(&schema).unwrap();
    let mut tree = json!({"value": 1});
    for _ in 0..60 {
        tree = json!({"left": tree});
    }
    assert!(schema.check(&tree).is_empty());
    assert_eq!(schema.check(&json!({"left": {"value": "x"}}))[0].path, "/left/value");
}

#[test]
fn a_check_that_branches_with_the_payload_ends() {
    // Both branches are tried at each level.
    let branch = |number: u32| json!({"properties": {"a": {"$ref": "#/$defs/node"}, "b": {"const": number}}});
    let schema = json!({"$defs": {"node": {"oneOf": [branch(1), branch(2)], "unevaluatedProperties": false}}, "$ref": "#/$defs/node"});
    let schema = PayloadSchema { looks: 1_000_000, ..PayloadSchema::compile(&schema).unwrap() };
    let mut deep = json!({"b": 3});
    for _ in 0..60 {
        deep = json!({"a": deep, "b": 3});
    }
    assert_eq!(schema.check(&deep).len(), 1);
}

#[test]
fn problems_of_large_payloads_are_few_and_short() {
    let schema = PayloadSchema::compile(&json!({"additionalProperties": {"items": {"type": "string"}}})).unwrap();
    let some = schema.check(&json!({"a": vec![1; 1000]}));
    assert_eq!(some.len(), 100);
    let schema = PayloadSchema { looks: 45_000, ..schema };
    let many = schema.check(&json!({"k".repeat(10_000): vec![1; 30_000]}));
    assert_eq!(many.len(), 1);
    assert!(many[0].path.len() < 1_000, "{}", many[0].path.len());
}

#[test]
fn patterns_are_bounded() {
    let slow = PayloadSchema::compile(&json!({"items": {"pattern": "^(?=(a+)+$)(a+)+$"}})).unwrap();
    assert!(!slow.check(&json!(vec!["a".repeat(40) + "b"; 20])).is_empty());
    let mut large = String::new();
    for i in 0..50 {
        write!(large, "(\\pL{{200}}){{{i}}}").unwrap();
    }
    assert!(!refused(&json!({"pattern": large})).is_empty());
    let many = |count: usize| -> Value {
        let patterns: Map<String, Value> = (0..count).map(|n| (format!("^x{n}$"), json!({}))).collect();
        json!({ "patternProperties": patterns })
    };
    assert!(refused(&many(1001)).contains("1001 regular expressions"));
    assert!(PayloadSchema::compile(&many(1000)).is_ok());
    let usual = json!({"pattern": "^[\\w.-]{1,64}@(?!bad)[\\w-]{1,63}$"});
    assert!(PayloadSchema::compile(&usual).unwrap().check(&json!("a@b")).is_empty());
}
