//! `POST /runs`.

use axum::http::StatusCode;
use serde_json::json;

use super::{Api, echo, request};

#[tokio::test]
async fn a_document_that_comes_along_is_run() {
    let api = Api::new().await;
    let answer = api.post("/api/v1/runs", &json!({ "document": echo(), "payload": {"n": 3}, "priority": 5 })).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let run = answer.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&run).await;
    let shown = api.get(&format!("/api/v1/runs/{run}")).await;
    assert_eq!(shown.body["status"], "completed");
    assert_eq!(shown.body["output"], json!({"only": {"n": 3}}));
    assert_eq!(shown.body["priority"], 5);
    assert_eq!(shown.body["trigger_type"], "initial");
}

#[tokio::test]
async fn a_document_may_be_yaml_text() {
    let api = Api::new().await;
    let text = "name: text\nsteps:\n  only: {skill: echo, input: {a: 1}}\n";
    let answer = api.post("/api/v1/runs", &json!({ "document": text })).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
}

#[tokio::test]
async fn a_workflow_is_run_by_its_name_and_by_its_hash() {
    let api = Api::new().await;
    let deployed = api.post("/api/v1/workflows", &json!({ "document": echo() })).await;
    for workflow in ["echo", deployed.body["version_hash"].as_str().unwrap()] {
        let answer = api.post("/api/v1/runs", &json!({ "workflow": workflow })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }
    api.post("/api/v1/runs", &json!({ "workflow": "ecoh" })).await.is_problem(404, "unknown_workflow");
}

#[tokio::test]
async fn the_same_request_id_gives_the_same_run() {
    let api = Api::new().await;
    let body = json!({ "document": echo(), "request_id": "order-7" });
    let (first, second) = (api.post("/api/v1/runs", &body).await, api.post("/api/v1/runs", &body).await);
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.body["run_id"], second.body["run_id"]);
}

#[tokio::test]
async fn the_same_idempotency_key_gives_the_same_run() {
    let api = Api::new().await;
    let body = json!({ "document": echo() });
    let key = [("idempotency-key", "a-key")];
    let first = api.post_with("/api/v1/runs", &key, &body).await;
    let second = api.post_with("/api/v1/runs", &key, &body).await;
    assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.body["run_id"], second.body["run_id"]);
    let other = api.post_with("/api/v1/runs", &[("idempotency-key", "another")], &body).await;
    assert_ne!(first.body["run_id"], other.body["run_id"]);
}

#[tokio::test]
async fn an_idempotency_key_that_is_used_for_something_else_is_refused() {
    let api = Api::new().await;
    let key = [("idempotency-key", "a-key")];
    api.post_with("/api/v1/runs", &key, &json!({ "document": echo(), "payload": {"n": 1} })).await;
    let other = api.post_with("/api/v1/runs", &key, &json!({ "document": echo(), "payload": {"n": 2} })).await;
    other.is_problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn a_request_id_is_its_workflows_and_means_one_request() {
    let api = Api::new().await;
    let body = |n: u32| json!({ "document": echo(), "payload": {"n": n}, "request_id": "order-7" });
    let first = api.post("/api/v1/runs", &body(1)).await;
    let refused = api.post("/api/v1/runs", &body(2)).await;
    refused.is_problem(422, "request_id_reused");
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains(first.body["run_id"].as_str().unwrap()) && detail.contains("another payload"), "{detail}");
    let mut other = body(2);
    other["document"]["name"] = json!("other");
    let second = api.post("/api/v1/runs", &other).await;
    assert_eq!(second.status, StatusCode::CREATED, "{}", second.body);
    let mut ids = [&first, &second].map(|answer| answer.body["run_id"].as_str().unwrap().to_owned());
    for id in &ids {
        api.ended(id).await;
    }
    ids.reverse();
    let listed = api.get("/api/v1/runs?request_id=order-7&fields=run_id").await.body;
    assert_eq!(listed["items"], json!(ids.map(|id| json!({ "run_id": id }))), "newest first");
}

#[tokio::test]
async fn a_key_of_an_update_means_its_changes_too() {
    let api = Api::new().await;
    let document = json!({
        "name": "campaign", "changes": {"set": {"merge": ""}}, "steps": {"a": {"skill": "noop"}},
    });
    let base = api.post("/api/v1/runs", &json!({ "document": document, "payload": {} })).await;
    let update =
        |n: u32| json!({"base_run_id": base.body["run_id"], "changes": [{"type": "set", "payload": {"n": n}}]});
    let key = [("idempotency-key", "a-key")];
    let first = api.post_with("/api/v1/runs", &key, &update(1)).await;
    let again = api.post_with("/api/v1/runs", &key, &update(1)).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.body["run_id"], again.body["run_id"]);
    let other = api.post_with("/api/v1/runs", &key, &update(2)).await;
    other.is_problem(422, "idempotency_key_reused");
    assert!(
        other.body["detail"].as_str().unwrap().contains("the Idempotency-Key `a-key` started run"),
        "{}",
        other.body
    );
}

