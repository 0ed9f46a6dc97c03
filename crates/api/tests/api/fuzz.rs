//! What callers put into addresses, headers and patches, fuzzed through the routes: nothing is answered with a failure of the
//! server. How it is run for longer: `milepost_fuzz`.

use std::path::Path;

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use milepost_fuzz::Grammar;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{Api, echo, request, waiting};

/// Fuzzes one kind of input: `make` says which request it goes into, or that it cannot be sent at all.
fn fuzz(name: &str, grammar: &Grammar, api: &Api, runtime: &Runtime, make: impl Fn(&[u8]) -> Option<Request<Body>>) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    milepost_fuzz::run(name, &corpus, grammar, |input| {
        let answer = runtime.block_on(api.send(make(input)?));
        assert!(!answer.status.is_server_error(), "{} {}", answer.status, answer.body);
        Some((answer.status.as_u16(), answer.code().to_owned()))
    });
}

fn api() -> (Runtime, Api) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let api = runtime.block_on(Api::with_key());
    (runtime, api)
}

/// Every byte that may not stand in an address as it is is escaped.
fn escaped(input: &[u8]) -> String {
    input
        .iter()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(*byte).to_string() } else { format!("%{byte:02x}") })
        .collect()
}

fn get(path: &str) -> Option<Request<Body>> {
    // An address has a length that no server would take; the socket's own limits come before the routes.
    (path.len() < 60_000).then(|| request("GET", path, &[], ""))
}

#[test]
fn field_masks() {
    let (runtime, api) = api();
    let run = runtime.block_on(api.ended_run(&echo()));
    let grammar = Grammar {
        pairs: &[(".a", ""), ("", ",status"), ("steps.", "")],
        words: &["run_id", "steps", "output", ".", ",", "status.x"],
    };
    fuzz("field-masks", &grammar, &api, &runtime, |input| match input.len() % 2 {
        0 => get(&format!("/api/v1/runs?fields={}", escaped(input))),
        _ => get(&format!("/api/v1/runs/{run}?fields={}", escaped(input))),
    });
}

#[test]
fn cursors() {
    let (runtime, api) = api();
    let run = runtime.block_on(api.ended_run(&echo()));
    let lists =
        ["/api/v1/runs", "/api/v1/workflows", "/api/v1/tags", "/api/v1/secrets", "/api/v1/outbox", "/api/v1/cache"]
            .map(str::to_owned);
    let of_run = ["artifacts", "logs"].map(|list| format!("/api/v1/runs/{run}/{list}"));
    let lists: Vec<&String> = lists.iter().chain(&of_run).collect();
    fuzz("cursors", &Grammar::TEXT, &api, &runtime, |input| {
        let list = lists[input.len() % lists.len()];
        get(&format!("{list}?limit=2&cursor={}", escaped(input)))
    });
}

#[test]
fn ids_of_streams() {
    let (runtime, api) = api();
    let run = runtime.block_on(api.ended_run(&echo()));
    let path = format!("/api/v1/runs/{run}/stream");
    fuzz("stream-ids", &Grammar::TEXT, &api, &runtime, |input| {
        let mut asked = request("GET", &path, &[], "");
        asked.headers_mut().insert("last-event-id", HeaderValue::from_bytes(input).ok()?);
        Some(asked)
    });
}

#[test]
fn lease_tokens() {
    let (runtime, api) = api();
    let run = runtime.block_on(api.start(&waiting()));
    let id = milepost_core::id::TaskId::of(run.parse().unwrap(), milepost_core::event::StepRef { step: 0, item: None });
    let grammar = Grammar { pairs: &[(".", ""), ("1.", "")], words: &[".", "0", "1", "ffffffffffffffff", "-1"] };
    fuzz("lease-tokens", &grammar, &api, &runtime, |input| {
        let token = String::from_utf8_lossy(input).replace("RUN", &run.replace('-', ""));
        let (verb, body) = match input.len() % 3 {
            0 => ("complete", json!({"lease_token": token, "output": 1})),
            1 => ("fail", json!({"lease_token": token, "error": {"code": "c", "message": "m", "retryable": true}})),
            _ => ("heartbeat", json!({ "lease_token": token })),
        };
        let json = [("content-type", "application/json")];
        Some(request("POST", &format!("/api/v1/tasks/{id}/{verb}"), &json, &body.to_string()))
    });
    let shown = runtime.block_on(api.get(&format!("/api/v1/runs/{run}")));
    assert_eq!(shown.body["status"], "running", "no token that was not given does anything: {}", shown.body);
}

#[test]
fn patches() {
    let (runtime, api) = api();
    let document =
        json!({"name": "patched", "steps": {"a": {"skill": "echo", "input": {"l": [1, 2, {"x": "y"}], "n": 1}}}});
    runtime.block_on(api.post("/api/v1/workflows", &json!({ "document": document })));
    let grammar = Grammar {
        words: &[
            "{\"op\":\"copy\",\"from\":\"/steps\",\"path\":\"/steps/b\"},",
            "/steps/a",
            "/-",
            "~01",
            "\"test\"",
            "\"move\"",
            "null",
        ],
        ..Grammar::JSON
    };
    fuzz("patches", &grammar, &api, &runtime, |input| {
        let body = format!("{{\"ops\": {}}}", String::from_utf8_lossy(input));
        Some(request("POST", "/api/v1/workflows/patched/patches", &[("content-type", "application/json")], &body))
    });
    let read = runtime.block_on(api.get("/api/v1/workflows/patched"));
    assert_eq!(read.status, 200, "{}", read.body);
    assert_ne!(read.body, Value::Null);
}
