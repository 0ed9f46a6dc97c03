//! Every route, at every place that a caller fills in.

use serde_json::{Value, json};

use super::description::{Description, Known, Operation};
use super::values;
use super::victim::Victim;
use super::wire::Request;

/// What is there to be attacked.
fn seeded(victim: &Victim) -> Known {
    let deploy = |tag: &str, text: &str| {
        let document = json!({"name": "hello", "steps": {"greet": {"skill": "echo", "input": {"text": text}}}});
        let deployed = victim.post("/api/v1/workflows", &json!({"document": document, "tag": tag}));
        assert!(deployed.status < 300, "{}", deployed.text());
        deployed.json()
    };
    deploy("hello/experiment", "hi");
    deploy("hello", "hello");
    let revision = deploy("hello", "good morning")["revision_id"].clone();
    let base = victim.run(&json!({"name": "base", "steps": {"greet": {"skill": "echo"}}}), &json!({}));
    victim.ended(&base);
    let content = Request::new("POST", "/api/v1/blobs").body("application/octet-stream", "content");
    let sha256 = victim.attack("upload", &content).json()["sha256"].clone();
    let digest = format!("sha256:{}", sha256.as_str().unwrap());
    let known = json!({
        "revision_id": revision, "base_run_id": base, "digest": digest, "sha256": sha256, "tag": "hello", "ref": "hello", "workflow": "hello",
        "from": "hello/experiment", "to": "hello", "target": "hello~1", "step_id": "gate", "queue": "hostile", "seq": 2,
        "queues": ["hostile"], "key": "ab".repeat(32), "worker_id": "hostile", "wait_ms": 0, "name": "hostile/secret",
        "undoes": null,
    });
    known.as_object().unwrap().clone()
}

/// Ids that an operation may use up.
fn fresh(victim: &Victim, known: &mut Known) {
    let run = victim.waiting_run();
    let file = json!({"uri": "s3://bucket/file", "kind": "custom"});
    let recorded = victim.post(&format!("/api/v1/runs/{run}/artifacts"), &file).json();
    known.insert("artifact_id".to_owned(), recorded["artifact_id"].clone());
    known.insert("run_id".to_owned(), json!(run));
    if let Some(task) = victim.claim("hostile", "hostile") {
        known.insert("task_id".to_owned(), task["task_id"].clone());
        known.insert("lease_token".to_owned(), task["lease_token"].clone());
    }
}

/// Attacks all operations, one after the other; normal runs go on in between.
fn each_operation(victim: &Victim, attack: impl Fn(&Operation)) {
    let description = Description::new(victim.get("/api/v1/openapi.json").json());
    let mut known = seeded(victim);
    let count = description.operations(&known).len();
    assert!(count > 60, "{count} operations");
    for index in 0..count {
        fresh(victim, &mut known);
        let operation = description.operations(&known).swap_remove(index);
        attack(&operation);
        victim.is_well(&operation.name());
    }
}

#[test]
fn every_parameter_of_every_route() {
    let victim = Victim::serve(&[]);
    let texts = values::texts();
    each_operation(&victim, |operation| {
        for (place, parameter) in operation.parameters.iter().enumerate() {
            for (kind, text) in values::at_place(&texts, place + operation.path.len()) {
                let what = format!("{}: {} is {kind}", operation.name(), parameter.name);
                // What may not stand in a header at all is sent all the same: nothing is injected.
                let request = operation.with(&parameter.name, text);
                let answer = match &*parameter.place {
                    "header" => victim.attack_bytes(&what, &request.bytes(), || request.shown()),
                    _ => victim.attack(&what, &request),
                };
                assert_eq!(answer.header("x-injected"), None, "{what}");
            }
            let many = format!("{}=1&", parameter.name).repeat(3_000);
            let crowded = Request { target: format!("{}?{many}", operation.request().target), ..operation.request() };
            victim.attack(&format!("{}: {} many times", operation.name(), parameter.name), &crowded);
        }
        let unknown =
            Request { target: format!("{}?hostile=1&%00=1", operation.request().target), ..operation.request() };
        victim.attack(&format!("{}: an unknown parameter", operation.name()), &unknown);
        for method in ["TRACE", "OPTIONS", "PATCH", "CONNECT", "HOSTILE", "x"] {
            let request = Request { method: method.to_owned(), ..operation.request() };
            let answer = victim.attack_bytes("another method", &request.bytes(), || request.shown());
            assert!((400..500).contains(&answer.status), "{} {}: {}", method, operation.path, answer.status);
        }
    });
    victim.ends_well();
}

#[test]
fn every_field_of_every_body() {
    let victim = Victim::serve(&[]);
    let jsons = values::jsons();
    each_operation(&victim, |operation| {
        for (number, place) in operation.places.iter().enumerate() {
            for (kind, text) in values::at_place(&jsons, number) {
                let what = format!("{}: /{} is {kind}", operation.name(), place.join("/"));
                victim.attack(&what, &operation.request().json(operation.body_with(place, text)));
            }
        }
    });
    victim.ends_well();
}

