//! Who may come in.

use axum::http::StatusCode;
use milepost_api::{Actors, KnownToken, Settings, TokenHash};
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
async fn a_browser_says_that_another_site_calls() {
    let api = Api::new().await;
    let call = async |method: &str, path: &str, more: &[(&str, &str)]| {
        let body = if method == "GET" { "" } else { "{}" };
        api.send(request(method, path, &[&[("content-type", "application/json")], more].concat(), body)).await
    };
    for site in ["cross-site", "same-site", "", "none, none", "\u{e4}"] {
        for (method, path) in [("GET", "/api/v1/runs"), ("POST", "/api/v1/runs"), ("GET", "/healthz"), ("GET", "/docs")]
        {
            call(method, path, &[("sec-fetch-site", site)]).await.is_problem(403, "foreign_site");
        }
    }
    call("GET", "/api/v1/runs", &[("sec-fetch-site", "none"), ("sec-fetch-site", "none")])
        .await
        .is_problem(400, "foreign_site");
    for site in ["none", "same-origin"] {
        assert_eq!(call("GET", "/api/v1/runs", &[("sec-fetch-site", site)]).await.status, StatusCode::OK);
    }
    // A link leads to the pages, and to nothing else.
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for path in ["/", "/docs"] {
        assert_eq!(call("GET", path, &link).await.status, StatusCode::OK, "{path}");
        call("POST", path, &link).await.is_problem(403, "foreign_site");
    }
    call("GET", "/api/v1/runs", &link).await.is_problem(403, "foreign_site");
    let frame = [link[0], link[1], ("sec-fetch-dest", "iframe")];
    call("GET", "/", &frame).await.is_problem(403, "foreign_site");
}

#[tokio::test]
async fn a_header_that_decides_is_read_strictly() {
    let api = Api::new().await;
    let call = async |headers: &[(&str, &str)]| api.send(request("GET", "/api/v1/runs", headers, "")).await;
    for host in ["127.0.0.1:7713@evil", "localhost:", "localhost:x", "127.0.0.1:99999", "", "\u{e4}"] {
        let answer = call(&[("host", host)]).await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{host}: {}", answer.status);
    }
    call(&[("host", "127.0.0.1:7713@evil")]).await.is_problem(400, "bad_host");
    call(&[("host", "localhost"), ("host", "evil.example")]).await.is_problem(400, "bad_host");
    for origin in ["null", "", "\u{e4}", "localhost:7400", "http://localhost:7400/", "http://localhost:7400@evil"] {
        call(&[("origin", origin)]).await.is_problem(403, "foreign_origin");
    }
    let twice = [("origin", "http://localhost:7400"), ("origin", "http://localhost:7400")];
    call(&twice).await.is_problem(400, "foreign_origin");
    let absolute = |target: &str| api.send(request("GET", target, &[("host", "localhost:7400")], ""));
    assert_eq!(absolute("http://localhost:7400/api/v1/runs").await.status, StatusCode::OK);
    absolute("http://evil.example/api/v1/runs").await.is_problem(400, "bad_host");
    let mut unnamed = request("GET", "/api/v1/runs", &[], "");
    unnamed.headers_mut().remove("host");
    api.send(unnamed).await.is_problem(400, "bad_host");
}

#[tokio::test]
async fn every_answer_says_how_it_may_be_used() {
    let api = Api::new().await;
    for path in
        ["/", "/docs", "/healthz", "/metrics", "/api/v1/runs", "/api/v1/openapi.json", "/nowhere", "/api/v1/runs/x"]
    {
        let headers = api.get(path).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
    let refused = api.send(request("GET", "/", &[("host", "evil.example")], "")).await;
    assert_eq!(
        (refused.status, &refused.headers["x-content-type-options"]),
        (StatusCode::FORBIDDEN, &"nosniff".parse().unwrap())
    );
    for path in ["/", "/docs"] {
        let answer = api.get(path).await;
        assert_eq!(answer.headers["x-frame-options"], "DENY", "{path}");
        assert_eq!(answer.headers["cross-origin-opener-policy"], "same-origin", "{path}");
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"), "{policy}");
        // What a hash does not cover would not work.
        let html = answer.body.as_str().unwrap();
        assert!(!html.contains(" style=") && !html.contains(" onclick=") && !html.contains("src="), "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let api = Api::new().await;
    let large = "x".repeat(9 * 1024 * 1024);
    let json = [("content-type", "application/json")];
    api.send(request("POST", "/api/v1/runs", &json, &large)).await.is_problem(413, "body_too_large");
    api.send(request("POST", "/api/v1/worker/exchange", &json, &large)).await.is_problem(400, "not_json");
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
    assert_eq!(call(&[("authorization", "BEARER  open sesame")]).await.status, StatusCode::OK);
    let twice = [("authorization", "Bearer open sesame"), ("authorization", "Bearer open sesame")];
    call(&twice).await.is_problem(401, "unauthorized");
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
    for said in ["bob", "ci"] {
        deploy("three", said, &format!("1.0.2-{said}")).await;
        assert_eq!(moved_by().await, json!(null), "a token without a name is nobody's, whatever the header says");
    }

    let protection = json!({"movers": ["ci"]});
    let protected = call("PUT", "/api/v1/tags/echo/protection", "one", "", protection).await;
    assert_eq!(protected.status, StatusCode::OK, "{}", protected.body);
    deploy("two", "ci", "2.0.0").await.is_problem(403, "tag_protected");
    deploy("three", "ci", "2.0.0").await.is_problem(403, "tag_protected");
    let off = call("DELETE", "/api/v1/tags/echo/protection", "three", "ci", json!(null)).await;
    off.is_problem(403, "tag_protected");
    assert_eq!(deploy("one", "", "2.0.0").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn only_a_server_that_is_one_persons_believes_what_callers_say() {
    let deploy = async |api: &Api, headers: &[(&str, &str)], version: &str| {
        let mut document = echo();
        document["version"] = json!(version);
        api.post_with("/api/v1/workflows", headers, &json!({ "document": document })).await
    };
    let moved_by = async |api: &Api| api.get("/api/v1/tags/echo").await.body["moved_by"].clone();
    let said = [("milepost-actor", "bob")];

    let open = Api::with(Settings::default()).await;
    assert_eq!(deploy(&open, &said, "1.0.0").await.status, StatusCode::CREATED);
    assert_eq!(moved_by(&open).await, json!(null), "without tokens nobody has a name");
    let protect = open.put("/api/v1/tags/echo/protection", &json!({"movers": ["bob"]})).await;
    assert_eq!(protect.status, StatusCode::OK, "{}", protect.body);
    deploy(&open, &said, "1.0.1").await.is_problem(403, "tag_protected");

    let actors = Actors::Said { otherwise: Some("ada".to_owned()) };
    let own = Api::with(Settings { actors, ..Settings::default() }).await;
    deploy(&own, &[], "1.0.0").await;
    assert_eq!(moved_by(&own).await, "ada");
    deploy(&own, &said, "1.0.1").await;
    assert_eq!(moved_by(&own).await, "bob");
    deploy(&own, &[said[0], said[0]], "1.0.2").await.is_problem(400, "bad_actor");
}