#[tokio::test]
async fn the_tag_is_part_of_a_request() {
    let api = Api::new().await;
    let deployed = api.post("/api/v1/workflows", &json!({"document": echo()})).await;
    assert!(deployed.status.is_success(), "{}", deployed.body);
    let name = echo()["name"].as_str().unwrap().to_owned();
    api.post("/api/v1/workflows", &json!({"document": echo(), "tag": "staging"})).await;
    let start = |workflow: &str| json!({"workflow": workflow, "payload": {"n": 1}, "request_id": "order-8"});
    let first = api.post("/api/v1/runs", &start(&name)).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
    assert_eq!(api.post("/api/v1/runs", &start(&name)).await.status, StatusCode::OK);
    let refused = api.post("/api/v1/runs", &start("staging")).await;
    refused.is_problem(422, "request_id_reused");
    assert!(refused.body["detail"].as_str().unwrap().contains("another workflow"), "{}", refused.body);
    let hash = deployed.body["version_hash"].as_str().unwrap();
    let pinned = api.post("/api/v1/runs", &start(hash)).await;
    assert_eq!(pinned.status, StatusCode::OK, "it is the version that the tag meant: {}", pinned.body);
}

#[tokio::test]
async fn a_start_with_a_patch_is_known_again_when_its_tag_has_moved_to_what_the_patch_does_not_fit() {
    let api = Api::new().await;
    let document = |step: &str| json!({"name": "w", "steps": {step: {"skill": "echo", "input": {"n": 1}}}});
    api.post("/api/v1/workflows", &json!({"document": document("a")})).await;
    let start = |n: u32| {
        let patch = json!([{"op": "replace", "path": "/steps/a/input/n", "value": n}]);
        json!({"workflow": "w", "patch": patch, "request_id": "order-9"})
    };
    let first = api.post("/api/v1/runs", &start(2)).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
    api.post("/api/v1/workflows", &json!({"document": document("b")})).await;
    let again = api.post("/api/v1/runs", &start(2)).await;
    assert_eq!((again.status, &again.body["run_id"]), (StatusCode::OK, &first.body["run_id"]), "{}", again.body);
    api.post("/api/v1/runs", &start(3)).await.is_problem(422, "request_id_reused");
    let mut other = start(2);
    other["request_id"] = json!("order-10");
    api.post("/api/v1/runs", &other).await.is_problem(422, "patch_failed");
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_refused() {
    let api = Api::new().await;
    let mut document = echo();
    document["params"] = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let answer = api.post("/api/v1/runs", &json!({ "document": document, "payload": {"n": "x"} })).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.body);
}

#[tokio::test]
async fn all_problems_of_a_document_are_told() {
    let api = Api::new().await;
    let document =
        json!({ "name": "bad", "steps": {"a": {"skil": "echo"}, "b": {"skill": "echo", "depends_on": ["c"]}} });
    let answer = api.post("/api/v1/runs", &json!({ "document": document })).await;
    answer.is_problem(422, "invalid_document");
    assert!(answer.body["problems"].as_array().unwrap().len() >= 3, "{}", answer.body);
}

#[tokio::test]
async fn skills_that_nobody_has_are_refused() {
    let api = Api::new().await;
    let document = json!({ "name": "unknown", "steps": {"a": {"skill": "shell", "input": {"command": "true"}}} });
    api.post("/api/v1/runs", &json!({ "document": document })).await.is_problem(422, "unknown_skill");
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_told_apart() {
    let api = Api::new().await;
    let post = |kind: &'static str, body: &'static str| {
        api.send(request("POST", "/api/v1/runs", &[("content-type", kind)], body))
    };
    post("application/json", "{").await.is_problem(400, "not_json");
    post("application/json", r#"{"workflo": "x"}"#).await.is_problem(422, "bad_body");
    post("application/json", r#"{"workflow": 7}"#).await.is_problem(422, "bad_body");
    post("application/json", "{}").await.is_problem(422, "nothing_to_run");
    post("text/plain", r#"{"workflow": "x"}"#).await.is_problem(415, "unsupported_media_type");
    let both = json!({ "workflow": "x", "document": echo() });
    api.post("/api/v1/runs", &both).await.is_problem(422, "two_definitions");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let api = Api::new().await;
    let body = json!({ "workflow": "x", "payload": "x".repeat(9 * 1024 * 1024) });
    api.post("/api/v1/runs", &body).await.is_problem(413, "body_too_large");
}
