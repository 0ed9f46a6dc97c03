//! Who may come in.

use axum::http::StatusCode;
use milepost_api::{KnownToken, Settings, TokenHash};
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
    let tokens = vec![TokenHash::of("open sesame").into()];
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
    for path in ["/healthz", "/readyz"] {
        assert_eq!(api.get(path).await.body, json!({"status": "ok"}), "a stranger is not told the version");
        let known = api.send(request("GET", path, &[("authorization", "Bearer open sesame")], "")).await;
        assert_eq!(known.body, json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}));
    }
}

#[tokio::test]
async fn whose_token_has_a_name_is_known_by_it() {
    let named = |name: &str, token: &str| KnownToken { name: Some(name.to_owned()), hash: TokenHash::of(token) };
    let tokens = vec![named("ci", "one"), named("Zoé", "two"), TokenHash::of("three").into()];
    let api = Api::with(Settings { tokens, loopback_only: false, ..Settings::default() }).await;
    let call = async |method: &str, path: &str, token: &str, actor: &str, body: serde_json::Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", &*bearer), ("milepost-actor", actor)];
        let headers = if actor.is_empty() { &headers[..2] } else { &headers };
        api.send(request(method, path, headers, &body.to_string())).await
    };
    let deploy = async |token: &str, actor: &str, version: &str| {
        let mut document = echo();
        document["version"] = json!(version);
        call("POST", "/api/v1/workflows", token, actor, json!({ "document": document })).await
    };
    let moved_by = async || call("GET", "/api/v1/tags/echo", "three", "", json!(null)).await.body["moved_by"].clone();
    deploy("one", "bob", "1.0.0").await;
    assert_eq!(moved_by().await, "ci", "whatever the header says");
    deploy("two", "", "1.0.1").await;
    assert_eq!(moved_by().await, "Zoé");
    deploy("three", "bob", "1.0.2").await;
    assert_eq!(moved_by().await, "bob", "a token without a name leaves it to the header");
    deploy("three", "ci", "1.0.3").await.is_problem(403, "actor_taken");

    let protection = json!({"movers": ["ci"]});
    let protected = call("PUT", "/api/v1/tags/echo/protection", "one", "", protection).await;
    assert_eq!(protected.status, StatusCode::OK, "{}", protected.body);
    deploy("two", "ci", "2.0.0").await.is_problem(403, "tag_protected");
    deploy("three", "bob", "2.0.0").await.is_problem(403, "tag_protected");
    assert_eq!(deploy("one", "", "2.0.0").await.status, StatusCode::CREATED);
}
