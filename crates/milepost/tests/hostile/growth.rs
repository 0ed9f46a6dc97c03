//! What grows while it is read, checked or compared: a request within its limits costs memory, time and answers within theirs.

use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::victim::Victim;
use super::wire::{Answer, Request};

/// Resident memory that these attacks may cost a server.
const MEMORY_MIB: u64 = 640;
/// No answer is longer than what it tells of, and the request, a few times over.
const ANSWER_BYTES: usize = 48 << 20;

fn noop(more: Value) -> Value {
    let mut document = json!({"name": "hostile.growth", "steps": {"a": {"skill": "noop"}}});
    document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document
}

fn start(victim: &Victim, what: &str, document: &Value, payload: &Value) -> Answer {
    let body = json!({"document": document, "payload": payload}).to_string();
    victim.attack(what, &Request::new("POST", "/api/v1/runs").json(body))
}

/// `keys` values below so many levels of names as long as they may be.
fn nested(levels: usize, keys: usize, value: u32) -> Value {
    let leaves: Map<String, Value> = (0..keys).map(|n| (format!("k{n}"), json!(value))).collect();
    (0..levels).fold(leaves.into(), |inner, _| json!({ "n".repeat(1000): inner }))
}

fn ends_small(victim: Victim) {
    victim.is_well("all of it");
    let peak = victim.peak_mib();
    assert!(peak < MEMORY_MIB, "{peak} MiB");
    victim.ends_well();
}

#[test]
fn payloads_that_do_not_fit_in_many_ways() {
    let victim = Victim::serve(&[]);
    let text = "x".repeat(1_000_000);
    let numbers = vec![1; 100_000];
    let branches = |schema: Value| json!(vec![schema; 2000]);
    let cases = [
        ("types", json!({"anyOf": branches(json!({"type": "integer"}))}), json!({ "t": text })),
        ("required", json!({"oneOf": branches(json!({"required": ["a"]}))}), json!({ "t": text })),
        (
            "patterns",
            json!({"properties": {"t": {"anyOf": vec![json!({"pattern": "^a(?=b)"}); 1000]}}}),
            json!({ "t": text }),
        ),
        ("lists", json!({"properties": {"l": {"anyOf": branches(json!({"type": "null"}))}}}), json!({ "l": numbers })),
        ("names", json!({"anyOf": branches(json!({"additionalProperties": false}))}), nested(0, 50_000, 1)),
        (
            "schemas that must not fit",
            json!({"properties": {"l": {"items": {"not": {"const": 1, "title": text}}}}}),
            json!({ "l": numbers }),
        ),
        ("paths", json!({"additionalProperties": {"anyOf": branches(json!({"type": "null"}))}}), nested(60, 1000, 1)),
    ];
    for (what, schema, payload) in &cases {
        let document = noop(json!({ "params": schema }));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let refused = start(&victim, what, &document, payload);
                    assert_eq!(
                        (refused.status, &*refused.code()),
                        (422, "payload_invalid"),
                        "{what}: {}",
                        refused.text()
                    );
                });
            }
        });
        victim.is_well(what);
    }
    let patterns: Map<String, Value> = (0..20_000).map(|n| (format!("^(a|b){{1,40}}x{n}$"), json!({}))).collect();
    let bottom = json!({"type": 7, "enum": (0..300_000).collect::<Vec<u32>>()});
    let mut none = (0..55).fold(bottom, |inner, _| json!({ "items": inner }));
    none["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    for (what, schema) in [("many patterns", json!({ "patternProperties": patterns })), ("a schema that is none", none)]
    {
        let refused = start(&victim, what, &noop(json!({ "params": schema })), &json!({}));
        assert_eq!(refused.json()["problems"][0]["code"], "bad_schema", "{what}: {}", refused.text());
    }
    ends_small(victim);
}

