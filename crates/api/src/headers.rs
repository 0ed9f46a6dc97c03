//! Headers that every answer has, and the rules by which a browser shows the pages of this server.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

const ALWAYS: [(HeaderName, HeaderValue); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
];

/// Adds what every answer has. Answers are kept by nobody unless their route says otherwise.
pub(crate) fn complete(response: &mut Response) {
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, value);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// A page that a browser shows by itself, in no frame, and that runs nothing but what its source has in `<script>` and
/// `<style>`.
pub(crate) fn page(html: impl Into<String>, policy: &HeaderValue) -> Response {
    let mut response = Html(html.into()).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// The policy of a page with this source: its own scripts and styles by their hashes, calls of this server, and no more.
pub(crate) fn policy(source: &str) -> HeaderValue {
    let script = sources(source, "<script>", "</script>");
    let style = sources(source, "<style>", "</style>");
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    policy.parse().expect("words and base64 are visible ASCII")
}

/// The hashes of what stands between two tags; `'none'` if that is nowhere.
fn sources(source: &str, open: &str, close: &str) -> String {
    let inside = source.split(open).skip(1).filter_map(|rest| Some(rest.split_once(close)?.0));
    let hashes: Vec<String> =
        inside.map(|text| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))).collect();
    if hashes.is_empty() { "'none'".to_owned() } else { hashes.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_what_stands_in_a_page() {
        // As Chrome tells it for this script.
        let named = policy("<style></style><script>alert(1)</script>");
        let named = named.to_str().unwrap();
        assert!(named.contains("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=';"), "{named}");
        assert!(named.contains("style-src 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=';"), "{named}");
        assert!(policy("").to_str().unwrap().contains("script-src 'none'; style-src 'none'; "));
    }
}
