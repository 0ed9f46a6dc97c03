//! Texts that cannot be kept, and documents that take their time.

use std::time::Duration;

use axum::http::StatusCode;
use milepost_api::Settings;
use milepost_engine::Config;
use serde_json::{Value, json};

use super::{Api, echo, request, waiting};

#[tokio::test]
async fn texts_with_control_characters_are_refused_wherever_they_stand() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    for query in ["workflow=a%00b", "request_id=%1B", "a%00=b", "fields=status%C2%85"] {
        api.get(&format!("/api/v1/runs?{query}")).await.is_problem(400, "bad_query");
    }
    api.get("/api/v1/runs?cursor=%00").await.is_problem(400, "bad_cursor");
    api.get("/api/v1/workflows?cursor=%00").await.is_problem(400, "bad_cursor");
    api.get(&format!("/api/v1/runs/{run}/artifacts?kind=a%00")).await.is_problem(400, "bad_query");
    for path in ["workflows/a%00b", "tags/%0A", "revisions/%00", "tasks/%00", "secrets/a%7Fb"] {
        let answer = match path.starts_with("secrets") {
            true => api.delete(&format!("/api/v1/{path}")).await,
            false => api.get(&format!("/api/v1/{path}")).await,
        };
        answer.is_problem(400, "bad_path");
    }
    api.get(&format!("/api/v1/runs/{run}/steps/a%00b")).await.is_problem(400, "bad_path");
    let refused = async |path: &str, body: Value, code: &str| {
        api.post(&format!("/api/v1/{path}"), &body).await.is_problem(422, code);
    };
    refused("runs", json!({"document": echo(), "request_id": "a\0b"}), "bad_request_id").await;
    refused("runs", json!({"document": echo(), "request_id": "x".repeat(256)}), "bad_request_id").await;
    refused(&format!("runs/{run}/signals"), json!({"type": "go\0"}), "bad_signal").await;
    refused(&format!("runs/{run}/patch"), json!({"ops": [], "message": "\u{1b}[2J"}), "bad_text").await;
    refused("runs/bulk", json!({"action": "cancel", "filter": {"workflow": "a\0"}}), "bad_name").await;
    refused("runs/bulk", json!({"action": "cancel", "filter": {}, "reason": "a\0"}), "bad_text").await;
    refused("workflows", json!({"document": echo(), "tag": "a\0b"}), "bad_tag").await;
    refused("workflows", json!({"document": echo(), "message": "a\0b"}), "bad_text").await;
    refused("tasks/claim", json!({"worker_id": "w\0"}), "bad_name").await;
    refused("worker/exchange", json!({"worker_id": "w", "queues": ["q\n"], "capacity": 1}), "bad_name").await;
    refused("cache/disown", json!({"workflow": "a\0"}), "bad_name").await;
    refused(&format!("runs/{run}/artifacts"), json!({"uri": "s3://b/x", "kind": "a\0"}), "bad_artifact").await;
    api.put("/api/v1/queues/default", &json!({"concurrency": 1})).await;
    let actor = [("content-type", "application/json"), ("milepost-actor", "a\tb")];
    let body = json!({"document": echo()}).to_string();
    api.send(request("POST", "/api/v1/workflows", &actor, &body)).await.is_problem(400, "bad_actor");
    let lines = json!({"document": echo(), "message": "first line\n\tsecond line"});
    assert_eq!(api.post("/api/v1/workflows", &lines).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_payload_that_takes_too_long_to_check_is_refused_and_others_go_on() {
    let config = Config { check_deadline: Duration::from_millis(1), ..Config::default() };
    let api = Api::open(Settings::default(), config).await;
    let params = json!({"type": "object", "properties": {"l": {"items": {"maximum": 10}}}});
    let document = json!({"name": "slow", "params": params, "steps": {"a": {"skill": "noop"}}});
    let body = json!({"document": document, "payload": {"l": vec![7; 100_000]}});
    api.post("/api/v1/runs", &body).await.is_problem(422, "check_takes_too_long");
    api.ended_run(&echo()).await;
}

#[tokio::test]
async fn a_document_that_takes_too_long_to_check_is_refused_and_others_go_on() {
    let config = Config { check_deadline: Duration::from_millis(1), ..Config::default() };
    let api = Api::open(Settings::default(), config).await;
    let steps: serde_json::Map<String, Value> =
        (0..5000).map(|n| (format!("step-{n}"), json!({"skill": "noop", "input": {"n": n}}))).collect();
    let large = json!({"document": {"name": "large", "steps": steps}});
    for path in ["workflows/validate", "workflows", "runs"] {
        api.post(&format!("/api/v1/{path}"), &large).await.is_problem(422, "check_takes_too_long");
    }
    api.ended_run(&echo()).await;
}

#[tokio::test]
async fn refusals_quote_little_of_what_was_sent() {
    let api = Api::new().await;
    let long = "é".repeat(500_000);
    for body in [
        json!({"worker_id": "w", "results": long}),
        json!({"worker_id": "w", "capacity": long}),
        json!({ long.as_str(): 1 }),
    ] {
        let refused = api.post("/api/v1/worker/exchange", &body).await;
        let detail = refused.body["detail"].as_str().unwrap().to_owned();
        refused.is_problem(422, "bad_body");
        assert!(detail.len() < 2100 && (detail.contains("expected") || detail.contains("unknown field")), "{detail}");
    }
}