#[test]
fn brackets_that_are_not_closed() {
    let victim = Victim::serve(&[]);
    let filled = |begin: &str, piece: &str| begin.to_owned() + &piece.repeat((4_000_000 - begin.len()) / piece.len());
    let cases = [
        ("brackets", filled("", "[")),
        ("braces", filled("", "{a: ")),
        ("commas", filled("[", ",")),
        ("pairs", filled("[", "a: ,")),
        ("entries", filled("{", "a: 1,")),
        ("empty lists", filled("[", "[],")),
        ("empty lists, far down", filled(&"[".repeat(250), "[],")),
        ("quotes", filled("[", "\"\" ")),
        ("aliases", filled("[", "*a ")),
        ("tags", filled("[", "!a ")),
    ];
    for (what, source) in &cases {
        let request = Request::new("POST", "/api/v1/workflows").body("application/yaml", source.clone());
        let refused = victim.attack(what, &request);
        assert_eq!((refused.status, &*refused.code()), (422, "invalid_document"), "{what}: {}", refused.text());
        assert!(refused.took < Duration::from_secs(5), "{what}: {:?}", refused.took);
    }
    ends_small(victim);
}

#[test]
fn paths_of_long_keys() {
    let victim = Victim::serve(&[]);
    let long = json!({ "k".repeat(2000): 1 });
    let in_document = noop(json!({"steps": {"a": {"skill": "echo", "input": long}}}));
    let refused = start(&victim, "a long key", &in_document, &json!({}));
    assert_eq!((refused.status, refused.json()["problems"][0]["code"].clone()), (422, json!("key_too_long")));
    let refused = start(&victim, "a long key", &noop(json!({})), &long);
    assert_eq!((refused.status, &*refused.code()), (422, "bad_payload"));

    // As deep and as long as may be: each side of a merge, and what they came from.
    let version = |value: u32| json!({"name": "hostile.growth", "steps": {"a": {"skill": "echo", "input": nested(50, 20_000, value)}}});
    let deploy = |tag: &str, value: u32| {
        let deployed = victim.post("/api/v1/workflows", &json!({"document": version(value), "tag": tag}));
        assert!(deployed.status < 300, "{}", deployed.text());
    };
    deploy("ours", 0);
    let set = victim.put("/api/v1/tags/theirs", &json!({"target": "ours"}));
    assert!(set.status < 300, "{}", set.text());
    deploy("ours", 1);
    deploy("theirs", 2);
    let diff = victim.get("/api/v1/diff?from=ours&to=theirs");
    assert_eq!((diff.status, &diff.json()["truncated"]), (200, &json!(true)), "{}", diff.text());
    let merge = Request::new("POST", "/api/v1/tags/ours/merge").json(json!({"from": "theirs"}).to_string());
    let merge = super::wire::exchange(victim.port(), &merge.bytes(), super::wire::DEADLINE).unwrap();
    assert_eq!((merge.status, &*merge.code()), (409, "merge_conflict"), "{}", merge.text());
    assert_eq!(merge.json()["truncated"], true);
    for answer in [&diff, &merge] {
        assert!(answer.body.len() < ANSWER_BYTES, "{} bytes", answer.body.len());
    }

    // What a step began with, and what it begins with now.
    let step = json!({"skill": "echo", "input": {"p": "${{ payload }}"}, "cache": {"enabled": true}});
    let document = json!({"name": "hostile.explained", "steps": {"a": step}});
    let runs: Vec<String> = [1, 2].map(|value| victim.run(&document, &nested(50, 20_000, value))).into();
    for run in &runs {
        assert_eq!(victim.ended(run)["status"], "completed");
    }
    let told = victim.get(&format!("/api/v1/runs/{}/steps/a/explain", runs[1]));
    assert_eq!(told.status, 200, "{}", told.text());
    assert!(told.body.len() < 8 << 20, "{} bytes", told.body.len());
    assert!(told.json()["more_differences"].as_u64() > Some(1000), "{}", told.text());
    ends_small(victim);
}

