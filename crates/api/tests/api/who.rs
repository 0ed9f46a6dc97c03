//! Who did what: recorded with runs and in their logs, and shown.

use axum::http::StatusCode;
use milepost_api::{KnownToken, Settings, TokenHash};
use serde_json::{Value, json};

use super::{Answer, Api, request, waiting};

/// A server that two people and a program without a name have tokens for.
async fn shared() -> Api {
    let token = |name: &str| KnownToken { name: Some(name.to_owned()), hash: TokenHash::of(name) };
    let tokens = vec![token("ada"), token("bob"), TokenHash::of("nobody").into()];
    Api::with(Settings { tokens, loopback_only: false, ..Settings::default() }).await
}

async fn call(api: &Api, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", &*bearer), ("content-type", "application/json"), ("milepost-actor", "eve")];
    api.send(request(method, &format!("/api/v1{path}"), &headers, &body.to_string())).await
}

async fn get(api: &Api, path: &str) -> Value {
    let answer = call(api, "nobody", "GET", path, &json!(null)).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.body
}

async fn started(api: &Api, token: &str, body: &Value) -> String {
    let answer = call(api, token, "POST", "/runs", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    answer.body["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn runs_say_who_started_them_and_are_found_by_it() {
    let api = shared().await;
    let body = json!({ "document": waiting() });
    let of_ada = started(&api, "ada", &body).await;
    let of_bob = started(&api, "bob", &json!({"document": waiting(), "request_id": "once"})).await;
    let of_nobody = started(&api, "nobody", &body).await;
    // The same request of somebody else is the same run, and stays whose it was.
    let again = call(&api, "ada", "POST", "/runs", &json!({"document": waiting(), "request_id": "once"})).await;
    assert_eq!((again.status, &again.body["run_id"]), (StatusCode::OK, &json!(of_bob)));
    let submitted_by = async |run: &str| get(&api, &format!("/runs/{run}")).await["submitted_by"].clone();
    assert_eq!(submitted_by(&of_ada).await, "ada");
    assert_eq!(submitted_by(&of_bob).await, "bob");
    assert_eq!(submitted_by(&of_nobody).await, json!(null), "whatever the header says");
    assert_eq!(get(&api, &format!("/runs/{of_ada}/at/1")).await["submitted_by"], "ada");
    let queued = get(&api, &format!("/runs/{of_ada}/events?limit=1")).await;
    assert_eq!(queued["items"][0]["data"]["submitted_by"], "ada");

    api.engine.flush_projections().await;
    let list = async |query: &str| {
        let page = get(&api, &format!("/runs?fields=run_id,submitted_by&{query}")).await;
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["run_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(list("submitted_by=ada").await, std::slice::from_ref(&of_ada));
    assert_eq!(list("submitted_by=bob&status=running").await, [of_bob]);
    assert_eq!(list("submitted_by=bob&status=failed").await, [""; 0]);
    assert_eq!(list("submitted_by=eve").await, [""; 0]);
    let bulk = json!({"action": "cancel", "filter": {"submitted_by": "ada"}});
    assert_eq!(call(&api, "bob", "POST", "/runs/bulk", &bulk).await.body["accepted"], 1);
    assert_eq!(get(&api, &format!("/runs/{of_ada}")).await["status"], "cancelled");
    let changes = get(&api, &format!("/runs/{of_ada}/transitions")).await;
    let changed_by: Vec<&Value> = changes["items"].as_array().unwrap().iter().map(|item| &item["changed_by"]).collect();
    assert_eq!(changed_by, [&json!("ada"), &json!(null), &json!("bob")]);
}

#[tokio::test]
async fn logs_say_who_approved_patched_and_stopped_a_run() {
    let api = shared().await;
    let document = json!({"name": "watched", "approval": true, "steps": {
        "gate": {"skill": "wait", "input": {"signal": "go"}}, "then": {"skill": "noop", "depends_on": ["gate"]}}});
    let run = started(&api, "nobody", &json!({ "document": document })).await;
    let path = |verb: &str| format!("/runs/{run}/{verb}");
    let ops =
        json!({"ops": [{"op": "add", "path": "/steps/more", "value": {"skill": "noop", "depends_on": ["gate"]}}]});
    for (token, verb, body) in [
        ("bob", "approve", json!({})),
        ("ada", "pause", json!({})),
        ("nobody", "resume", json!({})),
        ("ada", "patch", ops),
        ("bob", "patch/undo", json!({})),
        ("ada", "signals", json!({"type": "note", "payload": {"actor": "eve"}})),
        ("bob", "terminate", json!({})),
    ] {
        let answer = call(&api, token, "POST", &path(verb), &body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{verb}: {}", answer.body);
    }
    let events = get(&api, &path("events")).await;
    let events = events["items"].as_array().unwrap();
    let told: Vec<String> = events
        .iter()
        .filter_map(|event| Some(format!("{} {}", event["event_type"].as_str()?, event["data"]["actor"].as_str()?)))
        .collect();
    assert_eq!(
        told,
        [
            "SignalAccepted bob",
            "RunApproved bob",
            "SignalAccepted ada",
            "RunPaused ada",
            "RunPatched ada",
            "RunPatched bob",
            "SignalAccepted ada",
            "SignalAccepted bob",
            "RunTerminated bob",
        ]
    );
    let changes = get(&api, &path("transitions")).await;
    let changes = changes["items"].as_array().unwrap();
    let changed: Vec<(&str, &Value)> =
        changes.iter().map(|item| (item["to"].as_str().unwrap(), &item["changed_by"])).collect();
    let (ada, bob, none) = (json!("ada"), json!("bob"), json!(null));
    assert_eq!(
        changed,
        [
            ("pending", &none),
            ("approved", &bob),
            ("running", &none),
            ("paused", &ada),
            ("running", &none),
            ("terminated", &bob)
        ]
    );
}

#[tokio::test]
async fn a_run_says_when_it_last_changed_how_long_it_took_and_which_engine_began_it() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}");
    let open = api.get(&path).await.body;
    assert_eq!(open["total_duration_ms"], json!(null));
    let events = api.get(&format!("{path}/events")).await.body;
    assert_eq!(open["updated_at"], events["items"].as_array().unwrap().last().unwrap()["emitted_at"]);
    let node = json!({"node": api.engine.node().to_string()});
    let begun = &events["items"][1];
    assert_eq!((&begun["event_type"], &begun["data"]["engine_run_ref"]), (&json!("RunStarted"), &node));
    let version = format!("milepost/{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(begun["data"]["adapter_version"], json!(version));
    assert_eq!(open["engine_run_ref"], node);
    api.post(&format!("{path}/signals"), &json!({"type": "go"})).await;
    api.ended(&run).await;
    let ended = api.get(&path).await.body;
    assert_eq!(ended["updated_at"], ended["completed_at"]);
    let time = |field: &str| ended[field].as_str().unwrap().parse::<milepost_core::time::Timestamp>().unwrap();
    assert_eq!(ended["total_duration_ms"], time("completed_at").ms_since(time("started_at")));
    let listed = api.get("/api/v1/runs?limit=1").await.body["items"][0].clone();
    for field in ["updated_at", "total_duration_ms", "engine_run_ref"] {
        assert_eq!(listed[field], ended[field], "{field}");
    }
}

#[tokio::test]
async fn the_steps_of_a_run_are_listed_by_status_and_page_by_page() {
    let api = Api::new().await;
    let document = json!({"name": "many", "on_failure": "continue", "steps": {
        "a": {"skill": "echo", "input": {"org": "${{ run.org }}"}},
        "b": {"skill": "fail", "input": {"times": 1, "code": "broken", "retryable": false}},
        "each": {"skill": "echo", "foreach": [1, 2], "depends_on": ["a"]},
        "never": {"skill": "noop", "depends_on": ["b"]}}});
    let run = api.ended_run(&document).await;
    let path = format!("/api/v1/runs/{run}/steps");
    let list = async |query: &str| {
        let page = api.get(&format!("{path}?{query}")).await.body;
        let ids = page["items"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
        (ids.map(|step| step["step_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), page["next_cursor"].clone())
    };
    let whole = api.get(&format!("/api/v1/runs/{run}")).await.body;
    let all: Vec<&str> =
        whole["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect();
    assert_eq!(list("").await, (all.iter().map(|id| (*id).to_owned()).collect(), json!(null)));
    assert_eq!(list("status=failed").await.0, ["b"]);
    assert_eq!(list("status=failed,skipped").await.0.len(), 2);
    assert_eq!(list("status=running").await.0, [""; 0]);
    let mut seen = Vec::new();
    let mut query = "status=completed&limit=1".to_owned();
    loop {
        let (ids, next) = list(&query).await;
        seen.extend(ids);
        let Some(cursor) = next.as_str() else { break };
        query = format!("status=completed&limit=1&cursor={}", cursor.replace('[', "%5B").replace(']', "%5D"));
    }
    assert_eq!(seen, list("status=completed").await.0);
    assert_eq!(seen.len(), 4);
    assert_eq!(api.get(&path).await.body["items"][0]["output"], json!({"org": "default"}));
    api.get(&format!("{path}?status=done")).await.is_problem(400, "unknown_status");
    api.get(&format!("{path}?cursor=nowhere")).await.is_problem(400, "bad_cursor");
    api.get(&format!("{path}?limit=0")).await.is_problem(400, "bad_limit");
    api.get("/api/v1/runs/01a1defb-20b0-76b2-bcac-6128b7360903/steps").await.is_problem(404, "unknown_run");
}
