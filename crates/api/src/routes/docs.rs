//! The OpenAPI document, and a page that shows it without asking anybody else.

use std::sync::{LazyLock, OnceLock};

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use utoipa::openapi::OpenApi;

use crate::headers;

static DOCUMENT: OnceLock<Bytes> = OnceLock::new();

/// Keeps the document as it is served.
pub(super) fn remember(document: &OpenApi) {
    let text = document.to_json().expect("an OpenAPI document can be written as JSON");
    let _ = DOCUMENT.set(text.into());
}

/// This description of the API
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, description = "an OpenAPI 3.1 document", body = crate::wire::Any)))]
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.get().cloned().unwrap_or_default())
}

pub(super) async fn docs() -> Response {
    const PAGE: &str = include_str!("docs.html");
    static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| headers::policy(PAGE));
    headers::page(PAGE, &POLICY)
}
