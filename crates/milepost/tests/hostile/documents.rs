//! Every field of documents, as JSON and as YAML, and every place where a payload is read. Which keys documents have is asked
//! of the server: it names them when it refuses another.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::description::filled;
use super::values;
use super::victim::Victim;
use super::wire::Request;

const NO_KEY: &str = "zz-no-key";

/// A document with a step of each built-in skill.
fn base() -> Value {
    json!({"name": "hostile.document", "steps": {
        "x": {"skill": "echo", "input": {"a": 1}},
        "nap": {"skill": "sleep", "input": {"ms": 1}},
        "fail": {"skill": "fail", "input": {"times": 0}},
        "call": {"skill": "http", "input": {"url": "http://127.0.0.1:9/"}},
        "wait": {"skill": "wait", "input": {"signal": "go"}},
        "child": {"skill": "workflow", "input": {"ref": "hello"}},
        "work": {"skill": "hostile.work", "queue": "hostile"},
        "push": {"skill": "hostile.push", "runtime": "push", "push": {"url": "http://127.0.0.1:9/"}},
    }})
}

/// The part of the base that a place is about: the other steps only take time.
fn base_for(place: &[String]) -> Value {
    let mut base = base();
    if let [first, step, ..] = place
        && first == "steps"
    {
        base["steps"].as_object_mut().unwrap().retain(|id, _| id == step);
    } else {
        base["steps"].as_object_mut().unwrap().retain(|id, _| id == "x");
    }
    base
}

fn validate(victim: &Victim, document: &Value) -> Value {
    victim.post("/api/v1/workflows/validate", &json!({ "document": document })).json()
}

/// The keys that may stand in a map at a place, as the server says it.
fn keys(victim: &Victim, place: &[String]) -> Vec<String> {
    let map = json!({NO_KEY: 1}).to_string();
    let document = filled(&base_for(place), place, map.as_bytes());
    let told = validate(victim, &serde_json::from_slice(&document).unwrap());
    let problems = told["problems"].as_array().cloned().unwrap_or_default();
    let at = format!("/{}", [place, &[NO_KEY.to_owned()]].concat().join("/"));
    let unknown = problems.into_iter().find(|problem| problem["code"] == "unknown_key" && problem["path"] == *at);
    let message = unknown.and_then(|problem| problem["message"].as_str().map(ToOwned::to_owned)).unwrap_or_default();
    let (_, known) = message.split_once("known are ").unwrap_or_default();
    known.split(", ").filter(|key| !key.is_empty()).map(ToOwned::to_owned).collect()
}

/// All places of documents, found by asking.
fn places(victim: &Victim) -> Vec<Vec<String>> {
    let mut places = BTreeSet::new();
    let mut maps: Vec<Vec<String>> = base()["steps"].as_object().unwrap().keys().map(|id| of(&["steps", id])).collect();
    maps.push(Vec::new());
    while let Some(map) = maps.pop() {
        for key in keys(victim, &map) {
            let place = [&*map, &[key]].concat();
            if place.len() > 6 || !places.insert(place.clone()) || place == of(&["steps"]) {
                continue;
            }
            // A map; a map by names of one's own; a list of maps.
            for inner in [None, Some("own"), Some("0")] {
                maps.push(place.iter().cloned().chain(inner.map(ToOwned::to_owned)).collect());
            }
        }
    }
    for more in [&["steps"][..], &["steps", "x", "input", "a"], &["steps", "x", "depends_on", "0"], &["steps", "0"]] {
        places.insert(of(more));
    }
    places.into_iter().collect()
}

fn of(place: &[&str]) -> Vec<String> {
    place.iter().map(ToString::to_string).collect()
}

fn terminate_all(victim: &Victim) {
    let all = json!({"action": "terminate", "filter": {}, "limit": 100_000});
    victim.post("/api/v1/runs/bulk", &all);
}

#[test]
fn every_field_of_documents_in_json() {
    let victim = Victim::serve(&[]);
    let places = places(&victim);
    assert!(places.len() > 60 && places.contains(&of(&["steps", "x", "retry", "max_attempts"])), "{places:?}");
    let jsons = values::jsons();
    for (number, place) in places.iter().enumerate() {
        for (kind, text) in values::at_place(&jsons, number) {
            let what = format!("/{} is {kind}", place.join("/"));
            let document = filled(&base_for(place), place, text);
            let body = [b"{\"document\":".as_slice(), &document, b",\"payload\":{\"n\":1}}"].concat();
            // What is taken runs, is stored, and is there at the next start.
            let started = victim.attack(&what, &Request::new("POST", "/api/v1/runs").json(body));
            if started.status == 201 && kind.len() % 4 == 0 {
                let body = [b"{\"document\":".as_slice(), &document, b"}"].concat();
                victim.attack(&what, &Request::new("POST", "/api/v1/workflows").json(body));
            }
        }
        victim.is_well(&format!("/{}", place.join("/")));
    }
    terminate_all(&victim);
    victim.ends_well();
}

#[test]
fn every_field_of_documents_in_yaml() {
    let victim = Victim::serve(&[]);
    let yamls = values::yamls();
    for (number, place) in places(&victim).iter().enumerate() {
        for (kind, text) in values::at_some_places(&yamls, number) {
            let what = format!("/{} is {kind}", place.join("/"));
            let document = filled(&base_for(place), place, text);
            let path = if kind.len() % 2 == 0 { "/api/v1/workflows" } else { "/api/v1/workflows/validate" };
            victim.attack(&what, &Request::new("POST", path).body("application/yaml", document));
        }
        victim.is_well(&format!("/{}", place.join("/")));
    }
    victim.ends_well();
}
