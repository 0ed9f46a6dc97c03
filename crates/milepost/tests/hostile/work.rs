//! Little that asks for much: requests of some kilobytes that would cost gigabytes or minutes if somebody let them.

use serde_json::{Value, json};

use super::victim::Victim;
use super::wire::Request;

fn one(step: Value) -> Value {
    json!({"name": "hostile.work", "steps": {"a": step}})
}

/// Schemas that are cheap to send and dear to check.
fn schemas() -> Vec<(&'static str, Value, Value)> {
    let doubling = |word: &str, levels: usize| {
        let mut definitions = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            let mut schema = json!({});
            schema[word] = json!([next.clone(), next]);
            definitions.insert(format!("d{level}"), schema);
        }
        definitions.insert(format!("d{levels}"), json!({"type": "string", "minLength": 5}));
        json!({"$defs": definitions, "$ref": "#/$defs/d0"})
    };
    let nested = |levels: usize| {
        let mut schema = json!({"const": 1});
        for _ in 0..levels {
            schema = json!({"anyOf": [schema, {"not": schema}]});
        }
        schema
    };
    let payload =
        json!({"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "l": (0..20_000).collect::<Vec<u32>>()});
    let conditions = (0..40).rev().fold(json!({"const": 1}), |inner, level| {
        let next = json!({"$ref": format!("#/$defs/c{}", level + 1)});
        json!({"if": inner, "then": next, "else": next})
    });
    let mut deep = json!(1);
    for _ in 0..60 {
        deep = json!({ "a": deep });
    }
    let with = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let mut cases = vec![
        ("a reference to itself", json!({"$ref": "#"}), json!({})),
        (
            "references in a circle",
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({}),
        ),
        (
            "a tree of itself",
            json!({"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, {"properties": {"a": {"$ref": "#"}}, "required": ["c"]}]}),
            deep.clone(),
        ),
        (
            "dynamic references",
            json!({"$dynamicAnchor": "n", "allOf": [{"properties": {"a": {"$dynamicRef": "#n"}}}, {"properties": {"a": {"$dynamicRef": "#n"}}}]}),
            deep.clone(),
        ),
        (
            "unevaluated properties",
            json!({"unevaluatedProperties": {"$ref": "#"}, "allOf": [{"properties": {"z": {}}}, {"properties": {"a": {"$ref": "#"}}}]}),
            deep,
        ),
        ("conditions", conditions, payload.clone()),
        ("a pattern that goes back", with(json!({"pattern": "^(a+)+$"})), payload.clone()),
        ("a pattern that looks ahead", with(json!({"pattern": "^(?=(a+)+$)(a|aa)+$"})), payload.clone()),
        ("a pattern with references", with(json!({"pattern": "^(a*)*\\1\\1\\1$"})), payload.clone()),
        ("a large pattern", with(json!({"pattern": "(((a{1000}){1000}){1000}){1000}"})), payload.clone()),
        ("names by a pattern", json!({"patternProperties": {"^(a|a)*$": {}, "(x+x+)+y": {}}}), payload.clone()),
        ("unique items", json!({"properties": {"l": {"uniqueItems": true}}}), payload.clone()),
        (
            "unique lists",
            json!({"properties": {"l": {"uniqueItems": true}}}),
            json!({"l": (0..8_000).map(|n| json!([[n]])).collect::<Vec<_>>()}),
        ),
        (
            "items contained",
            json!({"properties": {"l": {"contains": {"const": -1}, "maxContains": 1}}}),
            payload.clone(),
        ),
        ("one of many", with(json!({"enum": (0..50_000).collect::<Vec<u32>>()})), payload.clone()),
        (
            "many alternatives",
            with(json!({"oneOf": (0..5_000).map(|n| json!({"const": n})).collect::<Vec<_>>()})),
            payload.clone(),
        ),
        ("a file", json!({"$ref": "file:///etc/passwd"}), payload.clone()),
        ("an address", json!({"$ref": "http://127.0.0.1:9/schema"}), payload.clone()),
        ("an address as a name", json!({"$id": "http://127.0.0.1:9/", "$ref": "other"}), payload.clone()),
        ("another language", json!({"$schema": "http://127.0.0.1:9/meta"}), payload.clone()),
        ("huge numbers", with(json!({"multipleOf": 1e-300, "maxLength": 1e300})), json!({"a": 1e300})),
    ];
    for word in ["anyOf", "oneOf", "allOf"] {
        for levels in [12, 18, 24, 40] {
            cases.push((word, doubling(word, levels), payload.clone()));
        }
        cases.push(("deep alternatives", nested(12), payload.clone()));
    }
    cases
}

#[test]
fn schemas_of_payloads() {
    let mut victim = Victim::serve(&[]);
    for (what, schema, payload) in schemas() {
        let document = json!({"name": "hostile.schema", "params": schema, "steps": {"a": {"skill": "noop"}}});
        victim.post("/api/v1/workflows/validate", &json!({"document": document}));
        let body = json!({"document": document, "payload": payload}).to_string();
        victim.attack(what, &Request::new("POST", "/api/v1/runs").json(body.clone()));
        victim.attack(what, &Request::new("POST", "/api/v1/runs/plan").json(body));
        victim.is_well(what);
        // A child is checked when its parent has come to it, and again at the next start.
        if victim.post("/api/v1/workflows", &json!({"document": document, "tag": "child"})).status < 300 {
            let step =
                json!({"skill": "workflow", "depends_on": ["first"], "input": {"ref": "child", "payload": payload}});
            let steps = json!({"first": {"skill": "sleep", "input": {"ms": 50}}, "a": step});
            victim.post("/api/v1/runs", &json!({"document": {"name": "hostile.parent", "steps": steps}}));
        }
    }
    victim.is_well("children under way");
    victim.starts_again();
    victim.ends_well();
}

#[test]
fn patches_that_copy_and_move() {
    let victim = Victim::serve(&[]);
    let list: Vec<u32> = (0..50_000).collect();
    let document =
        json!({"name": "hostile.patched", "steps": {"a": {"skill": "echo", "input": {"l": list, "m": {"x": 1}}}}});
    assert!(victim.post("/api/v1/workflows", &json!({ "document": document })).status < 300);
    let run = victim.waiting_run();
    let l = "/steps/a/input/l";
    let move_there = json!({"op": "move", "from": l, "path": "/steps/a/input/k"});
    let move_back = json!({"op": "move", "from": "/steps/a/input/k", "path": l});
    let cases = [
        ("moves", json!((0..4_000).map(|n| if n % 2 == 0 { &move_there } else { &move_back }).collect::<Vec<_>>())),
        (
            "moves within a list",
            json!(vec![json!({"op": "move", "from": format!("{l}/0"), "path": format!("{l}/-")}); 20_000]),
        ),
        ("copies", json!(vec![json!({"op": "copy", "from": l, "path": format!("{l}/-")}); 100])),
        (
            "copies of copies",
            json!(vec![json!({"op": "copy", "from": "/steps/a/input", "path": "/steps/a/input/m/x"}); 60]),
        ),
        ("tests", json!(vec![json!({"op": "test", "path": l, "value": list}); 20])),
        ("insertions at the front", json!(vec![json!({"op": "add", "path": format!("{l}/0"), "value": 1}); 50_000])),
        ("removals at the front", json!(vec![json!({"op": "remove", "path": format!("{l}/0")}); 50_000])),
        ("long pointers", json!([{"op": "add", "path": "/a".repeat(400_000), "value": 1}])),
        ("escapes", json!([{"op": "add", "path": "/~0~1".repeat(100_000), "value": 1}])),
        ("a place that is none", json!([{"op": "replace", "path": format!("{l}/18446744073709551616"), "value": 1}])),
        ("the whole", json!([{"op": "move", "from": "", "path": "/steps/a/input/m"}])),
        ("nothing", json!(vec![json!({"op": "add", "path": "", "value": null}); 1_000])),
    ];
    for (what, ops) in &cases {
        let body = json!({ "ops": ops }).to_string();
        for path in [
            "/api/v1/workflows/hostile.patched/patches",
            &format!("/api/v1/runs/{run}/patch"),
            &format!("/api/v1/runs/{run}/patch/preview"),
        ] {
            victim.attack(what, &Request::new("POST", path).json(body.clone()));
        }
        let start = json!({"workflow": "hostile.patched", "patch": ops});
        victim.attack(what, &Request::new("POST", "/api/v1/runs").json(start.to_string()));
        victim.is_well(what);
    }
    victim.ends_well();
}

#[test]
fn field_masks_that_are_deep_wide_or_long() {
    let victim = Victim::dev();
    for count in [10, 100, 1_000, 5_000, 10_000, 20_000, 30_000] {
        for mask in [
            "status".to_owned() + &".a".repeat(count),
            "a,".repeat(count),
            ".".repeat(count),
            "a.b.c.d,".repeat(count / 4),
        ] {
            for path in ["/api/v1/runs", "/api/v1/runs/00000000-0000-0000-0000-000000000000"] {
                let answer = victim.attack("a mask", &Request::new("GET", format!("{path}?fields={mask}")));
                assert!((400..500).contains(&answer.status), "{}", answer.status);
                let foreign =
                    Request::new("GET", format!("{path}?fields={mask}")).header("sec-fetch-site", "cross-site");
                assert!(matches!(victim.attack("a page elsewhere", &foreign).status, 403 | 414 | 431));
            }
        }
    }
    victim.ends_well();
}

#[test]
fn programs_that_write_without_end() {
    let victim = Victim::dev();
    let commands = [
        ("one line", "head -c 300000000 /dev/zero | tr '\\0' x"),
        ("one line as an error", "head -c 300000000 /dev/zero | tr '\\0' x >&2"),
        ("NUL", "head -c 100000000 /dev/zero"),
        ("many lines", "yes | head -n 2000000"),
        ("noise", "head -c 50000000 /dev/urandom"),
        ("a deep output", "printf '[%.0s' $(seq 100000)"),
        ("no number", "echo '{\"n\": 1e999}'"),
        ("half a character", "echo '{\"s\": \"\\ud800\"}'"),
    ];
    let runs: Vec<(&str, String)> = commands
        .iter()
        .map(|(what, command)| {
            let step = json!({"skill": "shell", "input": {"command": command}, "timeout_ms": 20_000});
            (*what, victim.run(&one(step), &json!({})))
        })
        .collect();
    for (what, run) in &runs {
        let ended = victim.ended(run);
        assert!(ended.to_string().len() < 8 << 20, "{what}: {} bytes", ended.to_string().len());
        victim.get(&format!("/api/v1/runs/{run}/steps/a/logs?limit=10000"));
    }
    victim.ends_well();
}
