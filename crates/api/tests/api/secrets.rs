//! Secrets: values go in and never come out.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;

const PATH: &str = "/api/v1/secrets/audio%2Fapi-key";

#[tokio::test]
async fn a_secret_is_set_listed_and_removed() {
    let api = Api::with_key().await;
    let made = api.put(PATH, &json!({"value": "hunter2", "queues": ["audio"]})).await;
    assert_eq!((made.status, made.body), (StatusCode::CREATED, json!({"name": "audio/api-key", "version": 1})));
    let same = api.put(PATH, &json!({"value": "hunter2"})).await;
    assert_eq!((same.status, &same.body["version"]), (StatusCode::OK, &json!(1)));
    let newer = api.put(PATH, &json!({"value": "hunter3", "workflows": ["campaign"]})).await;
    assert_eq!((newer.status, &newer.body["version"]), (StatusCode::OK, &json!(2)));
    let listed = api.get("/api/v1/secrets").await.body;
    let secret = &listed["items"][0];
    assert_eq!((&secret["name"], &secret["version"]), (&json!("audio/api-key"), &json!(2)));
    assert_eq!((&secret["queues"], &secret["workflows"]), (&json!(["audio"]), &json!(["campaign"])));
    assert_eq!(secret["versions"].as_array().map(Vec::len), Some(2));
    assert!(secret["created_at"].is_string() && !listed.to_string().contains("hunter"), "{listed}");
    assert_eq!(api.delete(&format!("{PATH}?version=1")).await.status, StatusCode::NO_CONTENT);
    api.delete(&format!("{PATH}?version=1")).await.is_problem(404, "unknown_secret");
    assert_eq!(api.delete(PATH).await.status, StatusCode::NO_CONTENT);
    api.delete(PATH).await.is_problem(404, "unknown_secret");
    assert_eq!(api.get("/api/v1/secrets").await.body, json!({"items": [], "next_cursor": null}));
}

#[tokio::test]
async fn secrets_are_listed_in_pages() {
    let api = Api::with_key().await;
    for name in ["b", "a%2Fx", "rotate"] {
        assert_eq!(api.put(&format!("/api/v1/secrets/{name}"), &json!({"value": "x"})).await.status.as_u16(), 201);
    }
    let first = api.get("/api/v1/secrets?limit=2").await.body;
    assert_eq!((&first["items"][1]["name"], &first["next_cursor"]), (&json!("b"), &json!("b")));
    let rest = api.get("/api/v1/secrets?cursor=b").await.body;
    assert_eq!((&rest["items"][0]["name"], &rest["next_cursor"]), (&json!("rotate"), &Value::Null));
    api.get("/api/v1/secrets?cursor=%00").await.is_problem(400, "bad_cursor");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_not_repeated() {
    let api = Api::with_key().await;
    for (path, body, status, code) in [
        ("/api/v1/secrets/a%20b", json!({"value": "hunter2"}), 422, "bad_secret_name"),
        ("/api/v1/secrets/%2e%2e%2Fa", json!({"value": "hunter2"}), 422, "bad_secret_name"),
        (PATH, json!({"value": ""}), 422, "bad_secret"),
        (PATH, json!({"value": "hunter2".repeat(10_000)}), 422, "secret_too_large"),
        (PATH, json!({"value": "hunter2", "queues": [""]}), 422, "bad_restriction"),
        (PATH, json!({"value": "hunter2", "queue": "audio"}), 422, "bad_body"),
        (PATH, json!({}), 422, "bad_body"),
    ] {
        let refused = api.put(path, &body).await;
        refused.is_problem(status, code);
        assert!(!refused.body.to_string().contains("hunter2"), "{}", refused.body);
    }
    api.delete("/api/v1/secrets/%00").await.is_problem(400, "bad_path");
}

#[tokio::test]
async fn a_server_without_a_key_keeps_no_secrets() {
    let api = Api::new().await;
    let refused = api.put(PATH, &json!({"value": "hunter2"})).await;
    refused.is_problem(409, "no_secrets_key");
    assert!(refused.body["detail"].as_str().unwrap().contains("milepost secrets keygen"));
    api.post("/api/v1/rotate-secrets", &json!({})).await.is_problem(409, "no_secrets_key");
    let rotated = Api::with_key().await.post("/api/v1/rotate-secrets", &json!({})).await;
    assert_eq!(rotated.body, json!({"resealed": 0, "unreadable": 0}));
}
