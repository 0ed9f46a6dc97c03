//! Documents and names.

use axum::http::StatusCode;
use serde_json::json;

use super::{Api, echo, request};

#[tokio::test]
async fn a_document_is_deployed_once() {
    let api = Api::new().await;
    let first = api.post("/api/v1/workflows", &json!({ "document": echo() })).await;
    let again = api.post("/api/v1/workflows", &json!({ "document": echo() })).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK), "{}", first.body);
    assert_eq!(first.body, again.body);
    assert_eq!((&first.body["tag"], &first.body["tag_version"]), (&json!("echo"), &json!(1)));
    let mut changed = echo();
    changed["version"] = json!("2.0.0");
    let second = api.post("/api/v1/workflows", &json!({ "document": changed })).await;
    assert_eq!((second.status, &second.body["tag_version"]), (StatusCode::CREATED, &json!(2)));
    assert_ne!(first.body["revision_id"], second.body["revision_id"]);
}

#[tokio::test]
async fn a_document_may_come_as_yaml_under_a_tag() {
    let api = Api::new().await;
    let yaml = "name: hello\nsteps:\n  greet: {skill: echo, input: {text: hello}}\n";
    let headers = [("content-type", "application/yaml")];
    let answer = api.send(request("POST", "/api/v1/workflows?tag=prod/hello", &headers, yaml)).await;
    assert_eq!((answer.status, &answer.body["tag"]), (StatusCode::CREATED, &json!("prod/hello")), "{}", answer.body);
    let shown = api.get("/api/v1/workflows/prod%2Fhello").await;
    assert_eq!(shown.body["document"]["steps"]["greet"]["skill"], "echo", "{}", shown.body);
    let bad = api.send(request("POST", "/api/v1/workflows", &headers, "name: [")).await;
    bad.is_problem(422, "invalid_document");
    assert!(bad.body["problems"][0]["line"].is_number(), "{}", bad.body);
}

#[tokio::test]
async fn workflows_are_listed_by_name() {
    let api = Api::new().await;
    for name in ["b", "a", "c"] {
        let mut document = echo();
        document["name"] = json!(name);
        api.post("/api/v1/workflows", &json!({ "document": document })).await;
    }
    let first = api.get("/api/v1/workflows?limit=2").await.body;
    assert_eq!((&first["items"][0]["tag"], &first["next_cursor"]), (&json!("a"), &json!("b")));
    let rest = api.get("/api/v1/workflows?cursor=b").await.body;
    assert_eq!((&rest["items"][0]["tag"], &rest["next_cursor"]), (&json!("c"), &json!(null)));
    api.get("/api/v1/workflows/d").await.is_problem(404, "unknown_workflow");
}

#[tokio::test]
async fn problems_are_told_and_nothing_is_stored() {
    let api = Api::new().await;
    let answer = api.post("/api/v1/workflows/validate", &json!({ "document": {"name": "x", "steps": {}} })).await;
    assert_eq!((answer.status, &answer.body["valid"]), (StatusCode::OK, &json!(false)), "{}", answer.body);
    let fine = api.post("/api/v1/workflows/validate", &json!({ "document": echo() })).await;
    assert_eq!(fine.body, json!({"valid": true, "problems": []}));
    assert_eq!(api.get("/api/v1/workflows").await.body["items"], json!([]));
}