#[test]
fn every_route_with_bodies_that_are_none() {
    let victim = Victim::serve(&[]);
    let bodies = bodies();
    each_operation(&victim, |operation| {
        for media_type in
            ["application/json", "application/yaml", "application/octet-stream", "text/plain", "", "a/b;c=\"", "é"]
        {
            victim.attack(&format!("{}: a body of {media_type}", operation.name()), &{
                let body = operation.body.as_ref().map_or_else(|| b"{}".to_vec(), |body| body.to_string().into_bytes());
                operation.request().body(media_type, body)
            });
        }
        if operation.body.is_none() && operation.media_types.is_empty() {
            return;
        }
        for (kind, body) in &bodies {
            let what = format!("{}: {kind}", operation.name());
            let media_type = operation.media_types.first().filter(|_| operation.body.is_none());
            let media_type = media_type.map_or("application/json", String::as_str);
            victim.attack(&what, &operation.request().body(media_type, body.clone()));
        }
        for (kind, bytes) in broken(&operation.request()) {
            let what = format!("{}: {kind}", operation.name());
            victim.attack_bytes(&what, &bytes, || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned());
        }
    });
    victim.ends_well();
}

fn bodies() -> Vec<values::Hostile> {
    let mut bodies: Vec<values::Hostile> = [
        ("nothing", &b""[..]),
        ("null", b"null"),
        ("a list", b"[]"),
        ("a text", b"\"x\""),
        ("a number", b"1e999"),
        ("half of it", b"{\"a\": \"x"),
        ("two of them", b"{}{}"),
        ("a mark at the front", b"\xef\xbb\xbf{}"),
        ("UTF-16", b"\xff\xfe{\0}\0"),
        ("NUL", b"\0"),
        ("YAML", b"a: &x [*x]"),
    ]
    .map(|(kind, text)| (kind, text.to_vec()))
    .to_vec();
    bodies.push(("a deep list", values::nested("[", "]", 100_000)));
    bodies.push(("an open list", b"[".repeat(1_000_000)));
    bodies.push(("a wide map", format!("{{{}\"z\":1}}", "\"a\":1,".repeat(100_000)).into_bytes()));
    bodies.push(("blanks", b" ".repeat(9 << 20)));
    bodies
}

/// Requests that do not keep to HTTP, or hardly.
fn broken(request: &Request) -> Vec<values::Hostile> {
    let head = |more: &str| {
        let media_type = request.headers.iter().find(|(name, _)| name == "content-type").unwrap();
        let media_type = String::from_utf8_lossy(&media_type.1).into_owned();
        let first =
            format!("{} {} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n", request.method, request.target);
        format!("{first}content-type: {media_type}\r\n{more}").into_bytes()
    };
    vec![
        ("pieces of wrong size", head("transfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n")),
        ("pieces that are none", head("transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")),
        (
            "an endless line of a piece",
            head(&format!("transfer-encoding: chunked\r\n\r\n2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(100_000))),
        ),
        ("two lengths", head("content-length: 2\r\ncontent-length: 3\r\n\r\n{}")),
        ("a length and pieces", head("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n")),
        ("a negative length", head("content-length: -1\r\n\r\n{}")),
        ("a length beyond all", head("content-length: 18446744073709551616\r\n\r\n{}")),
        ("a length beyond what is taken", head("content-length: 99999999999999\r\n\r\n{}")),
        ("compressed", head("content-encoding: gzip\r\ncontent-length: 2\r\n\r\n{}")),
        ("500 headers", head(&format!("{}content-length: 2\r\n\r\n{{}}", "x-a: 1\r\n".repeat(500)))),
        ("a large header", head(&format!("x-a: {}\r\ncontent-length: 2\r\n\r\n{{}}", "x".repeat(600_000)))),
        ("a folded header", head("x-a: 1\r\n 2\r\ncontent-length: 2\r\n\r\n{}")),
        ("a header without a name", head(": 1\r\ncontent-length: 2\r\n\r\n{}")),
    ]
}

/// For longer: `MILEPOST_HOSTILE_SECONDS=600 cargo test -p milepost --test hostile campaign`.
#[test]
fn a_campaign_of_several_bad_values_at_once() {
    let seconds = std::env::var("MILEPOST_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let seed = std::env::var("MILEPOST_HOSTILE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let victim = Victim::serve(&[]);
    let (texts, jsons) = (values::texts(), values::jsons());
    let description = Description::new(victim.get("/api/v1/openapi.json").json());
    let mut known = seeded(&victim);
    let mut random = super::common::Random(seed);
    let begun = std::time::Instant::now();
    while begun.elapsed().as_secs() < seconds {
        fresh(&victim, &mut known);
        let operations = description.operations(&known);
        for _ in 0..200 {
            let operation = &operations[random.below(operations.len())];
            let mut request = operation.request();
            if let Some(parameter) = operation.parameters.get(random.below(operation.parameters.len() + 1)) {
                let (_, text) = &texts[random.below(texts.len())];
                if parameter.place != "header" {
                    request = operation.with(&parameter.name, text);
                }
            }
            if let (Some(body), false) = (&operation.body, operation.places.is_empty()) {
                let mut body = body.to_string().into_bytes();
                for _ in 0..=random.below(3) {
                    let place = &operation.places[random.below(operation.places.len())];
                    let (_, text) = &jsons[random.below(jsons.len())];
                    // A value that is no JSON is the last.
                    let Ok(value) = serde_json::from_slice::<Value>(&body) else { break };
                    body = super::description::filled(&value, place, text);
                }
                request = request.json(body);
            }
            victim.attack(&format!("seed {seed}"), &request);
        }
        victim.is_well(&format!("seed {seed}"));
    }
    victim.ends_well();
}
