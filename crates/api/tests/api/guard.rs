//! Who may come in.

use axum::http::StatusCode;
use milepost_api::{Settings, TokenHash};
use serde_json::json;

use super::{Api, echo, request};

#[tokio::test]
async fn a_server_on_loopback_answers_to_its_own_name_only() {
    let api = Api::new().await;
    let rebound = api.send(request("GET", "/api/v1/runs", &[("host", "evil.example:7400")], "")).await;
    rebound.is_problem(403, "foreign_host");
    for host in ["localhost:7400", "127.0.0.1:7400", "[::1]:7400"] {
        assert_eq!(api.send(request("GET", "/api/v1/runs", &[("host", host)], "")).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_page_of_another_site_cannot_start_a_run() {
    let api = Api::new().await;
    let headers = [("origin", "https://evil.example")];
    let body = json!({ "document": echo() });
    api.post_with("/api/v1/runs", &headers, &body).await.is_problem(403, "foreign_origin");
    let own = [("origin", "http://localhost:7400")];
    assert_eq!(api.post_with("/api/v1/runs", &own, &body).await.status, StatusCode::CREATED);
    // A form can send text without being asked, so text is not taken for JSON.
    let form = [("content-type", "text/plain")];
    let sent = api.send(request("POST", "/api/v1/runs", &form, &body.to_string())).await;
    assert_eq!(sent.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn a_server_with_tokens_wants_one() {
    let tokens = vec![TokenHash::of("open sesame")];
    let api = Api::with(Settings { tokens, loopback_only: false, ..Settings::default() }).await;
    let call = |headers: &[(&str, &str)]| api.send(request("GET", "/api/v1/runs", headers, ""));
    let refused = call(&[]).await;
    refused.is_problem(401, "unauthorized");
    assert_eq!(refused.headers["www-authenticate"], "Bearer");
    call(&[("authorization", "Bearer open sesam")]).await.is_problem(401, "unauthorized");
    call(&[("authorization", "open sesame")]).await.is_problem(401, "unauthorized");
    assert_eq!(call(&[("authorization", "Bearer open sesame")]).await.status, StatusCode::OK);
    for path in ["/", "/metrics", "/api/v1/openapi.json", "/api/v1/workflows"] {
        assert_eq!(api.get(path).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    for path in ["/healthz", "/readyz", "/docs"] {
        assert_eq!(api.get(path).await.status, StatusCode::OK, "{path}");
    }
}