#[test]
fn half_characters_everywhere() {
    let victim = Victim::serve(&[]);
    victim.run(&json!({"name": "halves", "steps": {"a": {"skill": "noop"}}}), &json!({}));
    let deployed = victim.post("/api/v1/workflows", &json!({"document": noop(json!({}))}));
    assert!(deployed.status < 300);
    let waiting = victim.waiting_run();
    let patches = "/api/v1/workflows/hostile.growth/patches";
    let document = r#"{"name":"hostile.growth","steps":{"a":{"skill":"echo","input":@}}}"#;
    let cases = [
        ("/api/v1/workflows".to_owned(), format!(r#"{{"document":{document}}}"#)),
        ("/api/v1/workflows".to_owned(), r#"{"document":"name: @"}"#.to_owned()),
        ("/api/v1/workflows".to_owned(), format!(r#"{{"document":{},"meta":{{"m":@}}}}"#, document.replace('@', "1"))),
        ("/api/v1/workflows".to_owned(), format!(r#"{{"document":{},"message":@}}"#, document.replace('@', "1"))),
        ("/api/v1/runs".to_owned(), format!(r#"{{"document":{},"payload":{{"p":@}}}}"#, document.replace('@', "1"))),
        (patches.to_owned(), r#"{"ops":[{"op":"add","path":"/steps/a/input","value":@}]}"#.to_owned()),
        (patches.to_owned(), r#"{"ops":[{"op":"remove","path":@}]}"#.to_owned()),
        (format!("/api/v1/runs/{waiting}/signals"), r#"{"type":"go","payload":{"p":@}}"#.to_owned()),
        ("/api/v1/tags/hostile.growth/merge".to_owned(), r#"{"from":"hostile.growth","message":@}"#.to_owned()),
    ];
    for (path, body) in &cases {
        let whole = victim.attack(path, &Request::new("POST", path.clone()).json(body.replace('@', "{}")));
        assert!(!matches!(whole.status, 404 | 405), "{path} is there: {}", whole.text());
        for value in [r#""\ud800""#, r#""\udc00\ud800""#, r#"{"\ud800":1}"#] {
            let value = if body.contains("name: @") { value.trim_matches(|c| "\"{}:1".contains(c)) } else { value };
            let sent = body.replace('@', value);
            let refused = victim.attack(&sent, &Request::new("POST", path.clone()).json(sent.clone()));
            assert!((400..500).contains(&refused.status), "{path} {sent}: {} {}", refused.status, refused.text());
        }
    }
    let yaml = "name: halves\nsteps: {a: {skill: echo, input: \"\\ud800\"}}\n";
    let refused = victim.attack("YAML", &Request::new("POST", "/api/v1/workflows").body("application/yaml", yaml));
    assert_eq!(refused.json()["problems"][0]["code"], "not_yaml", "{}", refused.text());
    victim.ends_well();
}

#[test]
fn patches_and_notes_that_are_none() {
    let victim = Victim::serve(&[]);
    let deployed = victim.post("/api/v1/workflows", &json!({"document": noop(json!({}))}));
    assert!(deployed.status < 300);
    for operation in [
        json!({"op": "grow", "path": "/version", "value": 1}),
        json!({"op": "add", "path": "/version", "value": "1.0.0", "form": 1}),
        json!({"op": "remove", "path": "/steps/a", "value": 1}),
        json!({"op": "add", "path": 7, "value": 1}),
        json!({"op": "x".repeat(100_000), "path": ""}),
    ] {
        let refused = victim.post("/api/v1/workflows/hostile.growth/patches", &json!({"ops": [operation]}));
        assert_eq!((refused.status, &*refused.code()), (422, "patch_failed"), "{}", refused.text());
        assert!(refused.body.len() < 4096);
    }
    let deep = (0..20).fold(json!({}), |inner, _| json!({ "m": inner }));
    for meta in [json!([]), json!("m"), json!({"m": "x".repeat(20_000)}), deep, json!({ "k".repeat(2000): 1 })] {
        let refused = victim.post("/api/v1/workflows", &json!({"document": noop(json!({})), "meta": meta}));
        assert_eq!((refused.status, &*refused.code()), (422, "bad_meta"), "{}", refused.text());
    }
    victim.ends_well();
}
